"""Attention patterns with their tokens: a result with rows per head, figures and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.heads.patterns.stack import (
    Link,
    Picture,
    Stack,
    Terms,
    Tile,
    ZoomTerms,
    opening_weight,
    stack_summary,
)

if TYPE_CHECKING:
    import os

    import pandas as pd
    import plotly.graph_objects as go

BUDGET = 1_500_000  # bytes of a page that opens at once; a larger budget keeps more of a long text
CELL_BUDGET = 1_500_000  # bytes of a notebook's output, which is saved with the notebook
_HEIGHT = 720
_ROW = 21  # pixels of a row of the figure whose token is named


@dataclass(frozen=True, eq=False, repr=False)
class View(Result):
    """Attention patterns over one text or image, with one row per head.

    Made by `view`, `View.of_patterns` and `View.over_image`. The score of a row is the mean entropy
    of the head's attention over the queries; the lowest come first in `top`.

    Args:
        stacks: The patterns and tokens, per attention stack.
        title: The title of the page.
        named: The heads that the page opens first, and keeps in full where it must omit something.
        notes: Sentences that the page shows about the run.
        provenance: The model and the options of the run.
    """

    stacks: tuple[Stack, ...]
    title: str = "Attention"
    named: tuple[Head, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "it holds the patterns of one text"
    _units = ("stack", "layer", "head")
    _same_as = MappingProxyType({"score": "entropy"})
    _by = "lowest"
    _holds = (Stack, Terms, Picture, Tile, Link, ZoomTerms)

    def __post_init__(self) -> None:
        if not self.stacks:
            raise OptionError("There are no patterns to show. Give the patterns of one stack.")
        for head in self.named:
            if not any(head in stack.weights for stack in self.stacks):
                self.stacks[0].head(head)  # raises an error that lists the heads

    def _rows(self) -> pd.DataFrame:
        """One row per head: its entropy, its mean weights and its largest weight."""
        import pandas as pd

        return pd.DataFrame([row for stack in self.stacks for row in stack_summary(stack)])

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "entropy", "unit": "nats"}

    @classmethod
    def of_patterns(
        cls,
        patterns: Any,
        tokens: Sequence[str],
        *,
        key_tokens: Sequence[str] | None = None,
        second: int | tuple[int, int] | None = None,
        stack: str = "attention",
        title: str = "Attention",
        named: Sequence[Any] = (),
        provenance: Mapping[str, Any] | None = None,
    ) -> View:
        """Make a view of existing patterns of any library.

        Args:
            patterns: `[layer, head, query_pos, key_pos]`, or one array per layer without the first
                axis; a batch axis of one is removed.
            tokens: The texts of the queries, and of the keys unless `key_tokens` has them.
            key_tokens: The texts of the keys, if they differ.
            second: The start of a second text, for queries and keys if they differ.
            stack: The name of the stack.
            title: The title of the page.
            named: The heads that the page opens first.
            provenance: The origin of the patterns.

        Raises:
            OptionError: The shapes or weights do not fit.
        """
        keys = tokens if key_tokens is None else key_tokens
        pair = (second, second) if isinstance(second, int) else second
        shown = Stack(
            stack, _by_head(patterns), tuple(map(str, tokens)), tuple(map(str, keys)), second=pair
        )
        origin = dict(provenance or {"made_by": "patterns that were given"})
        return cls((shown,), title, tuple(Head.parse(h) for h in named), provenance=origin)

    @classmethod
    def over_image(
        cls,
        patterns: Any,
        image: Any,
        grid: tuple[int, int],
        *,
        title: str = "Attention over an image",
        named: Sequence[Any] = (),
        provenance: Mapping[str, Any] | None = None,
    ) -> View:
        """Make a view of patterns between the patches of an image.

        Args:
            patterns: As in `of_patterns`; tokens beyond `grid` come first, as ViT's class token.
            image: `[height, width, 3]` or `[height, width]`, bytes or numbers from 0 to 1.
            grid: The patches down and across.
            title: The title of the page.
            named: The heads that the page opens first.
            provenance: The origin of the patterns.

        Raises:
            OptionError: The shapes or weights do not fit.
        """
        weights = _by_head(patterns)
        n = next(iter(weights.values())).shape[-1]
        skip = n - grid[0] * grid[1]
        if skip < 0 or min(grid) < 1:
            raise OptionError(
                f"the patterns have {n} tokens, fewer than {grid[0]} x {grid[1]} patches"
            )
        tokens = patch_names(grid, skip)
        picture = Picture(as_pixels(image), (int(grid[0]), int(grid[1])), skip)
        origin = dict(provenance or {"made_by": "patterns that were given"})
        shown = Stack("attention", weights, tokens, tokens, picture=picture)
        return cls((shown,), title, tuple(Head.parse(h) for h in named), provenance=origin)

    def stack(self, name: str | None = None) -> Stack:
        """Return one stack, by default the first.

        Raises:
            OptionError: There is no such stack.
        """
        for stack in self.stacks:
            if name in (None, stack.name):
                return stack
        known = ", ".join(s.name for s in self.stacks)
        raise OptionError(f"there is no stack {name!r}; there is {known}")

    def pattern(
        self, head: Any, stack: str | None = None
    ) -> Float[np.ndarray, "query_pos key_pos"]:
        """Return the weights of one head."""
        shown = self.stack(stack)
        return shown.weights[shown.head(head)]

    def weights_to_pandas(self, head: Any, stack: str | None = None) -> pd.DataFrame:
        """Return one row per query and key of a head with a weight above zero."""
        import pandas as pd

        shown, weights = self.stack(stack), self.pattern(head, stack)
        query, key = np.nonzero(weights)
        return pd.DataFrame(
            {
                "query": query,
                "query_token": np.array(shown.queries, dtype=object)[query],
                "key": key,
                "key_token": np.array(shown.keys, dtype=object)[key],
                "weight": weights[query, key],
            }
        )

    def _with_kept_heads(self) -> View:
        """Return the view without the heads that `top` left out."""
        if self._kept is None:
            return self
        places = {
            (row["stack"], row["layer"], row["head"]) for row in self.wide().to_dict("records")
        }
        stacks = []
        for stack in self.stacks:
            held = {
                h: w for h, w in stack.weights.items() if (stack.name, h.layer, h.head) in places
            }
            if held:
                tiles = tuple(tile for tile in stack.tiles if tile.head in held)
                links = {head: x for head, x in stack.links.items() if head in held}
                zooms = {head: x for head, x in stack.zooms.items() if head in held}
                kept_parts = {"tiles": tiles, "links": links, "zooms": zooms}
                stacks.append(replace(stack, weights=held, **kept_parts))
        named = tuple(h for h in self.named if any(h in stack.weights for stack in stacks))
        return replace(self, stacks=tuple(stacks), named=named)

    def plot(self, head: Any = None, stack: str | None = None) -> go.Figure:  # type: ignore[override]
        """Draw the weights of one head as a heat map: by default of the head that a page opens."""
        import plotly.graph_objects as go

        from interp.draw.colours import palette
        from interp.draw.page import text

        among = self.stacks if stack is None else (self.stack(stack),)
        opened = opening_weight(among, self.named)
        shown = self.stack(stack) if head else among[opened.stack]
        which = shown.head(head or opened.head)
        weights = shown.weights[which]
        figure = go.Figure(
            go.Heatmap(
                z=weights.astype(np.float32),
                zmin=0.0,
                zmax=float(weights.max()) or 1.0,
                colorscale=palette(False),
                hovertemplate="query %{y}, key %{x}: %{z:.4f}<extra></extra>",
                colorbar={"title": {"text": "weight"}},
            )
        )
        for axis, tokens, name in (("x", shown.keys, "key"), ("y", shown.queries, "query")):
            ticks = {}
            if len(tokens) <= 64:
                ticks = {"tickvals": [*range(len(tokens))], "ticktext": [*map(text, tokens)]}
            figure.update_layout({f"{axis}axis": {"title": {"text": name}, **ticks}})
            if ticks and axis == "y":
                figure.update_layout(height=max(450, _ROW * len(tokens) + 130))
        figure.update_yaxes(autorange="reversed")
        figure.update_layout(title={"text": text(f"{self.title}: {shown.name} {which}")})
        return figure

    def heading(self) -> str:
        """Describe the view in one line."""
        parts = [f"{s.name} ({len(s.weights)} heads, {s.n_queries:,} queries)" for s in self.stacks]
        return f"{type(self).__name__}({self.title}: {', '.join(parts)})"

    def __repr__(self) -> str:
        return self.heading()

    def html(self, *, budget: int = BUDGET, title: str | None = None) -> str:
        """Return one HTML page that needs no network, and whose tables need no script.

        Args:
            budget: The largest size of the page in bytes.
            title: The title of the page, if it is not that of the view.

        Raises:
            OptionError: The page exceeds `budget` even with the least detail.
        """
        return drawn("page", self._with_kept_heads(), title or self.title, budget)

    def save_html(
        self, path: str | os.PathLike, *, title: str | None = None, budget: int = BUDGET
    ) -> None:
        """Write the page completely or not at all.

        Args:
            path: The file.
            title: The title of the page, if it is not that of the view.
            budget: The largest size of the page in bytes.

        Raises:
            StoreError: The file cannot be written.
            OptionError: The page exceeds `budget` even with the least detail, or the name is that
                of another format, which `save` writes.
        """
        from interp.core.files import write_page

        write_page(path, self.html(budget=budget, title=title).encode())

    def _repr_html_(self) -> str:
        from interp.draw.page import html_table

        # a frame of its own: the notebook's styles and ids do not meet the page's
        page = escape(self.html(budget=CELL_BUDGET))
        rows = html_table(self._first()[0])
        return (
            f'<iframe sandbox="allow-scripts" width="100%" height="{_HEIGHT}" '
            f'title="{escape(self.title)}" style="border:1px solid #8886;resize:vertical" '
            f'srcdoc="{page}"></iframe><details><summary>Heads in numbers</summary>{rows}</details>'
        )


def _by_head(patterns: Any) -> dict[Head, np.ndarray]:
    by_head = {}
    for layer, heads in enumerate(patterns):
        array = to_numpy(heads)
        if array.ndim == 4 and array.shape[0] == 1:
            array = array[0]
        if array.ndim != 3:
            raise OptionError(
                f"the patterns of layer {layer} are {list(array.shape)}; give "
                "[head, query_pos, key_pos] for one text"
            )
        by_head |= {Head(layer, head): weights for head, weights in enumerate(array)}
    if not by_head:
        raise OptionError("there are no patterns to show")
    return by_head


def to_numpy(x: Any) -> np.ndarray:
    """Convert an array of any library to float32."""
    if hasattr(x, "detach"):
        x = x.detach().float().cpu().numpy()
    return np.asarray(x, dtype=np.float32)


def patch_names(grid: tuple[int, int], skip: int) -> tuple[str, ...]:
    """Return names of image tokens: those without a position, then patches by row and column."""
    others = [f"[{i}]" for i in range(skip)]
    patches = [f"{row},{column}" for row in range(grid[0]) for column in range(grid[1])]
    return (*others, *patches)


def as_pixels(image: Any) -> np.ndarray:
    """Convert an image to `[height, width, 3]` bytes."""
    pixels = image.detach().cpu().numpy() if hasattr(image, "detach") else np.asarray(image)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, 2)
    if pixels.ndim != 3 or pixels.shape[2] != 3:
        raise OptionError(
            f"the image is {list(pixels.shape)}; give [height, width, 3] or [height, width]"
        )
    if pixels.dtype != np.uint8:
        if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1):
            raise OptionError("the image's numbers must lie from 0 to 1, or be bytes")
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return pixels


present(View, page="interp.report.view_page:assembled")
