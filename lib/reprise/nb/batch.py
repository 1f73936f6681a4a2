"""Workers in progress: start them, watch their memory and deadlines, stop them all, collect what they left."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context
from pathlib import Path

from reprise.nb import cachekey, endings, rundir, slots, worker
from reprise.nb.jobs import Job, Listener, Outcome
from reprise.nb.process import Watch

SAMPLE_SECONDS = 0.5  # between two looks at each process tree
GRACE_SECONDS = 10.0  # between asking a kernel to stop and killing it


class Batch:
    """Runs jobs in as many workers as there are slots. Use it in a `with` block: leaving it stops all workers.

    Args:
        root: the checkout.
        jobs: in the order they are started.
        shares: environment of each parallel worker, from `slots.slots`.
        parts: digests of what a job depends on.
        on_event: told when a job starts.
    """

    def __init__(
        self, root: Path, jobs: Sequence[Job], shares: Sequence[dict], parts: Callable[[Job], dict], on_event: Listener
    ):
        worker.import_papermill()
        self.root, self.parts, self.on_event = root, parts, on_event
        self.waiting, self.shares = list(reversed(jobs)), list(shares)
        self.running: list[_Running] = []

    def outcomes(self) -> Iterator[Outcome]:
        """Outcomes as they come."""
        while self.waiting or self.running:
            while self.waiting and self.shares:
                self._start(self.waiting.pop(), self.shares.pop())
            connection.wait([one.process.sentinel for one in self.running], timeout=SAMPLE_SECONDS)
            self.on_event("tick", None)
            for one in [one for one in self.running if one.ended()]:
                self.running.remove(one)
                self.shares.append(one.share)
                yield one.outcome()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *raised) -> None:
        """Interrupt what still runs, wait for the grace time (a second Ctrl-C cuts it short), kill what is left."""
        try:
            for one in self.running:
                one.interrupt()
            while not all([one.ended() for one in self.running]):
                time.sleep(0.1)
        finally:
            for one in self.running:
                one.abandon()

    def _start(self, job: Job, share: dict) -> None:
        rundir.check_space(job.out)
        self.on_event("start", job)
        environment = {**slots.environment(self.root, job.preset), **share}
        self.running.append(_Running(job, share, environment, self.parts(job)))


class _Running:
    """One worker process and what was known before it started."""

    def __init__(self, job: Job, share: dict, environment: dict, parts: dict):
        self.job, self.share, self.parts = job, share, parts
        self.before = rundir.read_stamp(job.out, job.notebook)
        rundir.clear(job.out, job.notebook)
        self.started = time.monotonic()
        self.deadline, self.kill_at, self.expired = self.started + job.timeout, float("inf"), False
        context = get_context("fork")
        self.answer, sending = context.Pipe(duplex=False)
        self.scratch = Path(tempfile.mkdtemp(prefix="reprise-"))
        files = (job.path, rundir.partial(job.out, job.notebook), rundir.log(job.out, job.notebook), self.scratch)
        self.process = context.Process(target=worker.run, args=(*files, dict(job.parameters), environment, sending))
        self.process.start()
        sending.close()
        self.watch = Watch(self.process.pid)

    def ended(self) -> bool:
        """Whether the worker is gone. Takes a sample, and stops a worker that is over its time."""
        if not self.process.is_alive():
            return True
        now = time.monotonic()
        if now > self.kill_at:
            self.watch.kill()
            return True
        if now > self.deadline and not self.expired:
            self.expired = True
            self.interrupt()
        self.watch.sample()
        return False

    def interrupt(self) -> None:
        """Ask the kernel to stop; its worker then keeps the copy and ends by itself, or is killed."""
        self.kill_at = min(self.kill_at, time.monotonic() + GRACE_SECONDS)
        self.watch.interrupt()

    def abandon(self) -> None:
        """End the worker now; the executed copy and the record keep what was done so far."""
        self.watch.kill()
        self._gone()
        rundir.keep_copy(self.job.out, self.job.notebook)

    def outcome(self) -> Outcome:
        """Judge what the worker left; stamp the job if all that the notebook promises is there."""
        job, seconds = self.job, time.monotonic() - self.started
        self._gone()
        answer = self._answer()
        ending = endings.Ending(
            copy=rundir.keep_copy(job.out, job.notebook),
            expired=self.expired,
            error=answer.get("error", ""),
            kernel_exit=answer.get("kernel_exit"),
            worker_exit=self.process.exitcode,
            memory=self.watch.last,
            peak=self.watch.peak,
        )
        status, detail = endings.judge(ending, job.timeout)
        if status == "ok" and (missing := self._missing()):
            status, detail = "missing-output", f"finished without {', '.join(missing)}"
        if status == "ok":
            rundir.write_stamp(job.out, job.notebook, cachekey.key(self.parts), self.parts, seconds)
        return Outcome(job, status, seconds, detail, self.watch.peak)

    def _gone(self) -> None:
        """Collect the worker, and what it could not clean up itself."""
        self.process.join()
        self.watch.sweep()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _answer(self) -> dict:
        with self.answer:
            try:
                return self.answer.recv() if self.answer.poll() else {}
            except EOFError:
                return {}

    def _missing(self) -> list[str]:
        """Claims of the registry that were not recorded, and files that an earlier run of the same code produced."""
        if not self.job.parameters.get("OUT"):
            return []  # without a run directory nothing is recorded
        before = self.before.get("parts", {})
        same = all(before.get(name) == self.parts[name] for name in ("notebook", "parameters"))
        files = set(self.before.get("files", ())) - set(rundir.produced(self.job.out, self.job.notebook))
        return [*endings.unrecorded(self.job), *sorted(files if same else ())]
