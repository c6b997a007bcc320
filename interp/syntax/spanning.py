"""Maximum spanning trees of word-to-word scores: undirected (Prim) and directed (Edmonds).

Compiled once and stored in numba's cache. Ties are broken by index alone, so that equal scores give
the same tree on every machine.

References: Prim 1957; Chu and Liu 1965, Edmonds 1967, "Optimum branchings".
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.core.installed import compiled_by_numba

Array = np.ndarray
LEAST = -1e30  # score of an edge that must not be used


@compiled_by_numba()
def prim(score: Float[Array, "word word"]) -> Int[Array, " word"]:
    """Return each word's parent in the maximum spanning tree grown from word 0.

    The parent of word 0 is -1.

    An edge has the larger of its two scores.
    """
    n = score.shape[0]
    parent = np.full(n, -1, np.int64)
    best = np.full(n, -np.inf)
    inside = np.zeros(n, np.bool_)
    inside[0] = True
    for v in range(1, n):
        best[v] = max(score[0, v], score[v, 0])
        parent[v] = 0
    for _ in range(n - 1):
        u = -1
        for v in range(n):
            if not inside[v] and (u < 0 or best[v] > best[u]):
                u = v
        inside[u] = True
        for v in range(n):
            if not inside[v]:
                x = max(score[u, v], score[v, u])
                if x > best[v]:
                    best[v] = x
                    parent[v] = u
    return parent


@compiled_by_numba()
def prim_all(scores: Float[Array, "head word word"]) -> Int[Array, "head word"]:
    """Run `prim` for every head."""
    out = np.empty(scores.shape[:2], np.int64)
    for h in range(scores.shape[0]):
        out[h] = prim(scores[h])
    return out


@compiled_by_numba()
def arborescence(score: Float[Array, "dependent head"], root: int) -> Int[Array, " word"]:
    """Return each word's head in the maximum directed spanning tree rooted at `root`.

    `score[d, h]` is the score of h as the head of d. The root's head is -1.
    """
    n = score.shape[0]
    # Contracted nodes are numbered from n on; there are at most n - 1 of them.
    size = 2 * n
    w = np.full((size, size), -np.inf)  # w[d, h] between live nodes
    edge = np.zeros((2, size, size), np.int64)  # the original dependent and head of that edge
    for d in range(n):
        for h in range(n):
            if d not in (h, root):
                w[d, h] = score[d, h]
            edge[0, d, h] = d
            edge[1, d, h] = h
    live = np.arange(size) < n
    inside = np.full(size, -1, np.int64)  # for each node, the node it was contracted into
    choice = np.full(size, -1, np.int64)  # the chosen head among the nodes active at that time
    chosen = np.full((2, size), -1, np.int64)  # and its original edge
    top = n
    while True:
        for d in range(top):
            if live[d] and d != root:
                best = -1
                for h in range(top):
                    if live[h] and h != d and (best < 0 or w[d, h] > w[d, best]):
                        best = h
                choice[d] = best
                chosen[:, d] = edge[:, d, best]
        member = _cycle(choice, live, root, top)
        if not member.any():
            break
        live[:top] &= ~member[:top]
        inside[member] = top
        _contract(w, edge, choice, live, member, top)
        live[top] = True
        top += 1
    # From the last contraction to the first: the edge that enters a node replaces the choice of
    # the member that it actually enters; the other members keep theirs.
    for c in range(top - 1, n - 1, -1):
        v = chosen[0, c]
        while inside[v] != c:
            v = inside[v]
        chosen[:, v] = chosen[:, c]
    heads = chosen[1, :n].copy()
    heads[root] = -1
    return heads


@compiled_by_numba()
def _cycle(choice: Array, live: Array, root: int, top: int) -> Array:
    """Return the nodes of one cycle among the choices as a mask; all False without a cycle."""
    member = np.zeros(len(choice), np.bool_)
    seen = np.full(len(choice), -1, np.int64)  # index of the walk that visited the node
    for s in range(top):
        if not live[s]:
            continue
        v = s
        while v != root and seen[v] < 0:
            seen[v] = s
            v = choice[v]
        if v != root and seen[v] == s:
            while not member[v]:
                member[v] = True
                v = choice[v]
            break
    return member


@compiled_by_numba()
def _contract(w: Array, edge: Array, choice: Array, live: Array, member: Array, c: int) -> None:
    """Compute the edges between the new node c, which replaces a cycle, and all active nodes.

    Entering it at v costs the edge of the cycle that v then loses.
    """
    for x in range(c):
        if not live[x]:
            continue
        for v in range(c):
            if not member[v]:
                continue
            gain = w[v, x] - w[v, choice[v]]
            if gain > w[c, x]:
                w[c, x] = gain
                edge[:, c, x] = edge[:, v, x]
            if w[x, v] > w[x, c]:
                w[x, c] = w[x, v]
                edge[:, x, c] = edge[:, x, v]


@compiled_by_numba()
def arborescence_all(
    scores: Float[Array, "head dependent word"], root: int
) -> Int[Array, "head word"]:
    """Run `arborescence` for every head, with the same root."""
    out = np.empty(scores.shape[:2], np.int64)
    for h in range(scores.shape[0]):
        out[h] = arborescence(scores[h], root)
    return out


def rooted(
    score: Float[Array, "dependent head"], as_root: Float[Array, " word"] | None = None
) -> Int[Array, " word"]:
    """Return the maximum directed tree over all choices of one root; the root's head is -1."""
    n = len(score)
    wide = np.full((n + 1, n + 1), LEAST)
    wide[:n, :n] = score
    # A root costs more than all edges gain, so that there is exactly one.
    size = float(np.abs(score).sum()) + 1.0
    wide[:n, n] = -size + (0.0 if as_root is None else as_root)
    heads = arborescence(np.ascontiguousarray(wide, dtype=np.float64), n)[:n]
    return np.where(heads == n, -1, heads)
