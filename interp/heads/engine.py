"""Engine that runs a model over prompts and reduces every attention pattern per prompt and head.

The patterns of one layer at a time are reduced as the analyses request, and are freed before the
next layer runs. `stored` holds the whole pattern of a layer in memory; `streamed` computes it in
tiles; `fused` also uses tiles, and its single pass computes the attention output as well, in place
of the model's own kernel. All evaluate the same definitions, so they give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, StatisticsError
from interp.core.prompts import Prompts
from interp.heads.declaration import BoundAnalysis
from interp.heads.defined_at import why_left_out
from interp.heads.map_rows import map_statistics
from interp.model.calls.call import Call, ComputedCall, RecordedCall
from interp.model.calls.map_call import MapCall
from interp.model.calls.sites import APART, Site
from interp.model.each_batch import LayersDone, backing_off, each_batch, prompts_in, tokens_in
from interp.model.hooks.kernel_call import LookedAt, as_attention, padded_tokens
from interp.model.hooks.tap import tap_is_open
from interp.model.inputs import require_tensor_inputs
from interp.model.locate.ranks import Ranks
from interp.model.single_prompts import pictured, single_prompts
from interp.model.sources.remote import RemoteModel
from interp.model.streamed import streamed_weights
from interp_kernels import attention_statistics, reference
from interp_kernels.backends import why_not as why_not_backend
from interp_kernels.errors import KernelError, TooLittleMemory
from interp_kernels.found_targets import FoundTargets
from interp_kernels.mask_names import mask_name
from interp_kernels.problem import Attention
from interp_kernels.reductions import Chosen, Mass, Output, Reduction, Targets

if TYPE_CHECKING:
    from interp.model.model import Model


# Bytes of all patterns of a run, prompts and layers together, from which the CPU's compiled pass
# pays: it saves about 10 ms per MiB and compiles in 5 s, once per machine, so eight runs of this
# size pay for it. Below, patterns are stored, which leaves the run as it was. Processor time of a
# score of the eleven metrics over that of the plain forward (12 layers, GPT-2 small's shape, one
# thread; prompts x tokens, patterns of a layer; stored, streamed, fused): 1 x 16, 0.01 MiB: 1.67,
# 1.62, 1.54; 1 x 48, 0.11 MiB: 1.33, 1.33, 1.39; 4 x 48, 0.42 MiB: 1.20, 1.05, 1.05; 1 x 128,
# 0.75 MiB: 1.22, 1.17, 1.11; 16 x 48, 1.7 MiB: 1.04, 0.94, 0.95; 1 x 256, 3 MiB: 1.32, 1.07,
# 1.05. Families with attention code of their own cannot be fused and are streamed above the same
# limit: GPT-J, BLOOM, GPT-Neo, 1 x 256: stored 1.6 to 1.7, streamed 1.07 to 1.16.
COMPILED_BYTES = 2**26
ROUNDING = "activations and scores equal those of engine 'stored' up to float rounding"

ENGINES = {"stored": "reference", "streamed": "auto", "fused": "auto"}


@dataclass(eq=False)
class PerPrompt:
    """Values of one metric: per site the mean over rows, `[prompt, head]`; NaN without rows."""

    bound: BoundAnalysis
    values: dict[Site, list[Tensor]] = field(default_factory=dict)

    def of(self, site: Site) -> Tensor:
        """Return `[prompt, head]` in float64."""
        return torch.cat(self.values[site])


def applies(bound: BoundAnalysis, site: Site, model: Model) -> bool:
    """Return True if a metric is defined at a site; see `interp.heads.defined_at`."""
    analysis = bound.analysis
    usual = analysis.kind in ("detector", "statistic") and analysis.sequences == "one"
    usual = usual and not analysis.reads_segments
    if usual and site.stack in ("decoder", "encoder") and model.takes_text:
        return True
    return why_left_out(bound, site, model) is None


def attention_statistics_of(
    call: Call, attention: Attention, asked: Sequence[Reduction], engine: str
) -> Mapping[str, Any]:
    """Compute reductions of one attention call with the kernels of an engine, by their names."""
    if isinstance(call, MapCall):
        return map_statistics(call, attention, asked)
    if isinstance(call, RecordedCall) or (call.rounds and engine == "stored"):
        pattern = call.pattern() * call.visible()
        scores = call.scores()
        return {r.name: reference.evaluate(r, attention, pattern, scores) for r in asked}
    return attention_statistics(attention, asked, backend=ENGINES[engine])


def reduce_patterns(
    model: Model,
    prompts: Prompts | Mapping[str, Tensor],
    bounds: Sequence[BoundAnalysis],
    *,
    batch_size: int = 16,
    engine: str = "stored",
    advance: Callable[[], None] = lambda: None,
    masks: dict[str, str] | None = None,
) -> list[PerPrompt]:
    """Compute every metric for every prompt and head in one forward pass per batch."""
    if engine != "streamed" or all(site.recorded for site in model.sites):
        require_engine(model, engine)  # "auto" streams the layers that can be streamed
    todo = batches(model, prompts, batch_size)

    def run(batch: Prompts | Mapping[str, Tensor], done: LayersDone) -> list[PerPrompt]:
        done.begin(prompts_in(batch))
        if isinstance(model, RemoteModel):
            results = _reduced_elsewhere(model, batch, bounds, done)
        else:
            results = _reduced(model, batch, bounds, engine, done, masks)
        done.end()
        return results

    def run_all(mine: list[Prompts | Mapping[str, Tensor]]) -> list[list[PerPrompt]]:
        done = LayersDone(advance, sum(map(prompts_in, mine)), len(model.sites), len(mine))
        # with several processes, none may retry alone with smaller batches
        if model.ranks is not None:
            return [run(batch, done) for batch in mine]
        return backing_off(mine, lambda batch: run(batch, done), model.name)

    apart = [todo] if streamed_weights(model.module) is None else [[batch] for batch in todo]
    parts = list(chain(*each_batch(model, apart, run_all, lambda mine: sum(map(tokens_in, mine)))))
    joined = [PerPrompt(bound) for bound in bounds]
    for part in parts:
        for whole, p in zip(joined, part, strict=True):
            for site, values in p.values.items():
                whole.values.setdefault(site, []).extend(values)
    return joined if model.ranks is None else [_gathered(p, model.ranks) for p in joined]


def _reduced(
    model: Model,
    batch: Prompts | Mapping[str, Tensor],
    bounds: Sequence[BoundAnalysis],
    engine: str,
    advance: Callable[[], None],
    masks: dict[str, str] | None = None,
) -> list[PerPrompt]:
    """Reduce one batch on this machine."""
    results = [PerPrompt(bound) for bound in bounds]
    reducer = _Reducer(model, results, batch, engine, advance)
    reducer.masks = masks
    # scores need no logits, and nothing above the last layer that is asked for
    fused, streamed = engine == "fused", engine == "streamed"
    with suppress(_AllReduced):
        model.read(batch, reducer.visit, last=1, fused=fused, streamed=streamed)
    return results


class _AllReduced(BaseException):
    """Signal that ends a forward pass after the last attention that is asked for.

    It is no `Exception`: after one, torch reads the hooks of every module that it leaves, which
    fails if another thread adds a hook at that moment.
    """


def _gathered(mine: PerPrompt, ranks: Ranks) -> PerPrompt:
    """Combine the heads of all processes."""
    values = {ranks.whole_site(s): [ranks.gather(mine.of(s), s)] for s in mine.values}
    return PerPrompt(mine.bound, values)


def _reduced_elsewhere(
    model: RemoteModel,
    batch: Prompts | Mapping[str, Tensor],
    bounds: Sequence[BoundAnalysis],
    advance: Callable[[], None],
) -> list[PerPrompt]:
    """Reduce one batch where the model runs remotely; only `[prompt, head]` is sent back."""
    results = [PerPrompt(bound) for bound in bounds]
    asked = {
        site: {b.label: b.reductions()[0] for b in bounds if applies(b, site, model)}
        for site in model.sites
    }
    tokens = padded_tokens(batch, model) if isinstance(batch, Prompts) else None
    means = model.means(model.inputs(batch), tokens, asked)
    for site in model.sites:
        for p in results:
            if p.bound.label in asked[site]:
                p.values.setdefault(site, []).append(means[site][p.bound.label])
        advance()
    return results


def require_engine(model: Model, engine: str) -> None:
    """Raise if the engine is not known or cannot run on every layer of the model."""
    if engine not in ENGINES:
        raise OptionError(f"engine {engine!r} is not known; known: {', '.join(ENGINES)}")
    if engine == "stored":
        return
    recorded = [site.module for site in model.sites if site.recorded]
    if recorded:
        raise OptionError(
            f"engine={engine!r}: {model.name} computes its attention in custom code "
            f"({recorded[0]}) whose pattern does not follow from one product of queries and keys; "
            "use engine='stored' or 'auto'"
        )
    maps = [site for site in model.sites if site.kind != "softmax"]
    if engine == "fused" and maps:
        raise OptionError(
            f"engine='fused': {maps[0].name} of {model.name} ({maps[0].kind}) is not one softmax, "
            "so its output is not computed in tiles; use engine='auto', which reads its map in "
            "blocks of rows"
        )
    if engine == "fused" and model.active_edits:
        raise OptionError(
            "engine='fused' cannot run under edits, which need the model's own attention output "
            "first; use engine='streamed'"
        )


def all_pattern_bytes(model: Model, lengths: Iterable[int]) -> int:
    """Return the bytes of the patterns of prompts of these lengths, of all layers."""
    return 4 * sum(site.n_heads for site in model.sites) * sum(n**2 for n in lengths)


def fused_is_faster(model: Model, lengths: Iterable[int]) -> bool:
    """Return True if "fused" is the fastest engine: on every layer, in the CPU's compiled pass.

    Nothing else may look at the run: edits and captures need the model's own attention output.
    """
    if model.active_edits or tap_is_open() or not compiled_pass_pays(model, lengths):
        return False
    if model.attention == "eager" and model.dtype in (torch.bfloat16, torch.float16):
        return False  # its code rounds scores to 16 bits, which tiles do not repeat
    return not any(site.recorded or site.watched or site.kind != "softmax" for site in model.sites)


def compiled_pass_pays(model: Model, lengths: Iterable[int]) -> bool:
    """Return True if the CPU's compiled pass runs and saves more than its compilation takes."""
    return all_pattern_bytes(model, lengths) > COMPILED_BYTES and compiled_pass_runs(model)


