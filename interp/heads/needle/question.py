"""Attention from the question to a needle, minus that from an uninformative question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.prompts import Prompts, bos_id
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.heads.needle.instance import Instance, prompts_of
from interp.heads.per_head import head_value_columns
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def question_mass(
    model: Model,
    instances: Sequence[Instance],
    *,
    calibrated: bool = True,
    progress: Progress = silent,
) -> ResultRows:
    """Measure the mean attention of the question's tokens on the needle, in every instance.

    Args:
        model: the model to run.
        instances: needles in haystacks.
        calibrated: subtract, key by key, the attention of an uninformative question at the same
            position, and leave out the keys that are then more than two standard deviations below
            the mean over the context. BOS is excluded.
        progress: see `Progress`.

    Returns:
        One row per head and metric: `question_mass` under the question of the instance, and
        `question_mass_other` under one about something absent from the context.

    Raises:
        PromptError: there are no instances, or the prompts do not fit the model.

    Unit: attention mass.

    Cost: One prompt under three questions.

    Null: a question about something absent from the context.

    Not for: showing that a head copies.

    Reference: Zhang et al. 2025, "Query-Focused Retrieval Heads Improve Long-Context Reasoning and
    Re-ranking".
    """
    if not instances:
        raise PromptError("there are no needles to search for; give at least one instance")
    asked: dict[Site, list[Tensor]] = {}
    other: dict[Site, list[Tensor]] = {}
    bos = int(bos_id(model) is not None)
    for done, x in enumerate(instances):
        nothing = _rows(model, x, x.null, bos) if calibrated else {}
        document = slice(x.document[0] - bos, x.document[1] - bos)
        for question, collected in ((x.question, asked), (x.other, other)):
            for site, mass in _rows(model, x, question, bos).items():
                more = _above(mass, nothing[site]) if calibrated else mass
                collected.setdefault(site, []).append(more[:, document].sum(-1))
        progress("instances", done + 1, len(instances))
    clusters = tuple(f"needle {x.needle}" for x in instances)
    columns, per_prompt = head_value_columns(
        {
            "question_mass": {s: torch.stack(m) for s, m in asked.items()},
            "question_mass_other": {s: torch.stack(m) for s, m in other.items()},
        },
        clusters,
    )
    provenance = result_provenance(
        model, "interp.heads.needle.question_mass", prompts_of(instances), calibrated=calibrated
    )
    units = ("stack", "layer", "head")
    facts = {"unit": "attention mass", "limits": (-1.0, 1.0)}
    return ResultRows(
        "QuestionMass",
        columns,
        units,
        provenance,
        facts,
        per_prompt,
        clusters=clusters,
        interval_by="kind",
    )


def _above(
    mass: Float[Tensor, "head key_pos"], nothing: Float[Tensor, "head key_pos"]
) -> Float[Tensor, "head key_pos"]:
    """Return the attention that one question adds, without the keys that lose most."""
    more = mass - nothing
    low = more.mean(-1, keepdim=True) - 2 * more.std(-1, keepdim=True)
    return more.where(more >= low, 0)


def _rows(
    model: Model, instance: Instance, question: Sequence[int], bos: int
) -> dict[Site, Float[Tensor, "head key_pos"]]:
    """Return the mean attention of a question's tokens on each context key from `bos` on."""
    first = len(instance.context)
    rows = torch.arange(first, first + len(question))
    means: dict[Site, Tensor] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        model.require_finite(call, site)
        pattern = call.pattern(rows.to(call.z.device))[0, ..., bos:first]
        means[site] = pattern.double().mean(1).cpu()

    model.read(Prompts((instance.context + tuple(question),), "needle"), visit, last=1)
    return means
