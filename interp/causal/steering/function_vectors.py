"""Function vectors: mean outputs of heads on prompts that show a function by examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.steering.in_context import in_context_prompts
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.ties import ordered_by
from interp.model.edits import add, set_z
from interp.model.head_arguments import parse_heads
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.edits import Edit
    from interp.model.model import Model

PromptIds = Sequence[tuple[int, ...]]
Outputs = dict[tuple[str, int], Float[Tensor, "1 head 1 d_head"]]
BATCH = 16  # prompts of one length that run together


def by_length(ids: PromptIds) -> Iterator[list[int]]:
    """Yield the indices of prompts of one length, at most `BATCH` of them."""
    groups: dict[int, list[int]] = {}
    for i, x in enumerate(ids):
        groups.setdefault(len(x), []).append(i)
    for members in groups.values():
        for first in range(0, len(members), BATCH):
            yield members[first : first + BATCH]


def mean_outputs(model: Model, ids: PromptIds) -> Outputs:
    """Return every head's mean output z at the last token, by stack and layer."""
    total: dict[tuple[str, int], Tensor] = {}
    for which in by_length(ids):
        given = [ids[i] for i in which]
        cache = model.capture(given, ("z",), positions=[-1])
        for at, z in cache.z_by_site().items():
            total[at] = total.get(at, 0) + z.double().sum(0, keepdim=True)
    return {at: x / len(ids) for at, x in total.items()}


def answer_probabilities(
    model: Model, ids: PromptIds, answers: Sequence[int], edits: Sequence[Edit] = ()
) -> Float[Tensor, " prompt"]:
    """Return the probability of each prompt's answer as the next token."""
    out = torch.zeros(len(ids), dtype=torch.double)
    for which in by_length(ids):
        logits = model.run([ids[i] for i in which], edits=list(edits))[:, -1].double()
        p = logits.softmax(-1).cpu()
        out[which] = p[range(len(which)), [answers[i] for i in which]].detach()
    return out


def indirect_effects(
    model: Model, ids: PromptIds, answers: Sequence[int], outputs: Outputs, progress: Any = None
) -> dict[Site, Float[Tensor, "prompt head"]]:
    """Return the probability of the answer with one head's last output replaced, minus without."""
    plain = answer_probabilities(model, ids, answers)
    sites = [site for site in model.sites if (site.stack, site.layer) in outputs]
    effects, done, total = {}, 0, sum(site.n_heads for site in sites)
    for site in sites:
        values = torch.zeros(len(ids), site.n_heads, dtype=torch.double)
        for head in range(site.n_heads):
            one = set_z(
                [Head(site.layer, head)],
                outputs[site.stack, site.layer],
                positions=[-1],
                stack=site.stack,
            )
            values[:, head] = answer_probabilities(model, ids, answers, [one]) - plain
            done += 1
            if progress is not None:
                progress(done, total)
        effects[site] = values
    return effects


@dataclass(frozen=True, eq=False)
class FunctionVector:
    """Mean outputs of some heads for one function, to be added in other prompts.

    Args:
        function: the function that the examples showed.
        heads: the heads, in the order of their effects.
        outputs: the mean z of all heads, by stack and layer.
        effects: mean indirect effect of each of the heads, in probability.
    """

    function: str
    heads: tuple[Head, ...]
    outputs: Outputs
    effects: tuple[float, ...]

    def edit(self, coefficient: float = 1.0) -> Edit:
        """Return the edit that adds the vector at the last token: each head writes its own part.

        Each part is added in its head's own layer, not all of them in one layer as in the paper, so
        that a bias of the output projection is not added again.
        """
        return add(self.heads, self.outputs, coefficient, positions=[-1])

    def evaluate(
        self, model: Model, *, n: int = 24, shots: int = 5, seed: int = 1, coefficient: float = 1.0
    ) -> dict[str, tuple[float, float]]:
        """Return the mean probability of the answer without and with the vector, by kind of prompt.

        Kinds are "shuffled" (examples with exchanged answers) and "bare" (no examples). The seed
        differs from that of the prompts that made the vector.
        """
        given = in_context_prompts(model, self.function, n=n, shots=shots, seed=seed)
        out = {}
        for kind in ("shuffled", "bare"):
            ids = getattr(given, kind)
            sides = [
                answer_probabilities(model, ids, given.answers, edits)
                for edits in ((), (self.edit(coefficient),))
            ]
            out[kind] = (float(sides[0].mean()), float(sides[1].mean()))
        return out


@takes_model
def find_function_vector(
    model: Model,
    function: str,
    heads: Any = None,
    *,
    top: int = 10,
    n: int = 24,
    shots: int = 5,
    seed: int = 0,
) -> FunctionVector:
    """Return the function vector of a function: mean outputs of the heads that carry it.

    Args:
        model: a decoder with a tokenizer.
        function: one of `interp.causal.steering.in_context.FUNCTIONS`.
        heads: the heads; by default the `top` heads by their mean indirect effect.
        top: number of heads, where none are given.
        n: number of prompts of each half: one gives the means, the other the effects.
        shots: examples of each prompt.
        seed: seed of the prompts.

    Reference: Todd et al. 2023, "Function Vectors in Large Language Models" (arXiv 2310.15213).

    Raises:
        OptionError: `top` is not between 1 and the number of heads.
        PromptError: the prompts cannot be made for this model.

    Unit: probability of the answer.

    Cost: One forward pass per head and batch of prompts; few if heads are given.

    Null: the same with outputs on prompts with exchanged answers; see the metric
    `function_vector`.

    Not for: a model that does not follow the examples: its vector moves nothing.
    """
    every = sum(site.n_heads for site in model.sites)
    if not 1 <= top <= every:
        raise OptionError(f"top={top}; {model.name} has {every} heads, so give 1 to {every}")
    given = in_context_prompts(model, function, n=2 * n, shots=shots, seed=seed)
    outputs = mean_outputs(model, given.ids[:n])
    effects = indirect_effects(model, given.shuffled[n:], given.answers[n:], outputs)
    mean = {
        Head(site.layer, h, site.stack): float(x[:, h].mean())
        for site, x in effects.items()
        for h in range(site.n_heads)
    }
    if heads is None:
        chosen = tuple(ordered_by(mean, mean.__getitem__)[:top])
    else:
        chosen = parse_heads(heads)
        absent = [str(h) for h in chosen if h not in mean]
        if absent:
            raise OptionError(
                f"{model.name} has no head {', '.join(absent)}; its heads are {next(iter(mean))} "
                f"to {list(mean)[-1]}"
            )
    return FunctionVector(function, chosen, outputs, tuple(mean[h] for h in chosen))