def compiled_pass_runs(model: Model) -> bool:
    """Return True if the CPU's compiled pass reads the model's attention calls."""
    if model.elsewhere is not None or model.ranks is not None:
        return False
    if model.device.type != "cpu" or model.dtype == torch.float64:
        return False
    return why_not_backend("cpu") is None


def batches(
    model: Model, prompts: Prompts | Mapping[str, Tensor], size: int
) -> list[Prompts | Mapping[str, Tensor]]:
    """Split prompts into batches; given input tensors are one batch, or one each with pictures."""
    if isinstance(prompts, Mapping):
        require_tensor_inputs(prompts, model.name)
        return [*single_prompts(model, prompts)] if pictured(model, prompts) else [prompts]
    prompts.check(model)
    return list(model.batches(prompts, size))


class _Reducer:
    """Reducer of the attention calls of one batch to numbers, one layer at a time."""

    def __init__(
        self,
        model: Model,
        found: Sequence[PerPrompt],
        batch: Prompts | Mapping[str, Tensor],
        engine: str,
        advance: Callable[[], None],
    ):
        self.model, self.engine, self.advance = model, engine, advance
        self.targets = FoundTargets(streamed=engine != "stored")
        self.batch = batch
        self.masks: dict[str, str] | None = None
        self.looked_at = LookedAt(model, batch)
        if isinstance(batch, Prompts):
            self.size = len(batch)
        else:
            self.size = 1 if pictured(model, batch) else len(next(iter(batch.values())))
        self.asked = {s: [p for p in found if applies(p.bound, s, model)] for s in model.sites}
        self.left = {site for site, asked in self.asked.items() if asked}
        self._named = {
            s: any(p.bound.analysis.reads_segments for p in mine) for s, mine in self.asked.items()
        }
        # a tower may run several times in one forward, and processes that share a layer wait for
        # each other until its end
        one_stack = model.takes_text and len({site.stack for site in model.sites}) == 1
        self.stops = one_stack and model.ranks is None and not tap_is_open()

    def visit(self, site: Site, call: Call, real: Tensor) -> None:
        self.left.discard(site)
        finished = not self.left and self.stops
        if self.engine != "fused":
            self.model.require_finite(call, site)
        try:
            self._reduce(site, call, real, with_output=not finished)
        except TooLittleMemory:
            raise  # a smaller batch may still fit
        except KernelError as error:
            parts = [x for x in (call.q, call.k, call.v) if x is not None]
            if not all(bool(torch.isfinite(x).all()) for x in parts):
                raise NonFiniteError(
                    f"{self.model.name}: NaN or infinity in {site.stack} layer {site.layer} "
                    f"(module {site.module}): {error}"
                ) from error
            raise StatisticsError(f"{self.model.name}, {site.name}: {error}") from error
        if self.engine == "fused" and not finished:
            self.model.require_finite(call, site)
        self.advance()
        if finished:
            raise _AllReduced

    def _reduce(self, site: Site, call: Call, real: Tensor, *, with_output: bool) -> None:
        mine = self.asked[site]
        fused = self.engine == "fused" and with_output and site.kind == "softmax"
        if not mine and not fused:
            return
        cross = site.stack in APART
        tokens = self.looked_at.tokens(site, call)
        segments = self.looked_at.segments(site, call) if self._named[site] else None
        attention = as_attention(call, real, tokens, cross=cross, segments=segments)
        if self.masks is not None and site.name not in self.masks:
            known = isinstance(call, (ComputedCall, MapCall))
            self.masks[site.name] = mask_name(attention, real) if known else "as recorded"
        detectors = [p.bound for p in mine if p.bound.analysis.kind == "detector"]
        mask = call.mask if isinstance(call, ComputedCall) and call.bias is None else None
        masses, counts = self.targets.of(attention, [*map(_mass_and_targets, detectors)], mask)
        if isinstance(call, MapCall):  # its rows are computed, so a predicate costs nothing more
            masses = {b.label: _mass_and_targets(b)[0] for b in detectors}
        asked = {p.bound.label: masses.get(p.bound.label) or _only(p.bound) for p in mine}
        output = [Output(name="the output in place of the kernel's")] if fused else []
        values = attention_statistics_of(call, attention, [*asked.values(), *output], self.engine)
        for p in mine:
            label = p.bound.label
            value = values[asked[label].name]
            mean = mean_over_rows(value, counts.get(label), real, self.size)
            p.values.setdefault(site, []).append(mean)
        if output:
            call.z = values[output[0].name]


def _only(bound: BoundAnalysis) -> Reduction:
    (reduction,) = bound.reductions()
    return reduction


def mean_over_rows(
    values: Any, targets: Tensor | None, real: Tensor, size: int
) -> Float[Tensor, "prompt head"]:
    """Return the mean over real rows with a target (all real rows if targets are not used).

    NaN without rows.
    """
    values = values.weight if isinstance(values, Chosen) else values
    counts = real[:, None, :]
    if targets is not None:
        counts = counts & (targets > 0)
    values, counts = values.double(), counts.double()
    if values.shape[0] != size:  # windows of one image are rows of one item
        counts = counts.expand_as(values)
        values, counts = (
            x.reshape(size, -1, *x.shape[1:]).transpose(1, 2).flatten(2) for x in (values, counts)
        )
    total = (values * counts).sum(-1)
    number = counts.sum(-1)
    return torch.where(number > 0, total / number, torch.nan).cpu()


def _mass_and_targets(bound: BoundAnalysis) -> tuple[Mass, Targets]:
    mass, targets = bound.reductions()
    if not isinstance(mass, Mass) or not isinstance(targets, Targets):
        raise OptionError(f"{bound.label} is not a detector: it has no targets to find")
    return mass, targets
