"""Formula of the scores that a model's own code computes: a multiple of q·k, biases, hidden keys.

Between the product of queries and keys and the softmax, families divide by a scale, add a mask or a
bias, fill hidden entries, change the type or the shape. Each of these steps is followed in the
formula instead of in numbers, so that scores can be recomputed from q and k in tiles. A step that
is not known ends the formula: it is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

# Families hide keys with finfo.min, -1e9 or -10000; true scores are far above this number.
HIDING = -5_000.0


@dataclass(frozen=True, eq=False)
class Term:
    """A tensor that enters the scores, and the leading shape of the scores at that step."""

    tensor: Tensor
    lead: tuple[int, ...]
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Filled:
    """A bool tensor that says which keys are filled with a large negative number."""

    tensor: Tensor
    lead: tuple[int, ...]
    hides: bool  # True marks a hidden key; else a visible one


@dataclass(frozen=True, eq=False)
class Formula:
    """Scores, or their softmax, as a function of the two factors of one product.

    Scores are `cap * tanh(scale * q·k / cap) + terms`, without the tanh if `cap` is None, at the
    keys that no tensor of `filled` hides.
    """

    left: Tensor
    right: Tensor
    letters: tuple[str, str, str] | None  # of an einsum: the axes of left, right and product
    order: int  # place of the product among those of its module's forward
    shape: tuple[int, ...]  # of the tensor at this step; query and key are its last axes
    dtype: torch.dtype
    scale: float = 1.0
    cap: float | None = None
    terms: tuple[Term, ...] = ()
    filled: tuple[Filled, ...] = ()
    multiplied: tuple[Term, ...] = ()  # 0 where a later term must hide the key, else 1
    is_pattern: bool = False
    lazy: bool = False  # no numbers were computed: the tensor is a placeholder

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes before query and key."""
        return self.shape[:-2]

    def is_of_one_product(self, batch: int) -> bool:
        """Return True if no term has a number per head, query and key, as another product has."""
        most = batch * self.shape[-1] * self.shape[-2]
        return all(1 in t.tensor.shape[-2:] or t.tensor.numel() <= most for t in self.terms)


@dataclass(eq=False)
class Product:
    """Product of two tensors, with the letter of every axis if it was written as an einsum."""

    left: Tensor
    right: Tensor
    out: Tensor | None  # None where it is not to be kept
    shape: tuple[int, ...]
    letters: tuple[str, str, str] | None = None


class Formulas:
    """Formulas of the tensors that hold scores or patterns, as long as those live."""

    def __init__(self) -> None:
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def of(self, x: object) -> Formula | None:
        """Return the formula of a tensor, or None."""
        return self._of.get(x) if isinstance(x, Tensor) else None

    def set(self, x: Tensor, formula: Formula | None) -> None:
        """Set or remove the formula of a tensor."""
        if formula is not None:
            self._of[x] = formula
        else:
            self._of.pop(x, None)

    def __len__(self) -> int:
        return len(self._of)


