"""What the benchmark runs: attention alone and inside a model, plain and with statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from interp_kernels import (
    Attention,
    Diagonal,
    Distance,
    Entropy,
    KeySetMass,
    Largest,
    LogSumExp,
    Output,
    PooledMap,
    Received,
    Reduction,
    Rows,
    SegmentMass,
    attention_statistics,
    reference,
)

HEADS, D_HEAD, VOCABULARY = 12, 64, 1000
LAYERS, HEADS_AT = {32768: 1}, {32768: 4}  # where one run of all takes long; 2 layers elsewhere


def row_statistics(n: int) -> list[Reduction]:
    """All row statistics: output, log-sum-exp, entropy, largest weight, distance, masses."""
    segments = (torch.arange(n) * 4 // n)[None]
    return [
        *(Output(), LogSumExp(), Entropy(), Largest(), Distance()),
        *(KeySetMass("first", (0, 1, 2, 3)), SegmentMass(segments, 4)),
        Diagonal((0, 1, 2, n // 2 + 1)),
    ]


def everything(n: int) -> list[Reduction]:
    """Row statistics, column sums and the pooled map."""
    return [*row_statistics(n), Received(), PooledMap(64)]


def cheap_statistics(n: int) -> list[Reduction]:
    """What the log-sum-exp alone answers: sinks, offsets, a few whole rows."""
    sinks, offsets = KeySetMass("first", (0, 1, 2, 3)), Diagonal((0, 1, 2, n // 2 + 1))
    return [Output(), sinks, offsets, Rows((n // 2, n - 1))]


def of_reference(attention: Attention, asked: Sequence[Reduction]) -> object:
    """The definition, which stores the pattern."""
    return reference.statistics(attention, asked)


def statistics_by(
    backend: str, ask: Callable[[int], list[Reduction]]
) -> Callable[[Attention], dict[str, Any]]:
    """Runs one backend on what is asked at a length."""
    return lambda call: attention_statistics(call, ask(call.q.shape[2]), backend=backend)


STREAMED: dict[str, tuple[str, Callable[[Attention], Any]]] = {
    "row": ("cpu: row statistics", statistics_by("cpu", row_statistics)),
    "column": ("cpu: row and column statistics", statistics_by("cpu", everything)),
    "cheap": ("cpu: cheap tier", statistics_by("cpu", cheap_statistics)),
    "chunked": ("chunked PyTorch: row and column", statistics_by("chunked", everything)),
}


@lru_cache(maxsize=1)  # all methods read the same, as a fresh copy would come from further away
def draw(n: int, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v as views of one projection, the way models have them."""
    made = torch.randn(1, n, 3 * heads * D_HEAD, generator=torch.Generator().manual_seed(n))
    q, k, v = (x.view(1, n, heads, D_HEAD).transpose(1, 2) for x in made.chunk(3, -1))
    return q, k, v


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """PyTorch's own attention."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def operation(name: str, n: int, heads: int) -> Callable[[], object]:
    """One attention operation, ready to run."""
    q, k, v = draw(n, heads)
    if name == "plain":
        return lambda: sdpa(q, k, v)
    if name == "reference":
        return lambda: of_reference(Attention(q=q, k=k, v=v, causal=True), everything(n))
    if name == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cpu")
        compiled: Any = torch.compile(flex_attention)
        return lambda: compiled(q, k, v, block_mask=mask)
    run = STREAMED[name][1]
    return lambda: run(Attention(q=q, k=k, v=v, causal=True))


class Method(NamedTuple):
    """A line of the tables; beyond `max_length` tokens it is left out, and `why` is said."""

    title: str
    max_length: int = 1 << 20
    why: str = ""


# Memory grows fourfold with each doubling; 20 GB is the most that is asked of a machine.
TOO_LARGE = "stores patterns: four times the memory of the length before, about {}"
OURS = {name: Method(title) for name, (title, _) in STREAMED.items() if name != "chunked"}
CHUNKED = STREAMED["chunked"][0]
OPERATIONS = {
    "plain": Method("plain SDPA"),
    **OURS,
    "chunked": Method(CHUNKED, 1 << 15),
    "reference": Method("reference (stores the pattern)", 1 << 12, TOO_LARGE.format("16 GB")),
    "flex": Method("FlexAttention, compiled: output only", 1 << 13, "left out for time"),
}
MODELS = {
    "plain": Method("plain SDPA forward"),
    **OURS,
    "chunked": Method(CHUNKED, 1 << 13, "left out for time"),
    "eager": Method("Hugging Face eager, output_attentions", 1 << 13, TOO_LARGE.format("40 GB")),
    "transformer_lens": Method(
        "TransformerLens run_with_cache (patterns)", 1 << 13, TOO_LARGE.format("40 GB")
    ),
}
# These are given every round; the rest, whose ratios are far from 1, a few.
CLOSE = ("plain", *OURS)


def layers_at(n: int) -> int:
    """Layers of the model at a length."""
    return LAYERS.get(n, 2)


def gpt2(n: int, attention: str) -> Any:
    """Random weights in the shape of GPT-2 small, with few words and as many positions as asked."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=layers_at(n),
        n_positions=n,
        vocab_size=VOCABULARY,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GPT2LMHeadModel._from_config(config, attn_implementation=attention).eval()


def streamed_attention(name: str) -> str:
    """Registers an attention function that computes the output with its statistics."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    run = STREAMED[name][1]

    def forward(module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: Any = None, **_: Any):
        assert mask is None, "one whole prompt needs no mask but causality"
        found = run(Attention(q=q, k=k, v=v, causal=True, scale=scaling))
        return found["output"].transpose(1, 2).contiguous(), None

    AttentionInterface.register(f"bench_{name}", forward)
    AttentionMaskInterface.register(f"bench_{name}", sdpa_mask)
    return f"bench_{name}"


def model(name: str, n: int) -> Callable[[], object]:
    """One forward pass of a model, ready to run."""
    ids = torch.arange(n)[None] % VOCABULARY
    if name == "transformer_lens":
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        inside = gpt2(n, "eager")
        inside.config.architectures = ["GPT2LMHeadModel"]
        bridge: Any = build_bridge_from_module(
            inside, "GPT2LMHeadModel", hf_config=inside.config, tokenizer=None
        )
        return lambda: bridge.run_with_cache(
            ids, names_filter=lambda hook: hook.endswith("hook_pattern")
        )
    names = {"plain": "sdpa", "eager": "eager"}
    made = gpt2(n, names.get(name) or streamed_attention(name))
    wants = name == "eager"
    return lambda: made(input_ids=ids, use_cache=False, output_attentions=wants)


def prepare(part: str, name: str, n: int) -> Callable[[], object]:
    """The method of that name, of the attention alone ("operation") or of a whole "model"."""
    torch.set_grad_enabled(False)
    if part == "model":
        return model(name, n)
    return operation(name, n, heads_at(n))


def heads_at(n: int) -> int:
    """Heads of the operation alone: fewer where one takes long."""
    return HEADS_AT.get(n, HEADS)
