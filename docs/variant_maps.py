"""Picture of the attention variants side by side: docs/assets/attention_variants.svg.

    python docs/variant_maps.py

Head 0 of the first layer of every variant, on the same tokens: a block that is said twice. All
models have the same embedding, and this head has equal matrices for queries and keys where it has
any, so it looks for its own token. Beside each name is the score of the detector
`duplicate_token`. Blue entries are positive, red ones negative.
"""

from __future__ import annotations

import io
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

import interp
from training import forms

FILE = Path(__file__).parent / "assets" / "attention_variants.svg"
BLOCK, COLUMNS, SIDE, GAP, TEXT = 8, 8, 96, 14, 30
IDS = [0, *range(10, 10 + BLOCK), *range(10, 10 + BLOCK)]
STEPS = 7  # shades of each colour
SHARP = 3.0  # factor of the matrix of queries and keys


def same_token_head(name: str) -> Any:
    """Build a variant whose head 0 compares tokens with tokens, where its rule allows."""
    model: Any = forms.build(name, num_hidden_layers=1)
    plain: Any = forms.build("plain_softmax", num_hidden_layers=1)
    rule, like = model.blocks[0].attention.rule, plain.blocks[0].attention.rule
    with torch.no_grad():
        model.embed.weight.copy_(plain.embed.weight)
        if model.positions is not None:  # a rotary form has none
            model.positions.weight.copy_(0.1 * plain.positions.weight)
        for part in ("query", "key"):
            own = getattr(rule, part, None)
            width = like.shape.d_head
            if own is not None and own.weight.shape[1] == like.query.weight.shape[1]:
                own.weight[:width] = SHARP / 4 * like.query.weight[:width]
    return interp.load(model, name=name)


def pixels(rows: np.ndarray) -> str:
    """Return a map as a PNG: white is zero, full colour the largest absolute entry."""
    share = rows / max(float(np.abs(rows).max()), 1e-12)
    level = np.rint(share * STEPS).astype(int) + STEPS
    share = np.arange(-STEPS, STEPS + 1)[:, None] / STEPS
    colours = 255 + np.abs(share) * (np.where(share < 0, (178, 24, 43), (0, 84, 166)) - 255)
    picture = Image.fromarray(level.astype(np.uint8), "P")
    picture.putpalette(colours.round().astype(np.uint8).tobytes())
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    return b64encode(out.getvalue()).decode()


@torch.no_grad()
def drawn() -> str:
    """Return the picture as SVG."""
    parts, names = [], forms.variant_names("text")
    for i, name in enumerate(names):
        model = same_token_head(name)
        rows = model.capture([IDS], ["map"], layers=0)["map", 0][0, 0].numpy()
        table = interp.score(model, ["duplicate_token"], [IDS], null="none").to_pandas()
        score = table.set_index(["layer", "head"]).score[0, 0]
        x, y = (i % COLUMNS) * (SIDE + GAP) + GAP, (i // COLUMNS) * (SIDE + TEXT + GAP) + GAP
        parts.append(
            f'<text x="{x}" y="{y + 9}">{name.replace("_", " ")}</text>'
            f'<text x="{x}" y="{y + 22}" class="s">same token {score:.2f}</text>'
            f'<image x="{x}" y="{y + TEXT}" width="{SIDE}" height="{SIDE}" '
            f'href="data:image/png;base64,{pixels(rows)}"/><use href="#b" x="{x}" y="{y + TEXT}"/>'
        )
    width = COLUMNS * (SIDE + GAP) + GAP
    height = -(-len(names) // COLUMNS) * (SIDE + TEXT + GAP) + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="9.5">'
        "<style>image{image-rendering:pixelated}.s{fill:#666}</style>"
        f'<defs><path id="b" d="M0 0h{SIDE}v{SIDE}h-{SIDE}z" fill="none" stroke="#ccc"/></defs>'
        f'<rect width="{width}" height="{height}" fill="white"/>' + "\n".join(parts) + "</svg>\n"
    )


if __name__ == "__main__":
    FILE.write_text(drawn(), encoding="utf-8")
    print(f"{FILE.name}: {FILE.stat().st_size / 1000:.0f} kB")
