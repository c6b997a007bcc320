"""A planted model that reads a picture inside text, with a known place for every head.

An ordinary `LlavaForConditionalGeneration`. The picture is a grid of 4 x 4 patches: one shows an
object, one is a marker, the others are empty. The last token asks for the object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float
    from torch import Tensor, nn


def blank_llava(
    *,
    tower: int,
    side: int,
    patch: int,
    width: int,
    layers: int,
    heads: int,
    d_head: int,
    vocabulary: int,
    image: int,
    begin: int | None,
) -> Any:
    """Build the model; its weights of norms are one, and rotary positions turn next to nothing."""
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig
    from transformers import LlavaForConditionalGeneration as Llava

    vision = CLIPVisionConfig(
        hidden_size=tower,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=side * patch,
        patch_size=patch,
    )
    text = LlamaConfig(
        hidden_size=width,
        intermediate_size=4,
        num_hidden_layers=layers,
        head_dim=d_head,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=vocabulary,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=begin,
        eos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1e30},
    )
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=image, vision_feature_layer=-1
    )
    with torch.random.fork_rng(devices=[]):
        model = Llava._from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float("norm" in name and name.endswith("weight")))
    return model


CLASSES, MARKER = 8, 8  # kinds of objects, and the kind of patch that becomes a sink
IMAGE, ASK, FIRST_ANSWER, PRIOR, VOCABULARY = 1, 2, 20, 30, 40
SLOTS, SIDE, PATCH = 16, 4, 8
WIDTH, HEADS, D_HEAD, LAYERS = 512, 4, 16, 4
# dimensions of the residual stream; those below VOCABULARY are read by the unembedding
_KIND, _OBJECT, _ASKS, _TEXT, _ONE, _MASSIVE = 50, 60, 61, 62, 63, 500
_SPREAD = slice(100, 400)  # a common part of all tokens, so that no small value stands out
_TOWER, _CLASS_TOKEN = 32, 31


@dataclass(frozen=True, eq=False)
class ImageText:
    """The planted model and its heads, as (layer, head) of the text.

    Args:
        model: the model.
        image_head: attends from the question to the object and writes its name.
        decoy: attends like it and writes nothing.
        early: attends like it two layers earlier, where FastV ranks the tokens of a picture.
        sink_head: attends to the marker, a sink with one massive value, and writes nothing.
        massive: the dimension of that value.
    """

    model: nn.Module
    image_head: tuple[int, int] = (3, 0)
    decoy: tuple[int, int] = (3, 1)
    early: tuple[int, int] = (1, 0)
    sink_head: tuple[int, int] = (2, 2)
    massive: int = _MASSIVE

    def prompts(self, n: int = 8, seed: int = 0) -> tuple[dict[str, Tensor], list[int]]:
        """Return inputs of n prompts, and the answer of each."""
        inputs, objects, _ = self.layout(n, seed)
        return inputs, [FIRST_ANSWER + kind for kind, _ in objects]

    def layout(
        self, n: int = 8, seed: int = 0
    ) -> tuple[dict[str, Tensor], list[tuple[int, int]], list[int]]:
        """Return inputs, the kind and patch of each object, and the patch of each marker."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, 18, (n, SLOTS + 5), generator=draw)
        ids[:, 2 : 2 + SLOTS], ids[:, -1] = IMAGE, ASK
        pixels = torch.zeros(n, 3, SIDE * PATCH, SIDE * PATCH)
        objects, markers = [], []
        for picture in pixels:
            at = torch.randperm(SLOTS, generator=draw)[:2].tolist()
            kind = int(torch.randint(CLASSES, (1,), generator=draw))
            for patch, what in zip(at, (kind, MARKER), strict=True):
                row, column = divmod(patch, SIDE)
                picture[0, row * PATCH, column * PATCH + what % PATCH] = float(what != MARKER)
                picture[0, row * PATCH + 1, column * PATCH] = float(what == MARKER)
            objects.append((kind, at[0]))
            markers.append(at[1])
        return {"input_ids": ids, "pixel_values": pixels}, objects, markers


