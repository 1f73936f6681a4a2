"""Auditing a run turn by turn with a KV cache that is kept, beside reading every prefix anew.

    python benchmarks/audit_stream.py [--quick] [--model FOLDER]

A random causal language model (llama type, 4 layers of 128, words as tokens) audits runs of 8 to 64 turns. Seconds are
CPU seconds of one thread. Every round runs every way once, and speeds are ratios of single rounds; with a chat model's
folder or name in --model its own tokenizer and weights are used, on one run of 16 turns.
"""

from __future__ import annotations

import argparse
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

from reprise.audit.kv_stream import StreamAuditor, prompt_tokens  # noqa: E402
from reprise.audit.prompt import build_messages  # noqa: E402
from reprise.chat import LocalModel  # noqa: E402
from reprise.labs.agent_runs import MathEnv  # noqa: E402
from reprise.labs.audit_scorers import safe_runs  # noqa: E402
from reprise.traces import Turn  # noqa: E402

TURNS, QUICK = (8, 16, 32, 64), (8, 16)
WORDS = 2048  # of the random model's vocabulary; words beyond it share one token
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def random_model(folder: Path, texts: list[str]) -> LocalModel:
    """A model with random weights whose tokens are the words of `texts`."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    splitter = pre_tokenizers.Whitespace()
    seen = dict.fromkeys(word for text in texts for word, _ in splitter.pre_tokenize_str(text))
    words = ["<pad>", "<eos>", "<unk>", *list(seen)[: WORDS - 3]]
    tokens = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    tokens.pre_tokenizer = splitter
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, **special)
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=16384, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return LocalModel(folder, device="cpu", threads=1)


def long_run(turns: int) -> tuple[Turn, ...]:
    """Turns of safe runs of mathematics, one after another."""
    runs = safe_runs([MathEnv()], 1 + turns // 6, 0)
    return tuple(turn for run in runs for turn in run.turns)[:turns]


def one_length(local: LocalModel, turns: int, rounds: int, progress) -> dict:
    """Tokens and CPU seconds of both ways over one run, and how far their scores are apart."""
    run = long_run(turns)

    def audit(keep: bool) -> tuple[list[float], StreamAuditor]:
        auditor = StreamAuditor(local, keep=keep)
        return [auditor.log_odds(run[: k + 1]) for k in range(turns)], auditor

    (kept, a), (anew, b) = audit(True), audit(False)
    seconds = interleave(
        {"kept": lambda: audit(True), "anew": lambda: audit(False)}, rounds, progress, time.process_time
    )
    whole, append = prompt_tokens(run, str.encode)
    _, paper = prompt_tokens(run, str.encode, lambda prefix: build_messages(prefix, layout="paper"))
    return {
        "turns": turns,
        "tokens read": {"kept": a.read, "anew": b.read},
        "token ratio": b.read / a.read,
        "CPU ratio": ratio(seconds["anew"], seconds["kept"]),
        "seconds": seconds,
        "largest difference": float(np.abs(np.subtract(kept, anew)).max()),
        "prompt characters": {"anew": whole, "append": append, "paper": paper},
        "append over transcript and questions": _bound(run, append),
    }


def _bound(run: tuple[Turn, ...], append: int) -> float:
    """Characters read in the append layout over the last prompt plus a question for every turn."""
    last = "\n".join(message["content"] for message in build_messages(run))
    question = last.rsplit("\n", 1)[1]
    return append / (len(last.encode()) + len(run) * len(question.encode()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two lengths, two rounds")
    parser.add_argument("--model", help="a chat model on this machine, instead of the random one")
    parser.add_argument("--out", type=Path, default=RESULTS / "audit_stream.json")
    arguments = parser.parse_args()
    lengths = (16,) if arguments.model else QUICK if arguments.quick else TURNS
    rounds = 1 if arguments.model else 2 if arguments.quick else 5
    texts = [message["content"] for k in (8, 64) for message in build_messages(long_run(k))]
    progress = tqdm(total=len(lengths) * 2 * (rounds + 1), unit="run")
    with tempfile.TemporaryDirectory() as folder:
        local = LocalModel(arguments.model, threads=1) if arguments.model else random_model(Path(folder), texts)
        rows = [one_length(local, turns, rounds, progress) for turns in lengths]
    progress.close()
    head = ["turns", "tokens anew", "kept", "ratio", "CPU ratio", "difference", "append / bound"]
    cells = [
        [
            str(row["turns"]), str(row["tokens read"]["anew"]), str(row["tokens read"]["kept"]),
            f"{row['token ratio']:.1f}", str(row["CPU ratio"]), f"{row['largest difference']:.1e}",
            f"{row['append over transcript and questions']:.2f}",
        ]
        for row in rows
    ]  # fmt: skip
    print(table(head, cells))
    write_results(arguments.out, {"machine": machine("torch", "transformers"), "rows": rows})


if __name__ == "__main__":
    main()
