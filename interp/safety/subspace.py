"""Sahara: rotation of the prompts' main axis by ablating heads, and a greedy search.

The matrix has one row per prompt: the input of the unembedding at the last token. The score of a
set of heads is the angle between the first singular vectors of this matrix with and without them.
There are three forms:

    uncentred   left singular vectors of the rows as they are: the authors' code. An angle in the
                space of prompts: it stays the same however the hidden space is rotated. What all
                prompts share dominates it, so that a change of everything else shows little.
    centred     the same minus the mean over prompts, for the axis along which prompts differ. A
                head that writes the same on all prompts has no effect, so both kinds of prompts
                are needed. The default.
    features    right singular vectors of the centred rows: an angle in the hidden space. It also
                changes if the axis rotates while the prompts keep their order on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.causal.game.game import Game
from interp.causal.measures import kl_to_clean
from interp.core.errors import OptionError, PromptError, UnknownName, UnreadableAttention
from interp.core.head import Head
from interp.core.interrupts import held
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.table import HeadTable
from interp.model.content import model_provenance
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.locate.find_layout import layouts
from interp.model.model_argument import takes_model
from interp.safety.prompts import PromptSets

if TYPE_CHECKING:
    from interp.model.model import Model


class HiddenGame(Game):
    """Game that returns the input of the unembedding at the last token, under ablation of heads."""

    @classmethod
    def of(cls, model: Model, prompts: Prompts, **options: Any) -> HiddenGame:
        """Make the game on these prompts, read at their last token.

        Raises:
            UnreadableAttention: The model has no unembedding.
            OptionError: The players are not single heads.
        """
        leaving = layouts(model).vocabulary.leaving
        if isinstance(leaving, str):
            raise UnreadableAttention(leaving)
        game = cls(model, kl_to_clean(model, prompts, name="hidden_state"), **options)
        if game.players.kind != "heads":
            raise OptionError(
                f"players={game.players.kind!r} is not supported: heads are ablated one by one; "
                "give players='heads'"
            )
        return game

    @held()
    def hidden(self, gates: Any) -> Float[Tensor, "coalition prompt d_model"]:
        """Return the input of the unembedding at each prompt's last token, for each row of gates.

        It is float64 on the CPU, computed with the same reuse of the clean run as `values`.
        """
        table = self.checked(gates)
        leaving = layouts(self.model).vocabulary.leaving
        if isinstance(leaving, str):
            raise UnreadableAttention(leaving)
        inputs = torch.empty(len(table), len(self.task), leaving.width, dtype=torch.double)
        seen: list[Tensor] = []

        def keep(module: nn.Module, args: tuple) -> None:
            seen[:] = [args[0]]

        module = self.model.module.get_submodule(leaving.matrix)
        packs = self.packs(table)
        handle = module.register_forward_pre_hook(in_this_thread(keep))
        try:
            for number, batch in enumerate(self.batches):
                if batch.wanted is None:
                    raise OptionError(f"task {self.task.name} names no positions to read")
                with inference(self.model.module), torch.no_grad():
                    for pack in packs[number]:
                        copies = len(pack.rows)
                        if pack.first is None:  # no head is ablated
                            copies = 1
                            self._kept.pop(number, None)
                            self.clean_run(number)
                        else:
                            self.evaluate(number, pack, table[list(pack.rows)])
                        rows = seen[0].reshape(-1, leaving.width)[batch.wanted.copies(copies)]
                        value = rows.double().cpu().reshape(copies, len(batch.which), -1)
                        for at, row in enumerate(pack.rows):
                            inputs[row, list(batch.which)] = value[at if copies > 1 else 0]
                self.trim(number)
        finally:
            handle.remove()
        return inputs


Array = np.ndarray
FORMS = ("centred", "uncentred", "features")


@takes_model
def sahara(
    model: Model,
    harmful: Any,
    harmless: Any = None,
    *,
    form: str = "centred",
    rank: int = 1,
    steps: int = 3,
    kind: str = "zero",
    progress: Callable[[str, int, int], None] | None = None,
    **options: Any,
) -> ResultRows:
    """Search greedily for the heads whose ablation rotates the prompts' main axis most.

    Each step ablates every remaining head together with those taken before, and takes the one with
    the largest angle (of equal heads the first). It never reverses a step, and the angle is at most
    90 degrees, so later steps add little.

    Args:
        model: The model.
        harmful: Prompts that the model should decline: texts, ids or `Prompts`.
        harmless: Prompts that it should answer. The authors use harmful prompts alone, with
            `form="uncentred"`. The centred forms need both kinds.
        form: `centred`, `uncentred` or `features`; see the module.
        rank: Number of singular vectors that are compared; beyond 1 the angle is the largest of the
            principal angles between the two subspaces.
        steps: Number of heads to take; the authors take about three.
        kind: Replacement of a head, as in `ships`.
        progress: Called with the name of the current work, how much is done and how much there is.
        **options: Options of `Game`: stack, heads, max_tokens, reference, ...

    Reference: Zhou et al. 2025 (arXiv 2410.13708), "Generalized Ships" and Sahara.

    Returns:
        One row per head: model, stack, layer, head and the other columns of a table of scores,
        whose score is the angle of the first step; step, the step that took the head, and angle,
        the angle after it. Facts: taken, the labels of the heads that were taken, in order; labels,
        those of all heads; angles, `[step, head]`, the angle with every head that is not taken yet,
        NaN for the others; form; gap, the ratio of the first singular value to the one after the
        last that is compared (near 1 the axis is arbitrary, and so are the angles); table, the
        scores as `HeadTable`.

    Raises:
        UnknownName: There is no such form or kind.
        OptionError: The rank or the number of steps does not fit.
        PromptError: The sets coincide, there are too few prompts, or their hidden states do not
            differ.
        UnreadableAttention: The model has no unembedding.

    Unit: degrees.

    Cost: One run over the prompts per remaining head and step.

    Null: the angle of every other head in the same step.

    Not for: uncentred prompts that share a large mean: the axis is that mean. With a `gap` near 1
    the axis is arbitrary.
    """
    from interp.safety.removal import FORMS as KINDS

    if form not in FORMS:
        raise UnknownName("form of Sahara", form, FORMS)
    prompts = _prompts(model, harmful, harmless, form)
    game = HiddenGame.of(model, prompts, kind=KINDS.get(kind, kind), **options)
    if not 1 <= steps <= len(game) or not 1 <= rank < min(len(prompts), model.d_model):
        raise OptionError(
            f"steps={steps}, rank={rank}; between 1 and {len(game)} heads, and between 1 and "
            f"{min(len(prompts), model.d_model) - 1} for {len(prompts)} prompts"
        )
    base = game.hidden(torch.ones(1, len(game), dtype=torch.double))[0]
    axis, gap = main_axes(base, form, rank)
    taken: list[int] = []
    angles_by_step: list[Array] = []
    for step in range(steps):
        left = [i for i in range(len(game)) if i not in taken]
        gates = torch.ones(len(left), len(game), dtype=torch.double)
        gates[:, taken] = 0
        gates[range(len(left)), left] = 0
        angles = np.full(len(game), math.nan)
        for row, hidden in zip(left, game.hidden(gates), strict=True):
            angles[row] = principal_angle(axis, main_axes(hidden, form, rank)[0])
        best = int(np.nanargmax(angles))
        taken.append(best)
        angles_by_step.append(angles)
        if progress is not None:
            progress("sahara", step + 1, steps)
    table = _table(model, game, angles_by_step[0], form, rank, len(prompts))
    names = tuple(game.players.labels[i] for i in taken)
    frame = table.to_pandas()
    order = {Head.parse(name): i for i, name in enumerate(names)}
    heads = frame[["layer", "head", "stack"]].itertuples(index=False, name=None)
    at = [order.get(Head(*head), order.get(Head(*head[:2]), -1)) for head in heads]
    columns = frame.assign(
        step=[i + 1.0 if i >= 0 else math.nan for i in at],
        angle=[float(angles_by_step[i][taken[i]]) if i >= 0 else math.nan for i in at],
    )
    facts = {
        "taken": names,
        "labels": tuple(game.players.labels),
        "angles": np.stack(angles_by_step),
        "form": form,
        "gap": gap,
        "table": table,
    }
    return ResultRows(
        "Sahara",
        columns,
        ("stack", "layer", "head"),
        next(iter(table.provenance.values()), {}),
        facts,
        why_no_per_prompt="an angle is of all prompts together",
    )


def main_axes(
    hidden: Float[Tensor, "prompt d_model"], form: str, rank: int = 1
) -> tuple[Float[Tensor, "entry axis"], float]:
    """Compute the first singular vectors in the form's space, and the ratio of singular values."""
    x = hidden.double()
    if form != "uncentred":
        centred = x - x.mean(0)
        if float(centred.norm()) <= 1e-6 * float(x.norm()):
            raise PromptError(
                "the prompts leave the same hidden state, so nothing tells them apart; give "
                "prompts of both kinds"
            )
        x = centred
    u, values, vh = torch.linalg.svd(x, full_matrices=False)
    beyond = float(values[rank]) if rank < len(values) else 0.0
    gap = float(values[0]) / beyond if beyond > 0 else math.inf
    return (vh.T if form == "features" else u)[:, :rank], gap


