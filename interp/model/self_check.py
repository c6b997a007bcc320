"""Self-check: captured activations must reproduce the model's own output.

Two equalities per attention layer. `pattern·v == z`: the recomputed pattern applied to the values
equals the kernel's own output; any peculiarity of a family that the formulas do not cover breaks
it. `sum of head results + output bias == attention output`: the heads are split along the right
axis of the output projection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from interp.core.errors import CheckError
from interp.core.interrupts import holding
from interp.model.calls.call import Call, ComputedCall, precise
from interp.model.calls.map_call import MapCall
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread
from interp.model.inputs import probe_inputs
from interp.model.joint_inputs import joint_probe_inputs
from interp.model.locate.find_sites import Event, first_tensor, output_projection
from interp.model.locate.linear import rounding_of
from interp.model.locate.probe import probe_run
from interp.model.model import Model
from interp.model.sources.remote import RemoteModel
from interp.model.views import joint_view

if TYPE_CHECKING:
    from interp_kernels.self_test import SelfTest

# Largest error relative to the largest entry, from rounding of one attention in each type.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}

# Types of scores and softmax in which eager code of float64 models rounds.
_NARROW = (
    (torch.float64, torch.float32),
    (torch.float32, torch.float64),
    (torch.float32, torch.float32),
)

# However large the scores are, no more than this is attributed to their rounding.
MOST_ROUNDING = 1e-2
# However far a packed projection is from linear, no more than this; the sum over heads rounds as
# often as there are heads, its measure twice.
MOST_PACKED, TIMES_PACKED = 5e-2, 4


@dataclass(frozen=True)
class SiteCheck:
    """Errors of one attention layer, relative to the largest entry of the reproduced tensor."""

    site: Site
    pattern_error: float
    result_error: float | None  # None where no module projects this attention's heads
    note: str = ""
    rounding: float = 0.0  # change of this attention's weights by rounding of its scores
    # whether the projection's input keeps heads separate; None if it is z or there is none
    heads_apart: bool | None = None
    # of a mixer: what its z gives as the projection's input, against the actual input
    output_error: float | None = None
    # what the output projection rounds by itself, where its weights are packed
    projection_rounding: float = 0.0
    picture: bool = False  # on a prompt with a picture, of a model that also reads text alone

    def reads_pattern(self, tolerance: float) -> bool:
        """Return True if the recomputed pattern is the model's, up to rounding."""
        return self.pattern_error <= max(tolerance, self.rounding)

    def passed(self, tolerance: float) -> bool:
        """Return True if both equalities hold and heads stay separate up to the projection."""
        apart = self.heads_apart is not False
        summed = (self.result_error or 0.0) <= max(tolerance, self.projection_rounding)
        projected = (self.output_error or 0.0) <= tolerance
        return apart and self.reads_pattern(tolerance) and summed and projected


@dataclass(frozen=True)
class SelfCheck:
    """Result of the self-check of a model."""

    model: str
    tolerance: float
    sites: tuple[SiteCheck, ...]
    unread: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()  # unused tensors of the checkpoint
    unread_why: str = ""  # why the towers of a model that reads pictures inside text are not read
    kernels: tuple[SelfTest, ...] = ()  # comparisons on the model's device, if they were requested

    @property
    def passed(self) -> bool:
        """True if every attention layer reproduces the model's own output."""
        return all(s.passed(self.tolerance) for s in self.sites)

    def require(self) -> None:
        """Raise unless the check passed."""
        for s in self.sites:
            if s.heads_apart is False and s.site.projection is None:
                raise CheckError(
                    f"{self.model}: module {s.site.module} ({s.site.name}) neither returns nor "
                    f"projects the {s.site.n_heads} attentions that it computes: they are combined "
                    "first, so they are not its heads and it is refused"
                )
            if s.heads_apart is False:
                raise CheckError(
                    f"{self.model}: module {s.site.module} ({s.site.name}) mixes its heads between "
                    f"attention and output projection ({s.site.projection}): zeroing a head's z "
                    "does not zero its part of what is projected; results per head would not be "
                    "the model's own, so it is refused"
                )
            if not s.passed(self.tolerance):
                softmax = s.site.kind == "softmax"
                what = "pattern·v == z" if softmax else f"map·v == z ({s.site.kind})"
                error, allowed = s.pattern_error, s.rounding
                if s.reads_pattern(self.tolerance) and (s.output_error or 0.0) > self.tolerance:
                    what, allowed = "projection of z == module output", 0.0
                    error = s.output_error
                elif s.reads_pattern(self.tolerance):
                    what, allowed = "sum of head results == attention output", s.projection_rounding
                    error = s.result_error
                allowed = max(self.tolerance, allowed)
                raise CheckError(
                    f"{self.model}: module {s.site.module} ({s.site.name}) fails {what} "
                    f"(relative error {error:.1e}, allowed {allowed:.0e}); its scores "
                    "would not be the "
                    "model's own, so it is refused"
                )


