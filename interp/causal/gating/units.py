"""Units that gates act on: heads, kv groups, attention layers and MLPs, with their costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.game.players import Players
from interp.causal.task import Task, part
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.model.calls.sites import Site, Where

if TYPE_CHECKING:
    from interp.model.model import Model

COSTS = ("count", "parameters", "flops", "cache")
MLPS = ("none", "with", "only")


@dataclass(frozen=True, eq=False)
class GatedUnits:
    """Gated parts of a model; heads first, then MLPs.

    Args:
        players: groups of heads, each with one gate; None with MLPs only.
        mlps: for each gated MLP its label and the tensor that it writes.
        layer_of: for each unit the attention and whether it is an MLP: random sets are matched
            within these groups.
    """

    players: Players | None
    mlps: tuple[tuple[str, Where], ...]
    layer_of: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, model: Model, players: Any, mlps: str, **options: Any) -> GatedUnits:
        """Return the units of a model."""
        if mlps not in MLPS:
            raise UnknownName("value of mlps", mlps, MLPS)
        heads = None if mlps == "only" else Players.of(model, players, **options)
        groups: list[str] = []
        if heads is not None:
            for number in range(len(heads)):
                sites = {site.name for site, _ in heads.heads_of(number)}
                groups.append("all" if heads.kind == "layers" else "+".join(sorted(sites)))
        located = [] if mlps == "none" else located_mlps(model)
        groups += ["mlps"] * len(located)
        return cls(heads, tuple(located), tuple(groups))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names such as L0H3, L1KV0, L2 and L0MLP."""
        heads = () if self.players is None else self.players.labels
        return (*heads, *(label for label, _ in self.mlps))

    @property
    def head_labels(self) -> tuple[tuple[str, ...], ...]:
        """Labels of the heads of every unit; none for an MLP."""
        labels: list[tuple[str, ...]] = []
        for number in range(self.n_heads):
            assert self.players is not None
            mine = self.players.heads_of(number)
            labels.append(tuple(str(Head(site.layer, h, site.stack)) for site, h in mine))
        return (*labels, *(() for _ in self.mlps))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_heads(self) -> int:
        """Number of units that are groups of heads."""
        return 0 if self.players is None else len(self.players)

    def site_gates(self, gates: Float[Tensor, "row unit"]) -> dict[Site, Tensor]:
        """Return the gates of every head by attention, `[row, head]`."""
        return {} if self.players is None else self.players.spread(gates[:, : self.n_heads])

    def cost(self, model: Model, of: str, tokens: float) -> Float[np.ndarray, " unit"]:
        """Return what each unit costs.

        Keys and values that several query heads share are divided among them. Only weights that
        removal makes unnecessary count, without biases.
        """
        if of not in COSTS:
            raise UnknownName("cost", of, COSTS)
        if of == "count":
            return np.ones(len(self))
        costs = np.zeros(len(self))
        if self.players is not None:
            for number in range(len(self.players)):
                for site, _ in self.players.heads_of(number):
                    costs[number] += _head_cost(model, site, of, tokens)
        for at, (_, where) in enumerate(self.mlps, self.n_heads):
            n = _mlp_weights(model, where)
            costs[at] = {"parameters": n, "flops": 2 * n, "cache": 0}[of]
        if not costs.any():
            raise OptionError(f"no unit costs any {of}; choose another cost")
        return costs


def _head_cost(model: Model, site: Site, of: str, tokens: float) -> float:
    share = site.n_kv_heads / site.n_heads
    if of == "cache":
        return share * (site.d_head + site.d_v) * model.dtype.itemsize
    weights = model.d_model * ((1 + share) * site.d_head + (1 + share) * site.d_v)
    if of == "parameters":
        return weights
    return 2 * weights + tokens * (site.d_head + site.d_v)  # a causal row sees half of the tokens


def _mlp_weights(model: Model, where: Where) -> int:
    """Count the matrix entries of the block that holds an MLP's output, without its attentions."""
    attentions = [site.module for site in model.sites]
    block = block_of(model, where)
    return sum(
        p.numel()
        for name, p in model.module.get_submodule(block).named_parameters(prefix=block)
        if p.dim() > 1 and not any(name.startswith(f"{a}.") for a in attentions)
    )


def block_of(model: Model, where: Where) -> str:
    """Return the smallest module around an MLP's output that holds an attention too."""
    attentions = [site.module for site in model.sites]
    parts = where.module.split(".")
    return next(
        name
        for name in (".".join(parts[:n]) for n in range(len(parts) - 1, -1, -1))
        if any(a.startswith(f"{name}." if name else "") for a in attentions)
    )


def located_mlps(model: Model) -> list[tuple[str, Where]]:
    """Return the label of every MLP that is located, and the tensor that it writes."""
    located, reasons = [], []
    for site in model.sites:
        if "mlp_out" not in site.streams:
            reasons.append(site.name)
            continue
        where = site.streams["mlp_out"]
        if where.side != "out" or where.run:
            reasons.append(site.name)
            continue
        several = len(model.stacks) > 1
        label = f"L{site.layer}MLP"
        located.append((f"{site.stack} {label}" if several else label, where))
    if not located:
        raise OptionError(
            f"{model.name}: no MLP that writes to the residual stream was located "
            f"({', '.join(reasons[:3])}); gate heads only (mlps='none')"
        )
    return located


def selected(task: Task, which: list[int]) -> Task:
    """Return the task on some of its prompts, in the given order."""
    rows, read_rows, read_prompt = task.rows(which), task.read_rows, task.read_prompt

    def by_rows(logits: Tensor, row: Tensor, clean: Tensor | None) -> Tensor:
        assert read_rows is not None
        return read_rows(logits, rows.to(row.device)[row], clean)

    def by_prompt(logits: Tensor, prompt: int) -> Any:
        assert read_prompt is not None
        return read_prompt(logits, which[prompt])

    return replace(
        task,
        prompts=part(task.prompts, which),
        positions=tuple(task.positions[i] for i in which),
        read_rows=None if read_rows is None else by_rows,
        read_prompt=None if read_prompt is None else by_prompt,
        corrupted=None if task.corrupted is None else part(task.corrupted, which),
        detail=f"{task.detail}; prompts {which} of {task.hash}",
    )


def layer_matched_sets(
    units: GatedUnits, kept: np.ndarray, n: int, rng: np.random.Generator
) -> Float[Tensor, "draw unit"]:
    """Draw sets with as many kept units in every layer as `kept` has, `[draw, unit]` of 0 and 1."""
    groups = np.array(units.layer_of)
    drawn = np.zeros((n, len(units)))
    for group in dict.fromkeys(units.layer_of):
        here = np.flatnonzero(groups == group)
        for row in drawn:
            row[rng.permutation(here)[: int(kept[here].sum())]] = 1
    return torch.from_numpy(drawn)
