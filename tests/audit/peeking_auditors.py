"""Auditors that cheat: each looks for the mark that only turns to come carry. Imported here and in a child process."""

import gc
import os
import sys

from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, Verdict, alarm
from reprise.traces import Turn

MARK = "FUTURE"


def through_frames(turns: tuple[Turn, ...]) -> Verdict:
    """Alarm if the caller, or a caller of the caller, holds a run with a marked turn."""
    frame = sys._getframe(1)
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if type(value) is Trajectory and any(MARK in turn.content for turn in value.turns):
                return alarm(0, reason="a frame")
        frame = frame.f_back
    return SAFE


def through_gc(turns: tuple[Turn, ...]) -> Verdict:
    """Alarm if any object that the garbage collector knows is a marked turn."""
    if any(type(each) is Turn and MARK in each.content for each in gc.get_objects()):
        return alarm(0, reason="the garbage collector")
    return SAFE


def through_raw(turns: tuple[Turn, ...]) -> Verdict:
    """Alarm if a turn's source record tells the label or the length."""
    return alarm(0, reason="a source record") if any(turn.raw for turn in turns) else SAFE


def length(turns: tuple[Turn, ...]) -> Verdict:
    """Alarm with the number and contents of turns seen, to check what arrives."""
    return alarm(len(turns) - 1, turns[-1].role, "|".join(turn.content for turn in turns))


def raises(turns: tuple[Turn, ...]) -> Verdict:
    print("noise on standard output")
    raise KeyError("broken")


def returns_none(turns: tuple[Turn, ...]) -> None:
    return None


def ends(turns: tuple[Turn, ...]) -> Verdict:
    os._exit(3)
