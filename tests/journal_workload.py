"""What the journal's tests do to a journal, in this process or in one of their own.

`python tests/journal_workload.py killed FOLDER STEPS` dies by SIGKILL after so many steps, having printed after which
step each part was acknowledged; `... writes PATH WRITER TRANSACTIONS` is one of several writers.
"""

import random
import sys
from pathlib import Path

from reprise.durable import FS, Journal
from reprise.durable.faults import Faults

# larger than a sector, of non-zero bytes, of zeros, in one transaction: each is torn in its own way
LARGE = random.Random(0).randbytes(600)
PARTS = [
    lambda journal: journal.append(b"one"),
    lambda journal: journal.append(LARGE),
    lambda journal: journal.append_many([{"two": 2}, bytes(1100), b"three"]),
    lambda journal: journal.compact(lambda kept: [record.value for record in kept[1:]]),
    lambda journal: journal.append(b"four" * 20),
]
# what the journal holds before the first part and after each of them
STATES = [[], [b"one"], [b"one", LARGE], [b"one", LARGE, {"two": 2}, bytes(1100), b"three"]]
STATES += [STATES[-1][1:], [*STATES[-1][1:], b"four" * 20]]


class NoSync(FS):
    """Leaves out the fsyncs, which a test without a power cut need not wait for."""

    def fsync(self, file):
        pass

    def fsync_dir(self, folder):
        pass


def work(path, fs, acknowledged, parts=PARTS):
    """Do the parts; `acknowledged` collects the steps of `fs` after which each one had returned."""
    with Journal(path, fs=fs) as journal:
        for part in parts:
            part(journal)
            acknowledged.append(fs.steps)


def write_transactions(path, writer, transactions):
    """Transactions of one to three records that name their writer, and a compaction in between now and then."""
    with Journal(path, fs=NoSync()) as journal:
        for k in range(transactions):
            journal.append_many([{"writer": writer, "k": k, "part": part} for part in range(1 + k % 3)])
            if k % 10 == 9:
                journal.compact(lambda kept: [record.value for record in kept])


class _Printed(list):
    def append(self, steps):
        print(steps, flush=True)


if __name__ == "__main__":
    what, path, *numbers = sys.argv[1:]
    if what == "killed":
        work(Path(path) / "j", Faults(path, kill_at=int(numbers[0]), sigkill=True), _Printed())
    else:
        write_transactions(path, *map(int, numbers))
