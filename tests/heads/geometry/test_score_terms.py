"""Terms of scores told apart: equal to sums written out, and found where they are planted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from torch import Tensor

import interp
from interp.core.errors import UnreadableAttention
from interp.core.prompts import Prompts

TERMS = ["content_term", "content_to_position_term", "position_to_content_term", "position_term"]
IDS = [[5, 9, 7, 6, 5, 11, 8], [7, 12, 9, 5, 6, 7, 10]]


def shares(model: interp.Model, prompts: Any = None, **options: Any) -> np.ndarray:
    """Return the four shares, [term, layer of all stacks, head]."""
    table = interp.score(
        model, TERMS, prompts or Prompts(tuple(map(tuple, IDS))), null="none", **options
    )
    rows = table.to_pandas().set_index(["metric", "stack", "layer", "head"])["score"]
    return np.stack([rows[term].unstack().to_numpy() for term in TERMS])


def of(term: Tensor, scores: Tensor) -> np.ndarray:
    """Return the mean over prompts of a term's share, all keys visible; [row, head, query, key]."""
    a, b = (x.double() - x.double().mean(-1, keepdim=True) for x in (term, scores))
    return ((a * b).sum((-1, -2)) / (b * b).sum((-1, -2))).mean(0).numpy()


def outputs(module: Any, names: list[str], ids: Tensor) -> dict[str, Tensor]:
    """Run a model and return what some of its modules put out."""
    kept: dict[str, Tensor] = {}
    handles = [
        module.get_submodule(name).register_forward_hook(
            lambda m, args, out, name=name: kept.__setitem__(name, out)
        )
        for name in names
    ]
    with torch.no_grad():
        module(ids)
    for handle in handles:
        handle.remove()
    return kept


def test_deberta_terms_equal_those_of_the_paper_written_out() -> None:
    family = zoo.FAMILIES["deberta_v2"]
    own = {"position_buckets": -1, "max_relative_positions": 4, "share_att_key": False}
    module: Any = replace(family, config=dict(family.config) | own).build()
    prefix = "deberta.encoder.layer.1.attention.self."
    attention = module.get_submodule(prefix[:-1])
    found = outputs(module, [prefix + "query_proj", prefix + "key_proj"], torch.tensor(IDS))
    heads, length, size = attention.num_attention_heads, len(IDS[0]), 4
    with torch.no_grad():
        places = module.deberta.encoder.get_rel_embedding()[: 2 * size]
        of_keys, of_queries = attention.pos_key_proj(places), attention.pos_query_proj(places)

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, -1)).movedim(-2, -3)

    q, k = (split(found[prefix + n]) for n in ("query_proj", "key_proj"))
    place_k, place_q = split(of_keys), split(of_queries)
    scale = math.sqrt(3 * q.shape[-1])
    content = q @ k.mT / scale
    to_place, to_content = torch.zeros_like(content), torch.zeros_like(content)
    for i in range(length):
        for j in range(length):
            at = min(max(i - j + size, 0), 2 * size - 1)
            to_place[..., i, j] = (q[..., i, :] * place_k[:, at]).sum(-1) / scale
            to_content[..., i, j] = (k[..., j, :] * place_q[:, at]).sum(-1) / scale
    scores = content + to_place + to_content
    wanted = [of(x, scores) for x in (content, to_place, to_content)]
    assert min(map(np.ptp, wanted)) > 0.01
    model = interp.load(module, name="deberta")
    for engine in ("stored", "streamed"):
        got = shares(model, engine=engine)[:, 1]
        np.testing.assert_allclose(got[:3], wanted, atol=1e-5)
        np.testing.assert_allclose(got[3], 0, atol=1e-5)


def test_a_term_that_is_switched_off_has_no_share() -> None:
    for off, term in (("pos_key_proj", 1), ("pos_query_proj", 2)):
        module: Any = zoo.FAMILIES["deberta"].build()
        with torch.no_grad():
            for name, x in module.named_parameters():
                if (off if off in name else "pos_q_proj" if term == 2 else "pos_proj") in name:
                    x.zero_()
        found = shares(interp.load(module, name="one term"))
        np.testing.assert_allclose(found[term], 0, atol=1e-6)
        assert np.abs(found[3 - term]).min() > 1e-3


@pytest.mark.parametrize("name", ["t5", "bloom", "xlnet", "llama", "gpt_neox", "deberta"])
def test_shares_sum_to_one_and_only_added_terms_have_any(name: str) -> None:
    found = shares(interp.load(zoo.FAMILIES[name].model("eager"), name=name))
    np.testing.assert_allclose(found.sum(0), 1, atol=1e-6)
    has = {"t5": [0, 3], "bloom": [0, 3], "xlnet": [0, 1], "deberta": [0, 1, 2]}.get(name, [0])
    assert [i for i in range(4) if np.abs(found[i]).max() > 1e-4] == has


def test_a_bias_of_distance_alone_takes_the_whole_variance() -> None:
    module: Any = zoo.FAMILIES["bloom"].build()
    with torch.no_grad():
        for name, x in module.named_parameters():
            if "query_key_value" in name:  # no score is left but that of the distance
                x.zero_()
    found = shares(interp.load(module, name="distance"))
    np.testing.assert_allclose(found[[0, 3]], np.stack([0 * found[0], 0 * found[0] + 1]), atol=1e-6)


def test_a_bias_that_depends_on_the_prompt_otherwise_is_refused() -> None:
    module: Any = zoo.FAMILIES["bloom"].build()
    attention = module.transformer.h[0].self_attention
    real = attention.forward

    def gated(hidden: Tensor, residual: Tensor, alibi: Tensor, *args: Any, **more: Any) -> Any:
        return real(hidden, residual, alibi * (1 + hidden.mean().tanh()), *args, **more)

    attention.forward = gated
    model = interp.load(module, name="gated")
    with pytest.raises(UnreadableAttention, match="contents and positions cannot be told apart"):
        shares(model)


def test_reading_terms_leaves_the_run_as_it_was() -> None:
    model = interp.load(zoo.FAMILIES["deberta_v2"].model("eager"), name="deberta")
    alone = interp.score(model, ["score_spread"], IDS, null="none").to_pandas()["score"]
    beside = interp.score(model, ["score_spread", *TERMS], IDS, null="none").to_pandas()
    np.testing.assert_allclose(beside[beside.metric == "score_spread"]["score"], alone, rtol=1e-6)
