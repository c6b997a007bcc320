"""A planted model whose heads attend by segments: text to images, images to images, or neither.

An ordinary `LlavaForConditionalGeneration`. A token knows whether it is of text or of an image, and
whether it is the first one; nothing else of it is read. All other heads attend evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.planted.with_picture import blank_llava

if TYPE_CHECKING:
    from torch import Tensor, nn

BEGIN, IMAGE, VOCABULARY = 2, 1, 40
SLOTS, SIDE, PATCH = 4, 2, 8  # patches of an image, per side, and their pixels
WIDTH, HEADS, D_HEAD, LAYERS = 64, 4, 16, 2
_TEXT, _IMAGE, _FIRST = range(3)  # dimensions of the residual stream


@dataclass(frozen=True, eq=False)
class ImageReaders:
    """The planted model and its heads, as (layer, head) of the text.

    Args:
        model: the model.
        reader: attends from text to the images, and evenly from all other tokens.
        decoy: attends from images to images, and evenly from text.
        sink_head: attends from everything to the first token.
    """

    model: nn.Module
    reader: tuple[int, int] = (1, 2)
    decoy: tuple[int, int] = (0, 1)
    sink_head: tuple[int, int] = (1, 0)

    def prompts(self, n: int = 6, seed: int = 0) -> dict[str, Tensor]:
        """Return inputs of n prompts; every second has two images, the others are padded.

        A prompt is a first token, four tokens of text, an image, and text, in which the second
        image stands.
        """
        import torch

        draw = torch.Generator().manual_seed(seed)
        length = 29
        ids = torch.randint(3, VOCABULARY, (n, length), generator=draw)
        ids[:, 0], ids[:, 5 : 5 + SLOTS] = BEGIN, IMAGE
        ids[1::2, 14 : 14 + SLOTS] = IMAGE
        mask = torch.ones_like(ids)
        mask[::2, length - SLOTS :] = 0
        pictures = n + n // 2
        pixels = torch.randn(pictures, 3, SIDE * PATCH, SIDE * PATCH, generator=draw)
        return {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels}


def image_readers() -> ImageReaders:
    """Build the planted model."""
    import torch

    model = blank_llava(
        tower=16,
        side=SIDE,
        patch=PATCH,
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        d_head=D_HEAD,
        vocabulary=VOCABULARY,
        image=IMAGE,
        begin=BEGIN,
    )
    with torch.no_grad():
        _fill(model)
    return ImageReaders(model)


def _fill(model: Any) -> None:
    table = model.get_input_embeddings().weight
    table[:, _TEXT] = 1
    table[BEGIN, _TEXT], table[BEGIN, _FIRST] = 0, 1
    model.model.multi_modal_projector.linear_2.bias[_IMAGE] = 1
    readers = ImageReaders(model)
    for (layer, head), queries, key in (
        (readers.reader, (_TEXT,), _IMAGE),
        (readers.decoy, (_IMAGE,), _IMAGE),
        (readers.sink_head, (_TEXT, _IMAGE, _FIRST), _FIRST),
    ):
        attention = model.model.language_model.layers[layer].self_attn
        row = head * D_HEAD + 2  # a dimension whose rotation is slow enough to be none
        # entries are 8 after the norm, so a pair has a score of 16 and all others 0
        attention.q_proj.weight[row, list(queries)] = 1
        attention.k_proj.weight[row, key] = 1
