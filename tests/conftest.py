"""Shared by all tests: the closing count that a build server reads."""

from collections import Counter

COUNTS = Counter()


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
