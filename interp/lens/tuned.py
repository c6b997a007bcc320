"""The tuned lens: an affine map per layer to the unembedding's basis, judged on held-out texts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.lens.finish import Finish, finish, model_layers, predicting_stack
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
FEWEST = 4  # texts: to train on, to stop by, and two to judge on
STEPS = 300  # of Adam
POSITIONS = 64  # of a step
RATE = 0.1  # of the first step; it falls linearly to 0
ROUNDING = 1e-6  # nats that no step is kept for
LOOK = 50  # steps between two looks at the texts that decide when to stop
RIDGE = (1e-3, 1e-2, 1e-1)  # of the least squares from which training starts


def translated(lens: ResultRows, depth: int, stream: Float[Tensor, "*at d_model"]) -> Tensor:
    """Map a stream of some depth to the basis of the unembedding, by a tuned lens."""
    matrix, bias = (torch.from_numpy(x[depth]).to(stream) for x in (lens.matrices, lens.biases))
    return stream + stream @ matrix + bias


@takes_model
def tuned_lens(
    model: Model,
    prompts: Any,
    *,
    held_out: float = 0.3,
    steps: int = STEPS,
    l2: float = 1e-4,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Train an affine translator per layer by the KL divergence from the model's distribution.

    A translator starts at the ridge regression of the deepest stream on its own, which has a closed
    form, and Adam lowers the divergence at random positions of part of the texts. A fifth of these
    texts decides which step is kept, so that a translator that does not help stays at the identity.
    All errors are of held-out texts. More steps lower them a little further: of a model with five
    layers, training to convergence lowered them by 4 to 9 % in four times the time.

    Args:
        model: the loaded model.
        prompts: texts or token ids, at least four.
        held_out: share of the texts on which the lens is judged.
        steps: steps of training of each depth, of 64 positions.
        l2: weight of the squared norm of the translators in the loss.
        clusters: a label per text where texts share something; whole clusters are held out.
        seed: seed of the choice of held-out texts and of the order of training positions.
        progress: see `Progress`.

    Returns:
        One row per metric and depth. The score of "tuned lens" and "logit lens" is the mean KL
        divergence of the lens from the model's own next-token distribution on held-out texts, and
        their null that of a lens that always gives the mean distribution of the training texts;
        "gain" is logit lens minus tuned lens. The deepest stream has no translator: there both
        lenses are the model's own logits. Facts: notes; depths, their names, "embedding" first;
        matrices, what is added to the identity, `[depth, d_model, d_model]` (a stream x becomes
        `x + x @ matrix + bias`), and biases. `logit_lens(model, prompt, tuned=...)` reads through
        the translators.

    Reference: Belrose et al. 2023, "Eliciting Latent Predictions from Transformers with the Tuned
    Lens" (arXiv 2303.08112).

    Raises:
        OptionError: there are fewer than four texts, or an option is out of range.
        UnreadableAttention: there is no unembedding, or a nonlinear layer precedes it.

    Unit: nat.

    Cost: One forward pass per text, and a pass of the unembedding and back at 64 positions per
        step and depth.

    Null: the mean next-token distribution of the training texts.

    Not for: what the model uses: a translator may read what later layers do not.
    """
    tokenized = Prompts.of(prompts, model)
    if len(tokenized) < FEWEST:
        raise OptionError(f"a tuned lens needs at least {FEWEST} texts, not {len(tokenized)}")
    if not 0 < held_out < 1 or steps < 1 or l2 < 0:
        raise OptionError(
            f"held_out={held_out}, steps={steps}, l2={l2}: give a share between 0 and 1, at "
            "least one step, and a weight of 0 or more"
        )
    clusters = tokenized.clusters if clusters is None else clusters
    train, stop, judge = _parts(len(tokenized), clusters, held_out, seed)
    streams, final, end, depths = _streams(model, tokenized)
    texts = [len(x) for x in final]
    common = torch.cat([final[i].exp() for i in train]).mean(0).log()
    matrices, biases = [], []
    if progress is not None:
        progress("tuned lens", 0, len(depths))
    for at in range(len(depths)):
        x = [one[at] for one in streams]
        weight, bias = torch.zeros(x[0].shape[1], x[0].shape[1]), torch.zeros(x[0].shape[1])
        if at < len(depths) - 1:
            last = [one[-1] for one in streams]
            weight, bias = _trained(x, last, final, end, train, stop, steps, l2, seed)
        matrices.append(weight.numpy())
        biases.append(bias.numpy())
        if progress is not None:
            progress("tuned lens", at + 1, len(depths))
    about, rows, nulls = [], [], []
    for at, depth in enumerate(depths):
        weight, bias = torch.from_numpy(matrices[at]), torch.from_numpy(biases[at])
        tuned, plain, null = np.zeros((3, len(judge)))
        for k, i in enumerate(judge):
            x = streams[i][at]
            tuned[k] = _kl(final[i], end, x + x @ weight + bias)
            plain[k] = _kl(final[i], end, x)
            null[k] = float((final[i].exp() * (final[i] - common)).sum(-1).mean())
        for metric, values, by in (
            ("tuned lens", tuned, null),
            ("logit lens", plain, null),
            ("gain", plain - tuned, np.zeros(len(judge))),
        ):
            about.append({"metric": metric, "depth": depth, "unit": "nat"})
            rows.append(values)
            nulls.append(by)
    labels = None if clusters is None else [clusters[i] for i in judge]
    provenance = result_provenance(
        model,
        "interp.lens.tuned_lens",
        Prompts(tuple(tokenized.ids[i] for i in judge)),
        seed=seed,
        held_out=held_out,
        steps=steps,
        l2=l2,
    )
    notes = {
        "training texts": len(train) + len(stop),
        "held-out texts": len(judge),
        "positions": int(sum(texts[i] for i in judge)),
    }
    means = prompt_means(
        about,
        ("depth",),
        np.stack(rows),
        np.stack(nulls),
        clusters=labels,
        notes=notes,
        provenance=provenance,
    )
    translators = {
        "depths": tuple(depths),
        "matrices": np.stack(matrices),
        "biases": np.stack(biases),
    }
    return dataclasses.replace(means, kind="TunedLens", facts={**means.facts, **translators})


