"""Contract of a metric of heads: finite, in its range, and the same however prompts are run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.heads.declaration import BoundAnalysis, Metric, bound
from interp.heads.engine import (
    ENGINES,
    applies,
    attention_statistics_of,
    mean_over_rows,
    reduce_patterns,
)
from interp.heads.scoring import score, why_not
from interp.model.calls.call import RecordedCall
from interp.model.hooks.kernel_call import to_attention
from interp.model.model_argument import one_model
from interp.model.segments import segments_of_words
from interp.testing.contract import (
    ContractError,
    check_declared_options,
    check_docstring,
    check_example,
    model_unchanged,
    require_kept,
)

if TYPE_CHECKING:
    from interp.heads.declaration import Analysis
    from interp.model.model import Model

MODEL = "planted:noise"
"""Model of the checks unless another is given: random heads, some of which share keys."""
TOKENS = [3, 7, 5, 9, 3, 7, 5, 9, 3, 7]
"""Prompt of the checks of detectors: tokens that repeat."""


def check_metric(
    metric: Metric,
    model: Any = MODEL,
    prompts: Any = None,
    *,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check that a metric keeps the contract of metrics.

    Its docstring says what it measures and for what it is unsuitable. It gives every head of the
    model one finite score in the declared range, leaves the model as it was, and every option
    changes a score. A detector or statistic gives the same scores in a batch, with padding and by
    every engine. A detector names only keys that the query can see, an ideal head scores 1, and
    even attention scores the share of keys that are targets.

    Args:
        metric: a name, the path of a file, or a declared metric.
        model: the model to score, or what `load` accepts.
        prompts: prompts for it, of different lengths; random tokens, repeated, by default.
        options: option -> another value than its default, for which some score is another; needed
            for options whose default is a text or None.

    Raises:
        ContractError: the contract is broken; the sentence says how.
        OptionError: the model cannot be scored by this metric, or the other value of an option is
            not given.
    """
    checked = bound(metric)
    declared, model = checked.analysis, one_model(model)
    check_docstring(declared)
    check_declared_options(declared)
    check_example(declared, picture=picture)
    if (reason := why_not(model, checked)) is not None:
        raise OptionError(f"{reason}; give check_metric a model that {declared.name} scores")
    prompts = repeated_halves(model) if prompts is None else prompts
    check_scores(checked, model, prompts)
    plain = scores_per_head(checked, model, prompts) if declared.options else None
    for name, option in declared.options.items():
        changed = (options or {}).get(name, other_value(option.default))
        if changed is None:
            raise OptionError(
                f"the option {name} of {declared.name} has the default {option.default!r}; give"
                f" check_metric another value that changes a score, as options={{{name!r}: ...}}"
            )
        check_option(checked, model, prompts, name, changed, plain)
    if declared.kind in ("detector", "statistic"):
        check_batches(checked, model, prompts)
        check_padding(checked, model, prompts)
        check_engines(checked, model, prompts)
    if declared.kind == "detector" and not declared.reads_segments:
        check_ideal_head(checked)
        check_even_attention(checked)


