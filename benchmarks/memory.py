"""Search and loading of a notebook beside other ways to do them: python benchmarks/memory.py [--quick]

10,000 notes with vectors of 384 numbers, as the packaged sentence encoder gives them. One thread, CPU seconds; every
round runs every task once, and speeds are ratios of single rounds. The released code keeps vectors as lists of decimal
numbers and makes a matrix of them for each query; that is written out here, its package imports a tracking server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from tqdm import tqdm  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from common import RESULTS, interleave, machine, ratio, table, write_results  # noqa: E402

from reprise.labs import peers  # noqa: E402
from reprise.memory.notes import Guidance, Note  # noqa: E402
from reprise.memory.retrieval import Index, unit_rows  # noqa: E402
from reprise.memory.store import EmbeddingSpace, NoteStore, Put  # noqa: E402

DIM, TOP, QUERIES = 384, 4, 20
BARS = {
    "faiss flat / ours, one query": ">= 1",
    "released code / ours, one query": ">= 200",
    "JSON float lists / ours, loading": ">= 10",
    "JSON float lists / ours, bytes": ">= 6",
}


def notes(count: int) -> tuple[list[Note], np.ndarray]:
    rng = np.random.default_rng(0)
    guidance = Guidance(
        ("an example of a question -> its answer",), "what to do", "what was wrong", "the rule", "when not"
    )
    return [Note(f"subject number {k}", guidance) for k in range(count)], unit_rows(rng.normal(size=(count, DIM)))


def searches(vectors: np.ndarray, rounds: int, progress) -> dict[str, list[float]]:
    """CPU seconds of one query, mean of `QUERIES` of them; the released code's way is timed on one."""
    queries = unit_rows(np.random.default_rng(1).normal(size=(QUERIES, DIM)))
    index, listed = Index(vectors), [row.tolist() for row in vectors]

    def one_by_one(search):
        for query in queries:
            search(query[None])

    def released():
        matrix = np.array(listed)
        query = queries[0].astype(float)
        scores = matrix @ query / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(query))
        return np.argsort(scores)[::-1][:TOP]

    tasks = {
        "ours": lambda: one_by_one(lambda query: index.search(query, TOP)),
        "ours, queries together": lambda: index.search(queries, TOP),
        "released code": released,
    }
    if peers.available("faiss") is None:
        faiss = peers.load("faiss")
        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatIP(DIM)
        flat.add(vectors)
        tasks["faiss flat"] = lambda: one_by_one(lambda query: flat.search(query, TOP))
        tasks["faiss flat, queries together"] = lambda: flat.search(queries, TOP)
    seconds = interleave(tasks, rounds, progress, time.process_time)
    return {name: [s / (1 if name == "released code" else QUERIES) for s in found] for name, found in seconds.items()}


def loading(folder: Path, rows: list[Note], vectors: np.ndarray, rounds: int, progress) -> tuple[dict, dict]:
    """CPU seconds to load all notes, and bytes of the files."""
    with NoteStore(folder / "notes", EmbeddingSpace("bench", "1", DIM)) as store:
        store.commit([Put(note, vector) for note, vector in zip(rows, vectors, strict=True)])
    with open(folder / "notes.jsonl", "w", encoding="utf-8") as file:
        for note, vector in zip(rows, vectors.astype(float), strict=True):
            file.write(json.dumps({**note.to_json(), "embedding": vector.tolist()}) + "\n")

    def ours():
        with NoteStore(folder / "notes") as store:
            return store.snapshot()

    def lists():
        with open(folder / "notes.jsonl", encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
        return np.array([entry["embedding"] for entry in entries])

    sizes = {
        name: (folder / file).stat().st_size for name, file in (("ours", "notes"), ("JSON float lists", "notes.jsonl"))
    }
    return interleave({"ours": ours, "JSON float lists": lists}, rounds, progress, time.process_time), sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2,000 notes, 3 rounds; nothing is written")
    quick = parser.parse_args().quick
    count, rounds = (2_000, 3) if quick else (10_000, 9)
    rows, vectors = notes(count)
    with tempfile.TemporaryDirectory() as folder, tqdm(total=7 * (rounds + 1), desc="memory") as progress:
        search = searches(vectors, rounds, progress)
        load, sizes = loading(Path(folder), rows, vectors, rounds, progress)
    found = {"released code / ours, one query": ratio(search["released code"], search["ours"])}
    if "faiss flat" in search:
        found["faiss flat / ours, one query"] = ratio(search["faiss flat"], search["ours"])
        together = ratio(search["faiss flat, queries together"], search["ours, queries together"])
        found["faiss flat / ours, queries together"] = together
    found["JSON float lists / ours, loading"] = ratio(load["JSON float lists"], load["ours"])
    found["JSON float lists / ours, bytes"] = sizes["JSON float lists"] / sizes["ours"]
    text = {name: f"{value:.1f}" if isinstance(value, float) else str(value) for name, value in found.items()}
    print(f"{count} notes of {DIM} numbers, top {TOP}")
    print(table(["ratio", "here", "wanted"], [[name, value, BARS.get(name, "")] for name, value in text.items()]))
    if not quick:
        packages = machine("numpy") | {"faiss-cpu": peers.version("faiss") or "unavailable"}
        results = {"machine": packages, "notes": count, "ratios": found, "bytes": sizes, "search_seconds": search}
        write_results(RESULTS / "memory.json", results)


if __name__ == "__main__":
    main()
