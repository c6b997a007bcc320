"""Probe of a module: locate its attention and streams by one run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from interp.core.errors import LoadError, PromptError, UnreadableAttention, error_line
from interp.core.interrupts import holding
from interp.model.calls.call import Call, first_tensor, with_tensor
from interp.model.calls.sites import POOLING, Site
from interp.model.hooks.inference import in_this_thread, inference, unchanged
from interp.model.hooks.interface_call import require_read_kernel
from interp.model.hooks.tap import tapped
from interp.model.inputs import is_encoder_decoder, probe_inputs, reads_pictures_in_text, takes
from interp.model.joint_inputs import joint_probe_inputs
from interp.model.locate.find_sites import (
    Event,
    calls_of_one_forward,
    find_sites,
    numbered_layers,
    recorded,
)
from interp.model.locate.ranks import ranks_of
from interp.model.locate.streams import find_streams
from interp.model.locate.streams_on_request import with_streams
from interp.model.model import Model


@holding
@contextmanager
def other_outputs(model: nn.Module, events: Sequence[Event]) -> Iterator[None]:
    """Add noise to the output of each attention in the block, and undo it after its module.

    The modules return what they returned in the recorded run, so inside each of them exactly the
    tensors that follow from its own attention differ.
    """
    generator = torch.Generator().manual_seed(0)
    returned = {(e.name, e.run): e.returned for e in events if e.call is None}
    runs: Counter[str] = Counter()

    def add(module: nn.Module, run: int, call: Call) -> None:
        noise = torch.randn(call.z.shape, generator=generator).to(call.z)
        call.z = call.z + noise * call.z.abs().mean()

    def undo(name: str) -> Any:
        def hook(module: nn.Module, args: tuple, output: Any) -> Any:
            old, new = first_tensor(output), returned.get((name, runs[name]))
            runs[name] += 1
            if old is None or new is None or new.shape != old.shape:
                return output
            return with_tensor(output, old, new)

        return in_this_thread(hook)

    handles = [
        model.get_submodule(name).register_forward_hook(undo(name))
        for name in dict.fromkeys(e.name for e in events if e.call is not None)
    ]
    try:
        with tapped(model, add, watch=True):
            yield
    finally:
        for handle in handles:
            handle.remove()


# errors of a forward whose code does not fit its config
_FAILURES = (
    TypeError,
    ValueError,
    RuntimeError,
    IndexError,
    AttributeError,
    KeyError,
    StopIteration,
    ZeroDivisionError,
)


def probe_run(
    module: nn.Module,
    seed: int = 0,
    within: AbstractContextManager[None] | None = None,
    *,
    only: Collection[str] | None = None,
    watch: bool = True,
    joint: bool = False,
) -> tuple[dict[str, torch.Tensor], list[Event]]:
    """Run one forward pass on random inputs and record inputs and outputs of modules."""
    inputs = _joint_inputs(module, seed) if joint else probe_inputs(module, seed)
    cached = {"use_cache": False} if "use_cache" in takes(module) else {}
    with (
        torch.no_grad(),
        unchanged(module) as snapshot,
        inference(module),
        within or nullcontext(),
        recorded(module, only=only, watch=watch) as events,
    ):
        try:
            module(**inputs, **cached)
        except PromptError as error:  # its longest prompt is too short for its own attention
            raise UnreadableAttention(
                f"{type(module).__name__} cannot be checked on prompts that it takes: {error}"
            ) from error
        except _FAILURES as error:
            shapes = ", ".join(f"{k} {tuple(v.shape)}" for k, v in inputs.items())
            raise LoadError(
                f"{type(module).__name__} does not run on {shapes}: {error_line(error)}"
            ) from error
        exchanged = snapshot.exchanged()
    if exchanged:
        raise UnreadableAttention(
            f"{type(module).__name__} replaces its own modules ({exchanged[0]}) as it runs on "
            "a short input, so what runs depends on the length of the prompt; choose one kind of "
            "attention in its config (BigBird: attention_type='original_full')"
        )
    return inputs, events


def probe(
    module: nn.Module, name: str, tokenizer: Any = None, revision: str | None = None
) -> Model:
    """Return a `Model` whose attention sites and streams were found by one run on a few tokens."""
    kernel = getattr(module.config, "_attn_implementation", None)
    if isinstance(kernel, str) and "flex" in kernel:  # its mask is compiled before it runs
        require_read_kernel(module, kernel)
    inputs, events = probe_run(module)
    length = inputs["decoder_input_ids"].shape[1] if is_encoder_decoder(module) else None
    again = partial(_with_other_outputs, module, events)
    sites = find_sites(module, events, length, again) if any(e.call for e in events) else []
    if not sites:
        raise UnreadableAttention(_why_nothing(module))
    _require_known_layout(module, sites, events)
    ranks = ranks_of(module, sites)
    if ranks is not None:  # no streams of a model that is spread over processes are searched
        streams = find_streams(module, events, sites)
        sites = [replace(site, streams=s) for site, s in zip(sites, streams, strict=True)]
    else:
        watch = any(site.watched for site in sites)
        sites = with_streams(module, sites, events, partial(_recorded_within, watch=watch))
    model = Model(module, name, tuple(sites), tokenizer, revision)
    model.ranks = ranks
    if ranks is None and reads_pictures_in_text(module):
        model.joint_sites, model.unread_why = _joint_sites(module, sites)
    model.unread = _unread(module, [*sites, *model.joint_sites])
    return model


def _joint_inputs(module: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    try:
        return joint_probe_inputs(module, seed)
    except _FAILURES as error:
        raise LoadError(
            f"{type(module).__name__}: its vision tower does not run on a random picture: "
            f"{error_line(error)}"
        ) from error


def _joint_sites(module: nn.Module, own: Sequence[Site]) -> tuple[tuple[Site, ...], str]:
    """Return the sites of a run on pictures inside text, and why there are none.

    Attentions that also run on text alone keep their names; the others are those of towers.
    """
    try:
        _, events = probe_run(module, joint=True)
        again = partial(_with_other_outputs, module, events, joint=True)
        sites = find_sites(module, events, None, again)
        _require_known_layout(module, sites, events)
        # the text reads the patches; what pools them for an embedding does not reach it
        sites = [site for site in sites if site.stack != POOLING]
    except (LoadError, UnreadableAttention) as error:
        return (), str(error)
    known = {(site.module, site.run): site for site in own}
    towers = [site for site in sites if (site.module, site.run) not in known]
    if not towers:
        return (), "no attention ran beside those that run on text alone"
    layers = numbered_layers(["vision"] * len(towers), [site.module for site in towers])
    named = iter([replace(s, stack="vision", layer=n) for s, n in zip(towers, layers, strict=True)])
    joint: list[Site] = []
    for site in sites:
        mine = known.get((site.module, site.run))
        if mine is None:
            joint.append(next(named))
        else:
            prefix = mine.causal and not site.causal
            joint.append(replace(mine, causal=site.causal, prefix=prefix))
    run = partial(_recorded_within, watch=any(s.watched for s in joint), joint=True)
    return tuple(with_streams(module, joint, events, run)), ""


def _recorded_within(
    module: nn.Module, within: AbstractContextManager[None], watch: bool, joint: bool = False
) -> list[Event]:
    return probe_run(module, within=within, watch=watch, joint=joint)[1]


def _with_other_outputs(module: nn.Module, events: list[Event], joint: bool = False) -> list[Event]:
    return probe_run(module, within=other_outputs(module, events), joint=joint)[1]


def _attention_modules(module: nn.Module) -> list[str]:
    """Return modules named attention that have a matrix but that no tap observed."""
    names = []
    for name, m in module.named_modules():
        # by class or by path: Qwen3-Next's GatedDeltaNet is at `linear_attn`
        named = re.search("attention|attn", type(m).__name__.lower())
        named = named or re.search("(attention|attn)$", name)
        if named and any(p.dim() >= 2 for p in m.parameters()):
            names.append(name)
    return [n for n in names if not any(o != n and n.startswith(f"{o}.") for o in names)]


def _recurrent_modules(module: nn.Module) -> list[str]:
    """Return modules that mix positions by a recurrence, by the names of their classes."""
    kinds = r"(mamba\w*mixer|falconh1mixer|recurrentblock)$"
    return [n for n, m in module.named_modules() if re.search(kinds, type(m).__name__.lower())]


def _unread(module: nn.Module, sites: list[Site]) -> tuple[str, ...]:
    names = [*_attention_modules(module), *_recurrent_modules(module)]
    return tuple(
        name
        for name in dict.fromkeys(names)
        if not any(
            s.module == name or s.module.startswith(f"{name}.") or name.startswith(f"{s.module}.")
            for s in sites
        )
    )


def _why_nothing(module: nn.Module) -> str:
    kind = type(module).__name__
    names = _attention_modules(module)
    if not names:
        return f"{kind} has no softmax attention (no attention module at all): no patterns to read"
    return (
        f"{kind} computes its attention ({names[0]}) in another form, without a product, "
        "a softmax over "
        "keys and a second product; sparse, banded and linear attention cannot be read as patterns"
    )


def _require_known_layout(module: nn.Module, sites: list[Site], events: list[Event]) -> None:
    for together in calls_of_one_forward(events):
        mine = [sites[i] for i in together]
        if len(mine) > 1 and any(site.projection is None or site.gated for site in mine):
            raise UnreadableAttention(
                f"{type(module).__name__}: {mine[0].module} calls attention {len(mine)} times in "
                "one forward and combines the results before its output projection, as "
                "differential attention does; the output of such a head is not one softmax over "
                "keys times the values, so its patterns cannot be read"
            )
    for site in sites:
        if site.n_heads % site.n_kv_heads:
            raise UnreadableAttention(
                f"{type(module).__name__}: {site.module} has {site.n_heads} heads over "
                f"{site.n_kv_heads} kv heads"
            )
