"""Detail of each head on a page, chosen so that the page stays within its budget of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from interp.core.head import Head
from interp.heads.patterns.coding import as_letters, coarser, compressed, quantised, triangular
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import Stack, Terms, Tile, ZoomTerms, stack_summary

KEPT = 12  # heads in full where the others are reduced, if none is named
PARTS = (0.75, 0.5, 0.25)  # shares of the heads in full, tried first
# (bits per weight, tokens per row of the reduced heads)
LEVELS = ((16, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (8, 32), (8, 64))


@dataclass(frozen=True)
class Detail:
    """One level of detail of a view."""

    bits: int
    block: int  # tokens per row of a reduced head
    kept: tuple[tuple[str, Head], ...]  # heads in full, by stack

    def block_of(self, stack: str, head: Head) -> int:
        """Return the tokens per row of a head."""
        return 1 if (stack, head) in self.kept else self.block


@dataclass
class LetterBlocks:
    """Blocks of letters in a page, with the keys to read them."""

    blobs: dict[str, str] = field(default_factory=dict)

    def put(self, values: np.ndarray, *, triangle: bool = False) -> dict[str, object]:
        """Store values, and return the keys with which a script reads them."""
        name = f"b{len(self.blobs)}"
        self.blobs[name] = as_letters(compressed(values, triangle=triangle))
        return {"b": name, "n": list(values.shape), "t": triangle, "s": values.dtype.itemsize}

    @property
    def size(self) -> int:
        """Bytes in the page."""
        return sum(map(len, self.blobs.values())) + 60 * len(self.blobs)


def order(view: View, opened: tuple[str, Head] | None = None) -> list[tuple[str, Head]]:
    """Return the heads in reading order: named heads, the opened one, then heads of low entropy."""
    rows = [row for stack in view.stacks for row in stack_summary(stack)]
    rows.sort(key=lambda row: row["entropy"])  # type: ignore[arg-type,return-value]
    places = [(str(r["stack"]), Head(r["layer"], r["head"])) for r in rows]  # type: ignore[arg-type]
    first = [at for head in view.named for at in places if at[1] == head]
    return list(dict.fromkeys([*first, *([opened] if opened else []), *places]))


def details(view: View, opened: tuple[str, Head] | None = None) -> list[Detail]:
    """Return levels of detail, from most to least; the opened head is among those in full."""
    ordered = order(view, opened)
    longest = max(len(s.queries) for s in view.stacks)
    least = sum(head in view.named for _, head in ordered) or KEPT
    levels = []
    for bits, block in LEVELS:
        if block > max(1, longest // 4):
            continue
        counts = [int(len(ordered) * part) for part in PARTS] if block == 2 else []
        for count in [*(c for c in counts if c > least), least]:
            levels.append(Detail(bits, block, tuple(ordered[:count])))
    # at the end no head is in full
    return [*levels, *(Detail(8, block, ()) for _, block in LEVELS if 1 < block <= longest // 4)]


def heads_written(
    stack: Stack, detail: Detail, store: LetterBlocks, room: float
) -> list[dict] | None:
    """Return the weights of every head, or None if they take more than `room` bytes."""
    items = []
    for head, weights in stack.weights.items():
        block = detail.block_of(stack.name, head)
        shown = weights if block == 1 else coarser(weights, block)
        triangle = triangular(shown)
        item = store.put(quantised(shown, detail.bits), triangle=triangle)
        items.append({"name": str(head), "block": block, "bits": detail.bits, "w": item})
        if store.size > room:
            return None
    return items


def _vectors_written(terms: Terms | ZoomTerms, store: LetterBlocks) -> dict[str, object]:
    """Return queries and keys in 16 bits per number, with the step of each vector."""
    item: dict[str, object] = {}
    for name, vectors in (("q", terms.q), ("k", terms.k)):
        sizes = np.abs(vectors).max(1).astype("<f4")
        steps = np.where(sizes == 0, 1.0, sizes / 32767).astype("<f4")
        item[name] = store.put(np.rint(vectors / steps[:, None]).astype("<i2"))
        item[f"{name}s"] = store.put(steps[:, None])
    return item


def terms_written(terms: Terms, store: LetterBlocks) -> dict[str, object]:
    """Return queries and keys as 16-bit numbers, and the other terms of the scores."""
    item: dict[str, object] = {"scale": terms.scale, "softcap": terms.softcap, "sink": terms.sink}
    item |= _vectors_written(terms, store)
    if terms.bias is not None:
        step = np.float32(max(float(np.abs(terms.bias).max()) / 32767, 1e-30))
        item["bias"] = store.put(np.rint(terms.bias / step).astype("<i2"))
        item["step"] = float(step)
    visible = terms.visible
    if visible is not None and not np.array_equal(visible, np.tri(*visible.shape, dtype=bool)):
        item["seen"] = store.put(visible.astype(np.uint8))
    else:
        item["causal"] = visible is not None
    return item


def terms_size(terms: Terms) -> int:
    """Estimate the bytes of terms in a page."""
    numbers = terms.q.size + terms.k.size + (0 if terms.bias is None else terms.bias.size)
    return int(2 * numbers * 1.34) + 800


def add_zooms(view: View, store: LetterBlocks, written: list[dict], room: float) -> list[str]:
    """Add what zooms into heads of a long prompt, as far as it fits."""
    items = {(stack["name"], item["name"]): item for stack in written for item in stack["heads"]}
    left = []
    for stack in view.stacks:
        for head, terms in stack.zooms.items():
            numbers = terms.q.size + terms.k.size + terms.peaks.size // 2
            if store.size + int(2 * numbers * 1.34) + 8 * terms.lse.size > room - 20_000:
                left.append(str(head))
                continue
            items[stack.name, str(head)]["zoom"] = {
                **_vectors_written(terms, store),
                "lse": store.put(terms.lse.astype("<f4")[:, None]),
                "peaks": store.put(quantised(terms.peaks, 8)),
                "scale": terms.scale,
                "softcap": terms.softcap,
                "causal": terms.causal,
                "window": terms.window,
                "offset": terms.offset,
            }
    return left


def stacks_written(
    view: View, detail: Detail, store: LetterBlocks, room: float
) -> list[dict] | None:
    """Return every stack as the script reads it, or None if it takes more than `room` bytes."""
    stacks = []
    for stack in view.stacks:
        heads = heads_written(stack, detail, store, room)
        if heads is None:
            return None
        item: dict[str, object] = {
            "name": stack.name,
            "queries": stack.queries,
            "keys": stack.keys,
            "second": stack.second,
            "block": stack.block,
            "tokens": [stack.n_queries, stack.n_keys],
            "heads": heads,
            "why": stack.without_terms,
            "tiles": [_tile(tile, store) for tile in stack.tiles],
        }
        if stack.picture is not None:
            item["picture"] = {
                "grid": stack.picture.grid,
                "skip": stack.picture.skip,
                "size": stack.picture.pixels.shape[:2],
            }
        stacks.append(item)
    return stacks


def _tile(tile: Tile, store: LetterBlocks) -> dict[str, object]:
    return {
        "name": tile.name,
        "of": str(tile.head),
        "first": [tile.queries.start, tile.keys.start],
        "queries": tile.query_tokens,
        "keys": tile.key_tokens,
        "bits": 16,
        "w": store.put(quantised(tile.weights, 16), triangle=triangular(tile.weights)),
    }


def add_terms(
    view: View,
    store: LetterBlocks,
    written: list[dict],
    room: float,
    opened: tuple[str, Head] | None = None,
) -> tuple[int, int]:
    """Add queries and keys of as many heads as fit; return their number and the possible one."""
    by_name = {stack.name: stack for stack in view.stacks}
    items = {(stack["name"], item["name"]): item for stack in written for item in stack["heads"]}
    could = done = 0
    for name, head in order(view, opened):
        terms = by_name[name].terms.get(head)
        if terms is None:
            continue
        could += 1
        item = items[name, str(head)]
        if item["block"] == 1 and store.size + terms_size(terms) < room - 20_000:
            item["terms"] = terms_written(terms, store)
            done += 1
    return done, could
