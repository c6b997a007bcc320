"""Caches cut to the first and the last tokens: the reference mask, and the edit that applies it.

A query sees key `j` from position `i` if `j < sink` or `i - j < recent`: the first `sink` tokens
and the last `recent`, itself included, at their true positions. A cache of `sink + recent` tokens
holds exactly these. Published evaluations that shift positions inside the cache (StreamingLLM)
measure something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.annotated import READERS
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.model.calls.call import Call, ComputedCall, repeat_kv
from interp.model.calls.steps import key_positions, query_positions
from interp.model.edits import Edit

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

BLOCK = 2**21  # scores of a block of rows
_NAME = re.compile(r"\s*L([0-9]{1,9})KV([0-9]{1,9})\s*", re.IGNORECASE)


class KVHead(NamedTuple):
    """One key-value head, whose cache its group of query heads shares."""

    stack: str
    layer: int
    kv_head: int

    def __str__(self) -> str:
        return f"L{self.layer}KV{self.kv_head}"

    @classmethod
    def parse(cls, text: object) -> KVHead:
        """Read `L5KV1`, or a pair of layer and key-value head, as one of a decoder."""
        if isinstance(text, cls):
            return text
        match = _NAME.fullmatch(text) if isinstance(text, str) else None
        pair = match.groups() if match else text
        if isinstance(pair, tuple) and len(pair) == 2 and all(str(x).isdecimal() for x in pair):
            return cls("decoder", int(pair[0]), int(pair[1]))
        raise OptionError(f"cannot read {text!r} as a key-value head; write L5KV1 or (5, 1)")


READERS[f"{__name__}:KVHead"] = KVHead.parse


@dataclass(frozen=True)
class Window:
    """Tokens that a cut cache keeps: the first `sink` and the last `recent`.

    Raises:
        OptionError: `sink` is negative or `recent` below 1, since a token always sees itself.
    """

    sink: int
    recent: int

    def __post_init__(self) -> None:
        if self.sink < 0 or self.recent < 1:
            raise OptionError(
                f"sink={self.sink}, recent={self.recent}: a cache keeps 0 or more first tokens and "
                "at least 1 recent token, the current one"
            )

    @property
    def tokens(self) -> int:
        """Number of tokens that the cache holds."""
        return self.sink + self.recent

    def __str__(self) -> str:
        return f"{self.sink}+{self.recent}"


def window_mask(queries: int, keys: int, window: Window) -> Bool[Tensor, "query key"]:
    """Return the reference mask of a cut cache; the last query is at the last key."""
    query = torch.arange(keys - queries, keys)[:, None]
    key = torch.arange(keys)
    return (key <= query) & ((key < window.sink) | (query - key < window.recent))


def cached_heads(model: Model) -> tuple[Head, ...]:
    """Return the heads of `cached_sites`, in order."""
    return tuple(Head(s.layer, h, s.stack) for s in cached_sites(model) for h in range(s.n_heads))


def cached_sites(model: Model) -> tuple[Site, ...]:
    """Return the causal self-attentions of a model, which have a cache that grows with the text.

    Maps that are not one softmax are left out: states of a recurrence do not grow.
    """
    sites = tuple(site for site in model.sites if site.causal and site.kind == "softmax")
    if not sites or not model.takes_text:
        raise OptionError(
            f"{model.name} ({model.kind}) has no causal attention over tokens, so it keeps no "
            "cache that could be cut; give a decoder of text"
        )
    return sites


def kv_heads(model: Model) -> tuple[KVHead, ...]:
    """Return every key-value head with a cache, in order of layers."""
    return tuple(
        KVHead(site.stack, site.layer, head)
        for site in cached_sites(model)
        for head in range(site.n_kv_heads)
    )


def query_heads(model: Model, head: KVHead) -> tuple[int, ...]:
    """Return the query heads that read a key-value head."""
    site = model.site(head.layer, head.stack)
    group = site.n_heads // site.n_kv_heads
    return tuple(range(head.kv_head * group, (head.kv_head + 1) * group))


def cut_cache(model: Model, windows: Mapping[KVHead, Window]) -> Edit:
    """Make the edit under which the given key-value heads keep only a sink and a window.

    Attention is computed again over the kept keys, in blocks of rows, so memory is linear in the
    length of the prompt. Positions are counted from the first real token of each prompt; during
    generation, tokens in the cache count. Gradients reach queries, keys and values.

    Args:
        model: the model whose caches are cut.
        windows: what each key-value head keeps; heads that are not named keep everything.

    Raises:
        OptionError: there are no windows.
        UnknownName: a key-value head does not exist.
    """
    known = kv_heads(model)
    if not windows:
        raise OptionError("no key-value head is cut; name at least one")
    for head in windows:
        if head not in known:
            raise UnknownName("key-value head", str(head), [str(k) for k in known])
    heads, each = [], {}
    for head, window in windows.items():
        if type(window) is not Window and getattr(window, "reads_prompt", False):
            raise OptionError(
                f"{head} has a tail beyond its window, which depends on where the prompt ends; run "
                "it as a cache (interp.cache.small_cache)"
            )
        for query in query_heads(model, head):
            heads.append(Head(head.layer, query, head.stack))
            each[head.stack, head.layer, query] = window
    sizes = sorted({str(w) for w in windows.values()})

    def new_z(call: Call, site: Site, real: Tensor) -> Tensor:
        mine = [h for h in range(site.n_heads) if (site.stack, site.layer, h) in each]
        cuts = [each[site.stack, site.layer, h] for h in mine]
        z = call.z.clone()
        z[:, mine] = windowed_output(call, site, real, mine, cuts).to(z.dtype)
        return z

    detail = f"sink+recent {', '.join(sizes)}"
    return Edit("cut-cache", tuple(heads), new_z, detail=detail, of_pattern=True)


def windowed_output(
    call: Call, site: Site, real: Tensor, heads: list[int], windows: list[Window]
) -> Float[Tensor, "batch head query_pos d_v"]:
    """Compute z of some query heads, each with its own window, in blocks of rows."""
    order_q, order_k = query_positions(real, call.before), key_positions(call, real, site)
    part = _of_heads(call, heads)
    sink = torch.tensor([w.sink for w in windows], device=call.z.device)[None, :, None, None]
    recent = torch.tensor([w.recent for w in windows], device=call.z.device)[None, :, None, None]
    queries, keys = call.z.shape[2], call.v.shape[2]
    v = repeat_kv(call.v, call.n_heads)[:, heads]
    size = max(1, BLOCK // (call.z.shape[0] * call.n_heads * keys))
    outputs = []
    for start in range(0, queries, size):
        rows = torch.arange(start, min(start + size, queries), device=call.z.device)
        scores = part.scores(rows) if part is not call else call.scores(rows)[:, heads]
        key, query = order_k[:, None, None, :], order_q[:, None, rows, None]
        gone = (key >= sink) & (query - key >= recent)
        scores = scores.masked_fill(gone, torch.finfo(scores.dtype).min)
        pattern = part.normalised(scores)
        outputs.append(pattern @ v.to(pattern.dtype))
    return torch.cat(outputs, 2)


def _of_heads(call: Call, heads: list[int]) -> Call:
    """Return the call of some query heads only; other calls than computed ones stay whole."""
    if type(call) is not ComputedCall:
        return call

    def picked(x: Tensor | None) -> Tensor | None:
        return x if x is None or x.dim() < 4 or x.shape[1] == 1 else x[:, heads]

    k, v = repeat_kv(call.k, call.n_heads), repeat_kv(call.v, call.n_heads)
    return replace(
        call,
        q=call.q[:, heads],
        k=k[:, heads],
        v=v[:, heads],
        z=call.z[:, heads],
        mask=picked(call.mask),
        bias=picked(call.bias),
        sinks=None if call.sinks is None else call.sinks.reshape(-1)[heads],
    )
