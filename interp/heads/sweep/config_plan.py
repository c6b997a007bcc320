"""Cost of scoring a model of which only the config is at hand, so of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interp.core.errors import LoadError
from interp.heads.estimate import forward_bytes, readable, statistics_bytes
from interp.heads.machine_limits import PARTS, Machine, pass_cost
from interp.heads.scoring import fits_stored
from interp.model.calls.sites import Site
from interp.model.skeleton import parts_of

if TYPE_CHECKING:
    from interp.heads.declaration import BoundAnalysis

CARDS = (16, 24, 32, 48, 80, 96, 141, 192)  # GiB of memory of one card
PROCESS = 640 * 2**20
"""Bytes of Python, torch, transformers and the compiled pass (measured on Linux, Python 3.11)."""
SPARE = 0.1  # share of a card that the context, the allocator and the fragments of it take


@dataclass(frozen=True)
class PlannedModel:
    """Module without weights, and its attention layers as the config states them.

    Args:
        name: name of the model.
        module: the module, on torch's `meta` device.
        sites: its attention layers.
        width: width of the residual stream.
        dtype: data type of the weights.
        active: share of the weights of experts that a token passes through.
    """

    name: str
    module: Any  # a PreTrainedModel
    sites: tuple[Site, ...]
    width: int
    dtype: torch.dtype
    active: float

    @property
    def weights(self) -> int:
        """Number of weights; shared ones are counted once."""
        return sum(p.numel() for p in self.module.parameters())

    @property
    def embeddings(self) -> int:
        """Number of weights of the embedding and of the unembedding."""
        ends = (self.module.get_input_embeddings(), self.module.get_output_embeddings())
        sizes = {id(p): p.numel() for end in ends if end is not None for p in end.parameters()}
        return sum(sizes.values())

    @property
    def part(self) -> int:
        """Number of weights of the largest part, such as an embedding or an MLP."""
        sizes = {name: p.numel() for name, p in self.module.named_parameters()}
        return max(sum(sizes[n] for n in part.parameters) for part in parts_of(self.module))

    @property
    def experts(self) -> int:
        """Number of weights of routed experts."""
        return sum(p.numel() for n, p in self.module.named_parameters() if ".experts." in n)


def config_alone(source: str) -> bool:
    """Return True for a folder that holds a config and no weights."""
    path = Path(source).expanduser()
    if not (path / "config.json").is_file():
        return False
    return not any(path.glob("*.safetensors*")) and not any(path.glob("pytorch_model*"))


def planned(source: str, name: str, dtype: str | None = None) -> PlannedModel:
    """Return the model that a folder's config describes, without weights."""
    from interp.model.sources.described import module_of_config

    folder = str(Path(source).expanduser())
    with torch.device("meta"):
        module = module_of_config(folder)
    return planned_of(module, name, dtype)