def check_loaded(model: Model, seed: int = 1) -> SelfCheck:
    """Run the self-check of a loaded model on a few random tokens."""
    tolerance = TOLERANCE.get(model.dtype, 5e-2)
    if isinstance(model, RemoteModel):  # the module that projects its heads is not in this process
        site_checks = [
            SiteCheck(s, e, None, "projection not checked") for s, e in model.errors.items()
        ]
        return SelfCheck(model.name, tolerance, tuple(site_checks))
    sites = _checked(model, seed)
    if model.joint_sites:  # the text alone, and its towers with what it attends to in pictures
        view = joint_view(model)
        joint = [replace(s, picture=True) for s in _checked(view, seed, joint=True)]
        sites = tuple(s for s in joint if s.site.of_tower) + sites
        sites += tuple(s for s in joint if not s.site.of_tower)
    result = SelfCheck(model.name, tolerance, sites, model.unread, model.unused)
    return replace(result, unread_why=model.unread_why)


def _checked(model: Model, seed: int, *, joint: bool = False) -> tuple[SiteCheck, ...]:
    checked = {s.module if s.projection is None else s.projection for s in model.sites}
    watch = any(s.watched for s in model.sites)
    _, events = probe_run(model.module, seed, only=checked, watch=watch, joint=joint)
    with torch.no_grad():
        sites = tuple(_site(model, events, site) for site in model.sites)
    if model.ranks is None:
        make = joint_probe_inputs if joint else probe_inputs
        inputs = make(model.module, seed) if any(s.gated for s in model.sites) else {}
        apart = _heads_apart(model, [s for s in model.sites if s.gated], inputs)
        apart |= {s: _whole(model, events, s) for s in model.sites if s.projection is None}
        sites = tuple(replace(s, heads_apart=apart.get(s.site)) for s in sites)
    return sites


def _heads_apart(
    model: Model, gated: Sequence[Site], inputs: dict[str, Tensor]
) -> dict[Site, bool]:
    """Return True if zeroing a gated head's z zeroes exactly its part of the projection's input.

    A gate, or a norm without an offset, preserves zeros; a sum over heads does not. Half of the
    heads are zeroed at a time, so that every pair of heads is separated in one of the runs.
    """
    apart = dict.fromkeys(gated, True)
    if not gated:
        return apart
    most = max(site.n_heads for site in gated)
    for bit in range(max(1, (most - 1).bit_length())):
        for value in (0, 1):

            def visit(site: Site, call: Call, real: Tensor, bit: int = bit, v: int = value) -> None:
                if site in apart:
                    out = (torch.arange(site.n_heads, device=call.z.device) >> bit) % 2 == v
                    call.z = call.z.masked_fill(out[:, None, None], 0)

            projected: dict[str, list[Tensor]] = {}
            names = {str(s.projection) for s in gated}
            with (
                torch.no_grad(),
                _given(model, names, projected),
                model.visited(visit, stage="mix"),
            ):
                model.run(inputs)
            for site in gated:
                given = projected[str(site.projection)][site.run]
                size = given.reshape(-1, site.n_heads, site.d_v).abs().amax((0, 2))
                out = (torch.arange(site.n_heads, device=size.device) >> bit) % 2 == value
                apart[site] &= not bool(size[out].any())
    return apart


def _whole(model: Model, events: Sequence[Event], site: Site) -> bool:
    """Return True if an attention that no module projects keeps its heads separate.

    Its module returns z itself, or holds the output matrix as a bare parameter. Attention heads
    that are combined into fewer heads, as in differential attention, do neither.
    """
    at, call = _call(model, events, site)
    flat = call.z.transpose(1, 2).reshape(-1)
    end = next((e for e in events[at:] if not e.call and e.name == site.module), None)
    returned = None if end is None else end.returned
    if returned is not None and torch.equal(returned.reshape(-1), flat):
        return True
    for parameter in model.module.get_submodule(site.module).parameters(recurse=False):
        shape = tuple(parameter.shape)
        pairs = pairwise(shape)
        wide = site.n_heads * site.d_v in shape or (site.n_heads, site.d_v) in pairs
        if len(shape) >= 2 and wide:
            return True
    return False


def _call(model: Model, events: Sequence[Event], site: Site) -> tuple[int, Call]:
    """Return a site's call, and its index among the events of a run."""
    for i, event in enumerate(events):
        if event.call and event.name == site.module and event.run == site.run:
            return i, event.call
    raise CheckError(_not_again(model, site, site.module))


def _not_again(model: Model, site: Site, module: str) -> str:
    return (
        f"{model.name}: module {module} ({site.name}) ran when the model was loaded and does not "
        "run now; the model changed in between, so load it again"
    )