@dataclass(frozen=True)
class FormulaStep:
    """A function called on a tensor with a formula."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    at: int  # which argument has the formula

    def given(self, place: int, *names: str) -> Any:
        """Return an argument by its place or by one of its names; None if it is not given."""
        if len(self.args) > place:
            return self.args[place]
        return next((self.kwargs[n] for n in names if n in self.kwargs), None)

    def other(self) -> Any:
        """Return the second operand of a binary operation, on either side."""
        return self.args[0] if self.at == 1 else self.given(1, "other", "value")


def _number(x: Any) -> float | None:
    """Return a number, also one in a tensor without axes."""
    if isinstance(x, (bool, int, float)):
        return float(x)
    return float(x) if isinstance(x, Tensor) and x.numel() == 1 and x.dim() <= 1 else None


def _scaled(f: Formula, by: float) -> Formula | None:
    if f.multiplied and by <= 0:
        return None
    return replace(
        f,
        scale=f.scale * by,
        cap=None if f.cap is None else f.cap * by,
        terms=tuple(replace(t, factor=t.factor * by) for t in f.terms),
    )


def _multiply(f: Formula, step: FormulaStep) -> Formula | None:
    other = step.other()
    by = _number(other)
    if by is not None:
        return None if f.filled and by <= 0 else _scaled(f, by)
    if isinstance(other, Tensor) and other.dim() >= 2 and not (f.terms or f.filled):
        return replace(f, multiplied=(*f.multiplied, Term(other, f.lead)))
    return None


def _divide(f: Formula, step: FormulaStep) -> Formula | None:
    by = _number(step.given(1, "other"))
    if step.at != 0 or by is None or step.kwargs.get("rounding_mode") or by == 0:
        return None
    return None if f.filled and by <= 0 else _scaled(f, 1 / by)


def _added(f: Formula, step: FormulaStep, sign: float) -> Formula | None:
    other, alpha = step.other(), step.kwargs.get("alpha", 1)
    if step.at == 1 and (sign < 0 or alpha != 1):
        return None
    if isinstance(other, (int, float)):
        other = torch.tensor(float(other))
    if not isinstance(other, Tensor) or other.dtype == torch.bool:
        return None
    return replace(f, terms=(*f.terms, Term(other, f.lead, sign * float(alpha))))


def _add(f: Formula, step: FormulaStep) -> Formula | None:
    return _added(f, step, 1.0)


def _subtract(f: Formula, step: FormulaStep) -> Formula | None:
    return _added(f, step, -1.0)


def _fill(f: Formula, step: FormulaStep) -> Formula | None:
    mask, value = step.given(1, "mask"), _number(step.given(2, "value"))
    if not isinstance(mask, Tensor) or value is None or value > HIDING:
        return None
    return replace(f, filled=(*f.filled, Filled(mask, f.lead, hides=True)))


def _where(f: Formula, step: FormulaStep) -> Formula | None:
    # torch.where(shown, scores, lowest), or with the two exchanged, or the tensor's own method
    method = step.name == "where" and step.at == 0
    shown = step.given(1, "condition") if method else step.given(0, "condition")
    value = _number(step.given(1, "input") if step.at == 2 else step.given(2, "other"))
    if not isinstance(shown, Tensor) or shown.dtype != torch.bool or value is None:
        return None
    if value > HIDING:
        return None
    return replace(f, filled=(*f.filled, Filled(shown, f.lead, hides=step.at == 2)))


def _at_least(f: Formula, step: FormulaStep) -> Formula | None:
    """Keep the formula at a lower bound that only hidden keys reach."""
    bound = step.other() if step.name in ("max", "maximum") else step.given(1, "min")
    low = _number(bound)
    high = step.given(2, "max") if step.name in ("clamp", "clip") else None
    return f if low is not None and low <= HIDING and high is None else None


def _tanh(f: Formula, step: FormulaStep) -> Formula | None:
    if f.cap is not None or f.terms or f.filled or f.multiplied:
        return None
    return replace(f, cap=1.0)


def _same(f: Formula, step: FormulaStep) -> Formula | None:
    return f


def _drop(f: Formula, step: FormulaStep) -> Formula | None:
    training = step.given(2, "training", "train")
    rate = step.given(1, "p")
    return f if training is False or rate == 0 else None


def _softmax(f: Formula, step: FormulaStep) -> Formula | None:
    if step.given(1, "dim") not in (-1, len(f.shape) - 1):
        return None
    return replace(f, is_pattern=True)


_Rule = Callable[[Formula, FormulaStep], Formula | None]


def _rules(*rules: tuple[_Rule, str]) -> dict[str, _Rule]:
    """Return the rule of each name in lists of names."""
    return {name: rule for rule, names in rules for name in names.split()}


_ON_SCORES = _rules(
    (_multiply, "mul multiply __mul__ __rmul__ __imul__ mul_"),
    (_divide, "div true_divide divide __truediv__ __itruediv__ div_"),
    (_add, "add __add__ __radd__ __iadd__ add_"),
    (_subtract, "sub subtract __sub__ __isub__ sub_"),
    (_fill, "masked_fill masked_fill_"),
    (_where, "where"),
    (_at_least, "max maximum clamp clamp_ clip clamp_min clamp_min_"),
    (_tanh, "tanh tanh_"),
    (_softmax, "softmax"),
)
RESHAPING = (
    "view",
    "reshape",
    "view_as",
    "reshape_as",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
)
TYPING = ("to", "type_as", "type", "float", "half", "bfloat16", "double")
_ON_BOTH = _rules(
    (_same, " ".join((*RESHAPING, *TYPING, "contiguous", "clone", "detach"))),
    (_drop, "dropout dropout_"),
)
IN_PLACE = frozenset(
    (
        "__imul__",
        "mul_",
        "__itruediv__",
        "div_",
        "__iadd__",
        "add_",
        "__isub__",
        "sub_",
        "masked_fill_",
        "clamp_",
        "clamp_min_",
        "tanh_",
        "dropout_",
    )
)


def step_of(
    func: Callable, args: tuple, kwargs: Mapping[str, Any], formulas: Formulas
) -> tuple[FormulaStep, Formula] | None:
    """Return the call of a function on one tensor with a formula; None unless exactly one has."""
    name = getattr(func, "__name__", "")
    operands = [(i, f) for i, x in enumerate(args) if (f := formulas.of(x)) is not None]
    if not operands and (first := formulas.of(kwargs.get("input"))) is not None:
        rest = {k: x for k, x in kwargs.items() if k != "input"}
        return (FormulaStep(name, (kwargs["input"], *args), rest, 0), first)
    if len(operands) != 1 or any(formulas.of(x) for x in kwargs.values()):
        return None
    at, formula = operands[0]
    return FormulaStep(name, args, kwargs, at), formula


def followed(
    step: FormulaStep, formula: Formula, shape: tuple[int, ...], dtype: torch.dtype
) -> Formula | None:
    """Return the formula of a step's result, or None if the step is not known."""
    rule = _ON_BOTH.get(step.name)
    if rule is None and not formula.is_pattern:
        rule = _ON_SCORES.get(step.name)
    if rule is None or not dtype.is_floating_point:
        return None
    if step.name in RESHAPING:
        if shape[-2:] != formula.shape[-2:] or len(shape) < 3:
            return None
    elif shape != formula.shape:
        return None
    new = rule(formula, step)
    return None if new is None else replace(new, shape=shape, dtype=dtype)


def product_of(
    product: Product, order: int, name: str, given: tuple[tuple, Mapping[str, Any]]
) -> Formula | None:
    """Return the formula of a product of two tensors, with the input that `baddbmm` adds to it."""
    left, right, letters = product.left, product.right, product.letters
    if letters is not None:
        a, b, out = letters
        shared = [x for x in out if x in a and x in b]
        mine, theirs = set(a) - set(b), set(b) - set(a)
        if len(shared) != 2 or len(mine) != 1 or len(theirs) != 1:
            return None
        if list(out) != [*shared, *mine, *theirs] or len((set(a) & set(b)) - set(out)) != 1:
            return None
    dtype = torch.promote_types(left.dtype, right.dtype)
    formula = Formula(left, right, letters, order, product.shape, dtype)
    if name != "baddbmm":
        return formula
    args, kwargs = given
    beta, alpha = float(kwargs.get("beta", 1)), float(kwargs.get("alpha", 1))
    terms = (Term(args[0] if args else kwargs["input"], formula.lead, beta),) if beta else ()
    return replace(formula, scale=alpha, terms=terms)
