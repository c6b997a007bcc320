"""Causal tracing: noise on a subject, and clean activations restored at one place at a time.

found = causal_tracing(model, [Fact("The Eiffel Tower is in", "Eiffel Tower")], "mlp")
found.top(3), found.plot()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.game.replay import (
    CleanRun,
    Wanted,
    capture_for_replay,
    fold_inputs,
    pick,
    restore_blocks,
    restrict,
)
from interp.causal.game.verify import reuse_of
from interp.circuits.causal_traces import trace_rows
from interp.circuits.facts import CORRUPT, PLACES, Fact, PlacedFact, place_facts, read_facts
from interp.circuits.methods._exact import MOST_TOKENS
from interp.circuits.residual_graph import Layer, ResidualGraph
from interp.circuits.stream_hooks import NoisyWatch, watched
from interp.core.errors import OptionError, UnknownName
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.model import Model

Array = np.ndarray
SITES = ("stream", "attention", "mlp")
BY = ("role", "position")
SEVER = ("", "attention", "mlp")
NOISE = 3.0  # standard deviations of the embeddings of subjects, as published
LEAST = 2.0  # standard errors by which noise must lower the probability of the answers


@takes_model
def causal_tracing(
    model: Model,
    facts: Sequence[Fact] | str | Path,
    what: str = "stream",
    *,
    corrupt: Literal["subject", "relation"] = "subject",
    per: Literal["role", "position"] = "role",
    window: int | None = None,
    sever: str = "",
    noise: float = NOISE,
    n_samples: int = 10,
    null: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Add noise to the subject, restore clean activations, and measure how the answer comes back.

    Each forward pass restores one kind of activation at one position, in a window of layers, while
    everything else is computed from the noisy input. The effect is the probability of the answer
    above that of the noisy run, a mean over noise draws.

    Args:
        model: The model.
        facts: Prompts with their subject, or the path of a file of them (see `read_facts`). A fact
            whose given answer is not what the model predicts is left out and counted.
        what: "stream" (what enters the block: the output of the layer before), "attention" (the
            outputs of all heads of the layer) or "mlp" (its output).
        corrupt: Noise is added to the tokens of the "subject", or to those of the "relation": all
            others but a token that begins every text.
        per: "role": positions are grouped by their place relative to the subject; "position": token
            positions from 0, for prompts of one length.
        window: Number of neighbouring layers whose activations are restored together, around the
            layer; by default 1 for the stream, and a fifth of the layers for attention and MLPs.
        sever: "mlp" or "attention": from the restored layer on, these keep their noisy outputs at
            the restored position, so that the effect through them is left out. Only for the stream.
        noise: Standard deviation of the noise, in those of what enters the first block at the
            subjects of all facts.
        n_samples: Number of noise draws per fact.
        null: Also restore activations of a run with other noise, which know nothing of the subject.
        seed: Seed of the noise.
        progress: Called with the name of the current work, how much is done and how much there is.

    Returns:
        One row per layer (the centre of the window) and place (relative to the subject, or the
        position from 0): layer, place, score (gain of the probability of the answer, mean over the
        n facts that have the place) with sem, null (the gain from activations of a run with other
        noise), share (the score over the mean total effect of these facts) and noise_sem (the part
        of the error that is due to the noise draws). Arrays `[row, fact]`, NaN where a prompt does
        not have the place: `per_prompt`, the gain; other, that of the null; noise_error. Facts:
        clean and corrupted, the probability of each fact's answer without and with noise;
        total_effect, their difference; site, corrupt, window, samples and sever as given; skipped,
        the number of facts that the model answers otherwise; forwards, the forward passes over all
        facts and noise draws.

    Raises:
        UnknownName: There is no such kind of activation, corruption, position or module.
        OptionError: A number is out of range; the model predicts none of the answers; noise does
            not lower their probability; or positions do not correspond.
        PromptError: A fact cannot be read.
        UnreadableAttention: The model has no residual graph.

    Unit: Probability of the answer.

    Cost: A pass per layer, position from the first noisy one, and noise draw, from that layer up;
        twice with the null.

    Null: Activations of a run with other noise.

    Not for: the location of a fact that could be edited there; restoring a place shows that it
        carries what the noise removed, and windows overlap.

    Reference: Meng et al. 2022 (arXiv 2202.05262); relations: Wei et al. 2024 (arXiv 2409.00617)
    """
    for name, given, known in (
        ("site", what, SITES),
        ("corruption", corrupt, CORRUPT),
        ("kind of position", per, BY),
        ("module to sever", sever, SEVER),
    ):
        if given not in known:
            raise UnknownName(name, given, [x for x in known if x])
    graph = ResidualGraph.of(model)
    layers = [x for x in graph.layers if what != "mlp" or x.has_mlp]
    window = (1 if what == "stream" else max(1, len(layers) // 5)) if window is None else window
    if not 1 <= window <= len(layers) or n_samples < 2 or not noise > 0:
        raise OptionError(
            f"window={window}, n_samples={n_samples}, noise={noise}; a window has 1 to "
            f"{len(layers)} layers of this model, and there are at least 2 noise draws of a size "
            "above 0"
        )
    if sever and what != "stream":
        raise OptionError(
            f"sever={sever!r} with what={what!r}; modules are severed while the stream is restored:"
            ' give what="stream"'
        )
    given = read_facts(Path(facts)) if isinstance(facts, (str, Path)) else list(facts)
    tracer = _Tracer(graph, place_facts(model, given), corrupt, noise, n_samples, seed)
    names = _names(tracer.facts, per)
    gains, errors, others = (
        np.full((len(layers) * len(names), len(tracer.facts)), np.nan) for _ in range(3)
    )
    cells = [(layer, name) for layer in layers for name in names]
    done = 0
    for column, run in enumerate(tracer.runs()):
        places = run.fact.places if per == "role" else _positions(run.fact)
        for order, layer in enumerate(layers):
            first = max(0, order - window // 2)
            some = layers[first : order - (-window // 2)]
            after = [x for x in graph.layers if x.order >= layer.order] if sever else []
            restored = run.restored(what, some, sever, after, null)
            for at, name in enumerate(names):
                if (here := places.get(name)) is not None:
                    row, index = order * len(names) + at, list(here)
                    of_draws = restored[0][:, index].mean(1)
                    gains[row, column] = of_draws.mean()
                    errors[row, column] = standard_error(of_draws)
                    others[row, column] = restored[1][:, index].mean() if null else np.nan
            done += 1
            if progress is not None:
                progress("causal tracing", done, len(layers) * len(tracer.facts))
    options = {
        "what": what,
        "corrupt": corrupt,
        "by": per,
        "window": window,
        "sever": sever,
        "noise": noise,
        "samples": n_samples,
        "noise_size": tracer.size,
    }
    prompts = Prompts(tuple(fact.ids for fact in tracer.facts), "facts")
    provenance = model_provenance(model) | {
        "made_by": "interp.circuits.causal_tracing",
        "seed": seed,
    }
    provenance |= {"options": options, "prompts_hash": prompts.hash, "facts": len(tracer.facts)}
    facts_of_all = {
        "model": model.name,
        "site": what,
        "corrupt": corrupt,
        "window": window,
        "samples": n_samples,
        "sever": sever,
        "skipped": tracer.skipped,
        "forwards": tracer.rows / (len(tracer.facts) * n_samples),
    }
    return trace_rows(
        [(x.site.layer, name) for x, name in cells],
        gains,
        others if null else None,
        errors,
        tracer.clean,
        tracer.corrupted,
        facts_of_all,
        provenance,
    )


def _positions(fact: PlacedFact) -> dict[str, tuple[int, ...]]:
    return {str(i): (i,) for i in range(len(fact.ids))}


def _names(facts: Sequence[PlacedFact], by: str) -> list[str]:
    if by == "role":
        return [name for name in PLACES if any(name in fact.places for fact in facts)]
    lengths = sorted({len(fact.ids) for fact in facts})
    if len(lengths) > 1:
        raise OptionError(
            f"the prompts have {lengths[0]} to {lengths[-1]} tokens, whose positions do not"
            ' correspond; use per="role", or facts of one length'
        )
    return [str(i) for i in range(lengths[0])]


@dataclass(eq=False)
class _Tracer:
    """Facts that the model knows, with their clean and their noisy runs."""

    graph: ResidualGraph
    facts: list[PlacedFact]
    corrupt: str
    noise: float
    samples: int
    seed: int
    rows: int = 0

    def __post_init__(self) -> None:
        reuse = reuse_of(self.graph.model)
        self.reuse = replace(reuse, attention={}, blocks=reuse.blocks if reuse.fold else ())
        begin = getattr(self.graph.model.tokenizer, "bos_token_id", None)
        stated, known, seen = len(self.facts), [], []
        probabilities, inputs = [], []
        for fact in self.facts:
            watch = NoisyWatch(None, {})
            p = self._run(fact, watch, 1)[0]
            best = int(p.argmax())
            if fact.answer not in (None, best):
                continue
            known.append(PlacedFact(fact.ids, fact.subject, best))
            seen.append(watch.seen)
            probabilities.append(float(p[0, best]))
            inputs.append(watch.seen["stream", 0][0, list(fact.subject)])
        if not known:
            raise OptionError(
                f"{self.graph.model.name} predicts another token than the answer after each of the"
                f" {stated} prompts, so there is nothing to trace; give facts that it knows, or"
                " leave the answers out to trace its own predictions"
            )
        self.facts, self.skipped, self._seen = known, stated - len(known), seen
        self.clean = np.array(probabilities)
        self.size = self.noise * float(torch.cat(inputs).double().std())
        self._noisy: list[tuple[Tensor, NoisyWatch, Tensor, CleanRun]] = []
        for number, fact in enumerate(known):
            places = fact.corrupted(self.corrupt, begin)
            if not places:
                raise OptionError(
                    f"fact {number + 1} of those that the model knows has no tokens but its"
                    " subject, so its relation cannot be corrupted; add words to the prompt"
                )
            generator = torch.Generator().manual_seed(self.seed * 100_003 + number)
            width = seen[number]["stream", 0].shape[-1]
            noise = torch.zeros(self.samples, len(fact.ids), width)
            drawn = torch.randn(self.samples, len(places), width, generator=generator)
            noise[:, list(places)] = drawn * self.size
            watch = NoisyWatch(noise, {})
            p, run = self._run(fact, watch, self.samples)
            self._noisy.append((noise, watch, p[:, fact.answer or 0], run))
        self.corrupted = np.array([float(p.mean()) for _, _, p, _ in self._noisy])
        self._check()

    def _check(self) -> None:
        """Raise unless noise lowers the probability of the answers."""
        lost, n = self.clean - self.corrupted, len(self.clean)
        draws = torch.stack([p for _, _, p, _ in self._noisy]).double().numpy()
        within = np.linalg.norm(standard_error(draws)) / n
        sem = float(np.fmax(within, standard_error(lost)))
        if lost.mean() <= max(LEAST * sem, 1e-6):
            raise OptionError(
                f"noise on the {self.corrupt} changes the probability of the answers of"
                f" {self.graph.model.name} by {-lost.mean():+.3g} ± {sem:.2g}"
                f" (from {self.clean.mean():.3g}), so there is nothing to restore; give more noise"
                f" (noise={self.noise:g}), more facts, or others"
            )

    def _run(
        self, fact: PlacedFact, watch: NoisyWatch, rows: int
    ) -> tuple[Float[Tensor, "row token"], CleanRun]:
        """Run a prompt as several rows; return the probabilities of the next token, and the run."""
        model, wanted = self.graph.model, _last(fact, rows)
        inputs = model.inputs(Prompts((fact.ids,) * rows))
        with watched(self.graph, watch):
            run = capture_for_replay(model, inputs, self.reuse, wanted=wanted)
        self.rows += rows
        return pick(run.logits, wanted, self.reuse).float().softmax(-1).cpu(), run

    def again(
        self, run: CleanRun, fact: PlacedFact, watch: NoisyWatch, first: Layer, copies: int
    ) -> Float[Tensor, "row token"]:
        """Run copies of a noisy run that differ from it in this layer and those above it."""
        model, wanted = self.graph.model, _last(fact, run.batch)
        with torch.no_grad(), watched(self.graph, watch), ExitStack() as stack:
            block = self.reuse.block_of[first.site] if self.reuse.blocks else 0
            restore_blocks(stack, model, run, self.reuse, block, copies)
            restrict(stack, model, self.reuse, wanted, copies, tail=False)
            logits = model.run(fold_inputs(run.inputs, copies))
        self.rows += copies * run.batch
        return pick(logits, wanted, self.reuse, copies).float().softmax(-1).cpu()

    def unchanged(self, fact: PlacedFact) -> int:
        """Return the number of first positions that no noise reaches, where nothing is restored."""
        if self.graph.model.kind != "causal":
            return 0
        begin = getattr(self.graph.model.tokenizer, "bos_token_id", None)
        return min(fact.corrupted(self.corrupt, begin))

    def runs(self) -> Iterator[_Run]:
        """Yield each fact with its runs."""
        for fact, seen, noisy in zip(self.facts, self._seen, self._noisy, strict=True):
            noise, watch, p, run = noisy
            yield _Run(self, fact, seen, noise, watch.seen, p, run)


def _last(fact: PlacedFact, rows: int) -> Wanted:
    """Return the last position of every row."""
    length = len(fact.ids)
    return Wanted(torch.arange(1, rows + 1) * length - 1, (rows, length))


@dataclass(eq=False)
class _Run:
    """Clean and noisy activations of one fact."""

    tracer: _Tracer
    fact: PlacedFact
    clean: dict[tuple[str, int], Tensor]
    noise: Tensor
    noisy: dict[tuple[str, int], Tensor]
    p: Tensor
    run: CleanRun

    def restored(
        self, site: str, layers: Sequence[Layer], sever: str, after: Sequence[Layer], null: bool
    ) -> tuple[Array, Array]:
        """Return the gain at every position, `[draw, position]`, and that of the null."""
        length, samples = len(self.fact.ids), self.tracer.samples
        each = max(1, MOST_TOKENS // (length * samples))
        same = self.tracer.unchanged(self.fact)
        parts: list[list[Tensor]] = [[torch.zeros(same, samples)] for _ in range(2)]
        for kind in range(1 + null):
            for first in range(same, length, each):
                some = torch.arange(first, min(first + each, length))
                places = some.repeat_interleave(samples)
                watch = NoisyWatch(self.noise, {})
                for layer in layers:
                    key = (site, layer.order)
                    values = self.noisy[key].roll(1, 0) if kind else self.clean[key]
                    watch.replaced[key] = (values, places.to(values.device))
                for layer in after:
                    if (held := self.noisy.get((sever, layer.order))) is not None:
                        watch.replaced[sever, layer.order] = (held, places.to(held.device))
                p = self.tracer.again(self.run, self.fact, watch, layers[0], len(some))
                p = p[:, self.fact.answer or 0]
                parts[kind].append(p.reshape(len(some), samples) - self.p)
        gains, other = ([x.double().numpy() for x in kind] for kind in parts)
        return np.concatenate(gains).T, np.concatenate(other).T if null else np.empty((0, 0))
