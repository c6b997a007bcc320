"""A sample of the edges of every head, with the vectors that it reads there.

An edge is a query and one key, drawn in proportion to the attention off the sink: shares of sampled
edges, weighted by the attention of their queries off the sink, estimate shares of that attention.
Beside it stands another key of the same query, drawn from the row that position predicts.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.model.calls.call import repeat_kv
from interp.profiles.rows_read import described_sites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int
    from torch import Tensor

    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow
    from interp.profiles.rows_read import AttentionRows

EDGES = 1536  # of a head, over all windows
VECTORS = ("queries", "outputs", "keys", "values", "other_keys", "other_values")
"""Vectors of the query, of its key, and of the key that the model of position draws."""
_ENTRIES = 2**25  # numbers of all vectors that are held


def edges_per_window(model: Model, n_windows: int) -> int:
    """Return how many queries of each window give an edge.

    It does not depend on the heads that are asked for, so that these have the numbers of a profile
    of all heads.
    """
    size = sum(
        site.n_heads * len(VECTORS) * vector_length([site]) for site in described_sites(model)
    )
    return max(1, min(EDGES, _ENTRIES // max(size, 1)) // n_windows)


def vector_length(sites: Sequence[Site]) -> int:
    """Return the length of the longest vector of some attentions."""
    return max(max(site.d_head, site.d_v) for site in sites)


class WindowEdges:
    """Edges of one window, filled site by site.

    Args:
        window: the window.
        sites: the attentions.
        n_heads: number of their heads.
        n: queries that give an edge.
        n_rules: number of rules.
        seed: seed of the choice of queries and keys.
    """

    def __init__(
        self,
        window: TextWindow,
        sites: Sequence[Site],
        n_heads: int,
        n: int,
        n_rules: int,
        seed: int,
    ) -> None:
        self.window, self.seed = window, seed
        size = min(n, len(window.queries))
        order = self._rng("queries").permutation(len(window.queries))
        self.rows: Int[np.ndarray, " row"] = np.sort(order[:size])
        self.width = vector_length(sites)
        self.keys = np.zeros((2, n_heads, size), np.int32)
        self.fired = np.zeros((2, n_heads, size, -(-n_rules // 8)), np.uint8)
        self.vectors = np.zeros((n_heads, size, len(VECTORS), self.width), np.float32)

    def _rng(self, name: str) -> np.random.Generator:
        code = zlib.crc32(name.encode())
        return np.random.default_rng([self.seed, code, self.window.offset, *self.window.ids[:8]])

    def add(
        self,
        at: slice,
        site: Site,
        seen: AttentionRows,
        masks: Float[Tensor, "rule row pos"],
        expected: Float[Tensor, "head row pos"],
    ) -> None:
        """Draw keys for the chosen queries of one attention, and keep what is read there."""
        rows = torch.from_numpy(self.rows)
        rng = self._rng(site.name)
        for which, mass in enumerate((seen.mass, expected)):
            whole = mass[:, rows].double().cumsum(-1)
            chance = torch.from_numpy(rng.random(whole.shape[:2])) * whole[..., -1]
            drawn = (whole <= chance[..., None]).sum(-1).clamp_max(whole.shape[2] - 1)
            self.keys[which, at] = drawn.numpy()
            fired = masks.bool()[:, rows.expand(drawn.shape), drawn].permute(1, 2, 0)
            self.fired[which, at] = np.packbits(fired.numpy(), axis=-1)
        if seen.call is None:
            return
        places = np.asarray(self.window.queries)[self.rows]
        for name, values in vectors_read(seen.call, places, self.keys[:, at]).items():
            vectors = values.numpy()
            self.vectors[at, :, VECTORS.index(name), : vectors.shape[-1]] = vectors

    def plain(self) -> dict[str, np.ndarray]:
        """Return the arrays of the window by the names that `JudgedRows` gives them."""
        return {
            "edge_rows": self.rows,
            "edge_keys": self.keys,
            "edge_fired": self.fired,
            "edge_vectors": self.vectors,
        }


def vectors_read(
    call: Any, rows: Int[np.ndarray, " row"], keys: Int[np.ndarray, "2 head row"]
) -> dict[str, Float[Tensor, "head row dim"]]:
    """Vectors of some edges of an attention call; those that it does not know are left out."""
    heads = call.n_heads
    at = torch.as_tensor(rows, device=call.z.device)
    head = torch.arange(heads, device=at.device)[:, None]
    vectors = {"outputs": call.z[0, :, at]}
    if call.q is not None and call.k is not None:
        vectors["queries"] = call.q[0, :, at]
    for name, which in (("", keys[0]), ("other_", keys[1])):
        places = torch.as_tensor(which, device=at.device)
        if call.q is not None and call.k is not None:
            vectors[f"{name}keys"] = repeat_kv(call.k, heads)[0, head, places]
        if call.v is not None:
            vectors[f"{name}values"] = repeat_kv(call.v, heads)[0, head, places]
    return {name: value.detach().float().cpu() for name, value in vectors.items()}
