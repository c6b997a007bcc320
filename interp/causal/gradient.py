"""Scores of all heads from one backward pass: derivatives of the game with respect to its gates.

A gate scales a head's z between its replacement (0) and itself (1); the derivative with respect to
one gate at one token is (z - replacement)·dv/dz. Several scores are computed from it:

    token_abs, example_abs, batch_abs   three quantities that are all called "Michel importance"
    gate_gradient                       signed: first-order estimate of the effect of ablation
    patching_gradient                   the same towards the activations of corrupted prompts
    aumann_shapley                      averaged along the path from no head to all heads

The weights are frozen, so only activations are stored; with attn_implementation="sdpa" no attention
pattern is stored, which is recommended for long contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.causal.ablation import NULLS, AblationNull, random_game
from interp.causal.game.batches import GameBatch
from interp.causal.game.game import Game
from interp.causal.game.replacement import gated
from interp.causal.game.replay import Reuse, pick, run
from interp.causal.importance import Importance, make_importance
from interp.causal.task import Task
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.model.given import takes_model
from interp.model.hooks.calls import Call
from interp.model.hooks.inference import Flag, inference
from interp.model.locate.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

MOST_STEPS = 128
FORMS = ("token_abs", "example_abs", "batch_abs", "signed")

_SUMMARY = {
    "token_abs": "michel_token_abs",
    "example_abs": "michel_example_abs",
    "batch_abs": "michel_batch_abs",
    "signed": "gate_gradient",
}


@takes_model
def gradient_scores(
    model: Model,
    task: Task,
    *,
    kind: str = "zero",
    forms: tuple[str, ...] = FORMS,
    normalise_layers: bool = False,
    null: AblationNull = "random-init",
    **options: Any,
) -> dict[str, Importance]:
    """Compute every form of the gate gradient at the undisturbed model.

    It takes one backward pass per batch.

    With g[b,h,t] the derivative of prompt b's value with respect to head h's gate at token t:

    `token_abs`     mean over all tokens of |g[b,h,t]|, as in the published code of Michel et al.
                    2019 ("Are Sixteen Heads Really Better than One?"), apart from the scale of a
                    loss that is averaged over the batch, and from its division of BERT's last
                    layer by examples.
    `example_abs`   mean over prompts of |sum over t|, the formula in that paper.
    `batch_abs`     |mean over prompts of the sum over t|, the gradient of a head mask that is
                    shared by the batch; effects of opposite sign cancel between prompts.
    `signed`        mean over prompts of the sum over t, with the sign flipped for a loss: a
                    first-order estimate of `leave_one_out`, with its sign.

    Args:
        model: the model to run.
        task: the task to measure.
        kind: the replacement at gate 0; see `interp.causal.game.replacement`.
        normalise_layers: divide each attention's scores by their Euclidean norm, as Michel et al.
            do before they compare layers.
        null: "random-init" for the same scores on random weights, or "none".
        options: options of `Game`.
        forms: the forms to compute.

    Raises:
        OptionError: the task has no gradient, or none at the undisturbed model.
        NonFiniteError: a gradient is NaN or infinite.
    """
    made_by = "interp.causal.gradient_scores, form {}"
    return _gradient_scores(
        model, task, kind, forms, normalise_layers, null, options, names=_SUMMARY, made_by=made_by
    )


def _gradient_scores(
    model: Model,
    task: Task,
    kind: str,
    forms: tuple[str, ...],
    normalise_layers: bool,
    null: AblationNull,
    options: dict[str, Any],
    *,
    names: Mapping[str, str],
    made_by: str,
) -> dict[str, Importance]:
    """Compute `gradient_scores` under the requested names.

    `made_by` has a placeholder for the form.
    """
    for form in forms:
        if form not in FORMS:
            raise UnknownName("form of gate gradient", form, FORMS)
    _require_gradient(task, at_clean=True)
    game, beside = _games(model, task, kind, null, options)
    own = _forms(game, normalise_layers)
    if not any(x.any() for x in own.values()) and set(game.players.member) >= set(model.sites):
        raise OptionError(
            f"task {task.name} is constant: its gradient is 0 at every head on every prompt; "
            f"check which logits it reads"
        )
    nulls = None if beside is None else _forms(beside, normalise_layers)
    told = {"normalise_layers": True} if normalise_layers else {}
    return {
        form: make_importance(
            game,
            own[form],
            method=names[form],
            options=told,
            of="removal" if form == "signed" else "presence",
            made_by=made_by.format(form),
            null=None if nulls is None else nulls[form],
            null_kind=null,
            magnitude=form != "signed",
        )
        for form in forms
    }


@takes_model
def michel(model: Model, task: Task, *, form: str = "example_abs", **options: Any) -> Importance:
    """Compute one of the Michel quantities: "token_abs", "example_abs" or "batch_abs".

    The arguments and definitions are those of `gradient_scores`. They have no sign: they show that
    a head affects the task, not in which direction.

    Cost: One forward and one backward pass for all heads.

    Null: the same on random weights.

    Not for:
        token_abs: the direction, or tasks with different numbers of scored tokens.
        example_abs: the direction, or a task that has saturated, where every gradient is small.
        batch_abs: heads that help on some prompts and harm on others: that cancels.

    Reference:
        token_abs: Michel et al. 2019, as in their published code.
        example_abs: Michel et al. 2019, the formula of the paper.
        batch_abs: the gradient of a head mask shared by a batch, often attributed to Michel et al.
            2019.
    """
    if form not in FORMS[:3]:
        raise UnknownName("form of Michel importance", form, FORMS[:3])
    return gradient_scores(model, task, forms=(form,), **options)[form]


@takes_model
def gate_gradient(model: Model, task: Task, **options: Any) -> Importance:
    """Estimate `leave_one_out` to first order; see `gradient_scores`, form "signed".

    Cost: One forward and one backward pass for all heads.

    Null: the same on random weights.

    Not for: effects that are far from linear, as removing a head nearly always is: verify the first
    few heads by ablation.

    Reference: the first-order term of `ablation`; this project's use of it.
    """
    return gradient_scores(model, task, forms=("signed",), **options)["signed"]


@takes_model
def patching_gradient(
    model: Model,
    task: Task,
    *,
    normalise_layers: bool = False,
    null: AblationNull = "random-init",
    **options: Any,
) -> Importance:
    """Estimate to first order the effect of patching each head's corrupted z into the clean run.

    Sum over tokens of (z_clean - z_corrupted)·dv/dz at the clean run, with the sign flipped for a
    loss: an estimate of `leave_one_out` with kind="resample", and with its sign (Nanda 2023,
    "Attribution Patching: Activation Patching At Industrial Scale", has the opposite sign for a
    metric of which more is better).

    Raises:
        OptionError: the task has no corrupted prompts, or they change nothing.
        PromptError: a prompt and its corrupted one differ in length.

    Cost: Two forward passes and one backward pass for all heads.

    Null: the same on random weights.

    Not for: a softmax that is far from linear between the two prompts, or a saturated task.

    Reference: Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale".
    """
    if task.corrupted is None:
        raise OptionError(
            f"task {task.name} has no corrupted prompts; give them with task.with_corrupted(...)"
        )
    found = _gradient_scores(
        model, task, "resample", ("signed",), normalise_layers, null, options,
        names={"signed": "patching_gradient"}, made_by="interp.causal.patching_gradient",
    )  # fmt: skip
    return found["signed"]


@takes_model
def aumann_shapley(
    model: Model,
    task: Task,
    *,
    kind: str = "zero",
    steps: int | None = None,
    null: AblationNull = "random-init",
    **options: Any,
) -> Importance:
    """Attribute the task to every player along the straight path of all gates from 0 to 1.

    phi = mean of dv/dgate over `steps` midpoints (Sundararajan et al. 2017, "Axiomatic Attribution
    for Deep Networks"); the Aumann-Shapley value of the heads. v is the task's value, times -1 for
    a loss. Contributions add up to v(all) - v(none); the remaining difference is in
    `notes["completeness_residual"]` (mean over prompts, in the task's unit), and is larger for
    steep paths. Without `steps` their number is doubled from 8 until the residual is at most 2 % of
    the total, or 128 are reached. Each step costs a forward and a backward pass for all heads.

    Raises:
        OptionError: the task has no gradient, or steps is below 1.
        NonFiniteError: a gradient is NaN or infinite.

    Cost: 8 to 128 forward and backward passes for all heads.

    Null: the same on random weights.

    Not for: steep paths: the notes give the completeness residual, which can be most of the total
    with few steps.

    Reference: Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks"; Aumann and
    Shapley 1974.
    """
    _require_gradient(task, at_clean=False)
    if steps is not None and steps < 1:
        raise OptionError(f"steps={steps}; integrated gradients need at least 1 step")
    game, beside = _games(model, task, kind, null, options)
    whole = game.values(torch.stack([torch.ones(len(game)), torch.zeros(len(game))]))
    span = (whole[0] - whole[1]).numpy()
    taken = 8 if steps is None else steps
    while True:
        own = _integrated(game, taken)
        residual = float((own.sum(0) - span).mean())
        if steps is not None or taken >= MOST_STEPS or abs(residual) <= 0.02 * abs(span.mean()):
            break
        taken *= 2
    return make_importance(
        game,
        own,
        method="aumann_shapley",
        options={"steps": taken},
        of="presence",
        made_by="interp.causal.aumann_shapley",
        null=None if beside is None else _integrated(beside, taken),
        null_kind=null,
        notes={
            "completeness_residual": task.sign * residual + 0.0,
            "v_all_minus_v_none": task.sign * float(span.mean()) + 0.0,
        },
    )


# --- derivatives --------------------------------------------------------------------------------


def token_gradients(
    game: Game, batch: GameBatch, level: float = 1.0
) -> dict[Site, tuple[Float[Tensor, "prompt head token"], Tensor]]:
    """Compute the derivative of each prompt's value by every head's gate at every token.

    Args:
        game: the game.
        batch: one batch of prompts.
        level: value of all players' gates.

    Returns:
        for each attention the derivatives and a mask of the real tokens, `[prompt, token]`.
    """
    leaf: dict[Site, Tensor] = {}
    real_at: dict[Site, Tensor] = {}
    base = game.always_out
    playing = {site: index >= 0 for site, index in game.players.member.items()}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        z = call.z
        if site not in playing:
            if site in base:
                call.z = gated(z, base[site].expand(z.shape[0], -1), _other(site, call))
            return
        gate = torch.full(z.shape[:3], level, dtype=z.dtype, device=z.device, requires_grad=True)
        leaf[site], real_at[site] = gate, real
        free = playing[site].to(z.device)[None, :, None]
        gate = torch.where(free, gate, torch.ones_like(gate))
        if site in base:
            gate = gate * base[site].to(z)[..., None]
        call.z = gated(z, gate, _other(site, call))

    def _other(site: Site, call: Call) -> Tensor | None:
        return batch.replacement.at(site, call.z, call)

    reuse = Reuse(unembedding=game.reuse.unembedding, columns=game.reuse.columns)
    module = game.model.module
    with torch.enable_grad(), frozen(module), inference(module):
        with game.model.visited(visit):
            raw = run(
                game.model, batch.inputs, {}, batch.replacement, reuse=reuse, wanted=batch.wanted
            )
        # outside the hooks, because a task may need the clean run
        value = game.value_of(batch, pick(raw, batch.wanted, reuse))
        sites = list(leaf)
        if not value.requires_grad:
            raise OptionError(
                f"task {game.task.name}: its value is not a differentiable function of the "
                f"logits; use a loss or a logit difference"
            )
        if not bool(torch.isfinite(value).all()):
            raise NonFiniteError(
                f"{game.model.name}: {game.task.name} is NaN or infinite with every gate at {level}"
            )
        given = torch.autograd.grad(value.sum(), [leaf[s] for s in sites], allow_unused=True)
    n = len(batch.which)
    found = {}
    for site, gradient in zip(sites, given, strict=True):
        g = torch.zeros_like(leaf[site]) if gradient is None else gradient
        if not bool(torch.isfinite(g).all()):
            raise NonFiniteError(
                f"{game.model.name}: NaN or infinity in the gate gradients of {site.stack} layer "
                f"{site.layer} on {game.task.name}; try float32"
            )
        # windows of one image are rows of one item, so their tokens are concatenated
        tokens = g.double().reshape(n, -1, *g.shape[1:]).transpose(1, 2).flatten(2)
        found[site] = tokens.cpu(), real_at[site].reshape(n, -1).cpu()
    return found


_learning = Flag[Tensor](lambda p: p.requires_grad, lambda p, on: p.requires_grad_(on))


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Disable the gradients of all weights temporarily, and restore their settings."""
    with _learning.off(module.parameters()):
        yield


def _by_player(game: Game, found: Mapping[Site, Tensor]) -> Tensor:
    """Sum `[prompt, head, ...]` of each attention over the heads of each player."""
    first = next(iter(found.values()))
    total = torch.zeros(first.shape[0], len(game), dtype=torch.double)
    for site, x in found.items():
        index = game.players.member[site]
        mine = index >= 0
        total.index_add_(1, index[mine], x[:, mine])
    return total


def _integrated(game: Game, steps: int) -> np.ndarray:
    found = np.zeros((len(game), len(game.task)))
    for batch in game.batches:
        for k in range(steps):
            gradients = token_gradients(game, batch, (k + 0.5) / steps)
            by_player = _by_player(game, {s: g.sum(-1) for s, (g, _) in gradients.items()})
            found[:, list(batch.which)] += by_player.T.numpy() / steps
    return found


def _forms(game: Game, normalise_layers: bool) -> dict[str, np.ndarray]:
    """Return every form as `[player, prompt]`, whose mean over prompts is the score."""
    n = len(game.task)
    summed, absolute = np.zeros((len(game), n)), np.zeros((len(game), n))
    tokens = np.zeros(len(game))
    for batch in game.batches:
        gradients = token_gradients(game, batch)
        which = list(batch.which)
        summed[:, which] = _by_player(game, {s: g.sum(-1) for s, (g, _) in gradients.items()}).T
        for site, (g, real) in gradients.items():
            index = game.players.member[site]
            for player in index[index >= 0].unique().tolist():
                # heads of one player share a gate, so their derivatives are added first
                each = g[:, index == player].sum(1).abs().sum(-1)
                absolute[player, which] += each.numpy()
                tokens[player] += float(real.sum())
    forms = {
        "token_abs": absolute * n / tokens[:, None],
        "example_abs": np.abs(summed),
        "batch_abs": summed * np.where(summed.mean(1, keepdims=True) < 0, -1.0, 1.0),
        "signed": -summed,
    }
    return {f: _normalised(game, x) if normalise_layers else x for f, x in forms.items()}


def _normalised(game: Game, per_prompt: np.ndarray) -> np.ndarray:
    scaled = per_prompt.copy()
    for index in game.players.member.values():
        here = index[index >= 0].unique().numpy()
        size = float(np.linalg.norm(per_prompt[here].mean(1)))
        scaled[here] = per_prompt[here] / size if size else 0.0
    return scaled


def _games(
    model: Model, task: Task, kind: str, null: str, options: dict[str, Any]
) -> tuple[Game, Game | None]:
    if null not in NULLS:
        raise UnknownName("null", null, NULLS)
    # a constant task shows in the gradients themselves, without additional runs
    check = kind == "resample" and task.corrupted is not None
    options = {"check": check} | options
    game = Game(model, task, kind=kind, **options)
    return game, None if null == "none" else random_game(game, **options)


def _require_gradient(task: Task, *, at_clean: bool) -> None:
    if not task.has_gradient:
        raise OptionError(
            f"task {task.name} is a step function, so it has no gradient; use a loss or a logit "
            f"difference, or an ablation"
        )
    if at_clean and task.needs_clean:
        raise OptionError(
            f"task {task.name} is at its minimum in the clean run, so every gradient there is 0; "
            "use aumann_shapley or an ablation"
        )
