"""Faithfulness of attributions: agreement of scores with the effect of removing tokens.

Measures per text and method, over the tokens that are not special:

    spearman                rank correlation of |score| with |change of the target| under occlusion
    spearman_signed         the same with signs, for methods whose scores have them
    aopc                    mean fall of the target when the top 10 to 50 % are removed
    comprehensiveness       the same at 1, 5, 10, 20 and 50 % (DeYoung et al. 2020, "ERASER")
    sufficiency             mean fall when only these tokens are kept; lower is better
    aopc_signed, comprehensiveness_signed, sufficiency_signed
                            the same in the order of the signed score, as in ERASER: tokens with
                            evidence against the target come last. The three above order by |score|.
                            For a method without signs both orders, and so both numbers, are equal.
    soft_comprehensiveness  fall when embedding entries are dropped where scores are large
    soft_sufficiency        fall when they are dropped where scores are small; lower is better

All measures use the same kind of intervention (`how`), which favours methods that resemble it. One
text is one observation, and differences between methods are tested in pairs over texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.attribution.declaration import BoundMethod, choose_methods
from interp.attribution.evaluation.deceived import deceived, deceived_ranks
from interp.attribution.evaluation.removal import (
    default_removal,
    embedding_width,
    kept,
    matched_retention,
    one_by_one,
    values_scaled,
    values_without,
)
from interp.attribution.evaluation.result import MEASURES, Faithfulness
from interp.attribution.evaluation.rows import EvaluationRows
from interp.attribution.example import Example
from interp.attribution.target import AnyTarget, Targets, one_each, similarity
from interp.core.errors import InterpError, OptionError, PromptError
from interp.core.protocols import Progress
from interp.core.rank_statistics import spearman
from interp.core.steps import finishing
from interp.core.text_file import read_lines
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.attribution.declaration import AttributionMethod
    from interp.model.model import Model

Array = np.ndarray
AOPC = (0.1, 0.2, 0.3, 0.4, 0.5)
ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
BASELINES = ("random_scores", "input_norm")
FEWEST = 3  # the smallest number of tokens whose ranking is informative


@dataclass(frozen=True)
class Settings:
    """Settings that change the measures, besides model, texts, targets and methods.

    Args:
        how: kind of removal, see `interp.attribution.evaluation.removal`; "" means mask if the
            tokenizer has a mask token, else mean.
        special: True to include tokens that the tokenizer adds; by default they are never removed.
        share: expected share of embedding entries that the soft measures keep for every method.
        draws: random draws of the soft measures; 0 omits these measures.
        seed: seed of these draws, which are the same for all methods.
    """

    how: str = ""
    special: bool = False
    share: float = 0.5
    draws: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise OptionError(f"share={self.share} is out of range; it must lie between 0 and 1")
        if self.draws < 0:
            raise OptionError(f"draws={self.draws} is negative; it must be at least 0")


@takes_model
@finishing()
def faithfulness(
    model: Model,
    texts: str | Path | Sequence[str],
    methods: Iterable[str | AttributionMethod | BoundMethod],
    targets: Targets | None = None,
    *,
    baselines: bool = True,
    warn: bool = True,
    resume: Path | None = None,
    batch_size: int = 16,
    progress: Progress | None = None,
    clusters: Sequence[str] | None = None,
    **settings: Any,
) -> Faithfulness:
    """Measure the faithfulness of attribution methods by interventions over many texts.

    A method that fails on a text gives a row with its error message; see `Faithfulness.failures`.

    Args:
        model: a loaded model, or what `load` accepts.
        texts: texts, or the path of a file with one per line.
        methods: names, with options as `name:option=value`, or methods.
        targets: one target for all texts or one per text, in the notation of
            `interp.attribution.target`; "nearest" is the similarity with the nearest of the other
            texts. The default is the model's own first choice.
        baselines: True to also measure random scores, the norm of embeddings, and occlusion.
        warn: True to also test the methods on `bundled:deceive`; see
            `interp.attribution.evaluation.deceived`.
        resume: folder in which finished rows are stored; the same call resumes from them.
        batch_size: inputs per forward pass.
        progress: see `Progress`.
        clusters: a label per text where texts share a document, a template or an author; errors and
            tests are then over clusters.
        settings: see `Settings`.

    Returns:
        The measures of every method on every text, with means, tests and warnings.

    Raises:
        PromptError: there are no texts, or a text has too few tokens.
        UnknownName, OptionError: a method, option or target does not exist.
        StoreError: `resume` cannot be written.
    """
    how_set = Settings(**settings)
    texts = read_texts(texts)
    if clusters is not None and len(clusters) != len(texts):
        raise OptionError(f"{len(clusters)} cluster labels for {len(texts)} texts; give one each")
    chosen = choose_methods(methods)
    wanted = resolve(model, texts, targets)
    first = Example(model, texts[0], wanted[0])
    how = how_set.how or default_removal(first)
    if baselines:
        labels = {c.label for c in chosen}
        extra = (*BASELINES, "occlusion" if how == "delete" else f"occlusion:how={how}")
        chosen += [c for c in choose_methods(extra) if c.label not in labels]
    examples = []
    for i, text in enumerate(texts):
        example = first if i == 0 else Example(model, text, wanted[i])
        _require_tokens(example, i, how_set.special)
        examples.append(example)
    about = model_provenance(model) | asdict(how_set) | {"how": how, "made_by": "faithfulness"}
    about |= {"n": len(texts), "targets": [e.target.name for e in examples]}
    about["texts"] = sha256("\n".join(texts).encode()).hexdigest()
    rows = EvaluationRows(resume, about)
    total = len(examples) * len(chosen)
    for i, example in enumerate(examples):
        missing = [c for c in chosen if not rows.has(i, c.label)]
        if missing:
            rows.add(_measured(example, i, missing, how, how_set, batch_size))
        if progress is not None:
            progress("texts x methods", (i + 1) * len(chosen), total)
    units = dict.fromkeys(e.target.unit for e in examples)
    return Faithfulness(
        rows.of([c.label for c in chosen], len(texts)),
        tuple(texts),
        {c.label: c.method.needs for c in chosen},
        deceived_ranks(deceived(chosen)) if warn else (),
        about | {"prompts_hash": about["texts"], "unit": ", ".join(units)},
        None if clusters is None else tuple(clusters),
    )


def read_texts(given: str | Path | Sequence[str]) -> list[str]:
    """Read the texts of a file, one per line, or return the given texts as a list."""
    if isinstance(given, (str, Path)):
        texts = [line.strip() for line in read_lines(given) if line.strip()]
        if not texts:
            raise PromptError(f"{given} holds no text; write one text per line")
        return texts
    texts = list(given)
    if not texts:
        raise PromptError("no texts given; give at least one")
    return texts


def resolve(model: Model, texts: Sequence[str], targets: Targets | None) -> list[AnyTarget | None]:
    """Return the target of each text."""
    if targets == "nearest":
        return [similarity(model, texts[other]) for other in nearest(model, texts)]
    return one_each(targets, len(texts))


def nearest(model: Model, texts: Sequence[str]) -> list[int]:
    """Find for each text the other one whose mean final state is nearest by cosine."""
    import torch

    if len(texts) < 2:
        raise OptionError(
            "target 'nearest' needs at least two texts; give more texts or another target"
        )
    similarity(model, texts[0])  # raises an error if the model has no states
    with torch.no_grad():
        pooled = [model.run(t).double().mean((0, 1)) for t in texts]
    unit = torch.stack([p / p.norm() for p in pooled])
    return (unit @ unit.T).fill_diagonal_(-2).argmax(1).tolist()


def _counted(example: Example, special: bool) -> Int[Array, " token"]:
    return np.flatnonzero(np.ones(len(example), bool) if special else ~example.special)


def _require_tokens(example: Example, i: int, special: bool) -> None:
    n = len(_counted(example, special))
    if n < FEWEST:
        what = "" if special else " that are not special"
        raise PromptError(
            f"text {i + 1} has {n} token(s){what}: {' '.join(example.tokens)!r}; "
            f"a ranking of tokens needs at least {FEWEST}"
        )


def _measured(
    example: Example, at: int, chosen: Sequence[BoundMethod], how: str, s: Settings, batch_size: int
) -> list[dict[str, Any]]:
    """Return one row per method: its measures on one text, or its error message."""
    where = _counted(example, s.special)
    n, value = len(where), example.value
    effect = value - values_without(
        example, one_by_one(where.tolist(), len(example)), how, batch_size
    )
    rows: list[dict[str, Any]] = []
    scores: dict[int, Array] = {}
    for chosen_one in chosen:
        row: dict[str, Any] = {"text": at, "method": chosen_one.label, "tokens": n, "error": ""}
        row |= dict.fromkeys(MEASURES)
        try:
            attribution = chosen_one.of(example)
            row |= {"residual": attribution.residual, "residual_share": attribution.residual_share}
            row["incomplete"] = attribution.incomplete
            scores[len(rows)] = attribution.scores[where]
            row["spearman"] = _correlation(np.abs(attribution.scores[where]), np.abs(effect))
            if attribution.signed:
                row["spearman_signed"] = _correlation(attribution.scores[where], effect)
        except InterpError as error:
            row["error"] = f"{type(error).__name__}: {error}"
        rows.append(row)
    for k, measures in _by_removal(example, where, scores, how, batch_size).items():
        rows[k] |= measures
    if s.draws:
        for k, measures in _by_thinning(example, where, scores, s, batch_size).items():
            rows[k] |= measures
    return rows


def _correlation(a: Float[Array, " token"], b: Float[Array, " token"]) -> float | None:
    """Compute the rank correlation; None if one of the two is constant."""
    correlation = float(spearman(np.stack([a, b]))[0, 1])
    return None if math.isnan(correlation) else correlation


def counts(fractions: Iterable[float], n: int) -> list[int]:
    """Convert fractions of n tokens to numbers of tokens, rounded up, at least one."""
    return [max(1, math.ceil(q * n - 1e-9)) for q in fractions]


def _by_removal(
    example: Example, where: Array, scores: Mapping[int, Array], how: str, batch_size: int
) -> dict[int, dict[str, float]]:
    """Compute the removal measures; a set of tokens that several methods need runs only once."""
    n = len(where)
    index: dict[tuple[int, ...], int] = {}

    def ask(tokens: Array) -> int:
        return index.setdefault(tuple(sorted(tokens.tolist())), len(index))

    asked: dict[int, dict[str, list[int]]] = {}
    for k, x in scores.items():
        asked[k] = {}
        for kind, by in (("", np.abs(x)), ("_signed", x)):
            order = np.argsort(-by, kind="stable")
            asked[k] |= {
                f"aopc{kind}": [ask(order[:c]) for c in counts(AOPC, n)],
                f"comprehensiveness{kind}": [ask(order[:c]) for c in counts(ERASER, n)],
                f"sufficiency{kind}": [ask(order[c:]) for c in counts(ERASER, n)],
            }
    if not index:
        return {}
    gone = np.zeros((len(index), len(example)), dtype=bool)
    for tokens, at in index.items():
        gone[at, where[list(tokens)]] = True
    fall = example.value - values_without(example, gone, how, batch_size)
    return {
        k: {name: float(fall[which].mean()) for name, which in sets.items()}
        for k, sets in asked.items()
    }


def _by_thinning(
    example: Example, where: Array, scores: Mapping[int, Array], s: Settings, batch_size: int
) -> dict[int, dict[str, float]]:
    noise = np.random.default_rng([s.seed, *example.ids]).random(
        (s.draws, len(example), embedding_width(example)), dtype=np.float32
    )
    measures = {}
    for k, x in scores.items():
        keep = np.ones((2, len(example)))  # special tokens are kept entirely
        keep[0, where] = 1 - matched_retention(np.abs(x), 1 - s.share)
        keep[1, where] = matched_retention(np.abs(x), s.share)
        both = np.concatenate([kept(p, noise) for p in keep])
        fall = (example.value - values_scaled(example, both, batch_size)).reshape(2, -1).mean(1)
        measures[k] = {"soft_comprehensiveness": float(fall[0]), "soft_sufficiency": float(fall[1])}
    return measures


def targets_of(file: Path, target: str | None) -> tuple[list[str], list[str], list[str] | None]:
    """Return texts, targets and contrasts of a file of texts, some lines with their own target."""
    texts, targets, contrasts = [], [], []
    for at, line in enumerate(read_texts(file), 1):
        text, tab, line_target = line.partition("\t")
        asked = line_target if tab else target
        if not asked:
            raise OptionError(
                f"{file} line {at} has no target; write it after a tab, or give --target"
            )
        word, bar, other = asked.partition("|")
        texts.append(text)
        targets.append(word)
        contrasts += [other] if bar else []
    if contrasts and len(contrasts) != len(texts):
        raise OptionError(
            f"{len(contrasts)} of {len(texts)} lines of {file} have a contrast; give it to all or "
            "to none"
        )
    return texts, targets, contrasts or None
