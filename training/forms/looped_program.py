"""Planted program: a layer that follows a table of links one step each time it is repeated.

The token at position i is a link from i to an earlier position or to i itself. Every position holds
three one-hot registers: its address, its content (the link) and a pointer. Head 0 reads: it attends
to the position that the pointer names and writes that position's content as the new pointer. Head 1
erases: it attends to its own position and takes the old pointer off. All layers have the same
weights, so a model of n layers is one layer looped n times; it predicts the position that is
reached from the link of the last token by following n links.

    model = interp.load(looped(3))
    model.run([[0, 0, 1, 2, 3]])[0, -1].argmax()     # 3 -> 2 -> 1 -> 0: the token 0

Reference: Giannou et al. 2023, "Looped Transformers as Programmable Computers" (arXiv 2301.13196):
its read and write by addresses; the instruction set is not built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from training.forms.language_model import VariantForCausalLM

SHARP = 60.0  # nats by which the named position is preferred
READ = 0  # the head of every layer that reads; the other erases


def looped(loops: int = 3, *, size: int = 12) -> VariantForCausalLM:
    """Build the model; tokens are positions, and token i may be any number up to i."""
    if loops < 1 or size < 2:
        raise OptionError(f"loops={loops}, size={size}: give at least 1 loop and 2 positions")
    import torch

    from training.forms import build

    model: Any = build(
        "plain_softmax",
        gain=1.0,
        vocab_size=size,
        hidden_size=3 * size,
        num_hidden_layers=loops,
        num_attention_heads=2,
        head_dim=size,
        max_position_embeddings=size,
        mlp=False,
    )
    one = torch.eye(size)
    address, content, pointer = torch.eye(3 * size).unflatten(0, (3, size))
    # three ones among 3 size entries: the norm multiplies them by the root of size
    unit = size**-0.5
    sharp = (SHARP * unit * unit * size**0.5) ** 0.5
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1.0 if weight.dim() == 1 else 0.0)  # norms, and the rest
        model.embed.weight.copy_(content + pointer)  # the pointer starts at the link
        model.positions.weight.copy_(address)
        model.head.weight.copy_(pointer)
        for block in model.blocks:
            rule = block.attention.rule
            rule.query.weight.copy_(sharp * torch.cat([pointer, address]))
            rule.key.weight.copy_(sharp * torch.cat([address, address]))
            rule.value.weight.copy_(unit * torch.cat([content, pointer]))
            block.attention.out.weight.copy_(torch.cat([pointer.T @ one, -pointer.T @ one], 1))
    return model
