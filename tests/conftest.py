"""Shared by all tests: the closing count that a build server reads, and torch on one thread."""

from collections import Counter

import pytest

COUNTS = Counter()


@pytest.fixture(scope="module")
def one_thread():
    """Torch on one thread: sums in one order on every machine, and no threads that wait for a busy core."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_runtest_logreport(report):
    if report.failed:
        COUNTS["failed"] += 1
    elif report.when == "call" and report.passed:
        COUNTS["passed"] += 1
    elif report.skipped:
        COUNTS["skipped"] += 1


def pytest_collectreport(report):
    if report.failed:
        COUNTS["failed"] += 1


def pytest_unconfigure(config):
    if hasattr(config, "workerinput") or not sum(COUNTS.values()):
        return
    skipped = f", {COUNTS['skipped']} skipped" if COUNTS["skipped"] else ""
    print(f"{COUNTS['passed']} passed, {COUNTS['failed']} failed{skipped}")
