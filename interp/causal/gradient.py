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

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from interp.causal.ablation import NULLS, AblationNull, random_game
from interp.causal.game.game import Game
from interp.causal.game.interventions import intervention
from interp.causal.gate_derivatives import path_gradients, score_forms
from interp.causal.importance import Importance, make_importance
from interp.causal.task import Task
from interp.core.errors import OptionError, UnknownName
from interp.model.model_argument import takes_model

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
    if model.ranks is not None:
        model.ranks.require_whole(model.name)
    game, beside = _games(model, task, kind, null, options)
    by_form = score_forms(game, normalise_layers)
    if not any(x.any() for x in by_form.values()) and set(game.players.member) >= set(model.sites):
        raise OptionError(
            f"task {task.name} is constant: its gradient is 0 at every head on every prompt; "
            f"check which logits it reads"
        )
    nulls = None if beside is None else score_forms(beside, normalise_layers)
    values = {"normalise_layers": True} if normalise_layers else {}
    return {
        form: make_importance(
            game,
            by_form[form],
            method=names[form],
            options=values,
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
    scores = _gradient_scores(
        model,
        task,
        "resample",
        ("signed",),
        normalise_layers,
        null,
        options,
        names={"signed": "patching_gradient"},
        made_by="interp.causal.patching_gradient",
    )
    return scores["signed"]


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
        contributions = path_gradients(game, taken)
        residual = float((contributions.sum(0) - span).mean())
        if steps is not None or taken >= MOST_STEPS or abs(residual) <= 0.02 * abs(span.mean()):
            break
        taken *= 2
    return make_importance(
        game,
        contributions,
        method="aumann_shapley",
        options={"steps": taken},
        of="presence",
        made_by="interp.causal.aumann_shapley",
        null=None if beside is None else path_gradients(beside, taken),
        null_kind=null,
        notes={
            "completeness_residual": task.sign * residual + 0.0,
            "v_all_minus_v_none": task.sign * float(span.mean()) + 0.0,
        },
    )


def _games(
    model: Model, task: Task, kind: str, null: str, options: dict[str, Any]
) -> tuple[Game, Game | None]:
    if null not in NULLS:
        raise UnknownName("null", null, NULLS)
    # a constant task shows in the gradients themselves, without additional runs
    check = intervention(kind).of_pairs(task)
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
