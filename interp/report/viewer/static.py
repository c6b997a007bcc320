"""What a page shows without a script: thumbnails, tables, token lists, all texts escaped."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from interp.draw.sprite import colour_png, data_url, thumbnails
from interp.report.viewer.showing import View
from interp.report.viewer.stack import Stack, Tile, summary

ROWS = 200  # of the table of heads
TOKENS = 2_000  # listed
_LEFT, _TOP = 42, 24
_OF = {"token": "query", "block": "block of queries"}

_READING = (
    "Each small square is one head: queries downwards, keys to the right. Darker is a larger "
    "weight (lighter on a dark page), on the scale of its square root."
)


def about(view: View) -> str:
    """How the page is read."""
    blocks = any(stack.block > 1 for stack in view.stacks)
    more = (
        " A point stands for a block of queries and a block of keys: the share of their attention "
        "that those queries give to those keys, the mean over the queries."
        if blocks
        else ""
    )
    return (
        f"<p>{_READING}{more}</p>"
        '<p class="keys" hidden>Click a head, or move with the arrow keys and press Enter, to '
        "open it.</p>"
    )


def colour_bar(view: View) -> str:
    """The scale, drawn with the same pictures as the maps, so that it is right in both themes."""
    from interp.draw.colours import palette

    of = "share of attention" if any(stack.block > 1 for stack in view.stacks) else "weight"
    colours = palette(False)
    ramp = np.square(np.linspace(0, 1, len(colours), dtype=np.float32))[None]
    src = data_url(thumbnails([[ramp]], ramp.shape, colours))
    return (
        '<div class="scale"><span>0</span>'
        f'<img class="heat" src="{src}" width="160" height="12" alt="colours from 0 to 1">'
        f"<span>1 {of}</span></div>"
    )


def thumbs(at: int, stack: Stack) -> str:
    """All heads of a stack as one picture, layers downwards."""
    from interp.draw.colours import palette

    layers = stack.layers
    columns = sorted({head.head for head in stack.weights})
    grid = [
        [stack.weights.get((layer, head)) for head in columns]  # type: ignore[call-overload]
        for layer in layers
    ]
    shape = len(stack.queries), len(stack.keys)
    cell = 64 if len(columns) <= 16 else 44 if len(columns) <= 32 else 28
    if len(stack.weights) == 1:
        cell = 160
    width, height = _LEFT + cell * len(columns) + 1, _TOP + cell * len(layers) + 1
    src = data_url(thumbnails(grid, shape, palette(False)))  # type: ignore[arg-type]
    lines = "".join(
        f"M{_LEFT + cell * x} {_TOP}v{cell * len(layers)}" for x in range(len(columns) + 1)
    ) + "".join(f"M{_LEFT} {_TOP + cell * y}h{cell * len(columns)}" for y in range(len(layers) + 1))
    texts = "".join(
        f'<text x="{_LEFT + (x + 0.5) * cell:g}" y="{_TOP - 5}">H{head}</text>'
        for x, head in enumerate(columns)
    ) + "".join(
        f'<text class="y" x="{_LEFT - 5}" y="{_TOP + (y + 0.5) * cell + 4:g}">L{layer}</text>'
        for y, layer in enumerate(layers)
    )
    names = " ".join(
        f"{head}:{layers.index(head.layer)}:{columns.index(head.head)}" for head in stack.weights
    )
    what = f"{stack.name}: {len(stack.weights)} heads, a thumbnail of each one's attention"
    return (
        f'<div class="scroll"><svg class="map thumbs" data-stack="{at}" data-cell="{cell}" '
        f'data-left="{_LEFT}" data-top="{_TOP}" data-heads="{names}" role="group" '
        f'aria-label="{escape(what)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}"><g aria-hidden="true">{texts}</g>'
        f'<image class="heat" x="{_LEFT}" y="{_TOP}" width="{cell * len(columns)}" '
        f'height="{cell * len(layers)}" preserveAspectRatio="none" href="{src}"/>'
        f'<path class="gaps" d="{lines}"/></svg></div>'
    )


def heads_table(stack: Stack) -> str:
    """One row per head: where it looks on average, and its largest weight."""
    rows = summary(stack)
    note = ""
    if len(rows) > ROWS:
        rows = sorted(rows, key=lambda row: row["entropy"])[:ROWS]  # type: ignore[arg-type,return-value]
        note = f"<p>The {ROWS} heads that attend to the fewest keys, of {len(stack.weights):,}.</p>"
    unit = "token" if stack.block == 1 else "block"
    square = "itself" in rows[0]
    columns = ["head", "entropy, nats", f"on the first {unit}"]
    columns += ["on itself", f"on the {unit} before"] if square else []
    columns += ["largest weight", "from query", "to key"]
    head = "".join(f'<th scope="col">{escape(c)}</th>' for c in columns)
    body = "".join(
        f'<tr><th scope="row">L{row["layer"]}H{row["head"]}</th>'
        + "".join(f"<td>{_number(row[c])}</td>" for c in ("entropy", "first"))
        + ("".join(f"<td>{_number(row[c])}</td>" for c in ("itself", "previous")) if square else "")
        + f"<td>{_number(row['largest'])}</td>"
        + "".join(
            f'<td class="token">{_place(row[side], stack.block)}: '
            f"{escape(shown(str(row[f'{side}_token'])))}</td>"
            for side in ("query", "key")
        )
        + "</tr>"
        for row in rows
    )
    first = "" if len(stack.queries) < 2 else f" (not counting the first {_OF[unit]})"
    means = "Means over queries" if unit == "token" else "Means over blocks of queries"
    return (
        f"{note}<p>{means}; the largest weight is of one pair{first}.</p>"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def tile_figures(at: int, stack: Stack) -> str:
    """The tiles of a long prompt as pictures."""
    if not stack.tiles:
        return ""
    figures = "".join(_figure(at, number, tile) for number, tile in enumerate(stack.tiles))
    return f'<h3>Tiles, token by token</h3><div class="panels">{figures}</div>'


def _figure(at: int, number: int, tile: Tile) -> str:
    from interp.draw.colours import palette

    q, k = tile.queries, tile.keys
    src = data_url(thumbnails([[tile.weights]], tile.weights.shape, palette(False)))
    said = f"{tile.head}: queries {q.start:,} to {q.stop - 1:,}, keys {k.start:,} to {k.stop - 1:,}"
    largest = np.unravel_index(int(tile.weights.argmax()), tile.weights.shape)
    pair = (
        f"largest weight {tile.weights[largest]:.3f}, from query {q.start + int(largest[0]):,} "
        f"{shown(tile.query_tokens[int(largest[0])])!r} to key {k.start + int(largest[1]):,} "
        f"{shown(tile.key_tokens[int(largest[1])])!r}"
    )
    return (
        f'<figure class="tile" data-stack="{at}" data-tile="{number}"><figcaption>{escape(said)}'
        f'</figcaption><img class="heat" src="{src}" width="160" height="160" '
        f'alt="{escape(said)}"><p class="note">{escape(tile.why)}; {escape(pair)}</p></figure>'
    )


def token_list(stack: Stack) -> str:
    """The tokens in order, so that the page can be read and searched without the maps."""
    if stack.picture is not None:
        src = data_url(colour_png(stack.picture.pixels))
        height, width = stack.picture.pixels.shape[:2]
        down, across = stack.picture.grid
        across_page = min(max(width, 160), 320)
        return (
            '<figure class="picture"><figcaption>The image, '
            f'{down} by {across} patches</figcaption><img src="{src}" '
            f'class="image" width="{across_page}" height="{across_page * height // width}" '
            'alt="the image that was read"></figure>'
        )
    out = []
    named = {"query": stack.queries, "key": stack.keys}
    if stack.queries == stack.keys:
        named = {"": stack.queries}
    for role, tokens in named.items():
        title = (
            f"{role} tokens".strip()
            if stack.block == 1
            else "blocks, each by its first three tokens"
        )
        more = f" (the first {TOKENS:,} of {len(tokens):,})" if len(tokens) > TOKENS else ""
        items = "".join(
            f"<li><b>{i * stack.block}</b> {escape(shown(t))}</li>"
            for i, t in enumerate(tokens[:TOKENS])
        )
        out.append(
            f"<details><summary>{title.capitalize()}{more}</summary>"
            f'<ol class="tokens">{items}</ol></details>'
        )
    return "".join(out)


def shown(token: str) -> str:
    """A token that can be seen: line ends and nothing at all are written as signs."""
    return token.replace("\n", "⏎").replace("\t", "⇥") or "∅"


def _place(row: object, block: int) -> str:
    """The token that a row or a column stands for, or the first and last of its block."""
    assert isinstance(row, int), "summaries count rows in whole numbers"
    return str(row) if block == 1 else f"{row * block}–{row * block + block - 1}"  # noqa: RUF001


def _number(x: object) -> str:
    return f"{x:.3f}" if isinstance(x, float) and math.isfinite(x) else ""
