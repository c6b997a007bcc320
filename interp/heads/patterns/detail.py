"""What a page holds of each head, so that all of it stays within a number of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from interp.core.head import Head
from interp.heads.patterns.coding import as_letters, coarser, compressed, quantised, triangular
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import Stack, Terms, stack_summary

KEPT = 12  # heads kept in full where the others are not, if none is named
PARTS = (0.75, 0.5, 0.25)  # of the heads in full, to begin with
# (bits per weight, tokens per row of the heads that are not kept in full)
LEVELS = ((16, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (8, 32), (8, 64))


@dataclass(frozen=True)
class Detail:
    """One way to write a view down."""

    bits: int
    block: int  # tokens of a row of a head that is not kept
    kept: tuple[tuple[str, Head], ...]  # heads in full, by stack

    def block_of(self, stack: str, head: Head) -> int:
        """Tokens per row of this head."""
        return 1 if (stack, head) in self.kept else self.block


@dataclass
class LetterBlocks:
    """Blocks of letters in a page, and how to read them."""

    blobs: dict[str, str] = field(default_factory=dict)

    def put(self, values: np.ndarray, *, triangle: bool = False) -> dict[str, object]:
        """File values; what a script must know to read them back."""
        name = f"b{len(self.blobs)}"
        self.blobs[name] = as_letters(compressed(values, triangle=triangle))
        return {"b": name, "n": list(values.shape), "t": triangle, "s": values.dtype.itemsize}

    @property
    def size(self) -> int:
        """Bytes in the page."""
        return sum(map(len, self.blobs.values())) + 60 * len(self.blobs)


def order(view: View) -> list[tuple[str, Head]]:
    """Heads by what a reader looks at first: those named, then those that attend to few keys."""
    rows = [row for stack in view.stacks for row in stack_summary(stack)]
    rows.sort(key=lambda row: row["entropy"])  # type: ignore[arg-type,return-value]
    found = [(str(r["stack"]), Head(r["layer"], r["head"])) for r in rows]  # type: ignore[arg-type]
    first = [at for head in view.named for at in found if at[1] == head]
    return list(dict.fromkeys([*first, *found]))


def details(view: View) -> list[Detail]:
    """Ways to write it down, from most to least."""
    ordered = order(view)
    longest = max(len(s.queries) for s in view.stacks)
    least = sum(head in view.named for _, head in ordered) or KEPT
    found = []
    for bits, block in LEVELS:
        if block > max(1, longest // 4):
            continue
        counts = [int(len(ordered) * part) for part in PARTS] if block == 2 else []
        for count in [*(c for c in counts if c > least), least]:
            found.append(Detail(bits, block, tuple(ordered[:count])))
    # at the end nothing is kept in full
    return [*found, *(Detail(8, block, ()) for _, block in LEVELS if 1 < block <= longest // 4)]


def heads_written(
    stack: Stack, detail: Detail, store: LetterBlocks, room: float
) -> list[dict] | None:
    """Every head's weights; None as soon as they take more than `room` bytes."""
    found = []
    for head, weights in stack.weights.items():
        block = detail.block_of(stack.name, head)
        shown = weights if block == 1 else coarser(weights, block)
        triangle = triangular(shown)
        item = store.put(quantised(shown, detail.bits), triangle=triangle)
        found.append({"name": str(head), "block": block, "bits": detail.bits, "w": item})
        if store.size > room:
            return None
    return found


def terms_written(terms: Terms, store: LetterBlocks) -> dict[str, object]:
    """Queries and keys as 16-bit numbers, one scale per vector, and what else enters the score."""
    item: dict[str, object] = {"scale": terms.scale, "softcap": terms.softcap, "sink": terms.sink}
    for name, vectors in (("q", terms.q), ("k", terms.k)):
        sizes = np.abs(vectors).max(1).astype("<f4")
        steps = np.where(sizes == 0, 1.0, sizes / 32767).astype("<f4")
        item[name] = store.put(np.rint(vectors / steps[:, None]).astype("<i2"))
        item[f"{name}s"] = store.put(steps[:, None])
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
    """About the bytes that they take in a page."""
    numbers = terms.q.size + terms.k.size + (0 if terms.bias is None else terms.bias.size)
    return int(2 * numbers * 1.34) + 800
