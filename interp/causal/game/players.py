"""Players of a game: heads, query heads of a kv head, layers, or user-defined groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.model.calls.sites import Site
from interp.model.head_arguments import parse_heads

if TYPE_CHECKING:
    from interp.model.model import Model

KINDS = ("heads", "kv_groups", "layers")


@dataclass(frozen=True, eq=False)
class Players:
    """Disjoint groups of heads; `member[site] [head]` is a head's player, -1 for none.

    Heads that belong to no player are always active.
    """

    kind: str
    labels: tuple[str, ...]
    member: Mapping[Site, Int[Tensor, " head"]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(
        cls,
        model: Model,
        by: str | Mapping[str, Any] | Players = "heads",
        *,
        stack: str | None = None,
        heads: Any = None,
    ) -> Players:
        """Return the players of a model."""
        if isinstance(by, Players):
            return by
        if stack is not None and stack not in model.stacks:
            raise UnknownName("stack", stack, model.stacks)
        sites = [s for s in model.whole_sites if stack in (None, s.stack)]
        if isinstance(by, Mapping):
            return cls._groups(model, sites, by)
        if by not in KINDS:
            raise UnknownName("kind of player", by, KINDS)
        chosen = None if heads is None else _checked(model, sites, heads)
        several = len({s.stack for s in sites}) > 1
        labels: list[str] = []
        member: dict[Site, Tensor] = {}
        for site in sites:
            number: dict[str, int] = {}
            index = []
            for h in range(site.n_heads):
                if chosen is not None and (site.stack, site.layer, h) not in chosen:
                    index.append(-1)
                    continue
                label = _label(by, site, h)
                if label not in number:
                    number[label] = len(labels)
                    labels.append(f"{site.stack} {label}" if several else label)
                index.append(number[label])
            if max(index) >= 0:
                member[site] = torch.tensor(index)
        if not labels:
            raise OptionError(
                "no head is chosen, so there is nothing to ablate; choose at least one"
            )
        return cls(by, tuple(labels), member)

    @classmethod
    def _groups(cls, model: Model, sites: list[Site], by: Mapping[str, Any]) -> Players:
        if not by:
            raise OptionError(
                "no group of heads is given, so there is nothing to ablate; give at least one"
            )
        index = {site: [-1] * site.n_heads for site in sites}
        for number, (label, heads) in enumerate(by.items()):
            for stack, layer, h in _checked(model, sites, heads):
                site = next(s for s in sites if (s.stack, s.layer) == (stack, layer))
                if index[site][h] >= 0:
                    raise OptionError(
                        f"{Head(layer, h)} is in two groups ({label!r} is one); "
                        f"groups must be disjoint"
                    )
                index[site][h] = number
        member = {s: torch.tensor(x) for s, x in index.items() if max(x) >= 0}
        return cls("groups", tuple(by), member)

    def spread(
        self, gates: Float[Tensor, "coalition player"]
    ) -> dict[Site, Float[Tensor, "coalition head"]]:
        """Expand the gates of players to gates of heads; 1 for heads without a player."""
        always = torch.cat([gates, torch.ones_like(gates[:, :1])], 1)
        return {site: always[:, index.to(gates.device)] for site, index in self.member.items()}

    def without(self, out: Players) -> Players:
        """Remove the heads of `out` from the players; a player without heads is dropped."""
        member = {}
        for site, index in self.member.items():
            gone = out.member.get(site)
            member[site] = index if gone is None else torch.where(gone >= 0, -1, index)
        left = sorted({int(i) for index in member.values() for i in index if i >= 0})
        if not left:
            raise OptionError(
                "every player is permanently ablated, so no player is left; name "
                "fewer heads in without="
            )
        new = {old: number for number, old in enumerate(left)}
        member = {
            s: torch.tensor([new.get(int(i), -1) for i in index])
            for s, index in member.items()
            if int(index.max()) >= 0
        }
        return Players(self.kind, tuple(self.labels[i] for i in left), member)

    def subset(self, numbers: Sequence[int]) -> Players:
        """Return some of the players, in the given order; other heads belong to no player."""
        new = {int(old): place for place, old in enumerate(numbers)}
        member = {
            site: torch.tensor([new.get(int(i), -1) for i in index])
            for site, index in self.member.items()
            if any(int(i) in new for i in index)
        }
        return Players(self.kind, tuple(self.labels[i] for i in numbers), member)

    def heads_of(self, player: int) -> list[tuple[Site, int]]:
        """Return the heads of one player."""
        return [
            (site, h)
            for site, index in self.member.items()
            for h, number in enumerate(index.tolist())
            if number == player
        ]


def _label(by: str, site: Site, head: int) -> str:
    if by == "heads":
        return str(Head(site.layer, head))
    return f"L{site.layer}" if by == "layers" else f"L{site.layer}KV{site.kv_head(head)}"


def _checked(model: Model, sites: Sequence[Site], heads: Any) -> list[tuple[str, int, int]]:
    """Return (stack, layer, head) of each head after checking that it exists and is unique."""
    places = []
    for head in parse_heads(heads):
        fits = [s for s in sites if s.layer == head.layer and head.head < s.n_heads]
        if not fits:
            raise OptionError(
                f"{model.name} has no head {head} in {', '.join({s.stack for s in sites})}"
            )
        if len(fits) > 1:
            raise OptionError(
                f"{head} exists in {', '.join(s.stack for s in fits)}; select one with stack="
            )
        places.append((fits[0].stack, head.layer, head.head))
    return places
