"""A planted model whose heads attend by segments: text to images, images to images, or neither.

An ordinary `LlavaForConditionalGeneration`. A token knows whether it is of text or of an image, and
whether it is the first one; nothing else of it is read. All other heads attend evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig
    from transformers import LlavaForConditionalGeneration as Llava

    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=4, num_hidden_layers=1, num_attention_heads=2,
        image_size=SIDE * PATCH, patch_size=PATCH,
    )  # fmt: skip
    text = LlamaConfig(
        hidden_size=WIDTH, intermediate_size=4, num_hidden_layers=LAYERS, head_dim=D_HEAD,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, vocab_size=VOCABULARY,
        max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=0, bos_token_id=BEGIN,
        eos_token_id=None, rope_parameters={"rope_type": "default", "rope_theta": 1e30},
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=IMAGE, vision_feature_layer=-1
    )
    with torch.random.fork_rng(devices=[]):
        model = Llava._from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float("norm" in name and name.endswith("weight")))
        _fill(model)
    return ImageReaders(model)


def _fill(model: Any) -> None:
    table = model.get_input_embeddings().weight
    table[:, _TEXT] = 1
    table[BEGIN, _TEXT], table[BEGIN, _FIRST] = 0, 1
    model.model.multi_modal_projector.linear_2.bias[_IMAGE] = 1
    made = ImageReaders(model)
    for (layer, head), queries, key in (
        (made.reader, (_TEXT,), _IMAGE),
        (made.decoy, (_IMAGE,), _IMAGE),
        (made.sink_head, (_TEXT, _IMAGE, _FIRST), _FIRST),
    ):
        attention = model.model.language_model.layers[layer].self_attn
        row = head * D_HEAD + 2  # a dimension whose rotation is slow enough to be none
        # entries are 8 after the norm, so a pair has a score of 16 and all others 0
        attention.q_proj.weight[row, list(queries)] = 1
        attention.k_proj.weight[row, key] = 1
