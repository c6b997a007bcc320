"""Every engine, padding side and batch size gives the scores of prompts that run alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo
from sampled import sampled

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads import scoring
from interp.heads.declaration import bound

LONGEST = 60
ENGINES = ("stored", "streamed", "fused", "auto")
SIDES = ("right", "left")
METRICS = sorted(e.name for e in METRICS.values() if e.group == "detectors")


def _entropy(row: np.ndarray, query: int) -> float:
    seen = row[row > 0]
    return float(-(seen * np.log(seen)).sum())


# The statistics, written out for one row of a pattern; detectors state their own positions.
STATISTICS = {
    "entropy": _entropy,
    "largest_weight": lambda row, query: float(row.max()),
    "attention_distance": lambda row, query: float(
        sum(weight * abs(query - key) for key, weight in enumerate(row))
    ),
}


def ragged(vocabulary: int, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Prompts of 1 to 60 tokens in random order, their tokens often repeated."""
    rng = np.random.default_rng(seed)
    few = rng.choice(np.arange(5, vocabulary), 12, replace=False)
    return tuple(
        tuple(int(t) for t in rng.choice(few, n))
        for n in rng.permutation(np.arange(1, 1 + LONGEST))
    )


def alone(
    family: zoo.Family, model: interp.Model, prompts: tuple[tuple[int, ...], ...]
) -> dict[tuple[str, str, int], np.ndarray]:
    """Per metric, stack and layer the values `[prompt, head]` of eager runs of one prompt each."""
    found: dict[tuple[str, str, int], list[np.ndarray]] = {}
    for ids in prompts:
        inputs = {"input_ids": torch.tensor([ids])}
        for stack, layer, pattern in family.expected(model.module, inputs):
            for metric in METRICS:
                values = _by_definition(metric, pattern[0].double().numpy(), np.array(ids))
                found.setdefault((metric, stack, layer), []).append(values)
    return {key: np.stack(values) for key, values in found.items()}


def _by_definition(metric: str, pattern: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    heads, queries, keys = pattern.shape
    if metric in STATISTICS:
        rows = [
            [STATISTICS[metric](pattern[h, q], q) for q in range(queries)] for h in range(heads)
        ]
        return np.array(rows).mean(1)
    query, key = torch.arange(queries)[:, None], torch.arange(keys)[None]
    target = bound(metric).analysis.predicate(query, key, torch.tensor(tokens)).numpy()
    target = np.broadcast_to(target, (queries, keys)) & (pattern.max(0) > 0)  # it sees the key
    rows = target.any(1)
    mass = (pattern * target).sum(-1)[:, rows]
    return mass.mean(-1) if rows.any() else np.full(heads, np.nan)


def summaries(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Mean and standard error over the prompts that have rows, and their number."""
    values = values[~np.isnan(values).any(1)]
    n = len(values)
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(n), n


# Batch sizes of one model in the first tier; the second has the rest of its product, and each size
# of the other models once.
FIRST = {"left": (4,), "right": (16,)}
SIZES = {"left": (16,), "right": (4,)}
MORE = {"left": (4, 16), "right": (1, 16)}
CASES = [
    pytest.param(name, engine, side, size, id=f"{name}-{engine}-{side}-{size}")
    for name in ("llama", "gpt2", "gemma2", "gpt_oss", "bert")
    for engine in ENGINES
    for side in SIDES
    for size in (MORE if name == "llama" else SIZES)[side]
]
QUICK = [x for x in CASES if x.values[0] == "llama" and x.values[3] in FIRST[x.values[2]]]


@pytest.fixture(scope="module")
def reference():
    """Per family the model and what its prompts give alone, made once."""
    made: dict[str, tuple] = {}

    def of(name: str) -> tuple:
        if name not in made:
            family = zoo.FAMILIES[name]
            model = interp.load(family.model("eager"), name=name)
            prompts = ragged(model.d_vocab)
            made[name] = model, prompts, alone(family, model, prompts)
        return made[name]

    return of


@pytest.mark.parametrize(
    ("name", "engine", "side", "size"),
    [*QUICK, *sampled(x for x in CASES if x not in QUICK)],
)
def test_scores_are_those_of_prompts_that_run_alone(
    reference, monkeypatch, name, engine, side, size
) -> None:
    model, prompts, expected = reference(name)
    monkeypatch.setattr(scoring, "STORED_BYTES", 0)  # so that `auto` streams
    table = interp.score(
        model,
        METRICS,
        Prompts(prompts, padding=side),
        null="none",
        engine=engine,
        batch_size=size,
    )
    rows = table.to_pandas().set_index(["metric", "stack", "layer"]).sort_index()
    assert len(expected) == len(METRICS) * len(model.sites)
    for key, values in expected.items():
        mean, sem, n = summaries(values)
        got = rows.loc[key].sort_values("head")
        np.testing.assert_allclose(got["score"], mean, rtol=2e-5, atol=2e-6, err_msg=str(key))
        np.testing.assert_allclose(got["sem"], sem, rtol=2e-4, atol=2e-6, err_msg=str(key))
        assert set(got["n"]) == {n}


@pytest.mark.parametrize(
    ("engine", "side"), [("stored", "left"), ("streamed", "right"), ("fused", "left")]
)
def test_the_null_of_shuffled_tokens_looks_at_the_same_positions(
    reference, monkeypatch, engine, side
) -> None:
    model, prompts, _ = reference("llama")
    family = zoo.FAMILIES["llama"]
    monkeypatch.setattr(scoring, "STORED_BYTES", 0)
    table = interp.score(
        model, "induction", Prompts(prompts, padding=side), null="shuffled-tokens", engine=engine
    )
    read = Prompts(prompts).shuffled(0, keep_first=False).ids
    rows = table.to_pandas().set_index(["layer", "head"])
    by_layer: dict[int, list[np.ndarray]] = {}
    for ids, looked_at in zip(read, prompts, strict=True):
        inputs = {"input_ids": torch.tensor([ids])}
        for _, layer, pattern in family.expected(model.module, inputs):
            values = _by_definition("induction", pattern[0].double().numpy(), np.array(looked_at))
            by_layer.setdefault(layer, []).append(values)
    for layer, values in by_layer.items():
        mean, _, _ = summaries(np.stack(values))
        np.testing.assert_allclose(rows.loc[layer]["null"], mean, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_given_tensors_score_as_the_same_prompts(engine) -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("eager"), name="llama")
    prompts = ((5, 6, 7, 5, 6, 7), (8, 9, 8, 9, 10, 8))
    tables = [
        interp.score(model, METRICS, given, null="none", engine=engine).to_pandas()["score"]
        for given in (Prompts(prompts), {"input_ids": torch.tensor(prompts)})
    ]
    np.testing.assert_allclose(*tables, rtol=1e-6, atol=1e-7)
    assert tables[0].notna().all()
