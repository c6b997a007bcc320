"""What the benchmark of the product runs: models, plain forwards, scores as typed, and peers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

PEERS = {
    "eager": "Hugging Face eager, output_attentions, four statistics by hand",
    "transformer_lens": "TransformerLens, run_with_cache of patterns, four statistics by hand",
    "nnsight": "nnsight, patterns saved, four statistics by hand",
}
DRAWN_FROM = 1000  # tokens of the prompts; the vocabulary of families is of this size too
WINDOW = 256
SDPA, MASKED = "plain SDPA forward", "plain SDPA forward, with a mask"
EAGER, OWN = "own eager forward", "own forward"


class Shape(NamedTuple):
    """One architecture with random weights."""

    title: str
    beside: str  # name of the plain forward
    family: str  # classes of transformers are FAMILYConfig and FAMILYForCausalLM (or LMHeadModel)
    kernel: str
    layers: int  # up to 1,024 tokens; fewer where LAYERS_AT has fewer


SHAPES = {
    "gpt2": Shape("GPT-2 small", SDPA, "GPT2", "sdpa", 12),
    "llama": Shape("Llama of its size", SDPA, "Llama", "sdpa", 12),
    "mistral": Shape(f"Mistral-shaped, window {WINDOW}", MASKED, "Mistral", "sdpa", 4),
    "gemma2": Shape(f"Gemma-2-shaped, soft-cap, window {WINDOW}", EAGER, "Gemma2", "eager", 4),
    "gpt-oss": Shape("gpt-oss-shaped, sinks, window 128", EAGER, "GptOss", "eager", 4),
    "gptj": Shape("GPT-J-shaped", OWN, "GPTJ", "eager", 4),
    "bloom": Shape("BLOOM-shaped", OWN, "Bloom", "eager", 4),
    "gpt-neo": Shape(f"GPT-Neo-shaped, window {WINDOW}", OWN, "GPTNeo", "eager", 4),
}
LAYERS_AT = {4096: 4, 16384: 2}
PEERS_AT = 4096  # longest prompt of the peers, which store every pattern of every layer


class Case(NamedTuple):
    """One thing that a user types, and the most that it may cost."""

    shape: str
    asked: str  # "score" (no nulls) or "nulls"
    prompts: int
    tokens: int
    bound: float  # time over the plain forward's
    memory: float | None = None  # growth of the peak over the plain forward's

    @property
    def name(self) -> str:
        """What `--case` matches."""
        size = f"{self.prompts}x{self.tokens}" if self.prompts > 1 else str(self.tokens)
        return f"{self.shape} {self.asked} {size}"


def cases(*, long: bool) -> list[Case]:
    """All cases in the order of the tables."""
    sizes = [(16, 48), (1, 256), (1, 1024), (1, 4096), (1, 16384)][: 5 if long else 4]
    time, memory = [1.15, 1.15, 1.10, 1.05, 1.05], [1.3, 1.3, 1.2, 1.15, 1.15]
    found = []
    for shape in ("gpt2", "llama"):
        found += [
            Case(shape, "score", *size, bound, most)
            for size, bound, most in zip(sizes, time, memory, strict=False)
        ]
    for shape in ("gpt2", "llama"):
        bounds = [1.25, 1.25, 1.15, 1.10]
        found += [Case(shape, "nulls", *size, b) for size, b in zip(sizes, bounds, strict=False)]
    families: dict[str, dict[int, float]] = {"mistral": {1024: 1.1, 4096: 0.6, 16384: 0.3}}
    families |= {name: {1024: 1.0, 4096: 0.6} for name in ("gemma2", "gpt-oss")}
    families |= {name: {256: 1.3, 1024: 1.3, 4096: 1.2} for name in ("gptj", "bloom", "gpt-neo")}
    for shape, bounds in families.items():
        found += [Case(shape, "score", 1, n, b) for n, b in bounds.items() if long or n < 16384]
    return found


class Size(NamedTuple):
    """Size of a model and its prompts."""

    layers: int
    heads: int
    tokens: int


def size_of(case: Case, layers: int | None, *, quick: bool) -> Size:
    """Layers by length of the prompts; tiny if quick."""
    if quick:
        return Size(2, 2, {48: 8, 256: 16, 1024: 24, 4096: 32, 16384: 48}[case.tokens])
    most = SHAPES[case.shape].layers
    return Size(layers or min(most, LAYERS_AT.get(case.tokens, most)), 12, case.tokens)


def build(shape: str, size: Size, *, quick: bool = False, kernel: str | None = None) -> Any:
    """The model, the same for every call; `kernel` is that of a peer where it differs."""
    import transformers

    given = SHAPES[shape]
    config = getattr(transformers, f"{given.family}Config")(**_options(given.family, size, quick))
    ends = ("ForCausalLM", "LMHeadModel")
    names = [given.family + end for end in ends if hasattr(transformers, given.family + end)]
    made = getattr(transformers, names[0])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return made._from_config(config, attn_implementation=kernel or given.kernel).eval()


def _options(family: str, size: Size, quick: bool) -> dict[str, Any]:
    """Arguments of the family's configuration: heads of 64, the width of GPT-2 small."""
    width = size.heads * (16 if quick else 64)
    few = DRAWN_FROM if quick else None
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    old = {"n_layer": size.layers, "n_head": size.heads}
    positions = max(1024, size.tokens)
    if family == "GPT2":
        old |= {"n_embd": width, "n_positions": positions, "vocab_size": few or 50257}
        return old | special
    if family == "GPTJ":
        old |= {"n_embd": width, "n_positions": positions, "rotary_dim": 8 if quick else 32}
        return old | special | {"vocab_size": DRAWN_FROM}
    if family == "Bloom":
        return old | special | {"hidden_size": width, "vocab_size": DRAWN_FROM}
    if family == "GPTNeo":
        kinds = [[["global", "local"], size.layers // 2]]
        if size.layers % 2:
            kinds.append([["global"], 1])
        own = {"hidden_size": width, "num_layers": size.layers, "num_heads": size.heads}
        own |= {"attention_types": kinds, "window_size": 8 if quick else WINDOW}
        return own | special | {"vocab_size": DRAWN_FROM, "max_position_embeddings": positions}
    own = {"hidden_size": width, "num_hidden_layers": size.layers, "head_dim": width // size.heads}
    own |= {"num_attention_heads": size.heads, "max_position_embeddings": positions}
    if family == "Llama":
        vocabulary = few or 32000
        return own | special | {"intermediate_size": width * 8 // 3, "vocab_size": vocabulary}
    own |= {"vocab_size": DRAWN_FROM, "num_key_value_heads": 2 if quick else 4}
    own |= {"sliding_window": 8 if quick else WINDOW, "intermediate_size": width * 8 // 3}
    if family == "Gemma2":
        own |= {"query_pre_attn_scalar": width // size.heads}
    if family == "GptOss":
        own |= {"sliding_window": 8 if quick else 128, "intermediate_size": width}
        own |= {"num_local_experts": 4, "num_experts_per_tok": 2}
        own |= {"rope_parameters": {"rope_type": "default", "rope_theta": 150_000.0}}
    return own | special


def prompts_of(case: Case, size: Size) -> list[list[int]]:
    """Random tokens repeated twice, all of one length, so that nothing is padded."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(3, DRAWN_FROM, (case.prompts, size.tokens // 2), generator=generator)
    return torch.cat([half, half], 1).tolist()


def eleven_metrics() -> list[str]:
    """The detectors and statistics of attention."""
    from interp.core.registry import METRICS

    return [name for name, entry in METRICS.items() if entry.group == "detectors"]


def forwards_needed(metrics: list[str], draws: int) -> int:
    """Plain forwards that scores with nulls need: the model, shuffled tokens, random weights."""
    from interp.core.registry import METRICS

    kinds = {METRICS.parse(name).analysis.default_null for name in metrics}
    return 1 + ("shuffled-tokens" in kinds) + draws * bool(kinds - {"none"})


def plain(module: Any, ids: list[list[int]], last: int = 1) -> Callable[[], object]:
    """The plain forward of the module, with logits of the last token; of all tokens if `last=0`."""
    given = torch.tensor(ids)

    @torch.no_grad()
    def run() -> object:
        return module(input_ids=given, use_cache=False, logits_to_keep=last).logits

    return run


def scored(case: Case, module: Any, ids: list[list[int]], engine: str) -> Callable[[], Any]:
    """What the user types; with nulls, each call has a seed of its own."""
    import interp

    model, metrics, seed = (
        interp.load(module, name=case.shape),
        eleven_metrics(),
        iter(range(10**6)),
    )
    if case.asked == "score":
        return lambda: interp.score(model, metrics, ids, null="none", engine=engine)
    options = {"engine": engine, "null_cache": False}
    return lambda: interp.score(model, metrics, ids, seed=next(seed), **options)


def four_statistics(patterns: Sequence[Tensor], ids: Tensor) -> Tensor:
    """Previous token, first token, induction and entropy: `[statistic, layer, head]`."""
    n = ids.shape[1]
    at = torch.arange(n)
    before = torch.cat([torch.full_like(ids[:, :1], -1), ids[:, :-1]], 1)
    target = (before[:, None, :] == ids[:, :, None]) & (at[None, :] <= at[:, None])
    rows = target.any(-1).sum(-1).clamp_min(1)
    layers = []
    for p in patterns:
        previous = p.diagonal(-1, -2, -1).mean(-1)
        induction = torch.einsum("bhij,bij->bh", p, target.to(p.dtype)) / rows[:, None]
        entropy = torch.special.entr(p).sum(-1).mean(-1)
        four = torch.stack([previous, p[..., 0].mean(-1), induction, entropy])
        layers.append(four.mean(1))
    return torch.stack(layers, 1)


def prepare_peer(
    name: str, case: Case, size: Size, *, quick: bool
) -> Callable[[list[list[int]]], Tensor]:
    """A function of the prompts that runs the tool once."""
    module = build(case.shape, size, quick=quick, kernel="eager")
    patterns = {"eager": _eager, "transformer_lens": _bridge, "nnsight": _nnsight}[name](module)

    @torch.no_grad()
    def run(prompts: list[list[int]]) -> Tensor:
        ids = torch.tensor(prompts)
        return four_statistics(patterns(ids), ids)

    return run


Patterns = Callable[[Tensor], Sequence[Tensor]]


def _eager(module: Any) -> Patterns:
    keep = {"use_cache": False, "output_attentions": True, "logits_to_keep": 1}
    return lambda ids: module(input_ids=ids, **keep).attentions


def _bridge(module: Any) -> Patterns:
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    kind = type(module).__name__
    module.config.architectures = [kind]
    bridge = build_bridge_from_module(module, kind, hf_config=module.config, tokenizer=None)

    def patterns(ids: Tensor) -> list[Tensor]:
        cache = bridge.run_with_cache(ids, names_filter=lambda n: n.endswith("hook_pattern"))[1]
        layers = module.config.num_hidden_layers
        return [cache[f"blocks.{i}.attn.hook_pattern"] for i in range(layers)]

    return patterns


def _nnsight(module: Any) -> Patterns:
    import nnsight

    held = nnsight.NNsight(module)
    gpt2 = hasattr(module, "transformer")
    layers = module.config.num_hidden_layers

    def patterns(ids: Tensor) -> list[Tensor]:
        kept = []
        with held.trace(input_ids=ids, use_cache=False, logits_to_keep=1):
            for i in range(layers):
                block = held.transformer.h[i].attn if gpt2 else held.model.layers[i].self_attn
                kept.append(nnsight.save(block.source.attention_interface_1.output[1]))
        return kept

    return patterns


def peers_of(case: Case) -> list[str]:
    """The tools that are run beside a case: without nulls, on the shapes that all of them read."""
    return list(PEERS) if case.asked == "score" and SHAPES[case.shape].kernel == "sdpa" else []
