"""TextSpan against a slow implementation, a planted text, and random banks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from vision.towers import module_of, noise, shapes, tower

import interp
from interp.core.errors import OptionError
from interp.vision import describe_heads, image_parts, text_embeddings
from interp.vision.descriptions import text_span

RNG = np.random.default_rng(0)


def by_regression(x: np.ndarray, bank: np.ndarray, ranks: int) -> list[int]:
    """Greedy choice of texts by the residual of a least-squares fit on all chosen ones."""
    x = x - x.mean(0)
    chosen: list[int] = []
    for _ in range(ranks):
        left = []
        for j in range(len(bank)):
            basis = bank[[*chosen, j]].T
            fit = basis @ np.linalg.lstsq(basis, x.T, rcond=None)[0]
            left.append(np.inf if j in chosen else np.square(x.T - fit).sum())
        chosen.append(int(np.argmin(left)))
    return chosen


def published(x: np.ndarray, bank: np.ndarray, ranks: int) -> list[int]:
    """The steps of the published algorithm, on texts of length one."""
    basis = np.linalg.svd(x, full_matrices=False)[2][: np.linalg.matrix_rank(x)]
    texts = [basis.T @ (basis @ t) / np.linalg.norm(t) for t in bank]
    x, chosen = x - x.mean(0), []
    for _ in range(ranks):
        spread = [-1.0 if j in chosen else float((x @ t).std()) for j, t in enumerate(texts)]
        best = texts[int(np.argmax(spread))]
        chosen.append(int(np.argmax(spread)))
        x = x - np.outer(x @ best, best) / (best @ best)
        texts = [t - best * (t @ best) / (best @ best) for t in texts]
    return chosen


def test_choices_in_the_span_are_those_of_the_published_steps() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 8)) + rng.normal(size=8)
        bank = rng.normal(size=(12, 8))
        assert text_span(x, bank, 3, x, span=True)[0] == published(x, bank, 3)


def test_choices_are_those_of_least_squares() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, bank = rng.normal(size=(30, 8)) * np.arange(1, 9), rng.normal(size=(12, 8))
        chosen, shares = text_span(x, bank, 4, x)
        assert chosen == by_regression(x, bank, 4)
        centred = x - x.mean(0)
        fit = bank[chosen].T @ np.linalg.lstsq(bank[chosen].T, centred.T, rcond=None)[0]
        explained = np.square(fit).sum() / np.square(centred).sum()
        assert shares.mean(1).sum() == pytest.approx(explained, abs=1e-10)


def test_a_planted_direction_is_found_on_other_vectors() -> None:
    bank = RNG.normal(size=(40, 16))
    x = RNG.normal(size=(60, 1)) * bank[7] + RNG.normal(size=(60, 1)) * bank[21] * 0.5
    x += 0.02 * RNG.normal(size=(60, 16))
    chosen, shares = text_span(x[:30], bank, 3, x[30:])
    assert set(chosen[:2]) == {7, 21}
    assert shares[:2].mean(1).sum() > 0.98
    assert shares[2].mean() < 0.01
    same, nothing = text_span(x[:30], bank[[7, 7]], 2, x[30:])
    assert sorted(same) == [0, 1]
    assert nothing[1].max() < 1e-12


def test_a_planted_head_is_described_by_the_text_that_it_writes() -> None:
    """The output matrix of L1H2 has rank one, so the head writes along one direction alone."""
    module: Any = module_of("CLIPModel")
    vision, along = module.vision_model, torch.from_numpy(RNG.normal(size=24))
    with torch.no_grad():
        weight = vision.encoder.layers[1].self_attn.out_proj.weight
        weight[:, 16:24] = along[:, None] * weight[0, 16:24]
    kept = (along - along.mean()) * vision.post_layernorm.weight.detach()
    bank = RNG.normal(size=(9, 20))
    bank[4] = 3 * (module.visual_projection.weight.detach() @ kept).numpy()
    model, names = interp.load(module), [f"text {i}" for i in range(9)]
    found = describe_heads(
        model, noise(40), bank, names, heads=["L1H1", "L1H2"], ranks=2, n_random=9
    )
    rows = found.to_pandas().set_index(["part", "rank"])
    assert rows.loc[("L1H2", 1), "text"] == "text 4"
    assert rows.loc[("L1H2", 1), "score"] > 0.99
    assert rows.loc[("L1H1", 1), "score"] < 0.6
    assert rows["score"].le(1 + 1e-9).all()
    assert not rows["low"].lt(0).any()
    assert not rows["high"].gt(1).any()


def test_texts_are_chosen_on_half_of_the_images_and_judged_on_the_others() -> None:
    model, bank = tower("CLIPModel"), np.random.default_rng(1).normal(size=(9, 20))
    found = describe_heads(
        model, noise(10), bank, list("abcdefghi"), heads=["L1H2"], ranks=2, n_random=1
    )
    order = np.random.default_rng(0).permutation(10)
    written = image_parts(model, noise(10)).heads[:, 5]
    chosen, shares = text_span(written[order[:5]], bank, 2, written[order[5:]])
    assert found.text.tolist() == ["abcdefghi"[i] for i in chosen]
    np.testing.assert_allclose(found.per_prompt, shares.cumsum(0))


def test_a_random_bank_is_no_better_than_its_null() -> None:
    bank = RNG.normal(size=(9, 20))
    found = describe_heads(
        tower("CLIPModel"), noise(40), bank, list("abcdefghi"), ranks=1, n_random=9
    )
    assert found.to_pandas()["p"].mean() > 0.2


def test_bad_input() -> None:
    model = tower("CLIPModel")
    with pytest.raises(OptionError, match="20 entries"):
        describe_heads(model, noise(8), np.ones((3, 5)), list("abc"))
    with pytest.raises(OptionError, match="ranks=4"):
        describe_heads(model, noise(8), np.ones((3, 20)), list("abc"), ranks=4)
    with pytest.raises(OptionError, match="at least 4"):
        describe_heads(model, noise(2), np.ones((3, 20)), list("abc"), ranks=1)
    with pytest.raises(OptionError, match="no head L7H0"):
        describe_heads(model, noise(8), np.ones((3, 20)), list("abc"), ranks=1, heads=["L7H0"])
    with pytest.raises(Exception, match="has no text tower"):
        text_embeddings(shapes(), ["a"])
    with pytest.raises(Exception, match="has no tokenizer"):
        text_embeddings(model, ["a"])


def test_text_embeddings_have_length_one() -> None:
    found = text_embeddings(tower("SiglipModel"), {"input_ids": torch.tensor([[3, 4], [5, 6]])})
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
