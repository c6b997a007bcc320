"""Similarity of every head of one model with every head of another, per prompt or per token.

Two measures need no common basis, so that they work between training runs:

`patterns`  the mean over query rows of the Bhattacharyya coefficient of two attention rows, the sum
            over keys of sqrt(p q): 1 for equal rows, 0 for disjoint ones. Rows with one visible key
            are the same for all heads and left out.
`ov`, `qk`  the cosine of the rows of two circuits between tokens, W_E OV W_U and W_E QK W_E^T, with
            the mean over each row subtracted: what a head that attends to a token adds to the
            logits, and which tokens a token attends to. They leave positions and the layers in
            between out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.head import Head
from interp.core.prompts import Prompts, ordinary_ids
from interp.heads.between_models.shared_prompts import SharedPrompts, vocabulary_of

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

BY = ("patterns", "ov", "qk")
WITHIN = ("layer", "model")
LARGEST = 2 * 1024**3  # bytes of the patterns of one prompt in both models
TOKENS, COLUMNS = 256, 2048  # tokens whose rows are compared, and entries of a row
GroupKey = tuple[str, int]
"""Stack and layer; the layer is -1 where heads of all layers may match."""


@dataclass(frozen=True, eq=False)
class Group:
    """Heads that may match, with their similarities.

    Args:
        a: heads of the first model.
        b: heads of the second model.
        across: similarity per unit (a prompt or a token) of each head of A with each of B.
        own_a: mean similarity of the heads of A with one another.
        own_b: the same of B.
    """

    a: tuple[tuple[str, Head], ...]
    b: tuple[tuple[str, Head], ...]
    across: Float[np.ndarray, "unit a b"]
    own_a: Float[np.ndarray, "a a"]
    own_b: Float[np.ndarray, "b b"]


@dataclass(frozen=True, eq=False)
class Similarities:
    """Groups of heads of two models, and what the units of their similarities are."""

    groups: Mapping[GroupKey, Group]
    clusters: tuple[str, ...] | None
    unit: str
    about: Mapping[str, Any]


UnitRows = Mapping[tuple[str, int], Float[Tensor, "head entry"]]  # unit vectors, by stack and layer


def similarities(
    a: Model, b: Model, by: str, within: str, prompts: Any, seed: int, batch_size: int
) -> Similarities:
    """Compute the similarities of the heads of two models."""
    if by not in BY:
        raise UnknownName("similarity of heads", by, BY)
    if within not in WITHIN:
        raise UnknownName("scope of a match", within, WITHIN)
    clusters, about = None, {}
    if by == "patterns":
        shared = SharedPrompts(prompts, seed, same_tokens=True)
        read, other = shared.of(a), shared.of(b)
        _require_small([a, b], max(map(len, read.ids)))
        units = _pattern_units(a, b, read, other, batch_size)
        clusters = read.clusters
        about = {"prompts": read.design, "prompts_hash": read.hash}
        unit = "mean Bhattacharyya coefficient"
    else:
        require_one_vocabulary(a, b)
        tokens = _tokens(a, seed)
        units = _circuit_rows(a, b, by, tokens)
        about = {"prompts": f"none: circuits between {len(tokens)} tokens", "prompts_hash": ""}
        unit = "mean cosine"
    return Similarities(_grouped(a, b, units, within), clusters, unit, about)


def require_one_vocabulary(a: Model, b: Model) -> None:
    """Raise PromptError if circuits between tokens of two models cannot be compared."""
    if vocabulary_of(a) != vocabulary_of(b):
        raise PromptError(
            f"{a.name} and {b.name} have different vocabularies, so circuits between tokens "
            "cannot be compared; models need one tokenizer"
        )


def _grouped(
    a: Model, b: Model, units: Iterator[tuple[UnitRows, UnitRows]], within: str
) -> dict[GroupKey, Group]:
    across: dict[GroupKey, list[np.ndarray]] = {}
    within_model: dict[tuple[GroupKey, str], np.ndarray] = {}
    named: dict[tuple[GroupKey, str], tuple[tuple[str, Head], ...]] = {}
    for rows_a, rows_b in units:
        sides = {"a": _joined(rows_a, within), "b": _joined(rows_b, within)}
        if sides["a"].keys() != sides["b"].keys():
            raise OptionError(
                f"{a.name} has {len(sides['a'])} layers of heads and {b.name} {len(sides['b'])}, "
                "so layers do not correspond; match over all layers: within='model' "
                "(--set within=model)"
            )
        for key in sides["a"]:
            (heads_a, x), (heads_b, y) = sides["a"][key], sides["b"][key]
            across.setdefault(key, []).append((x @ y.T).double().numpy())
            for side, heads, z in (("a", heads_a, x), ("b", heads_b, y)):
                named[key, side] = heads
                within_model[key, side] = (
                    within_model.get((key, side), 0.0) + (z @ z.T).double().numpy()
                )
    return {
        key: Group(
            named[key, "a"],
            named[key, "b"],
            np.stack(x),
            within_model[key, "a"] / len(x),
            within_model[key, "b"] / len(x),
        )
        for key, x in across.items()
    }


def _joined(
    rows: UnitRows, within: str
) -> dict[GroupKey, tuple[tuple[tuple[str, Head], ...], Float[Tensor, "head entry"]]]:
    """Return heads and vectors by group: a layer, or all layers of a stack."""
    parts: dict[GroupKey, list[tuple[str, int]]] = {}
    for stack, layer in rows:
        parts.setdefault((stack, layer if within == "layer" else -1), []).append((stack, layer))
    return {
        key: (
            tuple((s, Head(x, h)) for s, x in sites for h in range(len(rows[s, x]))),
            torch.cat([rows[site] for site in sites]),
        )
        for key, sites in parts.items()
    }


def _pattern_units(
    a: Model, b: Model, read: Prompts, other: Prompts, batch_size: int
) -> Iterator[tuple[UnitRows, UnitRows]]:
    """Yield the rows of both models prompt by prompt; prompts of one length share a pass."""
    ready: dict[int, tuple[UnitRows, UnitRows]] = {}
    lengths = list(map(len, read.ids))
    for i in range(len(read)):
        if i not in ready:  # the others of this batch are yielded in their own order
            same = [j for j in range(i, len(read)) if lengths[j] == lengths[i] and j not in ready]
            some = same[: _at_once([a, b], lengths[i], batch_size)]
            rows = (_pattern_rows(model, x.part(some)) for model, x in ((a, read), (b, other)))
            ready |= zip(some, zip(*rows, strict=True), strict=True)
        yield ready[i]
        ready[i] = ({}, {})  # releases the patterns


def _at_once(models: Sequence[Model], length: int, batch_size: int) -> int:
    """Return the number of prompts of a length whose patterns are held together."""
    return max(1, min(batch_size, LARGEST // 8 // _pattern_bytes(models, length)))


def _pattern_bytes(models: Sequence[Model], length: int) -> int:
    return sum(4 * site.n_heads * length**2 for model in models for site in model.sites)


def _pattern_rows(model: Model, prompts: Prompts) -> Sequence[UnitRows]:
    """Return the square roots of the patterns of each prompt; products are coefficients."""
    roots: list[dict[tuple[str, int], Tensor]] = [{} for _ in range(len(prompts))]

    def visit(site: Site, call: Call, real: Tensor) -> None:
        model.require_finite(call, site)
        patterns, visible = call.pattern().float(), call.visible()
        for row, pattern in enumerate(patterns):
            shown = visible[row if len(visible) > 1 else 0]
            informative = pattern[:, shown.expand(len(pattern), -1, -1)[0].sum(-1) > 1]
            if not informative.shape[1]:
                raise PromptError(
                    f"{model.name}: a prompt of {pattern.shape[1]} tokens has no row with two "
                    "visible keys, so its patterns are all equal; give longer prompts"
                )
            rows = (informative / informative.shape[1]).sqrt().flatten(1).cpu()
            roots[row][site.stack, site.layer] = rows

    model.read(prompts, visit)
    return roots


def _require_small(models: Sequence[Model], max_length: int) -> None:
    for model in models:
        if model.elsewhere is not None or (model.ranks is not None and model.ranks.spread):
            raise OptionError(
                f"{model.name} does not run in this process, so its patterns are not available "
                "here; match its heads where it runs"
            )
    size = _pattern_bytes(models, max_length)
    if size > LARGEST:
        raise OptionError(
            f"patterns over {max_length:,} tokens take {size / 1024**3:.1f} GiB in both models, "
            f"more than {LARGEST / 1024**3:g}; give shorter prompts"
        )


def _tokens(model: Model, seed: int) -> np.ndarray:
    ids = ordinary_ids(model)
    rng = np.random.default_rng(seed)
    return rng.permutation(ids)[: max(TOKENS, 2)]


def _circuit_rows(
    a: Model, b: Model, by: str, tokens: np.ndarray
) -> Iterator[tuple[UnitRows, UnitRows]]:
    sides = [_circuits(model, by, tokens) for model in (a, b)]
    for t in range(len(tokens)):
        rows_a, rows_b = ({site: x[:, t] for site, x in side.items()} for side in sides)
        yield rows_a, rows_b


def _circuits(
    model: Model, by: str, tokens: np.ndarray
) -> dict[tuple[str, int], Float[Tensor, "head token entry"]]:
    """Return unit rows of the circuits between tokens, of every head."""
    from interp.model.locate.weights import embeddings, predicting_sites

    ends = embeddings(model)
    columns = ordinary_ids(model)
    if len(columns) > COLUMNS:
        columns = np.random.default_rng(0).permutation(columns)[:COLUMNS]
    circuits = {}
    for site in predicting_sites(model):
        weights = model.weights_of(site)
        circuit = weights.OV if by == "ov" else weights.QK
        embedded = ends.W_E(site.stack).to(circuit.left)
        last = ends.W_U[:, columns] if by == "ov" else embedded[columns].T
        rows = (embedded[tokens] @ circuit.left) @ (circuit.right @ last.to(circuit.right))
        rows = (rows - rows.mean(-1, keepdim=True)).float()
        size = rows.norm(dim=-1, keepdim=True)
        circuits[site.stack, site.layer] = (rows / size.clamp_min(1e-30)).detach().cpu()
    return circuits