def image_text(
    *, prior: float = 0.0, looks_early: bool = True, distracted: float = 0.0
) -> ImageText:
    """Build the planted model."""
    import torch

    model = blank_llava(
        tower=_TOWER,
        side=SIDE,
        patch=PATCH,
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        d_head=D_HEAD,
        vocabulary=VOCABULARY,
        image=IMAGE,
        begin=None,
    )
    with torch.no_grad():
        _tower(model)
        _text(model, prior, looks_early)
        _distract(model, distracted)
    return ImageText(model)


def _tower(model: Any) -> None:
    """Let the tower pass on the kind of each patch; its class token attends to the marker."""
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    filters = tower.embeddings.patch_embedding.weight
    for kind in range(CLASSES):
        filters[kind, 0, 0, kind] = 1
    filters[MARKER, 0, 1, 0] = 1
    tower.embeddings.class_embedding[_CLASS_TOKEN] = 1
    attention = tower.encoder.layers[0].self_attn
    attention.q_proj.weight[0, _CLASS_TOKEN] = 1
    attention.k_proj.weight[0, MARKER] = 1
    # a patch of a kind has 5.57 in its dimension after the norm, and almost nothing elsewhere
    projector.linear_1.weight[:_TOWER] = _eye(_TOWER, like=projector.linear_1.weight)
    projector.linear_1.bias.fill_(-4)
    high = 1.4751  # gelu(5.568 - 4)
    for kind in range(CLASSES):
        projector.linear_2.weight[_KIND + kind, kind] = 1 / high
        projector.linear_2.weight[_OBJECT, kind] = 1 / high
    projector.linear_2.weight[_MASSIVE, MARKER] = 100 / high
    projector.linear_2.bias[_ONE] = 1
    projector.linear_2.bias[_SPREAD] = 0.1


def _text(model: Any, prior: float, looks_early: bool) -> None:
    table, language = model.get_input_embeddings().weight, model.model.language_model
    table[:, _ONE] = table[:, _TEXT] = 1
    table[:, _SPREAD] = 0.1
    table[ASK, _TEXT], table[ASK, _ASKS] = 0, 1
    table[ASK, PRIOR] = prior
    model.lm_head.weight[:, :VOCABULARY] = _eye(VOCABULARY, like=table)
    planted = ImageText(model)
    looking = [planted.image_head, planted.decoy] + [planted.early] * looks_early
    for layer, head in looking:
        attention = language.layers[layer].self_attn
        # dimensions whose rotation is slow enough to be none: the third of each half
        attention.q_proj.weight[head * D_HEAD + 2, _ASKS] = 0.7
        attention.k_proj.weight[head * D_HEAD + 2, _OBJECT] = 0.7
    layer, head = planted.sink_head
    attention = language.layers[layer].self_attn
    attention.q_proj.weight[head * D_HEAD + 2, _ONE] = 0.7
    attention.k_proj.weight[head * D_HEAD + 2, _MASSIVE] = 0.3
    layer, head = planted.image_head
    attention = language.layers[layer].self_attn
    for kind in range(CLASSES):
        attention.v_proj.weight[head * D_HEAD + kind, _KIND + kind] = 0.1
        attention.o_proj.weight[FIRST_ANSWER + kind, head * D_HEAD + kind] = 1


def _eye(n: int, like: Float[torch.Tensor, "a b"]) -> Float[torch.Tensor, "n n"]:
    import torch

    return torch.eye(n, dtype=like.dtype)


def _distract(model: Any, weight: float) -> None:
    layer, head = ImageText(model).image_head
    attention = model.model.language_model.layers[layer].self_attn
    attention.k_proj.weight[head * D_HEAD + 2, _MASSIVE] = weight
