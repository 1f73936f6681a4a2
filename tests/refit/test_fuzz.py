"""Random damage to everything a receiver decodes: refused in words of our own, never a crash, a hang or a half write.

REPRISE_FUZZ sets the number of inputs (make fuzz: a million). A digest would refuse most damage at once, so frames are
signed again after it and the parsers behind the digest see the damaged bytes.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import xxhash
from codec import NEW, OLD, bits, perturbed
from tqdm import tqdm

from reprise.errors import RepriseError
from reprise.refit import Limits, apply_, decode, diff_bits, encode
from reprise.refit.checkpoints.manifest import Manifest
from reprise.refit.checkpoints.safetensors_file import parse_header
from reprise.refit.digests import digest
from reprise.refit.exponents import exponent_coder
from reprise.refit.recovery.commit_log import Commit, pack_record, parse_record
from reprise.refit.transport.bundle import Manifest as Bundle
from reprise.refit.transport.bundle import Part, pack_manifest, parse_manifest
from reprise.refit.transport.relay_messages import Message, parse
from reprise.refit.transport.store_transport import pack_answer, parse_answer

INPUTS = int(os.environ.get("REPRISE_FUZZ", 4000))
LIMITS = Limits(frame_bytes=1 << 16, header_bytes=1 << 16, raw_bytes=1 << 18, changes=1 << 16)
LARGE = perturbed(4096, 0.05)
SMALL_INTEGERS = (0, 1, 0x7F, 0x80, 0xFF)


@dataclass(frozen=True)
class Target:
    """What is decoded: valid inputs, how one is signed again after damage, and the call that must not crash."""

    name: str
    valid: list[bytes]
    call: Callable[[bytes], object]
    sign: Callable[[bytes], bytes] = staticmethod(lambda data: data)


def resigned(data: bytes) -> bytes:
    return data[:-8] + digest(data[:-8]).to_bytes(8, "little") if len(data) > 8 else data


def rebundled(data: bytes) -> bytes:
    try:
        inner = json.loads(data)["manifest"]
        return json.dumps({"manifest": inner, "digest": xxhash.xxh3_128_hexdigest(inner.encode())}).encode()
    except (ValueError, TypeError, KeyError, AttributeError):
        return data


def receive(data: bytes) -> None:
    """Decode, apply, and see that a refused payload has changed nothing."""
    for start in (OLD, LARGE[0]):
        target = bits(start.copy())
        try:
            apply_(target, decode(data, LIMITS))
        except RepriseError:
            assert (target.words == start).all()


def receive_exponents(data: bytes) -> None:
    exponent_coder.decode(data, bits(LARGE[0]))


PAYLOADS = [
    encode(diff_bits(bits(old), bits(new)), op=op)
    for old, new in ((OLD, NEW), LARGE)
    for op in ("xor", "add", "overwrite")
]
HEADER = json.dumps({"w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}).encode()
MESSAGES = [
    Message("check", (1, 1), {"seq": 3, "payloads": 1}).pack()[0],
    Message("ack", (1, 1), {"seq": 3, "fingerprints": {"0": "ab"}}).pack()[0],
    Message("failed", (1, 1), {"node": 2, "reason": "no"}).pack()[0],
]
TARGETS = [
    Target("payload", PAYLOADS, receive, resigned),
    Target("exponent frame", [exponent_coder.encode(*map(bits, LARGE))], receive_exponents, resigned),
    Target("container manifest", [Manifest(True, "add", (), ("gone",)).dump()], lambda data: Manifest.parse(data, 0)),
    Target(
        "safetensors header", [len(HEADER).to_bytes(8, "little") + HEADER], lambda data: parse_header(data, 12, "x")
    ),
    Target("relay message", MESSAGES, lambda data: parse([data, b""], 1024)),
    Target("bundle", [pack_manifest(Bundle({"a": 1}, (Part.of(b"x"),)))], parse_manifest, rebundled),
    Target("answer", [pack_answer(True, "ab")], parse_answer),
    Target("commit record", [pack_record(Commit(3, 2), "me")], parse_record),
]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three of: a bit flipped, a byte set, a piece cut out, doubled, or overwritten by another."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        if not data:
            break
        at = int(rng.integers(len(data)))
        piece = slice(at, at + int(rng.integers(1, 9)))
        match rng.integers(5):
            case 0:
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                data[at] = SMALL_INTEGERS[rng.integers(len(SMALL_INTEGERS))]
            case 2:
                del data[piece]
            case 3:
                data[at:at] = data[piece]
            case 4:
                other = int(rng.integers(len(data)))
                data[piece] = data[other : other + piece.stop - piece.start]
    return bytes(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damage_is_refused_or_harmless(target):
    rng = np.random.default_rng(len(target.name))
    count = max(1, INPUTS // len(TARGETS))
    for number in tqdm(range(count), target.name, disable=count < 50_000 or not sys.stderr.isatty()):
        valid = target.valid[number % len(target.valid)]
        data = damaged(valid, rng)
        try:
            target.call(target.sign(data) if number % 4 else data)
        except RepriseError:
            pass
        except Exception as error:
            raise AssertionError(f"{target.name}: {data!r}") from error


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_undamaged_inputs_pass(target):
    for valid in target.valid:
        target.call(target.sign(valid))
