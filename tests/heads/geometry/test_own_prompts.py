"""Measures of geometry that make their own prompts: contexts in pieces, masks, pooled keys."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from attribution.graphs import tiny_llama
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from interp.core.errors import OptionError
from interp.core.prompts import Prompts, random_tokens
from interp.heads.geometry import mask_rank, parallel_entropy, pooled_key_rank
from interp.heads.geometry.mask_rank import rank_at_real, standing_in
from interp.heads.geometry.parallel_entropy import entropies, in_other_piece
from interp.heads.geometry.pooled_key_rank import pooled_ranks


def scores(metric: Any, model: Any, **options: Any) -> np.ndarray:
    return metric(model, null="none", **options).to_pandas()["score"].to_numpy()


# --- contexts in pieces ---


def test_pieces_equal_a_mask_that_the_model_is_given() -> None:
    module = tiny_llama()
    model = interp.load(module, name="tiny")
    prompts = random_tokens(model, n=2, max_length=20, seed=0)
    found = entropies(model, prompts, 3, 5, 1)
    seen = torch.ones(20, 20).tril().bool() & ~in_other_piece(20, 3, 5, 1)
    mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None].expand(2, 1, 20, 20)
    module = copy.deepcopy(module)
    module.set_attn_implementation("eager")
    with torch.no_grad():
        given = torch.tensor(prompts.ids)
        out = module(input_ids=given, attention_mask=mask, output_attentions=True)
    for site, pattern in zip(model.sites, out.attentions, strict=True):
        expected = torch.special.entr(pattern[:, :, -5:].double()).sum(-1).mean(-1)
        torch.testing.assert_close(found[site], expected, rtol=1e-4, atol=1e-5)


def test_pieces_are_equal_parts_and_queries_see_all() -> None:
    apart = in_other_piece(12, 2, 2, 0)
    assert not apart[10:].any()
    assert not apart[:, 10:].any()
    assert apart[:5, 5:10].all()
    assert apart[5:10, :5].all()
    assert not apart[:5, :5].any()
    assert not in_other_piece(12, 2, 2, 12).any()


def test_one_piece_and_the_first_layer_change_nothing(llama_model) -> None:
    np.testing.assert_allclose(scores(parallel_entropy, llama_model, pieces=1), 0, atol=1e-12)
    frame: Any = parallel_entropy(
        llama_model, null="none", n=4, max_length=16, queries=4
    ).to_pandas()
    first = frame["layer"] == 0
    np.testing.assert_allclose(frame.loc[first, "score"], 0, atol=1e-6)
    assert (frame.loc[~first, "score"].abs() > 1e-9).any()


def test_more_pieces_than_tokens_are_refused(llama_model) -> None:
    with pytest.raises(OptionError, match="do not fit into prompts"):
        parallel_entropy(llama_model, null="none", max_length=12, pieces=9, queries=8)


# --- mask and padding tokens ---


def test_replacing_an_ordinary_token_is_its_own_null(llama_model) -> None:
    """Scores of an ordinary token minus those of another one are near 0 on average."""
    table: Any = mask_rank(llama_model, n=12, max_length=20).to_pandas()
    difference = table["score"] - table["null"]
    assert abs(difference.mean()) < 0.6
    assert table["null"].notna().all()


def test_a_token_whose_value_outweighs_all_others_leaves_one_direction() -> None:
    """Heads attend evenly, and token 5 alone reads a channel that values take a thousandfold."""
    module = tiny_llama(layers=1)
    attention = module.model.layers[0].self_attn
    with torch.no_grad():
        table = module.model.embed_tokens.weight
        table[:, 0] = 0
        table[5] = 0
        table[5, 0] = 1
        attention.q_proj.weight.zero_()
        attention.v_proj.weight[:, 0] = 1000
    model = interp.load(module, name="tiny")
    prompts = Prompts((tuple(range(6, 26)), tuple(range(25, 5, -1))))
    before = rank_at_real(model, prompts, [4, 9], None, 0.9)
    after = rank_at_real(model, prompts, [4, 9], 5, 0.9)
    for site, x in after.items():
        assert (before[site] > 1).all()
        assert (x == 1).all()


def test_the_token_that_stands_in_is_the_one_that_is_asked_for(llama_model) -> None:
    prompts = random_tokens(llama_model, n=4, max_length=20, seed=0)
    assert standing_in(llama_model, "7", prompts) == (7, "id 7")
    one, other = (
        mask_rank(llama_model, null="none", token=token).to_pandas()["score"] for token in "78"
    )
    assert not np.allclose(one, other)
    with pytest.raises(OptionError, match="known: auto, mask, pad"):
        standing_in(llama_model, "cls", prompts)
    with pytest.raises(OptionError, match="outside the vocabulary"):
        standing_in(llama_model, "999999", prompts)


def test_rank_at_real_tokens_is_that_of_the_rows_that_stay() -> None:
    model = interp.load(tiny_llama(layers=1), name="tiny")
    prompts = random_tokens(model, n=1, max_length=16, seed=0)
    places = [3, 8]
    ids = list(prompts.ids[0])
    for place in places:
        ids[place] = 5
    z = model.capture([ids], ("z",))["z", 0][0].double().numpy()
    rows = np.delete(z, places, axis=1)
    expected = []
    for head in rows:
        energy = np.linalg.svd(head - head.mean(0), compute_uv=False) ** 2
        expected.append(1 + int((energy.cumsum() <= 0.9 * energy.sum()).sum()))
    (found,) = rank_at_real(model, prompts, places, 5, 0.9).values()
    assert found[0].tolist() == expected


# --- pooled keys ---


def test_pooled_ranks_are_those_of_all_keys_together() -> None:
    model = interp.load(tiny_llama(), name="tiny")
    prompts = Prompts(tuple(tuple(ids) for ids in ([3, 9, 4, 8], [5, 6, 7], [11, 12, 1, 2])))
    found = pooled_ranks(model, prompts, 0.9)
    for site in model.sites:
        keys = [model.capture([list(p)], ("k",))["k", site.layer][0] for p in prompts.ids]
        every = torch.cat(keys, 1).double().numpy()
        for head in range(site.n_heads):
            x = every[site.kv_head(head)]
            energy = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
            rank = 1 + int((energy.cumsum() <= 0.9 * energy.sum()).sum())
            assert found[site][head] == rank


def test_a_common_part_of_all_keys_has_no_rank() -> None:
    """Keys are centred: a bias a thousand times as long as they are changes no rank."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=32, n_layer=1, n_head=2, n_embd=16, n_positions=16)
    module = GPT2LMHeadModel(config).double().eval()
    prompts = Prompts(((3, 9, 4, 8, 2, 7), (5, 6, 7, 1), (11, 12, 1, 2, 20)))
    ranks = []
    for size in (0.0, 1000.0):
        with torch.no_grad():
            module.transformer.h[0].attn.c_attn.bias[16:32] = size
        [found] = pooled_ranks(interp.load(module, name="biased"), prompts, 0.9).values()
        ranks.append(found.tolist())
    assert ranks[0] == ranks[1]
    assert min(ranks[0]) > 1


