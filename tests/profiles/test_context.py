"""Context that heads need: planted heads, and an independent computation from truncated texts."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import interp
from interp.core.errors import OptionError
from interp.profiles import context_needed
from interp.profiles.context import _truncated
from interp.report.printed.context import context_sentence, context_table

SIZE = {"n_documents": 12, "n_queries": 16}


def _scores(found, head):
    frame = found.to_pandas()
    mine = frame[frame["name"] == head]
    return {(row.side, row.width): row for row in mine.itertuples()}


def test_planted_heads_need_the_context_that_they_were_given():
    model = interp.load("planted:induction")
    texts = interp.repeats(model, n=SIZE["n_documents"]).ids
    found = context_needed(model, texts, widths=(0, 1, 4), **SIZE)
    induction, by_position = _scores(found, "L1H0"), _scores(found, "L0H3")
    # its keys hold the token before them, its queries themselves alone
    assert induction["queries", 0].score > 0.99
    assert induction["keys", 1].score > 0.99
    assert induction["keys", 0].score < 0.5
    # by position alone: no width says more
    assert by_position["both", 0].null > 0.95
    assert all(abs(row.score - row.null) < 0.05 for row in by_position.values())
    assert "keys need 1 token before them" in context_sentence(found, "L1H0")
    assert "position alone" in context_sentence(found, "L0H3")
    for text in (context_sentence(found, "L1H0"), "\n".join(context_table(found, "L1H0"))):
        assert re.search(r" \.\d\d", text)  # as in the sentence on the pattern
        assert not re.search(r"\b0\.\d", text)


@pytest.fixture(scope="module")
def eager_llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.5,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).eval()


def _texts(n: int, length: int) -> list[list[int]]:
    return np.random.default_rng(0).integers(3, 40, (n, length)).tolist()


def test_truncated_queries_and_keys_are_those_of_the_text_with_the_rest_masked(eager_llama):
    """Each is what transformers' projections give on the whole text under an eager mask."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model, [ids], calls = interp.load(eager_llama), _texts(1, 12), {}
    text, site, place = torch.tensor([ids]), model.site(1), torch.arange(12)
    model.read({"input_ids": text}, lambda s, call, real: calls.__setitem__(s, call))
    queries, keys = _truncated(model, text[0], 3, {site: calls[site]})[site]
    layer, projected = eager_llama.model.layers[1].self_attn, {}
    handles = [
        getattr(layer, name).register_forward_hook(
            lambda module, given, out, name=name: projected.__setitem__(name, out)
        )
        for name in ("q_proj", "k_proj")
    ]
    for at in range(12):
        seen = (place == 0) | (place >= at - 3)
        hidden = torch.where(seen[None] & (place[None] <= place[:, None]), 0.0, -1e9)
        with torch.no_grad():
            eager_llama(input_ids=text, attention_mask=hidden[None, None])
        q, k = (projected[x].unflatten(-1, (-1, 8)).transpose(1, 2) for x in ("q_proj", "k_proj"))
        q, k = apply_rotary_pos_emb(q, k, *eager_llama.model.rotary_emb(q, place[None]))
        torch.testing.assert_close(queries[0, :, at], q[0, :, at], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(keys[0, :, at], k[0, :, at], atol=1e-4, rtol=1e-4)
    for handle in handles:
        handle.remove()


def test_the_whole_context_explains_everything_and_no_width_less_than_position(eager_llama):
    found = context_needed(interp.load(eager_llama), _texts(12, 24), widths=(1, 24), **SIZE)
    frame = found.to_pandas()
    whole = frame[frame["width"] == 24]
    np.testing.assert_allclose(whole[["score", "low", "high"]].to_numpy(), 1.0, atol=1e-6)
    assert (frame[frame["width"] == 1]["score"] < 0.99).any()


@pytest.mark.parametrize(
    ("source", "why"),
    [("bloom", "position_ids"), ("bert", "kind encoder"), ("mistral", "hides keys by distance")],
)
def test_models_that_cannot_read_a_truncated_context_are_refused(source, why):
    with pytest.raises(OptionError, match=why):
        context_needed(_refused(source), _texts(12, 24), **SIZE)


def test_a_model_that_counts_positions_itself_is_refused(eager_llama, monkeypatch):
    """Its queries and keys of a truncated context are those of other positions."""
    rotary = eager_llama.model.rotary_emb
    own = rotary.forward
    monkeypatch.setattr(
        rotary,
        "forward",
        lambda x, position_ids: own(
            x, torch.arange(position_ids.shape[1]).expand(position_ids.shape)
        ),
    )
    with pytest.raises(OptionError, match="its positions do not follow position_ids"):
        context_needed(eager_llama, _texts(12, 24), widths=(1,), **SIZE)


def _refused(name: str):
    import transformers

    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    if name == "bloom":
        config = transformers.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4)
        return transformers.BloomForCausalLM(config).eval()
    if name == "bert":
        config = transformers.BertConfig(**sizes, intermediate_size=48, max_position_embeddings=64)
        return transformers.BertForMaskedLM(config).eval()
    config = transformers.MistralConfig(
        **sizes, num_key_value_heads=2, intermediate_size=48, sliding_window=8
    )
    return transformers.MistralForCausalLM(config).eval()


@pytest.mark.parametrize("widths", [(), (-1,), (1, 1)])
def test_widths_that_are_no_distinct_counts_are_refused(widths):
    with pytest.raises(OptionError, match="widths="):
        context_needed("planted:induction", widths=widths)
