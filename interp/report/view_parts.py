"""Pictures and tables of a page of attention that need no script."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from markupsafe import Markup

from interp.core.tokens import shown
from interp.draw.colours import palette
from interp.draw.page import fold, phrased, table
from interp.draw.sprite import colour_png, data_url, thumbnails
from interp.draw.svg import element, svg_picture
from interp.heads.patterns.stack import Stack, Tile, stack_summary

ROWS = 200  # of the table of heads
TOKENS = 2_000  # listed
LINKS = 100  # of the table of links
_LEFT, _TOP = 42, 24


def static_section(at: int, stack: Stack) -> dict[str, Any]:
    """Return the values of the template for one stack."""
    per_layer = {layer: sum(h.layer == layer for h in stack.weights) for layer in stack.layers}
    one = str(next(iter(stack.weights)))
    what = f"{len(per_layer)} by {max(per_layer.values())} heads" if len(stack.weights) > 1 else one
    keys = "" if stack.queries == stack.keys else f", {stack.n_keys:,} keys"
    several = "" if stack.block == 1 else f" in blocks of {stack.block}"
    return {
        "name": stack.name,
        "thumbs": thumbs(at, stack),
        "heads": heads_table(stack),
        "about": f"{what}, {stack.n_queries:,} queries{keys}{several}.",
        "tiles": [_tile(at, number, tile) for number, tile in enumerate(stack.tiles)],
        "tokens": token_list(stack),
        "links": links_table(stack),
    }


def scale_image() -> str:
    """Return the colours from 0 to 1 as the address of an image."""
    ramp = np.square(np.linspace(0, 1, len(palette(False)), dtype=np.float32))[None]
    return data_url(thumbnails([[ramp]], ramp.shape, palette(False)))


def thumbs(at: int, stack: Stack) -> Markup:
    """Return all heads of a stack as one picture, layers downwards."""
    layers = stack.layers
    columns = sorted({head.head for head in stack.weights})
    grid: Any = [[stack.weights.get((layer, head)) for head in columns] for layer in layers]  # type: ignore[call-overload]
    cell = 64 if len(columns) <= 16 else 44 if len(columns) <= 32 else 28
    cell = 160 if len(stack.weights) == 1 else cell
    wide, high = cell * len(columns), cell * len(layers)
    src = data_url(thumbnails(grid, (len(stack.queries), len(stack.keys)), palette(False)))
    gaps = [f"M{_LEFT + cell * x} {_TOP}v{high}" for x in range(len(columns) + 1)]
    gaps += [f"M{_LEFT} {_TOP + cell * y}h{wide}" for y in range(len(layers) + 1)]
    names = [
        element("text", f"H{head}", x=_LEFT + (x + 0.5) * cell, y=_TOP - 5)
        for x, head in enumerate(columns)
    ]
    names += [
        element("text", f"L{layer}", class_="y", x=_LEFT - 5, y=_TOP + (y + 0.5) * cell + 4)
        for y, layer in enumerate(layers)
    ]
    places = (f"{h}:{layers.index(h.layer)}:{columns.index(h.head)}" for h in stack.weights)
    what = f"{stack.name}: {len(stack.weights)} heads, a thumbnail of each one's attention"
    return svg_picture(
        _LEFT + wide + 1,
        _TOP + high + 1,
        element("g", *names, aria_hidden="true"),
        element(
            "image",
            class_="heat",
            x=_LEFT,
            y=_TOP,
            width=wide,
            height=high,
            preserveAspectRatio="none",
            href=src,
        ),
        element("path", class_="gaps", d="".join(gaps)),
        class_="map thumbs",
        role="group",
        aria_label=what,
        data_stack=at,
        data_cell=cell,
        data_left=_LEFT,
        data_top=_TOP,
        data_heads=" ".join(places),
    )


def heads_table(stack: Stack) -> Markup:
    """Return one row per head with its mean weights and its largest weight."""
    rows: Any = stack_summary(stack)
    note, one = Markup(""), stack.block == 1
    if len(rows) > ROWS:
        rows = sorted(rows, key=lambda row: row["entropy"])[:ROWS]
        text = f"The {ROWS} heads that attend to the fewest keys, of {len(stack.weights):,}."
        note = element("p", text)
    unit = "token" if one else "block"
    titles = {
        "entropy": "entropy, nats",
        "first": f"on the first {unit}",
        "itself": "on itself",
        "previous": f"on the {unit} before",
        "largest": "largest weight",
    }
    titles = {name: title for name, title in titles.items() if name in rows[0]}
    lines = (
        [
            f"L{row['layer']}H{row['head']}",
            *(f"{row[c]:.3f}" if math.isfinite(row[c]) else "" for c in titles),
            *(
                f"{_place(row[side], stack.block)}: {shown(str(row[f'{side}_token']))}"
                for side in ("query", "key")
            ),
        ]
        for row in rows
    )
    of = "query" if one else "block of queries"
    first = "" if len(stack.queries) < 2 else f" (not counting the first {of})"
    means = "Means over queries" if one else "Means over blocks of queries"
    explanation = element("p", f"{means}; the largest weight is of one pair{first}.")
    columns = [("head", "head"), *titles.values(), ("from query", "token"), ("to key", "token")]
    return note + explanation + table(columns, lines)


def links_table(stack: Stack) -> Markup | None:
    """Return the strongest links of all heads of a long prompt, if there are any."""
    rows = [(head, link) for head, links in stack.links.items() for link in links]
    if not rows:
        return None
    rows.sort(key=lambda row: -row[1].weight)
    lines = (
        [
            str(head),
            f"{link.weight:.3f}",
            f"{link.query:,}: {shown(link.query_token)}",
            f"{link.key:,}: {shown(link.key_token)}",
        ]
        for head, link in rows[:LINKS]
    )
    return table([("head", "head"), "weight", ("from query", "token"), ("to key", "token")], lines)


def _tile(at: int, number: int, tile: Tile) -> Markup:
    """Return a tile of a long prompt as a picture."""
    q, k = tile.queries, tile.keys
    src = data_url(thumbnails([[tile.weights]], tile.weights.shape, palette(False)))
    title = (
        f"{tile.head}: queries {q.start:,} to {q.stop - 1:,}, keys {k.start:,} to {k.stop - 1:,}"
    )
    row, column = (int(i) for i in np.unravel_index(tile.weights.argmax(), tile.weights.shape))
    query = f"{q.start + row:,} {shown(tile.query_tokens[row])!r}"
    key = f"{k.start + column:,} {shown(tile.key_tokens[column])!r}"
    weight = f"{tile.weights[row, column]:.3f}"
    return phrased("tile", at, number, tile.why, src, title, weight, query, key)


def token_list(stack: Stack) -> Markup:
    """Return the tokens in order, so that the page can be read and searched without the maps."""
    if (image := stack.picture) is not None:
        height, width = image.pixels.shape[:2]
        wide = min(max(width, 160), 320)
        return phrased(
            "picture", *image.grid, data_url(colour_png(image.pixels)), wide, wide * height // width
        )
    same = stack.queries == stack.keys
    named = {"": stack.queries} if same else {"query": stack.queries, "key": stack.keys}
    out = []
    for role, tokens in named.items():
        blocks = "blocks, each by its first three tokens"
        title = f"{role} tokens".strip() if stack.block == 1 else blocks
        more = f" (the first {TOKENS:,} of {len(tokens):,})" if len(tokens) > TOKENS else ""
        items = (
            element("li", element("b", i * stack.block), " ", shown(t))
            for i, t in enumerate(tokens[:TOKENS])
        )
        out.append(fold(f"{title.capitalize()}{more}", element("ol", *items, class_="tokens")))
    return Markup("").join(out)


def _place(row: int, block: int) -> str:
    """Return the token of a row or a column, or the first and last token of its block."""
    return str(row) if block == 1 else f"{row * block}–{row * block + block - 1}"  # noqa: RUF001