def repeated_halves(model: Model) -> Prompts:
    """Make prompts of four lengths, each of random tokens that are then repeated."""
    rng = np.random.default_rng(0)
    lengths = (11, 8, 14, 9)
    halves = [rng.integers(5, min(15, model.d_vocab), n // 2 + 1).tolist() for n in lengths]
    return Prompts(tuple(tuple((h + h)[:n]) for h, n in zip(halves, lengths, strict=True)))


def other_value(default: Any) -> Any:
    """Return another value of the type of a default; None if the type has no obvious one."""
    match default:
        case bool():
            return not default
        case int():
            return default + 1
        case float():
            return default / 2 + 0.25
    return None


def check_scores(metric: Metric, model: Model, prompts: Any) -> None:
    """Check that every head has one finite score in the declared range, and nothing changes."""
    checked = bound(metric)
    with model_unchanged(model, checked.label):
        frame = score(model, [checked], prompts, null="none").to_pandas()
    scored = [s for s in model.sites if not checked.patterned() or applies(checked, s, model)]
    heads = sum(s.n_heads for s in scored)
    require_kept(
        len(frame) == heads > 0,
        f"{checked.label} must give one score per head; it gives {len(frame)} for {heads} heads",
    )
    values = frame["score"].to_numpy()
    silent = int((~np.isfinite(values)).sum())
    require_kept(
        silent == 0,
        f"{checked.label} must give finite scores; {silent} of {heads} are NaN or infinite",
    )
    low, high = checked.analysis.low, checked.analysis.high
    inside = (low is None or values.min() >= low - 1e-6) and (
        high is None or values.max() <= high + 1e-6
    )
    require_kept(
        inside,
        f"{checked.label} must give scores in its declared range, {low} to {high}; they are in"
        f" {values.min():.6g} to {values.max():.6g}",
    )


def scores_per_head(metric: Metric, model: Model, prompts: Any) -> np.ndarray:
    """Return the score of every head."""
    return score(model, [bound(metric)], prompts, null="none").to_pandas()["score"].to_numpy()


def check_option(
    metric: Metric,
    model: Model,
    prompts: Any,
    option: str,
    value: Any,
    plain: np.ndarray | None = None,
) -> None:
    """Check that an option changes a score, and that the label names its value."""
    checked = bound(metric)
    changed = checked.analysis.bind(**(dict(checked.options) | {option: value}))
    require_kept(
        f"{option}={value}" in changed.label,
        f"the label of {checked.label} must name {option}={value}; it is {changed.label!r}",
    )
    plain = scores_per_head(checked, model, prompts) if plain is None else plain
    require_kept(
        not np.allclose(plain, scores_per_head(changed, model, prompts), atol=1e-9),
        f"every option of {checked.analysis.name} must change a score; {option}={value} changes "
        "none",
    )


def check_batches(metric: Metric, model: Model, prompts: Any) -> None:
    """Check that prompts score in a batch as each does alone."""
    checked = bound(metric)
    together, alone = (
        reduce_patterns(model, prompts, [checked], batch_size=size)[0] for size in (4, 1)
    )
    contract = f"{checked.label} must score prompts in a batch as each alone"
    _require_equal(model, together, alone, contract, absolute=2e-6)


def check_padding(metric: Metric, model: Model, prompts: Prompts) -> None:
    """Check that padding on the left and on the right gives the same scores."""
    checked = bound(metric)
    right, left = (
        reduce_patterns(model, Prompts(prompts.ids, padding=side), [checked], batch_size=4)[0]
        for side in ("right", "left")
    )
    contract = f"{checked.label} must not change with padding: use positions without it, as given"
    _require_equal(model, right, left, contract, absolute=5e-6)


def check_engines(metric: Metric, model: Model, prompts: Any) -> None:
    """Check that streamed and fused passes give what stored patterns give."""
    checked = bound(metric)
    stored, *others = (reduce_patterns(model, prompts, [checked], engine=e)[0] for e in ENGINES)
    for engine, other in zip([*ENGINES][1:], others, strict=True):
        contract = f"{checked.label} must score under engine={engine!r} as with stored patterns"
        _require_equal(model, stored, other, contract, relative=2e-5, absolute=2e-6)


def _require_equal(
    model: Model, one: Any, two: Any, contract: str, *, relative: float = 0.0, absolute: float
) -> None:
    for site in model.sites:
        a, b = one.of(site), two.of(site)
        if not torch.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True):
            off = float((a - b).abs().nan_to_num(math.inf).max())
            raise ContractError(f"{contract}; at {site.name} scores differ by up to {off:.2g}")


def check_ideal_head(metric: Metric) -> None:
    """Check that a detector looks only back, and that a head that attends as it says scores 1."""
    checked = bound(metric)
    target, n = _targets(checked), len(TOKENS)
    at = torch.arange(n)
    later = at[None, :] > at[:, None]
    require_kept(
        not (target & later).any(),
        f"{checked.label} must name keys up to the query only; it names later ones: add"
        " `(key <= query)`",
    )
    require_kept(
        bool(target.any()),
        f"{checked.label} must name a key of some query of a prompt that repeats its tokens",
    )
    ideal = torch.where(target.any(1, keepdim=True), target.double(), torch.eye(n).double())
    reached = _score_of(checked, ideal / ideal.sum(1, keepdim=True))
    require_kept(
        math.isclose(reached, 1.0, abs_tol=1e-12),
        f"a head that attends to the targets of {checked.label} must score 1, not {reached:.6g}",
    )


def check_even_attention(metric: Metric) -> None:
    """Check a detector's score of even attention against its predicate, one pair at a time."""
    checked = bound(metric)
    even = torch.ones(len(TOKENS), len(TOKENS)).tril().double()
    shares = []
    for query in range(len(TOKENS)):
        hits = sum(
            bool(_predicate(checked, np.int64(query), np.int64(key), np.array(TOKENS)))
            for key in range(query + 1)
        )
        if hits:
            shares.append(hits / (query + 1))
    share, reached = (
        math.fsum(shares) / max(len(shares), 1),
        _score_of(checked, even / even.sum(1, keepdim=True)),
    )
    require_kept(
        math.isclose(reached, share, abs_tol=1e-12),
        f"even attention must score the share of visible keys that {checked.label} names, one pair "
        f"at a time {share:.6g}, not {reached:.6g}; use elementwise operations only",
    )


def _predicate(found: BoundAnalysis, query: Any, key: Any, tokens: Any) -> Any:
    return found.analysis.predicate(query, key, tokens, **found.options)


def _targets(found: BoundAnalysis) -> torch.Tensor:
    at = torch.arange(len(TOKENS))
    target = torch.as_tensor(_predicate(found, at[:, None], at[None, :], torch.tensor(TOKENS)))
    return target.expand(len(TOKENS), len(TOKENS))


def _score_of(found: BoundAnalysis, pattern: torch.Tensor) -> float:
    pattern = pattern[None, None]
    v = torch.zeros(1, 1, len(TOKENS), 2)
    hidden = torch.ones_like(pattern).tril() == 0
    logits = pattern.clamp_min(1e-30).log().masked_fill(hidden, torch.finfo(torch.float64).min)
    call = RecordedCall(v, v, logits, pattern)
    real = torch.ones(1, len(TOKENS), dtype=torch.bool)
    mass, targets = found.reductions()
    attention = to_attention(call, real, torch.tensor([TOKENS]))
    values = attention_statistics_of(call, attention, [mass, targets], "stored")
    return float(mean_over_rows(values[mass.name], values[targets.name], real, 1))


def picture(analysis: Analysis, text: str, **options: Any) -> None:
    """Print the targets of an ideal head: rows are queries, columns keys, `#` marks a target.

    Of a detector that reads segments, the words `image`, `audio`, `special` and `register` stand
    for these segments, and all others for text.
    """
    words = text.split()
    names = list(dict.fromkeys(words))
    tokens = np.array([names.index(w) for w in words])
    at = np.arange(len(words))
    segments = segments_of_words(words) if analysis.reads_segments else None
    target = np.broadcast_to(
        analysis.predicate(at[:, None], at[None, :], tokens, segments, **options),
        (len(words), len(words)),
    )
    print("  " + " ".join(words))
    for word, row in zip(words, target, strict=True):
        print(word + " " + " ".join("#" if hit else "." for hit in row))
