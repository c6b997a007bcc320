"""Places that may hold a variable, and the runs in which a part of what they hold is exchanged."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.causal.game.replay import CleanRun, capture_for_replay, restore_blocks
from interp.causal.game.verify import reuse_of
from interp.circuits.node_outputs import NodeOutputs, paired_outputs
from interp.circuits.residual_graph import Layer, ResidualGraph
from interp.circuits.stream_hooks import Watch, watched
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from interp.circuits.variables.interchanges import PlacedInterchange
    from interp.dictionaries.dictionary import Dictionary
    from interp.model.model import Model

Written = Literal["heads", "post"]
BATCH = 64


@dataclass(frozen=True)
class HeldColumns:
    """Columns of the concatenated head outputs of a layer, or of the stream that leaves it."""

    order: int
    kind: Written
    columns: slice

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.columns.stop - self.columns.start


@dataclass(frozen=True)
class HeldPlace:
    """One or several pieces, at one position of the base prompt or at all.

    Args:
        name: such as L5H4, L5 (all heads of a layer), L5H4+L5H5 or stream5 (what leaves a layer).
        pieces: what is exchanged together.
        position: a position, counted from the end if negative; None for all.
    """

    name: str
    pieces: tuple[HeldColumns, ...]
    position: int | None = None

    @property
    def width(self) -> int:
        """The number of columns of all pieces."""
        return sum(piece.width for piece in self.pieces)


def places_of(graph: ResidualGraph, names: Sequence[str] | None) -> list[HeldPlace]:
    """Return places by name; by default every head, all heads of every layer, and every stream."""
    known: dict[str, HeldColumns] = {}
    for layer in graph.layers:
        site, width = layer.site, layer.site.d_v
        for h in range(site.n_heads):
            columns = slice(h * width, (h + 1) * width)
            known[f"L{site.layer}H{h}"] = HeldColumns(layer.order, "heads", columns)
        every = slice(0, site.n_heads * width)
        known[f"L{site.layer}"] = HeldColumns(layer.order, "heads", every)
        known[f"stream{site.layer}"] = HeldColumns(
            layer.order, "post", slice(0, graph.model.d_model)
        )
    if names is None:
        heads = [x for x in known if "H" in x]
        return [HeldPlace(x, (known[x],)) for x in [*heads, *(x for x in known if x not in heads)]]
    if not names:
        raise OptionError("no place is given; name heads such as L5H4, or leave it out for all")
    places = []
    for name in dict.fromkeys(names):
        parts = name.split("+")
        for part in parts:
            if part not in known:
                raise UnknownName(f"place of {graph.model.name}", part, known)
        places.append(HeldPlace(name, tuple(known[part] for part in dict.fromkeys(parts))))
    return places


def dictionary_place(model: Model, dictionary: Dictionary) -> str:
    """Return the name of the place of a dictionary."""
    site = dictionary.site_in(model)
    kinds = {"z": f"L{site.layer}", "resid_post": f"stream{site.layer}"}
    if dictionary.site not in kinds or dictionary.site != dictionary.site_out:
        raise OptionError(
            f"a dictionary of {dictionary.site} is no place of a variable; give one of z or of "
            "resid_post"
        )
    return kinds[dictionary.site]


def placed_at(
    graph: ResidualGraph,
    names: Sequence[str] | None,
    method: str,
    positions: Sequence[int] | None,
    shortest: int,
) -> list[HeldPlace]:
    """Return the places of a search, each at every position that was given."""
    places = places_of(graph, names)
    if method == "heads":
        heads = [place for place in places if "H" in place.name]
        places = [HeldPlace("heads", tuple(place.pieces[0] for place in heads))]
    if positions is None:
        return places
    for position in positions:
        if not -shortest <= position < shortest:
            raise OptionError(
                f"position {position} of prompts of {shortest} or more tokens; give "
                f"{-shortest} to {shortest - 1}"
            )
    return [replace(place, position=x) for x in dict.fromkeys(positions) for place in places]


@dataclass(frozen=True, eq=False)
class Subspace:
    """Directions of the pieces of a place, and how much of each is exchanged.

    Args:
        basis: by piece, orthonormal columns.
        weight: by piece, 1 for a direction that is exchanged, 0 for one that stays.
        inside: by piece, orthonormal columns; only the part of the change that lies in their span
            is made. None makes the whole.
    """

    basis: tuple[Float[Tensor, "width direction"], ...]
    weight: tuple[Float[Tensor, " direction"], ...]
    inside: tuple[Float[Tensor, "width direction"], ...] | None = None

    @classmethod
    def of(cls, basis: Sequence[Float[Tensor, "width direction"]]) -> Subspace:
        """Return the subspace of directions that are all exchanged."""
        return cls(tuple(basis), tuple(torch.ones(x.shape[1]) for x in basis))

    def change(
        self, at: int, base: Float[Tensor, "*x width"], source: Float[Tensor, "*x width"]
    ) -> Float[Tensor, "*x width"]:
        """Return what is added to a piece of the base run, from what both runs hold."""
        change = self._coordinates(at, base, source) * self.weight[at] @ self.basis[at].T
        if self.inside is not None:
            change = change @ self.inside[at] @ self.inside[at].T
        return change

    def _coordinates(self, at: int, base: Tensor, source: Tensor) -> Tensor:
        return (source - base) @ self.basis[at]

    def to(self, device: torch.device) -> Subspace:
        """Return the same directions on another device."""
        moved = [
            None if each is None else tuple(x.to(device) for x in each)
            for each in (self.basis, self.weight, self.inside)
        ]
        return replace(self, basis=moved[0], weight=moved[1], inside=moved[2])

    @property
    def n_directions(self) -> int:
        """The number of directions that are exchanged."""
        return int(sum((w > 0.5).sum() for w in self.weight))


@dataclass(frozen=True, eq=False)
class FeatureSubspace(Subspace):
    """Features of a dictionary whose codes are exchanged; what it does not reconstruct stays.

    Args:
        dictionary: the dictionary of the place; `basis` are its decoder rows, as columns.
        features: their numbers.
    """

    dictionary: Dictionary | None = None
    features: tuple[int, ...] = ()

    @classmethod
    def of_features(cls, dictionary: Dictionary, features: Sequence[int]) -> FeatureSubspace:
        """Return the exchange of some features."""
        rows = dictionary.W_dec.detach().float()[list(features)]
        ones = torch.ones(len(rows), device=rows.device)
        return cls((rows.T,), (ones,), dictionary=dictionary, features=tuple(features))

    def _coordinates(self, at: int, base: Tensor, source: Tensor) -> Tensor:
        assert self.dictionary is not None
        encode = self.dictionary.encode
        return (encode(source) - encode(base))[..., list(self.features)]


class _Exchange(Watch):
    """Watcher that adds a part of source minus base to the pieces of a place."""

    def __init__(self, place: HeldPlace, subspace: Subspace, source: Mapping) -> None:
        self.place, self.subspace, self.source = place, subspace, source

    def _put(self, kind: Written, layer: Layer, x: Tensor) -> Tensor | None:
        here = slice(None) if self.place.position is None else self.place.position
        changed = None
        for at, piece in enumerate(self.place.pieces):
            if (piece.order, piece.kind) != (layer.order, kind):
                continue
            changed = x.clone() if changed is None else changed
            old = x[:, here, piece.columns]
            new = self.source[layer.order, kind][:, here, piece.columns]
            change = self.subspace.change(at, old.float(), new.float())
            changed[:, here, piece.columns] = old + change.to(old)
        return changed

    def heads(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Change the outputs of heads."""
        return self._put("heads", layer, x)

    def post(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Change the stream that leaves a block."""
        return self._put("post", layer, x)


@dataclass(frozen=True, eq=False)
class _Group:
    """Interchanges of one length, with what their base and source runs write."""

    which: Int[np.ndarray, " row"]
    base: Sequence[tuple[int, ...]]
    answer: Int[Tensor, " row"]
    read_at: Int[Tensor, " row"]
    own: Mapping[tuple[int, str], Tensor]
    source: Mapping[tuple[int, str], Tensor]
    clean: CleanRun  # of the base prompts


def _by_kind(found: NodeOutputs) -> dict[tuple[int, str], Tensor]:
    """Return head outputs and streams by layer and kind."""
    heads = {(order, "heads"): x for order, x in enumerate(found.z)}
    return heads | {(order, "post"): x for order, x in enumerate(found.left)}


class InterchangeRuns:
    """Source runs of interchanges, and base runs into which a part of them is put.

    What runs before the first piece of a place is restored from the base run where that is exact.

    Args:
        graph: the residual graph of the model.
        rows: the interchanges.

    Raises:
        PromptError: the model predicts no such token as an answer.
        UnreadableAttention: the stream of the model is no sum of its heads and MLPs.

    Attributes:
        plain: the model's answer to each base prompt.
        forwards: number of forward passes over single prompts.
    """

    def __init__(self, graph: ResidualGraph, rows: Sequence[PlacedInterchange]) -> None:
        self.graph, self.rows, self.forwards = graph, rows, 0
        self.reuse = replace(reuse_of(graph.model), attention={}, unembedding=None)
        self.groups: list[_Group] = []
        self.plain = np.full(len(rows), -1)
        lengths = np.array([len(row.base) for row in rows])
        for length in dict.fromkeys(lengths.tolist()):
            every = np.flatnonzero(lengths == length)
            for which in np.array_split(every, -(-len(every) // BATCH)):
                self._add(which)

    def _add(self, which: np.ndarray) -> None:
        rows = [self.rows[i] for i in which]
        base = [row.base for row in rows]
        outputs, source = paired_outputs(self.graph, base, [row.source for row in rows])
        model = self.graph.model
        with inference(model.module):
            clean = capture_for_replay(model, model.inputs(base), self.reuse)
        self.forwards += 3 * len(rows)
        device, width = outputs.logits.device, outputs.logits.shape[-1]
        if largest := max([row.answer for row in rows if row.answer >= width], default=0):
            raise PromptError(
                f"an interchange has the answer {largest}; {self.graph.model.name} predicts token "
                f"ids from 0 to {width - 1}"
            )
        group = _Group(
            which,
            base,
            torch.tensor([row.answer for row in rows], device=device),
            torch.tensor([row.read_at for row in rows], device=device),
            _by_kind(outputs),
            _by_kind(source),
            clean,
        )
        self.plain[which] = self._read(group, outputs.logits).argmax(-1).cpu()
        self.groups.append(group)

    def _logits(self, ids: Sequence[tuple[int, ...]]) -> Tensor:
        self.forwards += len(ids)
        return self.graph.model.run(self.graph.model.inputs(ids))

    @staticmethod
    def _read(group: _Group, logits: Tensor) -> Tensor:
        return logits[torch.arange(len(logits), device=logits.device), group.read_at].float()

    def logits(
        self, group: _Group, place: HeldPlace, subspace: Subspace
    ) -> Float[Tensor, "row token"]:
        """Return the logits at the answer's position, with the part of the source runs put in."""
        there = subspace.to(group.answer.device)
        with ExitStack() as stack:
            if self.reuse.blocks:
                unchanged = min(
                    self.reuse.block_of[self.graph.layers[piece.order].site]
                    + (piece.kind == "post")
                    for piece in place.pieces
                )
                restore_blocks(stack, self.graph.model, group.clean, self.reuse, unchanged, 1)
            stack.enter_context(watched(self.graph, _Exchange(place, there, group.source)))
            return self._read(group, self._logits(group.base))

    def answering(self, answers: Sequence[int]) -> InterchangeRuns:
        """Return the same runs with other answers to fit and to judge."""
        runs = copy.copy(self)
        pairs = zip(self.rows, answers, strict=True)
        runs.rows = [replace(row, answer=answer) for row, answer in pairs]
        runs.groups = [
            replace(group, answer=group.answer.new_tensor([answers[i] for i in group.which]))
            for group in self.groups
        ]
        return runs

    def answers(self, place: HeldPlace, subspace: Subspace) -> Int[np.ndarray, " row"]:
        """Return the model's answers with the part of the source runs put in."""
        tokens = np.full(len(self.rows), -1)
        with inference(self.graph.model.module), torch.no_grad():
            for group in self.groups:
                tokens[group.which] = self.logits(group, place, subspace).argmax(-1).cpu()
        return tokens

    def held(self, place: HeldPlace, at: int) -> tuple[Tensor, Tensor]:
        """Return on the CPU what a piece holds in base and source runs, a row per position."""
        piece = place.pieces[at]
        here = slice(None) if place.position is None else [place.position]
        both = []
        for side in ("own", "source"):
            parts = [
                getattr(group, side)[piece.order, piece.kind][:, here, piece.columns]
                for group in self.groups
            ]
            both.append(torch.cat([x.reshape(-1, piece.width) for x in parts]).float().cpu())
        return both[0], both[1]