def _parts(
    n: int, clusters: Sequence[str] | None, held_out: float, seed: int
) -> tuple[list[int], list[int], list[int]]:
    """Choose the texts to train on, to stop by, and to judge on; clusters stay whole."""
    if clusters is not None and len(clusters) != n:
        raise OptionError(f"{len(clusters)} cluster labels for {n} texts; give one for each")
    labels = [str(i) for i in range(n)] if clusters is None else list(clusters)
    names = sorted(set(labels))
    if len(names) < FEWEST:
        raise OptionError(f"{len(names)} clusters of texts; at least {FEWEST} are needed")
    order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    last = min(max(2, round(held_out * len(order))), len(order) - 2)
    middle = max(1, (len(order) - last) // 5)
    judge, stop = set(order[:last]), set(order[last : last + middle])
    groups: tuple[list[int], list[int], list[int]] = ([], [], [])
    for i, label in enumerate(labels):
        groups[2 if label in judge else 1 if label in stop else 0].append(i)
    return groups


def _streams(
    model: Model, prompts: Prompts
) -> tuple[list[list[Tensor]], list[Tensor], Finish, list[str]]:
    """Return the streams of every depth and the model's log probabilities, for each text."""
    stack = predicting_stack(model)
    layers = model_layers(model, stack)
    streams, final, end = [], [], None
    for ids in prompts.ids:
        cache = model.capture([ids], ("resid_pre", "resid_post"), stack=stack)
        end = end or finish(model, cache, stack)
        one = [cache["resid_pre", layers[0], stack][0]]
        one += [cache["resid_post", layer, stack][0] for layer in layers]
        streams.append([x.float().cpu() for x in one])
        final.append(cache.logits[0].float().log_softmax(-1).cpu())
    assert end is not None
    return streams, final, end, ["embedding", *(f"layer {layer}" for layer in layers)]


def _kl(final: Tensor, end: Finish, stream: Tensor) -> float:
    with torch.no_grad():
        return float(_divergence(final, end, stream))


def _divergence(final: Tensor, end: Finish, stream: Tensor) -> Tensor:
    model = end.model
    read = end(stream.to(model.device, model.dtype)).float().cpu().log_softmax(-1)
    return (final.exp() * (final - read)).sum(-1).mean()


def _trained(
    x: Sequence[Tensor],
    last: Sequence[Tensor],
    final: Sequence[Tensor],
    end: Finish,
    train: Sequence[int],
    stop: Sequence[int],
    steps: int,
    l2: float,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return the translator of one depth with the smallest divergence on the texts to stop by."""
    inside, aim = torch.cat([x[i] for i in train]), torch.cat([last[i] for i in train])
    beside, asked = torch.cat([x[i] for i in stop]), torch.cat([final[i] for i in stop])

    def judged(weight: Tensor, bias: Tensor) -> float:
        return _kl(asked, end, beside + beside @ weight + bias)

    def penalty(weight: Tensor, bias: Tensor) -> Tensor:
        return l2 * (weight.square().sum() + bias.square().sum())

    nothing = torch.zeros(inside.shape[1], inside.shape[1]), torch.zeros(inside.shape[1])
    starts = [nothing, *(_least_squares(inside, aim - inside, share) for share in RIDGE)]
    start = min(starts, key=lambda each: judged(*each) + float(penalty(*each)))
    best, best_translator = judged(*nothing), nothing
    if (reached := judged(*start)) < best - ROUNDING:
        best, best_translator = reached, start
    wanted = torch.cat([final[i] for i in train]).exp()
    # steps of one size in units of the streams, whatever the model's
    within = inside.square().mean(0).sqrt().clamp_min(1e-12)
    size = float(aim.square().mean().sqrt())
    weight, bias = (torch.zeros_like(each, requires_grad=True) for each in start)
    optimizer = torch.optim.Adam([weight, bias], lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    todo = torch.empty(0, dtype=torch.long)
    for step in range(1, steps + 1):
        todo = todo if len(todo) else torch.randperm(len(inside), generator=generator)
        now, todo = todo[:POSITIONS], todo[POSITIONS:]
        optimizer.param_groups[0]["lr"] = RATE * (1 - (step - 1) / steps)
        with torch.enable_grad():
            matrix = start[0] + weight * (size / math.sqrt(len(within))) / within[:, None]
            added = start[1] + bias * size
            stream = inside[now] + inside[now] @ matrix + added
            logits = end(stream.to(end.model.device, end.model.dtype)).float().cpu()
            value = _CrossEntropy.apply(logits, wanted[now]) + penalty(matrix, added)
            # only these two: the model's own weights get no gradients
            weight.grad, bias.grad = torch.autograd.grad(value, [weight, bias])
        optimizer.step()
        if step % LOOK == 0 or step == steps:
            with torch.no_grad():
                matrix = start[0] + weight * (size / math.sqrt(len(within))) / within[:, None]
                translator = matrix.clone(), start[1] + bias * size
            reached = judged(*translator)
            if math.isfinite(reached) and reached < best - ROUNDING:
                best, best_translator = reached, translator
    return best_translator


def _least_squares(x: Tensor, y: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the ridge regression of y on x."""
    inside, outside = (z.double() for z in (x, y))
    at, to = inside.mean(0), outside.mean(0)
    centred = inside - at
    gram = centred.T @ centred
    ridge = share * gram.diagonal().mean().clamp_min(1e-30) * torch.eye(len(gram)).double()
    weight = torch.linalg.solve(gram + ridge, centred.T @ (outside - to))
    return weight.float().contiguous(), (to - at @ weight).float()


class _CrossEntropy(torch.autograd.Function):
    """Mean over rows of logsumexp(logits) - sum(p logits), the divergence from p up to a constant.

    Its gradient needs one pass over the vocabulary, where that of `log_softmax` needs several.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, p: Tensor) -> Tensor:
        total = logits.logsumexp(-1)
        ctx.save_for_backward(logits, total, p)
        return (total - torch.linalg.vecdot(p, logits)).mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        logits, total, p = ctx.saved_tensors
        return ((logits - total[:, None]).exp_().sub_(p)).mul_(gradient / len(p)), None


present("TunedLens", text="interp.report.printed.means:means_text")
