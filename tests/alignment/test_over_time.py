"""Mass per source and drift of attention: planted, beside numpy, and near nothing where random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.alignment import attention_drift, source_mass
from interp.core.errors import OptionError, PromptError
from training import forms

N, ROWS, KEYS = 5, 8, 10
GEN = torch.Generator().manual_seed(0)
INPUTS = {
    "input_ids": torch.randint(4, 30, (N, KEYS), generator=GEN),
    "decoder_input_ids": torch.randint(4, 30, (N, ROWS), generator=GEN),
}
SOURCES = [[0] * 4 + [-1] + [1] * 5] * N


def moving(step: float) -> interp.Model:
    """Return a reader whose place moves by `step` keys with every row, from key step - 1."""
    module: Any = forms.build("source_location", vocab_size=32)
    rule = module.attention.rule
    with torch.no_grad():
        rule.step.weight.zero_()
        rule.step.bias.fill_(6 * (step - 0.5))  # hardsigmoid
        rule.gate.weight.zero_()
        rule.gate.bias.fill_(-50.0)  # counts from the start
    return interp.load(module, name="moving")


def pattern(model: interp.Model) -> np.ndarray:
    """Return the cross attention, [head, prompt, row, key], in numpy."""
    found: list[np.ndarray] = []
    model.read(INPUTS, lambda site, call, real: found.append(call.pattern().double().numpy()))
    return found[0].swapaxes(0, 1)


@pytest.fixture(scope="module")
def random_reader() -> interp.Model:
    return interp.load(forms.build("source", vocab_size=32), name="reader")


def test_mass_per_source_is_that_of_the_pattern(random_reader) -> None:
    found = source_mass(random_reader, INPUTS, SOURCES, names=["text", "picture"], skip=2)
    frame, whole = found.to_pandas(), pattern(random_reader)
    assert frame["source"].tolist() == ["text", "picture"] * 2
    for row, (head, keys) in enumerate([(h, k) for h in (0, 1) for k in (slice(4), slice(5, 10))]):
        each = whole[head, :, 2:, keys].sum(-1)  # [prompt, row]
        np.testing.assert_allclose(found.over_time[row], each)
        assert frame["score"][row] == pytest.approx(each.mean())
        assert frame["sem"][row] == pytest.approx(each.mean(1).std(ddof=1) / N**0.5)
        change = each[:, -2:].mean(1) - each[:, :2].mean(1)
        assert found.change[row] == pytest.approx(change.mean())
        assert found.change_sem[row] == pytest.approx(change.std(ddof=1) / N**0.5)
        assert found.early[row] + found.change[row] == pytest.approx(found.late[row])
    np.testing.assert_allclose(frame["null"], [0.4, 0.5] * 2)


def test_padding_of_the_source_is_no_key_of_the_null(random_reader) -> None:
    mask = torch.ones(N, KEYS, dtype=torch.long)
    mask[1, 7:] = 0
    labels = [list(each) for each in SOURCES]
    labels[1][7:] = [-1] * 3
    found = source_mass(random_reader, INPUTS | {"attention_mask": mask}, labels)
    np.testing.assert_allclose(found.null[:2], [(4 * 0.4 + 4 / 7) / 5, (4 * 0.5 + 2 / 7) / 5])


def test_padded_rows_change_nothing(random_reader) -> None:
    """A padded prompt scores as the shorter prompt alone does."""
    alone = {name: x[:1, : 6 if "decoder" in name else KEYS] for name, x in INPUTS.items()}
    mass = source_mass(random_reader, alone, SOURCES[:1]).per_prompt[:, 0]
    places = [[2.0, 3.0, 5.0, 4.0, 6.0]]
    slope = attention_drift(random_reader, alone, places, skip=1).per_prompt[:, 0]
    rows = torch.ones(N, ROWS, dtype=torch.long)
    rows[0, 6:] = 0
    padded = INPUTS | {"decoder_attention_mask": rows}
    found = source_mass(random_reader, padded, SOURCES)
    np.testing.assert_allclose(found.per_prompt[:, 0], mass, atol=1e-6)
    assert np.isnan(found.over_time[:, 0, 6:]).all()
    assert np.isfinite(found.over_time[:, 1:]).all()
    found = attention_drift(
        random_reader, padded, places + [[float(t) for t in range(7)]] * 4, skip=1
    )
    np.testing.assert_allclose(found.per_prompt[:, 0], slope, atol=1e-6)
    with pytest.raises(
        PromptError, match="prompt 0 needs at least three known places, and at most 5"
    ):
        attention_drift(random_reader, padded, [[float(t) for t in range(7)]] * N, skip=1)


def test_a_reader_that_moves_on_changes_its_source() -> None:
    found = source_mass(moving(0.95), INPUTS, SOURCES)
    first, second = found.over_time[0].mean(0), found.over_time[1].mean(0)
    assert first[:3].min() > 0.9
    assert second[-2:].min() > 0.9
    assert found.change[0] < -0.9
    assert found.change[1] > 0.9


@pytest.mark.parametrize("step", [0.6, 0.8, 0.9])
def test_drift_is_the_speed_of_the_reader_minus_that_of_the_signal(step: float) -> None:
    places = [[t + 2.0 for t in range(ROWS - 2)] for _ in range(N)]  # from row 2, one key a row
    places[0][2] = np.nan
    found = attention_drift(moving(step), INPUTS, places, skip=2)
    np.testing.assert_allclose(found.per_prompt, step - 1, atol=0.025)
    at = np.arange(2, ROWS)
    np.testing.assert_allclose(found.offsets[:, 1:], ((at + 1) * step - 1 - at).mean(), atol=0.05)
    assert (found.p < 0.001).all()
    np.testing.assert_allclose(found.p_holm, 2 * found.p)


def test_a_reader_as_fast_as_its_signal_does_not_drift() -> None:
    model, p, scores = moving(0.8), [], []
    at = 0.8 * np.arange(3, ROWS + 1) - 1  # before row 2 there is no key on the left of the place
    for seed in range(60):
        places = np.random.default_rng(seed).normal(at, 0.3, (N, ROWS - 2))
        places[0, 3] = np.nan
        found = attention_drift(model, INPUTS, places.tolist(), skip=2)
        p.append(found.p[0])
        scores.append(found.score[0])
    assert 0.01 <= np.mean(np.array(p) <= 0.1) <= 0.2
    assert abs(np.mean(scores)) < 0.02


def test_errors_that_hold_on_from_row_to_row_are_no_drift() -> None:
    model, p = moving(0.8), []
    at = 0.8 * np.arange(3, ROWS + 1) - 1
    for seed in range(100):
        rng = np.random.default_rng(seed)
        error = rng.normal(0, 0.3, (N, ROWS - 2))
        for t in range(1, ROWS - 2):
            error[:, t] = 0.9 * error[:, t - 1] + 0.44 * error[:, t]
        p.append(attention_drift(model, INPUTS, (at + error).tolist(), skip=2).p[0])
    assert 0.01 <= np.mean(np.array(p) <= 0.05) <= 0.11


def test_places_of_keys_set_the_unit() -> None:
    seconds = 0.02 * np.arange(KEYS)
    places = [(0.02 * np.arange(ROWS)).tolist()] * N
    found = attention_drift(moving(0.8), INPUTS, places, at=seconds.tolist(), unit="seconds")
    np.testing.assert_allclose(found.score, -0.2 * 0.02, atol=1e-3)
    assert found.to_pandas()["unit"][0] == "seconds per token"


def test_random_places_give_no_more_findings_than_chance(random_reader) -> None:
    p = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        places = [rng.permutation(ROWS).astype(float).tolist() for _ in range(N)]
        p += attention_drift(random_reader, INPUTS, places).p.tolist()
    assert 0.01 <= np.mean(np.array(p) <= 0.1) <= 0.22


def test_bad_input_is_one_sentence(random_reader, loaded) -> None:
    with pytest.raises(OptionError, match="no cross attention"):
        source_mass(loaded("gpt2"), INPUTS, SOURCES)
    with pytest.raises(OptionError, match="at least three decoder rows"):
        source_mass(random_reader, INPUTS, SOURCES, skip=ROWS - 2)
    for wrong in (SOURCES[:-1], np.array(SOURCES) / 2, [*SOURCES[:-1], [0]]):
        with pytest.raises(PromptError, match=r"^labels: give"):
            source_mass(random_reader, INPUTS, wrong)
    with pytest.raises(PromptError, match="for 3 names"):
        source_mass(random_reader, INPUTS, SOURCES, names=["a", "b", "c"])
    with pytest.raises(PromptError, match="at least three known places"):
        attention_drift(random_reader, INPUTS, [[1.0, np.nan, 3.0]] * N)
    with pytest.raises(PromptError, match=r"positions of 1 prompts for 5"):
        attention_drift(random_reader, INPUTS, [[1.0, 2.0, 3.0]])
    with pytest.raises(PromptError, match="numbers for 10 keys"):
        attention_drift(random_reader, INPUTS, [[1.0, 2.0, 3.0]] * N, at=[0.0])