def planned_of(module: Any, name: str, dtype: str | None = None) -> PlannedModel:
    """Return the plan of a module on any device; its config states the sizes."""
    config = module.config.get_text_config(decoder=True)
    try:
        layers, heads = int(config.num_hidden_layers), int(config.num_attention_heads)
        width = int(config.hidden_size)
    except (AttributeError, TypeError) as error:
        raise LoadError(
            f"{name}: its config does not state num_hidden_layers, num_attention_heads and"
            " hidden_size, from which a run is planned; plan one with weights"
        ) from error
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    size = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None)
    size = int(size or width // heads)
    value = int(getattr(config, "v_head_dim", None) or size)
    sites = tuple(
        Site("decoder", n, "", 0, heads, kv_heads, size, value, False, True, True)
        for n in range(layers)
    )
    experts = next(
        (
            n
            for x in ("num_experts", "num_local_experts", "n_routed_experts")
            if (n := getattr(config, x, None))
        ),
        0,
    )
    chosen = getattr(config, "num_experts_per_tok", None) or experts
    kind = dtype or getattr(module.config, "dtype", None) or "float32"
    kind = kind if isinstance(kind, torch.dtype) else getattr(torch, str(kind))
    return PlannedModel(name, module, sites, width, kind, chosen / experts if experts else 1.0)


def planned_engine(model: PlannedModel, batch: int, length: int, engine: str) -> str:
    """Return the engine that a run would use."""
    if engine != "auto":
        return engine
    return "stored" if fits_stored(batch, model.sites[0].n_heads, length) else "streamed"


def peak_bytes(
    model: PlannedModel,
    batch: int,
    length: int,
    metrics: Sequence[BoundAnalysis],
    engine: str = "auto",
) -> dict[str, int]:
    """Return the bytes at the peak of a scoring run, by part.

    weights: all of them; forward: activations of one block; statistics: those of one layer;
    process: `PROCESS`, which is on the CPU also if the model is not.
    """
    size = model.dtype.itemsize
    site = model.sites[0]
    return {
        "weights": model.weights * size,
        "forward": forward_bytes(model.module, model.width, batch, length, size),
        "statistics": statistics_bytes(
            site, size, batch, length, metrics, planned_engine(model, batch, length, engine)
        ),
        "process": PROCESS,
    }


def offloaded_bytes(model: PlannedModel, parts: dict[str, int]) -> int:
    """Return the bytes at the peak if parts are read when they run (`interp.load`, offload)."""
    return sum(parts.values()) - parts["weights"] + model.part * model.dtype.itemsize


def work(
    model: PlannedModel, lengths: Sequence[int], metrics: Sequence[BoundAnalysis], stored: bool
) -> dict[str, tuple[float, float]]:
    """Return the operations and the bytes of one run over the prompts, by part.

    Of experts a token passes through as many as the config states; all are read once.
    """
    costs = {part: pass_cost(model, lengths, metrics, stored, part) for part in PARTS}
    done, moved = costs["parameters"]
    # linear maps that are modules were counted; experts that share one tensor were not
    listed = sum(
        p.numel() for n, p in model.module.named_parameters() if ".experts." in n and p.dim() == 2
    )
    idle = 2.0 * sum(lengths) * (listed - model.active * model.experts)
    read = (model.experts - listed) * model.dtype.itemsize
    return costs | {"parameters": (done - idle, moved + read)}


def card(need: int) -> str:
    """Return the smallest card into which so many bytes fit, or how many of 80 GiB hold them."""
    for gib in CARDS:
        if need <= gib * 2**30 * (1 - SPARE):
            return f"a card of {gib} GiB"
    return f"{-(-need // int(80 * 2**30 * (1 - SPARE)))} cards of 80 GiB (--device-map auto)"


def plan_text(
    model: PlannedModel,
    metrics: Sequence[BoundAnalysis],
    batch: int,
    lengths: Sequence[int],
    runs: int,
    machine: Machine,
    free: int | None,
    engine: str = "auto",
) -> str:
    """Return the cost of scoring as lines of text."""
    site, longest = model.sites[0], max(lengths)
    batch = min(batch, len(lengths))
    engine = planned_engine(model, batch, longest, engine)
    parts = peak_bytes(model, batch, longest, metrics, engine)
    need, size = sum(parts.values()), model.dtype.itemsize
    costs = work(model, lengths, metrics, engine == "stored")
    done, moved = (sum(x[i] for x in costs.values()) for i in (0, 1))
    seconds = sum(max(machine.seconds(*x)) for x in costs.values())
    of_experts = f", of which a token passes {model.active:.1%} of the experts"
    lines = [
        f"{model.name}: planned from its config; {len(model.sites)} layers x {site.n_heads} heads"
        f" ({site.n_kv_heads} of keys), {model.weights / 1e9:.3g} billion weights"
        f"{of_experts if model.active < 1 else ''}",
        f"  weights   {readable(parts['weights'])} in {str(model.dtype).removeprefix('torch.')}:"
        f" {readable(model.embeddings * size)} embeddings, the largest part"
        f" {readable(model.part * size)}",
        f"  memory    {batch} x {longest:,} tokens, {engine}: about"
        f" {readable(need)} at the peak (forward pass {readable(parts['forward'])}, statistics"
        f" {readable(parts['statistics'])}, Python and libraries {readable(PROCESS)});"
        f" what a GPU holds of it fits {card(need - PROCESS)}",
        f"  work      {done:.3g} operations and {moved:.3g} bytes a run, {runs} runs (scores and"
        " nulls)",
        f"  time      at least {seconds * runs:.2g} s ({machine.name}:"
        f" {machine.operations / 1e9:.3g} GFLOP/s, {machine.bandwidth / 1e9:.3g} GB/s)",
    ]
    if free is not None and need > free:
        small = offloaded_bytes(model, parts)
        less = f"--offload needs {readable(small)}" if small <= free else "nor does it by --offload"
        lines.append(f"  DOES NOT FIT: {readable(free)} are free here; {less}")
    return "\n".join(lines)