@holding
@contextmanager
def _given(model: Model, names: set[str], into: dict[str, list[Tensor]]) -> Iterator[None]:
    """Store the inputs of modules in this thread's runs, one tensor per run."""

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
            x = first_tensor(args)
            x = first_tensor(kwargs) if x is None else x
            if x is None:
                raise CheckError(f"{model.name}: module {name} was given no activations to check")
            into.setdefault(name, []).append(x.clone())

        return in_this_thread(hook)

    handles = [
        model.module.get_submodule(name).register_forward_pre_hook(keep(name), with_kwargs=True)
        for name in names
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _relative(got: Tensor, want: Tensor) -> float:
    error = (got.double() - want.double()).abs().max() / want.double().abs().max().clamp_min(1e-30)
    return float(error) if bool(torch.isfinite(error)) else float("inf")


def _pattern_error(call: Call, pattern: Tensor) -> tuple[float, list[str]]:
    """Return the error of pattern times values against z, and a note on its cause.

    Eager code of most families computes its softmax in float32 whatever the model's type, and GPT-J
    its scores. In float64 the same rounding must then give exactly z; the captured pattern is not
    rounded.
    """
    if isinstance(call, MapCall):
        return _relative(call.mapped(), call.z), [f"{call.kind}: {call.about}"]
    error = _relative(call.mix(pattern), call.z)
    wide = call.z.dtype == torch.float64
    if not wide or error <= TOLERANCE[torch.float64] or not isinstance(call, ComputedCall):
        return error, []
    for scores, softmax in _NARROW:
        k = call.k.repeat_interleave(call.n_heads // call.k.shape[1], 1)  # for the same sums
        narrow = replace(call, q=call.q.to(scores), k=k.to(scores)).scores()
        again = _relative(call.mix(call.normalised(narrow.to(softmax)).double()), call.z)
        if again <= TOLERANCE[torch.float64]:
            part = "softmax" if scores == torch.float64 else "scores"
            return again, [f"{part} in float32, {error:.0e} off"]
    return error, []


def _rounding(call: Call, pattern: Tensor) -> float:
    """Bound the change of weights by scores that are rounded in a different order.

    A score of size s has an error of up to s eps, and its weight a relative error of the same size.
    For scores of a few dozen nats, as in trained models, this is far below the tolerance.
    """
    if isinstance(call, MapCall):
        return 0.0
    eps = torch.finfo(torch.float64 if call.z.dtype == torch.float64 else torch.float32).eps
    size = call.scores().double().abs()[pattern.abs() > 1e-6]
    return min(MOST_ROUNDING, eps * float(size.max())) if size.numel() else 0.0


def _site(model: Model, events: list[Event], site: Site) -> SiteCheck:
    index, call = _call(model, events, site)
    model.require_finite(
        call, site
    )  # overflow is not a peculiarity of the family: report the layer
    pattern = call.pattern()
    pattern_error, notes = _pattern_error(call, pattern)
    rounding = _rounding(call, pattern)
    if rounding > TOLERANCE.get(model.dtype, 5e-2):
        notes.append(f"scores so large that their rounding may make {rounding:.0e}")
    if site.projection is None:
        note = "; ".join([*notes, "no output projection"])
        return SiteCheck(site, pattern_error, None, note, rounding)
    projected = next((e for e in events[index:] if e.name == site.projection), None)
    if projected is None or projected.given is None or projected.returned is None:
        raise CheckError(_not_again(model, site, str(site.projection)))
    ranks = model.ranks
    all_heads = site if ranks is None else ranks.whole_site(site)
    matrix, bias = output_projection(model.module, all_heads)
    matrix = matrix if ranks is None else ranks.mine(matrix, site)
    given = precise(projected.given.reshape(-1, site.n_heads, site.d_v))
    heads = torch.einsum("nhd,hdm->nhm", given, precise(matrix))
    total = heads.sum(1) if ranks is None else ranks.total(heads.sum(1), site)
    total = total + (0 if bias is None else precise(bias))
    error = _relative(total, projected.returned.reshape(total.shape))
    notes += ["gated before the projection"] if site.gated else []
    module = model.module.get_submodule(site.projection)
    rows = projected.given.reshape(-1, projected.given.shape[-1])
    packed = min(MOST_PACKED, TIMES_PACKED * rounding_of(module, rows)) if ranks is None else 0.0
    if packed > TOLERANCE.get(model.dtype, 5e-2):
        notes.append(f"packed weights of the projection round by up to {packed:.0e}")
    check = SiteCheck(site, pattern_error, error, "; ".join(notes), rounding)
    check = replace(check, projection_rounding=packed)
    if isinstance(call, MapCall):
        again = call.to_projection(call.z).reshape(projected.given.shape)
        return replace(check, output_error=_relative(again, projected.given))
    return check
