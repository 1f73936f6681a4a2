import json

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from reprise.errors import RepriseError
from reprise.labs import fp4_pretrained, fp4_variants
from reprise.local_models import available


@pytest.fixture
def folder(tmp_path, one_thread):
    """A Llama of two layers with a tokenizer of single characters, as a checkpoint of one's own."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    letters = {chr(i): i - 9 for i in [10, *range(32, 127)]} | {"<pad>": 0}
    base = Tokenizer(models.WordLevel(letters, unk_token="<pad>"))
    base.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=base, pad_token="<pad>", eos_token="<pad>").save_pretrained(tmp_path)
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, head_dim=16)
    config = LlamaConfig(vocab_size=128, num_key_value_heads=1, initializer_range=0.2, **sizes)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    return tmp_path


def test_a_checkpoint_of_ones_own_is_compared(folder):
    names = ["unquantised", "RTN", "TRACE"]
    chosen = [fp4_variants.PRETRAINED[name] for name in names]
    options = dict(model=str(folder), texts=["1 + 2 =", "10 + 20 ="], steps_apart=(0, 2), lr=1e-4)
    gaps, layers = fp4_pretrained.figures(fp4_pretrained.measure(0, chosen, **options))
    at = gaps.set_index(["k", "variant"])
    assert at.gap[0, "TRACE"] < at.gap[0, "RTN"] / 5
    assert at.gap[2, "unquantised"] > 3 * at.gap[0, "unquantised"]
    assert at.adjacent[0, "TRACE"] == 1 or np.isnan(at.adjacent[0, "TRACE"])
    assert np.isnan(at.adjacent[0, "unquantised"])
    assert len(layers) == 2 * 3 * 2 * 4


@pytest.mark.slow
@pytest.mark.skipif(available("smollm2-135m") is not None, reason=available("smollm2-135m") or "")
def test_the_packaged_model_is_guided_at_every_site(one_thread):
    chosen = [fp4_variants.PRETRAINED[name] for name in ("RTN", "TRACE")]
    options = dict(texts=["5 + 6 = 11\n7 + 8 ="], steps_apart=(0,))
    gaps, layers = fp4_pretrained.figures(fp4_pretrained.measure(0, chosen, **options))
    at = layers.pivot(index=["layer", "site"], columns="variant", values="relD")
    assert len(at) == 30 * 4 and (at["TRACE"] < at["RTN"]).all()
    assert gaps.set_index("variant").gap["TRACE"] < 0.05 * gaps.set_index("variant").gap["RTN"]


@pytest.mark.parametrize("steps", [[3, 1], [0, 0], [-1]])
def test_steps_that_would_be_mislabelled_are_refused(steps):
    with pytest.raises(RepriseError, match=r"steps_apart=\["):
        fp4_pretrained.measure(0, [], model="none", steps_apart=steps)
