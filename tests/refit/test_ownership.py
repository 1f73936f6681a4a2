"""Who sends an element: the owner's hash, coverage, overlap, and real trainer processes."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from reprise.refit import diff_bits
from reprise.refit.placement.ownership import OwnershipError, Part, assemble, owner, union


def part(source: str, index, words) -> Part:
    return Part(source, np.array(index, np.int64), np.array(words, np.uint16))


# `printf NAME | b2sum -l 64`, its bytes in reverse
HASHES = {"": 0xB4B2797457A0A6E4, "lm_head.weight": 0x7192019439B6CB46}


@pytest.mark.parametrize("group_size", [1, 2, 7, 512])
@pytest.mark.parametrize("name", HASHES)
def test_owner(name, group_size):
    assert owner(name, group_size) == HASHES[name] % group_size


def test_the_owner_is_the_same_in_every_process():
    program = (
        "from reprise.refit.placement.ownership import owner; print(*[owner(f'layers.{k}', 5) for k in range(20)])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONHASHSEED": "7"})
    assert ran.stdout.split() == [str(owner(f"layers.{k}", 5)) for k in range(20)]


def test_owners_share_the_names_evenly():
    held = Counter(owner(f"model.layers.{k}.mlp.experts.{e}.weight", 4) for k in range(48) for e in range(128))
    assert all(abs(count - 1536) < 5 * np.sqrt(1536 * 3 / 4) for count in held.values())


def test_an_empty_group_has_no_owner():
    with pytest.raises(OwnershipError, match=r"^group_size=0: .*'w'"):
        owner("w", 0)


def test_parts_that_agree_where_they_overlap_are_assembled():
    words = assemble("w", 4, [part("a", [0, 2], [7, 9]), part("b", [2, 1, 3], [9, 0x8000, 0x7FC1])])
    assert words.tolist() == [7, 0x8000, 9, 0x7FC1]


@pytest.mark.parametrize(
    "parts, message",
    [
        # +0 and -0 are different bits, and so are two NaNs
        ([part("a", [0, 1], [0, 1]), part("b", [0], [0x8000])], "'w': element 0 of b differs"),
        ([part("a", [0, 1], [0x7FC0, 1]), part("b", [0], [0x7FC1])], "'w': element 0 of b differs"),
        ([part("a", [0, 1, 1], [0, 1, 2])], "'w': element 1 of a differs"),
        ([part("a", [1], [1])], "'w': element 0 has no owner"),
        ([part("a", [0, 2], [1, 1])], "'w': a holds an element outside 0 <= index < 2"),
        ([], "'w': no part holds it"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, message):
    with pytest.raises(OwnershipError, match=message):
        assemble("w", 2, parts)


def test_union_merges_disjoint_payloads_and_refuses_one_element_twice():
    old = np.arange(10, dtype=np.uint16)
    halves = [old.copy(), old.copy()]
    halves[0][[1, 8]] += 1
    halves[1][[0, 5]] += 1
    deltas = [diff_bits({"w": old}, {"w": half}) for half in halves]
    (merged,) = union(deltas).tensors
    assert merged.index.tolist() == [0, 1, 5, 8] and merged.words.tolist() == [1, 2, 6, 9]
    assert merged.old.tolist() == [0, 1, 5, 8]
    with pytest.raises(OwnershipError, match="'w': element 1 is changed by two payloads"):
        union([deltas[0], deltas[0]])
    with pytest.raises(OwnershipError, match="'w': dtype U16 and U32 in two payloads"):
        union([deltas[0], diff_bits({"w": old.astype(np.uint32)}, {"w": old.astype(np.uint32) + 1})])