def principal_angle(one: Float[Tensor, "entry axis"], other: Float[Tensor, "entry axis"]) -> float:
    """Compute the largest principal angle between two subspaces of orthonormal columns, in degrees.

    Small angles are computed by the sine and large ones by the cosine, so that neither loses digits
    (Björck and Golub 1973).
    """
    inner = one.T @ other
    cosine = float(torch.linalg.svdvals(inner)[-1])
    sine = float(torch.linalg.svdvals(other - one @ inner)[0])
    return math.degrees(math.atan2(sine, cosine))


def _prompts(model: Model, harmful: Any, harmless: Any, form: str) -> Prompts:
    if harmless is not None:
        return PromptSets.of(model, harmful, harmless).together
    if form != "uncentred":
        raise PromptError(
            f"form={form!r} asks how prompts differ, so it needs harmless prompts beside the "
            "harmful ones; on harmful prompts alone use form='uncentred'"
        )
    return Prompts.of(harmful, model)


def _table(
    model: Model, game: HiddenGame, angles: Array, form: str, rank: int, n: int
) -> HeadTable:
    label = f"sahara:form={form},kind={game.kind}" + (f",rank={rank}" if rank > 1 else "")
    records = []
    for site, index in game.players.member.items():
        for h, number in enumerate(index.tolist()):
            if number >= 0:
                records.append(
                    {
                        "model": model.name,
                        "stack": site.stack,
                        "layer": site.layer,
                        "head": h,
                        "kv_head": site.kv_head(h),
                        "metric": label,
                        "n": n,
                        "score": float(angles[number]),
                        "unit": "degrees",
                    }
                )
    provenance = model_provenance(model) | game.about()
    provenance |= {"form": form, "rank": rank, "null": "none", "edits": []}
    provenance |= {"made_by": "interp.safety.sahara"}
    return HeadTable.from_records(records, {(model.name, label): provenance})


def sahara_summary(found: ResultRows) -> str:
    """Return the heads that the search took, with the angle after each."""
    at = [found.labels.index(head) for head in found.taken]
    angles = [float(found.angles[step, i]) for step, i in enumerate(at)]
    path = ", ".join(f"{head} {x:.3g}°" for head, x in zip(found.taken, angles, strict=True))
    return f"Sahara ({found.form}): {path}; singular values {found.gap:.3g} apart"


present("Sahara", summary=sahara_summary)
