"""Small models that read pictures, trained for the claims on them: in text, and by cross attention.

A picture is a grid of 4 x 4 patches, of which four show objects: each has one of six kinds and one
of six colours, no kind twice; the others show noise. A prompt asks for the colour of a kind that is
in the picture. In training a kind has its own colour in six of ten cases, so that a model can guess
without looking. Weights are kept in the folder `results/picture_models` of the repository.
"""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

import interp

SIDE, PATCH, SLOTS, KINDS, OBJECTS = 4, 8, 16, 6, 4
BEGIN, IMAGE, ASK, KIND, COLOUR, VOCAB = 1, 2, 3, 4, 10, 16
USUAL, STEPS, BATCH = 0.6, 1200, 64
KEPT = Path(__file__).parents[2] / "results" / "picture_models"


class Pictures:
    """Pictures with their questions and answers.

    Args:
        number: how many.
        seed: seed of all draws.
        usual: share of objects with the colour of their kind.
    """

    def __init__(self, number: int, seed: int, usual: float = USUAL) -> None:
        draw = torch.Generator().manual_seed(seed)
        patterns = torch.randn(KINDS, PATCH, PATCH, generator=torch.Generator().manual_seed(0))
        colours = torch.randn(KINDS, 3, generator=torch.Generator().manual_seed(1))
        kinds = torch.rand(number, KINDS, generator=draw).argsort(1)[:, :OBJECTS]
        other = (kinds + torch.randint(1, KINDS, kinds.shape, generator=draw)) % KINDS
        own = torch.rand(kinds.shape, generator=draw) < usual
        hues = torch.where(own, kinds, other)
        self.places: Int[Tensor, "picture object"] = torch.rand(
            number, SLOTS, generator=draw
        ).argsort(1)[:, :OBJECTS]
        patches = 0.5 * torch.randn(number, SLOTS, 3, PATCH, PATCH, generator=draw)
        shown = patterns[kinds][:, :, None].sign() * 0.5 + 1
        shown = shown * F.normalize(colours, dim=-1)[hues][..., None, None] * 2
        patches.scatter_add_(1, self.places[:, :, None, None, None].expand_as(shown), shown)
        grid = patches.unflatten(1, (SIDE, SIDE)).permute(0, 3, 1, 4, 2, 5)
        self.pixels: Float[Tensor, "picture 3 row column"] = grid.flatten(4).flatten(2, 3)
        self.asked, self.answers = kinds[:, 0] + KIND, hues[:, 0] + COLOUR
        self.seen = torch.zeros(number, KINDS * 2)  # which kinds and colours, for the class token
        self.seen.scatter_(1, kinds, 1.0).scatter_(1, hues + KINDS, 1.0)
        self.objects: Bool[Tensor, "picture patch"] = torch.zeros(
            number, SLOTS, dtype=torch.bool
        ).scatter_(1, self.places, True)

    def inputs(self) -> dict[str, Tensor]:
        """Return prompts: a first token, the picture, and the question."""
        ids = torch.full((len(self.asked), SLOTS + 3), IMAGE)
        ids[:, 0], ids[:, -2], ids[:, -1] = BEGIN, ASK, self.asked
        return {"input_ids": ids, "pixel_values": self.pixels}


def _vision() -> Any:
    from transformers import CLIPVisionConfig

    return CLIPVisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=SIDE * PATCH,
        patch_size=PATCH,
    )


def _in_text() -> Any:
    from transformers import LlamaConfig, LlavaConfig
    from transformers import LlavaForConditionalGeneration as Llava

    text = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=VOCAB,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=BEGIN,
        eos_token_id=None,
    )
    config = LlavaConfig(
        vision_config=_vision(), text_config=text, image_token_index=IMAGE, vision_feature_layer=-1
    )
    return Llava(config)


def _crossed() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, ViTConfig, ViTModel
    from transformers import VisionEncoderDecoderModel as Pair

    vision = ViTConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=SIDE * PATCH,
        patch_size=PATCH,
    )
    text = GPT2Config(
        n_embd=64,
        n_layer=4,
        n_head=4,
        vocab_size=VOCAB,
        n_positions=8,
        add_cross_attention=True,
        is_decoder=True,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=BEGIN,
    )
    return Pair(encoder=ViTModel(vision, add_pooling_layer=False), decoder=GPT2LMHeadModel(text))


def question(pictures: Pictures) -> dict[str, Tensor]:
    """Return the inputs of the model with cross attention."""
    ids = torch.stack([torch.full_like(pictures.asked, ASK), pictures.asked], 1)
    return {"pixel_values": pictures.pixels, "decoder_input_ids": ids}


def _train(kind: str, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _in_text() if kind == "text" else _crossed()
        seen = nn.Linear(64, 2 * KINDS)
    parameters = [*model.parameters(), *seen.parameters()]
    adam = torch.optim.Adam(parameters)
    first: list[Tensor] = []
    tower = model.model.vision_tower if kind == "text" else model.encoder
    handle = tower.register_forward_hook(lambda m, a, out: first.append(out[0][:, 0]))
    for step in range(STEPS):
        for group in adam.param_groups:
            group["lr"] = 2e-3 * min(1.0, step / 100) * (1 - step / STEPS)
        batch = Pictures(BATCH, 10_000 * (seed + 1) + step)
        given = batch.inputs() if kind == "text" else question(batch)
        first.clear()
        loss = F.cross_entropy(model(**given).logits[:, -1], batch.answers)
        # as in CLIP, the class token stands for the whole picture
        loss = loss + F.binary_cross_entropy_with_logits(seen(first[0]), batch.seen)
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
    handle.remove()
    return model.eval()


@cache
def trained(kind: str, seed: int) -> interp.Model:
    """Return a trained model: `text`, a LLaVA, or `cross`, a ViT and a decoder that attends to it.

    Training takes about a minute; kept weights are loaded.
    """
    code = "".join(map(inspect.getsource, (Pictures, _vision, _in_text, _crossed, _train)))
    settings = hashlib.sha256(f"{code}{USUAL, STEPS, BATCH}".encode()).hexdigest()[:10]
    path = KEPT / f"{kind}-{seed}-{settings}.pt"
    if path.is_file():
        model = _in_text() if kind == "text" else _crossed()
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        model = _train(kind, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), path)
    return interp.load(model.eval(), name=f"pictures-{kind}-{seed}")
