"""Metrics on cross attention: by hand, on every engine, and left out by name where undefined."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.alignment import encode_pairs
from interp.alignment.pairs import EncodedPairs
from interp.core.errors import OptionError
from interp.core.registry import METRICS
from interp.heads import detector

NAMES = sorted(name for name, entry in METRICS.items() if entry.group == "cross")


@pytest.fixture(scope="module")
def unequal_pairs(loaded) -> EncodedPairs:
    """Pairs whose source is longer, and shorter, than the decoder's input; two share both."""
    rng = np.random.default_rng(0)
    sizes = ((7, 4), (3, 6), (5, 5), (7, 4))
    pairs = [tuple(tuple(rng.integers(8, 60, n).tolist()) for n in each) for each in sizes]
    return encode_pairs(loaded("bart"), pairs)


def by_hand(name: str, pattern: np.ndarray) -> np.ndarray:
    """Score of heads `[head, row, key]` on one pair, in plain numpy."""
    rows, keys = np.arange(pattern.shape[1]), np.arange(pattern.shape[2])
    at = (pattern * keys).sum(-1)
    match name:
        case "source_start":
            return pattern[..., 0].mean(-1)
        case "source_end":
            return pattern[..., -1].mean(-1)
        case "source_place":
            return at.mean(-1) / keys[-1]
        case "source_order":
            return np.array([np.corrcoef(rows, x)[0, 1] for x in at])
        case "same_place":
            both = min(len(rows), len(keys))  # rows beyond the source have no target
            return pattern[:, rows[:both], keys[:both]].mean(-1)
    raise AssertionError(f"write down here what {name} is")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["stored", "streamed", "fused"])
def test_every_metric_is_what_it_says(engine, loaded, unequal_pairs) -> None:
    model = loaded("bart")
    table = interp.score(model, NAMES, unequal_pairs.prompts, null="none", engine=engine)
    frame = table.to_pandas()
    assert set(frame["stack"]) == {"cross"}
    for layer in (0, 1):
        patterns = []
        for i in range(len(unequal_pairs)):
            cache = model.capture(unequal_pairs.prompts.part([i]), ["pattern"], stack="cross")
            patterns.append(cache["pattern", layer][0].double().numpy())
        for name in NAMES:
            rows = frame[(frame["metric"] == name) & (frame["layer"] == layer)]
            want = np.mean([by_hand(name, x) for x in patterns], 0)
            np.testing.assert_allclose(rows["score"], want, atol=2e-5, err_msg=name)


def test_their_nulls_are_those_of_random_weights(loaded, unequal_pairs) -> None:
    frame = interp.score(loaded("bart"), NAMES, unequal_pairs.prompts, null_draws=3).to_pandas()
    uniform = {"source_start": 0.2, "source_place": 0.5, "source_order": 0.0}
    for name, want in uniform.items():
        assert frame[frame["metric"] == name]["null"].mean() == pytest.approx(want, abs=0.15)


def test_what_compares_positions_leaves_cross_attention_out_and_says_so(
    loaded, unequal_pairs
) -> None:
    names = ["previous_token", "attention_distance", "entropy"]
    table = interp.score(loaded("bart"), names, unequal_pairs.prompts, null="none")
    skipped = {metric: made.get("skipped", "") for (_, metric), made in table.provenance.items()}
    assert "compares positions" in skipped["previous_token"]
    assert "it is a distance" in skipped["attention_distance"]
    assert skipped["entropy"] == ""
    frame = table.to_pandas()
    cross = set(frame[frame["stack"] == "cross"]["metric"])
    assert cross == {"entropy"}


def test_detectors_of_users_for_two_sequences(loaded, unequal_pairs) -> None:
    def second(query, key):
        return (key == 1) & (query >= 0)

    model, prompts = loaded("bart"), unequal_pairs.prompts
    stacks = {}
    for sequences in ("one", "two", "any"):
        metric = detector(second, sequences=sequences)
        frame = interp.score(model, metric, prompts, null="none").to_pandas()
        stacks[sequences] = set(frame["stack"])
    assert stacks["one"] == {"encoder", "decoder"}
    assert stacks["two"] == {"cross"}
    assert stacks["any"] == {"encoder", "decoder", "cross"}
    with pytest.raises(OptionError, match="cannot read tokens"):
        detector(lambda query, key, tokens: tokens[key] == 2, sequences="any")
    with pytest.raises(OptionError, match="known: any, one, two"):
        detector(second, sequences="three")


def test_models_without_cross_attention_are_refused(loaded) -> None:
    for name in NAMES:
        with pytest.raises(OptionError, match=r"cross attention|two sequences"):
            interp.score(loaded("llama"), name)


def test_a_decoder_of_one_row_counts_from_the_beginning(loaded) -> None:
    model = loaded("bart")
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    inputs = {
        "input_ids": torch.tensor([[9, 10, 11, 1], [12, 13, 14, 15]]),
        "attention_mask": mask,
        "decoder_input_ids": torch.tensor([[2], [2]]),
    }
    frame = interp.score(model, ["same_place", "source_start"], inputs, null="none").to_pandas()
    first = model.capture(inputs, ["pattern"], stack="cross")["pattern", 0][:, :, 0, 0].mean(0)
    for name in ("same_place", "source_start"):
        rows = frame[(frame["metric"] == name) & (frame["layer"] == 0)]
        np.testing.assert_allclose(rows["score"], first, atol=1e-5)


def test_heads_that_stay_in_one_place_have_no_order() -> None:
    import types

    pattern = torch.zeros(1, 1, 4, 3, dtype=torch.float64)
    pattern[..., 1] = 1
    block = types.SimpleNamespace(pattern=pattern)
    layer = types.SimpleNamespace(blocks=lambda: iter([block]))
    assert torch.isnan(METRICS.load("source_order").function(layer)).all()
