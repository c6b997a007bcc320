"""Attention sites of a model: location, sizes and the tensors around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

DISTRIBUTIONS = "not negative, rows sum to 1"
"""What a site says of a map that is its own pattern."""


@dataclass(frozen=True)
class Where:
    """Tensor of the forward pass: input or output of a module, times `scale`."""

    module: str
    side: str  # "in" or "out"
    run: int = 0
    scale: float = 1.0
    # of `attn_out`: the stream that it is added to, and whether the attention module adds it
    base: Where | None = field(default=None, compare=False)
    added_within: bool = field(default=False, compare=False)


POOLING = "pooling"  # stack of attentions with one learned query, which follow a tower's layers
APART = ("cross", POOLING)  # stacks whose queries are not positions of the sequence of their keys
# stacks beside one over text, by their first word
TOWERS = ("vision", "image", "video", "audio", POOLING)


@dataclass(frozen=True)
class Site:
    """One attention call of a forward pass."""

    stack: str
    layer: int
    module: str
    run: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_v: int
    watched: bool  # read by watching the code instead of through the interface
    has_qk: bool
    causal: bool
    projection: str | None = None
    gated: bool = False  # the projection's input is not z itself
    recorded: bool = False  # its own code computes a pattern that q, k and a bias do not give
    order: int | None = None  # place of q·k among the products of the module's own code
    kind: str = "softmax"  # of the map from values to outputs; see `interp.model.mixers`
    about: str = ""  # sign and row sums of a map that is not a softmax
    # causal on text alone, though pictures and a prefix are read in both directions
    prefix: bool = False
    streams: Mapping[str, Where] = field(default_factory=dict, compare=False)

    @cached_property
    def name(self) -> str:
        """Name such as `decoder.5`."""
        return f"{self.stack}.{self.layer}"

    @property
    def of_tower(self) -> bool:
        """True if the stack reads pictures or sound, beside one that reads text."""
        return self.stack.partition("_")[0] in TOWERS

    @property
    def distributes(self) -> bool:
        """True if every row of the map is a distribution over keys."""
        return self.kind == "softmax" or self.about == DISTRIBUTIONS

    def kv_head(self, head: int) -> int:
        """Return the key-value head that a query head reads."""
        return head // (self.n_heads // self.n_kv_heads)


def softmax_sites(sites: Iterable[Site]) -> list[Site]:
    """Return the sites whose heads are one softmax; others have no weights of queries and keys."""
    return [site for site in sites if site.kind == "softmax"]


def circuit_sites(sites: Iterable[Site]) -> list[Site]:
    """Return the softmax sites whose queries, keys and values are all read from a stream.

    The query of a pooling attention is a parameter, so it has no circuit of queries and keys, and
    it follows the last layer, so nothing composes with it.
    """
    return [site for site in softmax_sites(sites) if site.stack != POOLING]


def skipped_layers(sites: Iterable[Site]) -> str:
    """State in one sentence which layers were left out; empty where none was."""
    by_kind: dict[str, list[str]] = {}
    for site in sites:
        by_kind.setdefault(site.kind, []).append(site.name)
    if not by_kind:
        return ""
    named = "; ".join(f"{', '.join(names)} ({kind})" for kind, names in by_kind.items())
    return f"Only softmax layers were read; skipped because they are not one softmax: {named}."