def test_keys_of_rank_r_have_rank_r() -> None:
    module = tiny_llama(layers=1)
    with torch.no_grad():
        weight = module.model.layers[0].self_attn.k_proj.weight
        weight.zero_()
        weight[0] = torch.randn(weight.shape[1], generator=torch.Generator().manual_seed(0))
    model = interp.load(module, name="tiny")
    table: Any = pooled_key_rank(model, null="none").to_pandas()
    assert set(table.loc[table["head"] < 2, "score"]) <= {1.0, 2.0}  # rotary turns one to two
    assert set(table.loc[table["head"] >= 2, "score"]) == {0.0}  # keys of zeros
    assert table["n"].eq(3).all()  # data sets


def test_data_sets_from_files(tmp_path) -> None:
    model = interp.load("bundled:deceive")
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(
            "with Anna the red bird sings so\nthe old dog falls\n"
        )
    files = "+".join(str(tmp_path / f"{name}.txt") for name in ("a", "b"))
    table = pooled_key_rank(model, null="none", files=files)
    frame: Any = table.to_pandas()
    assert frame["n"].eq(2).all()
    assert frame["sem"].fillna(0).lt(1e-9).all()  # the same texts twice


def test_fewer_and_shorter_prompts_have_keys_of_lower_rank(llama_model) -> None:
    """Four keys of a prompt have at most three directions about their mean."""

    def rank(**options: int) -> float:
        return float(
            pooled_key_rank(llama_model, null="none", **options).to_pandas()["score"].mean()
        )

    least = rank(n=1, max_length=4)
    assert least <= 3
    assert rank(n=16, max_length=4) > least
    assert rank(n=1, max_length=48) > least
