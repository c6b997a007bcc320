"""Models that read pictures inside text, and their own attentions, those of the tower included.

They are not in `FAMILIES`: their inputs have no text-only form, and few tests need them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

IMAGE, VIDEO, START, END = 120, 121, 122, 123
H = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
VISION = H | {"image_size": 32, "patch_size": 8}
TEXT = H | {"vocab_size": 128, "num_key_value_heads": 2, "pad_token_id": 0}
TEXT |= {"bos_token_id": 1, "eos_token_id": 2}
QWEN = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}


def _rope(sections: list[int]) -> dict[str, Any]:
    return {"rope_type": "default", "mrope_section": sections, "rope_theta": 1e4}


@dataclass(frozen=True, eq=False)
class JointFamily:
    """A tiny random model of one family; `slots` are the placeholders of one picture."""

    name: str
    model_class: str
    config: Mapping[str, Any]
    slots: int
    towers: int = 2  # layers of the vision tower

    def build(self, attention: str = "sdpa", seed: int = 0) -> nn.Module:
        """A new model, the caller's to change."""
        import transformers

        cls = getattr(transformers, self.model_class)
        config = cls.config_class(**copy.deepcopy(dict(self.config)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls._from_config(config, attn_implementation=attention, dtype=torch.float32)
            with torch.no_grad():  # peaked patterns, in which a mistake shows
                for name, weight in model.named_parameters():
                    if "att" in name and weight.dim() > 1:
                        weight.mul_(6)
        return model.eval()

    def inputs(self, seed: int = 0) -> dict[str, Tensor]:
        """Two prompts of one picture each, the text around it random."""
        draw = torch.Generator().manual_seed(seed)
        ids = torch.randint(4, 119, (2, self.slots + 6), generator=draw)
        ids[:, 1] = START
        ids[:, 2 : 2 + self.slots] = IMAGE
        found: dict[str, Tensor] = {"input_ids": ids}
        if self.name.startswith("qwen"):
            found["pixel_values"] = torch.randn(32, 3 * 2 * 8 * 8, generator=draw)
            found["image_grid_thw"] = torch.tensor([[1, 4, 4]] * 2)
            found["mm_token_type_ids"] = (ids == IMAGE).int()
        else:
            several = (1,) if self.name == "idefics3" else ()
            found["pixel_values"] = torch.randn(2, *several, 3, 32, 32, generator=draw)
        if self.name == "gemma3":
            found["token_type_ids"] = (ids == IMAGE).long()
        if self.name == "paligemma":
            answer = torch.zeros_like(ids)
            answer[:, -2:] = 1
            found["token_type_ids"] = answer
        return found


@cache
def joint_model(name: str) -> nn.Module:
    """One model per process: look, do not change."""
    return JOINT[name].build()


def own_attentions(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[tuple[str, int], Tensor]:
    """The maps of an eager twin, by stack and layer: what its attention modules return.

    Qwen's vision attention returns none; its map is recomputed from its projection and its rotary
    embedding, with one softmax over the whole row and a mask of the stretches.
    """
    config: Any = model.config
    with torch.random.fork_rng(devices=[]):
        twin = type(model)._from_config(  # type: ignore[attr-defined]
            copy.deepcopy(config), attn_implementation="eager"
        )
    twin.load_state_dict(model.state_dict())
    twin.eval()
    found: dict[tuple[str, int], Tensor] = {}
    handles = []
    for path, module in twin.named_modules():
        if not path.endswith(("self_attn", "attn")):
            continue
        stack = "decoder" if "language_model" in path or "text_model" in path else "vision"
        layer = next(int(x) for x in path.split(".") if x.isdigit())

        def keep(
            module: Any, args: tuple, kwargs: dict, out: Any, at: tuple[str, int] = (stack, layer)
        ) -> None:
            found[at] = _of_stretches(module, *args, **kwargs) if _packed(module) else out[1]

        handles.append(module.register_forward_hook(keep, with_kwargs=True))
    with torch.no_grad():
        twin(**inputs)
    for handle in handles:
        handle.remove()
    return found


def _packed(module: Any) -> bool:
    return hasattr(module, "qkv")


def _of_stretches(module: Any, x: Tensor, cu_seqlens: Tensor, **kwargs: Any) -> Tensor:
    from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision

    q, k, _ = module.qkv(x).reshape(len(x), 3, module.num_heads, -1).unbind(1)
    q, k = apply_rotary_pos_emb_vision(q, k, *kwargs["position_embeddings"])
    scores = torch.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5
    picture = torch.bucketize(torch.arange(len(x)), cu_seqlens[1:], right=True)
    apart = picture[:, None] != picture
    return scores.masked_fill(apart, -torch.inf).softmax(-1)[None]


JOINT: dict[str, JointFamily] = {
    family.name: family
    for family in (
        JointFamily(
            "llava",
            "LlavaForConditionalGeneration",
            {
                "vision_config": VISION | {"model_type": "clip_vision_model"},
                "text_config": TEXT | {"model_type": "llama"},
                "vision_feature_layer": -1,
                "image_token_index": IMAGE,
            },
            slots=16,
        ),
        JointFamily(
            "paligemma",
            "PaliGemmaForConditionalGeneration",
            {
                "vision_config": VISION | {"model_type": "siglip_vision_model"},
                "text_config": TEXT | {"model_type": "gemma", "head_dim": 8},
                "projection_dim": 32,
                "image_token_index": IMAGE,
            },
            slots=16,
        ),
        JointFamily(
            "gemma3",
            "Gemma3ForConditionalGeneration",
            {
                "vision_config": VISION,
                "text_config": TEXT
                | {
                    "head_dim": 8,
                    "sliding_window": 4,
                    "layer_types": ["sliding_attention", "full_attention"],
                },
                "mm_tokens_per_image": 4,
                "boi_token_index": START,
                "eoi_token_index": END,
                "image_token_index": IMAGE,
            },
            slots=4,
        ),
        JointFamily(
            "idefics3",
            "Idefics3ForConditionalGeneration",
            {
                "vision_config": VISION,
                "text_config": TEXT | {"model_type": "llama"},
                "image_token_id": IMAGE,
                "scale_factor": 2,
                "pad_token_id": 0,
            },
            slots=4,
        ),
        JointFamily(
            "qwen2_vl",
            "Qwen2VLForConditionalGeneration",
            QWEN
            | {
                "text_config": TEXT | {"rope_parameters": _rope([1, 1, 2])},
                "vision_config": {
                    "depth": 2,
                    "embed_dim": 32,
                    "num_heads": 4,
                    "hidden_size": 32,
                    "patch_size": 8,
                    "mlp_ratio": 2,
                },
            },
            slots=4,
        ),
        JointFamily(
            "qwen2_5_vl",
            "Qwen2_5_VLForConditionalGeneration",
            QWEN
            | {
                "text_config": TEXT | {"rope_parameters": _rope([1, 1, 2])},
                "vision_config": {
                    "depth": 3,
                    "hidden_size": 32,
                    "intermediate_size": 48,
                    "num_heads": 4,
                    "out_hidden_size": 32,
                    "patch_size": 8,
                    "window_size": 16,  # four windows per picture, of 2 x 2 patches
                    "fullatt_block_indexes": [1],
                },
            },
            slots=4,
            towers=3,
        ),
        JointFamily(
            "qwen3_vl",
            "Qwen3VLForConditionalGeneration",
            QWEN
            | {
                "text_config": TEXT | {"head_dim": 8, "rope_parameters": _rope([2, 1, 1])},
                "vision_config": {
                    "depth": 3,
                    "hidden_size": 32,
                    "patch_size": 8,
                    "intermediate_size": 48,
                    "num_heads": 4,
                    "out_hidden_size": 32,
                    "num_position_embeddings": 16,
                    "deepstack_visual_indexes": [0, 1],
                },
            },
            slots=4,
            towers=3,
        ),
    )
}
