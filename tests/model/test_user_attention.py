"""A registered attention is read by the weights that it returns, if these give its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

import interp
from interp.core.errors import CheckError, OptionError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.model.identity import identity_of

IDS = torch.tensor([[9, 33, 21, 40, 11, 52, 9, 33]])


def scores_of(query: Tensor, key: Tensor, scaling: float) -> tuple[Tensor, Tensor, int]:
    groups = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(groups, 1).mT * scaling
    return scores, torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), groups


def distant(module, query, key, value, mask, scaling, **_: Any) -> tuple[Tensor, Tensor]:
    """A softmax of scores that fall with the root of the distance: no formula here knows it."""
    scores, seen, groups = scores_of(query, key, scaling)
    at = torch.arange(scores.shape[-1])
    scores = scores - (at[:, None] - at).clamp_min(0).sqrt().to(scores)
    scores = scores.masked_fill(~seen, -torch.inf)
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1)
    return (weights @ value.repeat_interleave(groups, 1)).transpose(1, 2), weights


def plain(module, query, key, value, mask, scaling, **_: Any) -> tuple[Tensor, Tensor]:
    """The usual softmax, as a user would write it."""
    scores, seen, groups = scores_of(query, key, scaling)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights @ value.repeat_interleave(groups, 1)).transpose(1, 2), weights


def sigmoid(module, query, key, value, mask, scaling, **_: Any) -> tuple[Tensor, Tensor]:
    """Weights whose rows do not sum to one."""
    scores, seen, groups = scores_of(query, key, scaling)
    weights = scores.sigmoid() * seen
    return (weights @ value.repeat_interleave(groups, 1)).transpose(1, 2), weights


def hidden(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    return distant(*args, **kwargs)[0], None


def lying(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """Weights that are not those of its output."""
    out, weights = distant(*args, **kwargs)
    return out, weights.roll(1, 1)


@contextmanager
def registered(name: str, function: Callable) -> Iterator[Any]:
    """A llama that runs a registered function."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    AttentionInterface.register(name, function)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield LlamaForCausalLM._from_config(config, attn_implementation=name).eval()
    finally:
        AttentionInterface._global_mapping.pop(name)


def own_weights(module: Any) -> list[Tensor]:
    with torch.no_grad():
        return list(module(IDS, output_attentions=True).attentions)


@pytest.mark.parametrize("name", ["distant", "inflated"])  # the second holds "fla", as flash does
def test_a_registered_softmax_is_read_by_its_weights(name):
    with registered(name, distant) as module:
        model = interp.load(module, name="own")
        assert interp.model.check_model(model).passed
        assert model.attention == name
        cache = model.capture(IDS, ["pattern", "z"])
        for layer, want in enumerate(own_weights(module)):
            assert torch.equal(cache["pattern", layer], want)
        assert {site.recorded for site in model.sites} == {True}
        with pytest.raises(OptionError, match="use engine='stored'"):
            interp.score(model, "entropy", engine="fused", null="none")
        (about,) = interp.score(model, "entropy", null="none").provenance.values()
        assert about["engine"] == "stored (recorded)"


def test_its_scores_edits_and_padding_follow_the_weights():
    with registered("distant", distant) as module:
        model = interp.load(module, name="own")
        mine = interp.score(model, ["previous_token", "entropy"], [IDS[0].tolist()], null="none")
        weights = torch.stack(own_weights(module)).double()
        looks_back = weights[:, 0].diagonal(-1, -2, -1).mean(-1).flatten()
        got = mine.to_pandas().query("metric == 'previous_token'")["score"].to_numpy()
        assert got == pytest.approx(looks_back.numpy(), abs=1e-6)
        with model.edited(interp.zero([(0, 1)])):
            edited = model.capture(IDS, ["z"])["z", 0]
        assert not edited[:, 1].any()
        assert edited[:, 0].any()
        batch = Prompts((tuple(IDS[0].tolist()), (5, 6, 7)))
        alone = model.capture([[5, 6, 7]], ["pattern"])["pattern", 1]
        together = model.capture(batch, ["pattern"])["pattern", 1]
        torch.testing.assert_close(together[1:, :, :3, :3], alone, atol=1e-6, rtol=0)


def test_a_registered_plain_softmax_is_read_by_its_formula():
    with registered("plain_one", plain) as module:
        model = interp.load(module, name="own")
        assert {site.recorded for site in model.sites} == {False}
        for engine in ("stored", "streamed", "fused"):
            interp.score(model, "entropy", engine=engine, null="none")


def test_weights_that_do_not_sum_to_one_are_read_as_a_map():
    with registered("sigmoid_one", sigmoid) as module:
        model = interp.load(module, name="own")
        assert interp.model.check_model(model).passed
        assert {site.kind for site in model.sites} == {"user-supplied"}
        cache = model.capture(IDS, ["map", "pattern"])
        for layer, want in enumerate(own_weights(module)):
            assert torch.equal(cache["map", layer], want)
            torch.testing.assert_close(cache["pattern", layer], want / want.sum(-1, keepdim=True))


@pytest.mark.parametrize("function", [hidden, lying])
def test_a_function_whose_weights_do_not_give_its_output_is_refused(function):
    with registered("odd", function) as module, pytest.raises(CheckError, match="pattern·v == z"):
        interp.load(module, name="own")


def test_a_function_that_stops_returning_weights_is_named():
    silent = []

    def sometimes(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        out, weights = distant(*args, **kwargs)
        return out, None if silent else weights

    with registered("sometimes", sometimes) as module:
        model = interp.load(module, name="own")
        silent.append(True)
        with pytest.raises(UnreadableAttention, match="'sometimes', which returns no attention"):
            interp.score(model, "entropy", null="none")


def test_the_identity_of_a_model_covers_a_registered_function():
    keys = []
    for function in (distant, sigmoid):
        with registered("same_name", function) as module:
            keys.append(identity_of(interp.load(module, name="own")))
    assert keys[0] != keys[1]
