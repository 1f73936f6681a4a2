"""Files that survive a crash: atomic replacement, and an append-only journal shared by processes and threads.

What is guaranteed, on a local file system whose fsync reaches the disk and whose 512-byte sectors are written whole:

* when `atomic_write` returns, the path holds the new bytes after any crash; before that, it holds the old ones or
  the new ones, never a mixture;
* when `Journal.append` returns, the record is there after any crash. A call that was cut short or raised leaves its
  records either all there or all absent;
* a damaged journal is refused (`JournalCorrupt`), never read past; `salvage` moves the damaged bytes aside. Two kinds
  of damage look like an append that was cut short and are dropped as one: a file that lost its end, and a last record
  of which a whole sector turned to zeros.

Every change of a file goes through an `FS`, so that a test can put `reprise.durable.faults.Faults` in its place.
"""

from reprise.durable.files import FS, REAL, atomic_write, atomic_writer
from reprise.durable.journal import Journal, JournalCorrupt, JournalLocked, Record, salvage

__all__ = [
    "FS",
    "REAL",
    "Journal",
    "JournalCorrupt",
    "JournalLocked",
    "Record",
    "atomic_write",
    "atomic_writer",
    "salvage",
]
