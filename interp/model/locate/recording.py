"""Recording of one run on single tokens, to locate a model's matrices by value.

At position 0 a rotary embedding is the identity, so there q, k and v equal the outputs of their
projections, however the family treats later positions. Embeddings are replaced by noise in this
run, so that a small vocabulary identifies columns as well as a large one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from interp.core.interrupts import holding
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.inputs import probe_inputs, takes
from interp.model.locate.find_sites import Event, recorded
from interp.model.locate.norms import read_norm

if TYPE_CHECKING:
    from interp.model.transformer import Transformer

TOKENS = 32  # prompts of one token: the rows that identify columns


@dataclass(eq=False)
class Recording:
    """Record of one run on single tokens: modules and attention calls."""

    module: nn.Module
    events: list[Event]
    streams: list[Tensor | None]
    embedded: dict[tuple[str, int], tuple[Tensor, float]]  # table, run -> its noise, its factor
    logits: Tensor | None

    def of(self, name: str, run: int) -> Event | None:
        """Return a module's run."""
        return next(
            (e for e in self.events if e.call is None and e.name == name and e.run == run), None
        )

    def blocks(self, site: Site) -> list[Event]:
        """Return the runs of the layers of a site's stack, in order of position."""
        pre = site.streams.get("resid_pre")
        parent, _, number = ("", "", "") if pre is None else pre.module.rpartition(".")
        if pre is None or not number.isdigit():
            return []
        siblings = [
            e
            for e in self.events
            if e.call is None
            and e.run == pre.run
            and e.name.rpartition(".")[0] == parent
            and e.name.rpartition(".")[2].isdigit()
        ]
        return sorted(siblings, key=lambda e: int(e.name.rpartition(".")[2]))

    def is_stream(self, x: Tensor) -> bool:
        """Return True if a tensor is the residual stream at some place."""
        return any(proportional(x, s) for s in self.streams if s is not None)

    def norm_giving(self, x: Tensor, before: int | None = None) -> Event | None:
        """Return the norm with output x, up to a constant factor and the order of tokens."""
        for e in reversed(self.events[:before]):
            if e.given is None or e.returned is None or e.given.shape != e.returned.shape:
                continue
            if not proportional(e.returned, x) or proportional(e.given, e.returned):
                continue
            if read_norm(self.module.get_submodule(e.name), e.given.shape[-1:]) is not None:
                return e
        return None


def proportional(a: Tensor, b: Tensor) -> bool:
    """Return True if tensors are equal up to a positive factor and the order of windowed tokens."""
    if a.numel() != b.numel() or a.shape[-1] != b.shape[-1]:
        return False
    a, b = a.reshape(-1).double(), b.reshape(-1).to(a.device).double()
    factor = a.norm() / b.norm().clamp_min(1e-30)
    close = float(a.abs().max()) * 1e-5
    if bool(((a - factor * b).abs() <= close).all()):
        return True
    if abs(float(factor) - 1) > 1e-5:
        return False
    return bool(((a.sort().values - b.sort().values).abs() <= close).all())


@holding
@contextmanager
def _noisy_embeddings(
    model: Transformer,
    inputs: Mapping[str, Tensor],
    found: dict[tuple[str, int], tuple[Tensor, float]],
) -> Iterator[None]:
    """Replace token embeddings by noise of the same size inside the block.

    An embedding table is recognised by its input, the ids, and its output, their rows. `found`
    receives for each table and run the noise, and the factor that the table itself applies to its
    rows.
    """
    generator = torch.Generator().manual_seed(0)
    runs: Counter[str] = Counter()

    def hook(name: str):
        def noise(module: nn.Module, args: tuple, out: Tensor) -> Tensor | None:
            given = [n for n, x in inputs.items() if args and _equal(args[0], x)]
            runs[name] += 1
            weight = module.weight
            # some position tables also receive the ids, to count them; they may have fewer rows
            if (
                not given
                or not isinstance(weight, Tensor)
                or int(inputs[given[0]].max()) >= len(weight)
                or not proportional(out, weight[inputs[given[0]]])
            ):
                return None
            drawn = torch.randn(out.shape, generator=generator).to(out)
            size = out.float().std()
            drawn = drawn * torch.where(size > 0, size, 1.0).to(out)
            plain = float(weight[inputs[given[0]]].norm())
            # a copy: some families scale their input in place
            found[name, runs[name] - 1] = drawn.clone(), float(out.norm()) / max(plain, 1e-30)
            return drawn

        return noise

    handles = [
        m.register_forward_hook(in_this_thread(hook(name)))
        for name, m in model.module.named_modules()
        if isinstance(m, nn.Embedding)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _equal(a: object, b: Tensor) -> bool:
    return isinstance(a, Tensor) and not a.is_floating_point() and torch.equal(a, b)


def record(model: Transformer) -> Recording:
    """Record a run: on single tokens if the model reads only tokens, else on the probe inputs."""
    if model.ranks is not None:
        model.ranks.require_whole(model.name)
    inputs = probe_inputs(model.module)
    if all(name in ("input_ids", "decoder_input_ids") for name in inputs):
        generator = torch.Generator().manual_seed(0)
        low = min(4, model.d_vocab // 2)  # the first ids are usually special
        inputs = {
            name: torch.randint(low, model.d_vocab, (TOKENS, 1), generator=generator).to(x.device)
            for name, x in inputs.items()
        }
    cached = {"use_cache": False} if "use_cache" in takes(model.module) else {}
    embedded: dict[tuple[str, int], tuple[Tensor, float]] = {}
    ids = {n: x for n, x in inputs.items() if not x.is_floating_point()}
    with (
        torch.no_grad(),
        inference(model.module),
        _noisy_embeddings(model, ids, embedded),
        recorded(model.module) as events,
    ):
        out = model.module(**inputs, **cached)
    recording = Recording(model.module, events, [], embedded, getattr(out, "logits", None))
    for site in model.sites:
        for name, where in site.streams.items():
            event = recording.of(where.module, where.run)
            if event is not None and name.startswith("resid"):
                recording.streams.append(event.given if where.side == "in" else event.returned)
        for event in recording.blocks(site):  # also layers without attention of this kind
            recording.streams += [event.given, event.returned]
    recording.streams = list({id(x): x for x in recording.streams if x is not None}.values())
    return recording
