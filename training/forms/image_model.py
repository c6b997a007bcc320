"""A small image classifier that takes rules for grids of patches as its attention."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutput

from training.forms import rule_class
from training.forms.host_rules import InsidePatches
from training.forms.language_model import VariantBlock, VariantConfig


class VariantImageConfig(VariantConfig):
    """Config: the name of the rule, the sizes, and those of the images."""

    model_type = "attention_variant_image"

    def __init__(
        self,
        variant: str = "patches",
        image_size: int = 24,
        patch_size: int = 4,
        num_channels: int = 3,
        num_labels: int = 4,
        **more: Any,
    ):
        self.image_size, self.patch_size = image_size, patch_size
        self.num_channels = num_channels
        super().__init__(variant, num_labels=num_labels, **more)


class InnerBlock(nn.Module):
    """Attention and MLP inside each patch, and what they add to the patches."""

    def __init__(self, config: VariantImageConfig, layer: int):
        super().__init__()
        each = InsidePatches.each
        width = config.hidden_size // each
        heads = max(1, config.num_attention_heads // 2)
        inner = VariantImageConfig(
            config.variant, hidden_size=width, num_attention_heads=heads, mlp=config.mlp
        )
        self.block = VariantBlock(inner, layer, InsidePatches)
        self.block.attention.kind = "inside patches"
        self.norm = nn.RMSNorm(each * width)
        self.to_patches = nn.Linear(each * width, config.hidden_size)

    def forward(self, inner: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return the inner tokens after this block, and what is added to the patches."""
        inner = self.block(inner, grid)
        patches = inner.unflatten(1, (grid[0] * grid[1], -1)).flatten(2)
        return inner, self.to_patches(self.norm(patches))


class VariantForImageClassification(PreTrainedModel):
    """Image classifier over the mean of its patches, whose attention is a rule for grids.

    Images of another size than the config's are taken: the table of positions is interpolated.
    """

    config_class = VariantImageConfig
    main_input_name = "pixel_values"

    def __init__(self, config: VariantImageConfig):
        super().__init__(config)
        patch, width, side = config.patch_size, config.hidden_size, config.image_size
        rule: Any = rule_class(config.variant)
        self.embed = nn.Conv2d(config.num_channels, width, patch, patch)
        self.positions = None
        if not rule.own_positions:
            self.positions = nn.Parameter(torch.zeros(1, width, side // patch, side // patch))
        self.embed_inner, self.inner = None, None
        if rule.inner:
            part = patch // InsidePatches.side
            inner_width = width // InsidePatches.each
            self.embed_inner = nn.Conv2d(config.num_channels, inner_width, part, part)
            self.inner = nn.ModuleList(
                InnerBlock(config, i) for i in range(config.num_hidden_layers)
            )
        self.blocks = nn.ModuleList(
            VariantBlock(config, i) for i in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, config.num_labels or 1)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, VariantForImageClassification) and module.positions is not None:
            nn.init.normal_(module.positions, std=0.3)

    def forward(
        self,
        pixel_values: Float[Tensor, "image channel row column"],
        labels: Int[Tensor, " image"] | None = None,
        **_: Any,
    ) -> ImageClassifierOutput:
        """Return the logits of the classes, and the loss where labels are given."""
        image = self.embed(pixel_values)
        grid = (image.shape[2], image.shape[3])
        if self.positions is not None:
            image = image + F.interpolate(self.positions, grid, mode="bilinear")
        x, inner = image.flatten(2).mT, None
        if self.embed_inner is not None:
            parts = F.pixel_unshuffle(self.embed_inner(pixel_values), InsidePatches.side)
            inner = (
                parts.unflatten(1, (-1, InsidePatches.each)).permute(0, 3, 4, 2, 1).flatten(1, 3)
            )
        for i, block in enumerate(self.blocks):
            if self.inner is not None:
                inner, added = self.inner[i](inner, grid)
                x = x + added
            x = block(x, grid)
        logits = self.head(self.norm(x).mean(1))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return ImageClassifierOutput(loss=loss, logits=logits)  # type: ignore[arg-type]


AutoConfig.register(VariantImageConfig.model_type, VariantImageConfig, exist_ok=True)
