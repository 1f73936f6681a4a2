"""Short questions and answers in JSON between processes of one machine, with a time limit on every wait.

A replica that is killed and started again listens at the same address, and whoever asks meanwhile is answered by the
new process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

import zmq

from reprise.errors import RepriseError
from reprise.refit.transport.common import TransportTimeout

IDLE_MS = 500  # how often a listener looks whether whoever started it is still there


class Refused(RepriseError):
    """The other side answered with an error."""


def ask(address: str, question: dict, timeout: float) -> dict:
    return ask_all([address], [question], timeout)[0]


def ask_all(addresses: Sequence[str], questions: Sequence[dict], timeout: float) -> list[dict]:
    """One question each, answered at the same time.

    Raises:
        Refused: an answer is an error.
        TransportTimeout: one does not come within `timeout` seconds.
    """
    context = zmq.Context()
    try:
        sockets = []
        for address, question in zip(addresses, questions, strict=True):
            socket = context.socket(zmq.REQ)
            socket.setsockopt(zmq.RCVTIMEO, round(1000 * timeout))
            socket.connect(address)
            socket.send_json(question)
            sockets.append(socket)
        return [
            _answer(socket, f"{address} {question['do']}")
            for socket, address, question in zip(sockets, addresses, questions, strict=True)
        ]
    finally:
        context.destroy(linger=0)


def listen(address: str, answer: Callable[[dict], dict | None]) -> None:
    """Answer questions until `answer` returns None, or until the parent process is gone.

    An answer with an entry "then" is sent first, and what "then" holds is called before the next question.
    """
    parent, context = os.getppid(), zmq.Context()
    socket = context.socket(zmq.REP)
    try:
        socket.bind(address)
        while os.getppid() == parent:
            if not socket.poll(IDLE_MS):
                continue
            try:
                found = answer(socket.recv_json())
            except (RepriseError, OSError) as error:
                found = {"error": str(error)}
            then = found.pop("then", None) if found else None
            socket.send_json(found or {})
            if found is None:
                return
            if then:
                then()
    finally:
        context.destroy(linger=200)


def _answer(socket: zmq.Socket, what: str) -> dict:
    try:
        found = json.loads(socket.recv())
    except zmq.Again:
        raise TransportTimeout(f"{what}: no answer in time") from None
    if "error" in found:
        raise Refused(f"{what}: {found['error']}")
    return found
