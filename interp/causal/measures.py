"""Measures as tasks: loss, logit difference, accuracy, KL to the clean run, answer probability.

Positions of `loss` and `accuracy` are those of the predicted tokens: the logits are read one
position earlier in a causal model, and at the position itself in an encoder. In all other measures
a position is that of the logits. Negative positions count from the end of the prompt.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from interp.causal.task import ReadPrompt, ReadRows, Task, TaskInputs, size, token_ids
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.calls.call import precise
from interp.model.inputs import output_embedding
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

MeasuredPositions = Sequence[Sequence[int]] | Sequence[int] | int | None
Answers = Sequence[int] | Sequence[Sequence[int]] | int


@takes_model
def loss(
    model: Model,
    prompts: Any,
    positions: MeasuredPositions = None,
    *,
    labels: Sequence[Sequence[int]] | Sequence[int] | None = None,
    name: str = "loss",
) -> Task:
    """Measure the mean cross entropy at `positions`, in nats per token; lower is better.

    Args:
        model: the model.
        prompts: texts, ids, `Prompts`, or a mapping of input tensors.
        positions: positions of the predicted tokens, for all prompts or per prompt; None for all.
        labels: correct ids at the positions, by default the prompts' own; an encoder needs them.
        name: name of the task.

    Raises:
        OptionError: labels are missing or do not match the positions.
        PromptError: the prompts do not fit the model.
    """
    given, at, wanted = _predicted(model, prompts, positions, labels)

    def read(logits: Tensor, rows: Tensor, clean: Tensor | None) -> Tensor:
        return F.cross_entropy(precise(logits), wanted.to(rows.device)[rows], reduction="none")

    n = _outputs(model)
    chance = None if n is None else math.log(n)
    return Task(name, given, at, "nats/token", False, read, detail=_named(wanted), chance=chance)


@takes_model
def accuracy(
    model: Model,
    prompts: Any,
    positions: MeasuredPositions = None,
    *,
    labels: Sequence[Sequence[int]] | Sequence[int] | None = None,
    name: str = "accuracy",
) -> Task:
    """Measure the share of tokens at `positions` with the largest logit.

    The arguments are those of `loss`. It is a step function, so it has no gradient.
    """
    given, at, wanted = _predicted(model, prompts, positions, labels)

    def read(logits: Tensor, rows: Tensor, clean: Tensor | None) -> Tensor:
        return (logits.argmax(-1) == wanted.to(rows.device)[rows]).double()

    n = _outputs(model)
    return Task(
        name,
        given,
        at,
        "share of tokens",
        True,
        read,
        has_gradient=False,
        detail=_named(wanted),
        chance=None if n is None else 1 / n,
    )


@takes_model
def logit_difference(
    model: Model,
    prompts: Any,
    answers: Answers,
    wrong: Answers,
    *,
    position: int | Sequence[int] = -1,
    corrupted: Any = None,
    name: str = "logit_difference",
) -> Task:
    """Measure the mean logit of the answer ids minus that of the wrong ids; higher is better.

    Args:
        model: the model.
        prompts: the prompts.
        answers: ids of the answer: one for all prompts, one per prompt, or a list per prompt.
        wrong: ids of the wrong answer, in the same form.
        position: position of the logits, one for all prompts or one per prompt.
        corrupted: prompts in which the behaviour is absent, one per prompt.
        name: name of the task.
    """
    given = _prompts(model, prompts)
    right, false = _sets(model, given, answers, "answers"), _sets(model, given, wrong, "wrong")
    vocabulary = tuple(sorted({t for ids in (*right, *false) for t in ids}))
    column = {t: i for i, t in enumerate(vocabulary)}
    plus = tuple(tuple(column[t] for t in ids) for ids in right)
    minus = tuple(tuple(column[t] for t in ids) for ids in false)

    def read(logits: Tensor, rows: Tensor, clean: Tensor | None) -> Tensor:
        x = precise(logits)
        return _over(x, rows, plus, torch.mean) - _over(x, rows, minus, torch.mean)

    task = _at_one(name, given, position, "logits", read, f"{right} {false}", vocabulary)
    task = replace(task, chance=0.0)
    return task if corrupted is None else task.with_corrupted(corrupted, model)


@takes_model
def answer_probability(
    model: Model,
    prompts: Any,
    answers: Answers,
    *,
    position: int | Sequence[int] = -1,
    corrupted: Any = None,
    name: str = "answer_probability",
) -> Task:
    """Measure the probability mass of a set of answer ids at a position; higher is better.

    The arguments are those of `logit_difference`, without `wrong`.
    """
    given = _prompts(model, prompts)
    right = _sets(model, given, answers, "answers")

    def read(logits: Tensor, rows: Tensor, clean: Tensor | None) -> Tensor:
        return _over(precise(logits).softmax(-1), rows, right, torch.sum)

    task = _at_one(name, given, position, "probability", read, str(right))
    n = _outputs(model)
    if n is not None:
        task = replace(task, chance=sum(map(len, right)) / len(right) / n)
    return task if corrupted is None else task.with_corrupted(corrupted, model)


@takes_model
def kl_to_clean(
    model: Model, prompts: Any, positions: MeasuredPositions = -1, *, name: str = "kl_to_clean"
) -> Task:
    """Measure KL(clean || run) of the next-token distribution at `positions`, in nats.

    Lower is better; the clean run has 0, the minimum. With the last position this is the score of
    SHIPS (Zhou et al. 2025, arXiv 2410.13708).
    """
    given = _prompts(model, prompts)

    def read(logits: Tensor, rows: Tensor, clean: Tensor | None) -> Tensor:
        assert clean is not None
        return divergence(clean, logits)

    at = _positions(given, positions)
    return Task(name, given, at, "nats", False, read, needs_clean=True)


def divergence(
    before: Float[Tensor, "*row d_vocab"], after: Float[Tensor, "*row d_vocab"]
) -> Float[Tensor, "*row"]:
    """Compute KL(before || after) of two sets of logits, in nats; never below 0.

    Summed as p log(p/q) - p + q: no term is negative, so none cancel to leave rounding errors.
    """
    log_p, log_q = before.double().log_softmax(-1), after.double().log_softmax(-1)
    p, apart = log_p.exp(), log_p - log_q
    near = apart.clamp(-1, 1)
    terms = torch.where(
        near == apart, p * (near + torch.expm1(-near)), p * apart + (log_q.exp() - p)
    )
    return terms.sum(-1)


@takes_model
def custom(
    model: Model,
    prompts: Any,
    function: ReadPrompt,
    *,
    name: str,
    unit: str,
    higher_is_better: bool,
    positions: MeasuredPositions = -1,
    has_gradient: bool = True,
    corrupted: Any = None,
) -> Task:
    """Define a measure by a function: `function(logits [position, d_vocab], prompt) -> number`.

    It is called once per prompt with the logits at `positions` and the index of the prompt.
    """
    given = _prompts(model, prompts)
    at = _positions(given, positions)
    task = Task(
        name,
        given,
        at,
        unit,
        higher_is_better,
        read_prompt=function,
        has_gradient=has_gradient,
        detail=f"function {_code(function)}",
    )
    return task if corrupted is None else task.with_corrupted(corrupted, model)


# --- what the measures share --------------------------------------------------------------------


def _outputs(model: Model) -> int | None:
    """Return the number of tokens the model chooses among; None if it is not known."""
    weight = getattr(output_embedding(model.module), "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) and weight.shape[0] > 1 else None


def _prompts(model: Model, prompts: Any) -> Prompts | TaskInputs:
    if isinstance(prompts, Mapping):
        if not prompts:
            raise PromptError("no prompts are given; give at least one")
        return dict(prompts)
    given = Prompts.of(prompts, model)
    given.check(model)
    return given


def _at_one(
    name: str,
    given: Prompts | TaskInputs,
    position: int | Sequence[int],
    unit: str,
    read: ReadRows,
    detail: str,
    vocabulary: tuple[int, ...] | None = None,
) -> Task:
    each = [position] * size(given) if isinstance(position, int) else list(position)
    at = _positions(given, [[p] for p in each])
    return Task(name, given, at, unit, True, read, detail=detail, vocabulary=vocabulary)


def _lengths(given: Prompts | TaskInputs) -> list[int]:
    return [len(p) for p in token_ids(given)] or [1] * size(given)


def _positions(
    given: Prompts | TaskInputs, positions: MeasuredPositions
) -> tuple[tuple[int, ...], ...]:
    """Return one tuple of positions from 0 on for each prompt."""
    lengths = _lengths(given)
    if positions is None:
        return tuple(tuple(range(n)) for n in lengths)
    if isinstance(positions, int):
        positions = [positions]
    each: list[Sequence[int]]
    if all(isinstance(p, int) for p in positions):
        each = [positions] * len(lengths)  # type: ignore[list-item]
    else:
        each = [list(p) for p in positions]  # type: ignore[union-attr]
    if len(each) != len(lengths):
        raise OptionError(
            f"positions for {len(each)} of {len(lengths)} prompts; give one list per prompt"
        )
    for i, (chosen, n) in enumerate(zip(each, lengths, strict=True)):
        wrong = [p for p in chosen if not -n <= p < n]
        if wrong:
            raise OptionError(f"position {wrong[0]} is outside prompt {i}, which has {n} tokens")
    return tuple(tuple(p % n for p in chosen) for chosen, n in zip(each, lengths, strict=True))


def _predicted(
    model: Model, prompts: Any, positions: MeasuredPositions, labels: Any
) -> tuple[Prompts | TaskInputs, tuple[tuple[int, ...], ...], Tensor]:
    """Return prompts, positions of the logits, and the correct id at each of them."""
    given = _prompts(model, prompts)
    tokens = token_ids(given)
    shifted = labels is None
    if shifted and (model.kind not in ("causal", "encoder-decoder") or not tokens):
        raise OptionError(
            f"{model.name} does not predict the next token ({model.kind}); give labels="
        )
    if shifted and positions is None:
        positions = [range(1, len(p)) for p in tokens]
        short = next((i for i, p in enumerate(tokens) if len(p) < 2), None)
        if short is not None:
            raise PromptError(f"prompt {short} has only one token; give at least two")
    at = _positions(given, positions)
    if not shifted:
        return given, at, _labels(labels, at)
    early = next((i for i, chosen in enumerate(at) if 0 in chosen), None)
    if early is not None:
        raise OptionError(f"position 0 of prompt {early}: no token precedes it; use a later one")
    wanted = [tokens[i][p] for i, chosen in enumerate(at) for p in chosen]
    return given, tuple(tuple(p - 1 for p in chosen) for chosen in at), torch.tensor(wanted)


def _labels(labels: Any, at: tuple[tuple[int, ...], ...]) -> Tensor:
    each = [[x] if isinstance(x, int) else list(x) for x in _listed(labels)]
    if [len(x) for x in each] != [len(chosen) for chosen in at]:
        raise OptionError(
            f"labels for {[len(x) for x in each]} positions, but {[len(c) for c in at]} are read; "
            "give one label per position"
        )
    return torch.tensor([int(x) for row in each for x in row])


def _listed(x: Any) -> list[Any]:
    return x.tolist() if isinstance(x, Tensor) else list(x)


def _sets(
    model: Model, given: Prompts | TaskInputs, answers: Any, what: str
) -> tuple[tuple[int, ...], ...]:
    """Return the answer ids of each prompt."""
    n = size(given)
    each = [answers] * n if isinstance(answers, int) else _listed(answers)
    if len(each) != n:
        raise OptionError(f"{what} for {len(each)} of {n} prompts; give one or as many as prompts")
    sets = tuple((x,) if isinstance(x, int) else tuple(int(i) for i in x) for x in each)
    for i, ids in enumerate(sets):
        if not ids:
            raise OptionError(f"{what}: prompt {i} has none; give at least one id")
        wrong = [t for t in ids if t < 0 or (model.d_vocab and t >= model.d_vocab)]
        if wrong:
            raise OptionError(
                f"{what}: prompt {i} has the id {wrong[0]}; "
                f"{model.name} knows 0 to {model.d_vocab - 1}"
            )
    return sets


def _over(
    x: Tensor,
    rows: Tensor,
    sets: tuple[tuple[int, ...], ...],
    reduce: Callable[..., Tensor],
) -> Tensor:
    """Reduce each row (one per prompt) over its ids by mean or sum."""
    each = [list(sets[row]) for row in rows.tolist()]
    if len({len(ids) for ids in each}) == 1:
        return reduce(x.gather(-1, torch.tensor(each, device=x.device)), -1)
    return torch.stack([reduce(x[i, ids]) for i, ids in enumerate(each)])


def _code(function: Any) -> str:
    """Return a function's name with a hash of its code, so that functions can be distinguished."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{name} {function!r}"
    inside = [getattr(c, "co_code", repr(c)) for c in code.co_consts]
    around = [repr(cell.cell_contents) for cell in function.__closure__ or ()]
    seen = repr((code.co_code, code.co_names, inside, around, function.__defaults__))
    return f"{name} {hashlib.sha256(seen.encode()).hexdigest()[:16]}"


def _named(wanted: Tensor) -> str:
    return "labels " + " ".join(map(str, wanted.tolist()))
