"""Logits of one prompt with and without some heads, as a table of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.game.interventions import INTERVENTIONS
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.core.tokens import separate_words, shown
from interp.heads.patterns.tile_names import stack_and_head
from interp.model.inputs import takes
from interp.report.explore.requests import GoingOn

if TYPE_CHECKING:
    from interp.model.edits import Edit
    from interp.model.model import Model

TOP = 10  # tokens of either run
LOGITS = 1 << 29  # bytes of the logits of one run
PAGE = {name: entry.page for name, entry in INTERVENTIONS.items() if entry.page}
"""Interventions on one prompt, under the names that results carry, in words."""
NEEDS_REFERENCE = [name for name in PAGE if INTERVENTIONS[name].needs]


def named_edits(
    model: Model,
    names: Sequence[str],
    interventions: str | Sequence[str],
    reference: str | None,
    prompts: Prompts,
) -> list[Edit]:
    """Return the edits of one intervention on heads, or of one on each head; none without heads."""
    heads = [stack_and_head(name, model.sites[0].stack) for name in names]
    if isinstance(interventions, str) or not heads:
        interventions = [str(interventions)] * len(heads)
    if len(interventions) != len(heads):
        raise OptionError(
            f"{len(interventions)} interventions for {len(heads)} heads; give one for all heads, "
            "or one for each"
        )
    if len(set(heads)) < len(heads):
        twice = next(head for _, head in heads if sum(head == other for _, other in heads) > 1)
        raise OptionError(f"head {twice} is named twice")
    kinds, edits = dict.fromkeys(interventions), []
    for kind in kinds:
        of = [head for head, each in zip(heads, interventions, strict=True) if each == kind]
        of_kind = reference if kind in NEEDS_REFERENCE or len(kinds) == 1 else None
        edits += edits_of(model, of, kind, of_kind, len(prompts.ids[0]))
    return edits


def edits_of(
    model: Model,
    heads: Sequence[tuple[str, Head]],
    intervention: str,
    reference: str | None,
    length: int,
) -> list[Edit]:
    """Return the edits of an intervention on heads, one per stack."""
    entry = INTERVENTIONS.get(intervention)
    if entry is None or not entry.page:
        if entry is not None:
            raise OptionError(entry.why_no_page)
        raise UnknownName("intervention", intervention, PAGE)
    lines = [line for line in (reference or "").splitlines() if line.strip()]
    if bool(entry.needs) != bool(lines):
        needs = "needs reference prompts, one per line" if not lines else "takes no reference"
        raise OptionError(f"{intervention} {needs}")
    stacks: dict[str, list[Head]] = {}
    for stack, head in heads:
        stacks.setdefault(stack, []).append(head)
    if not stacks:
        raise OptionError("no head is ablated; name at least one, such as L1H3")
    source: dict[tuple[str, int], Tensor] = {}
    if entry.needs == "corpus":
        source = model.mean_z(Prompts.of(lines, model))
    elif entry.needs == "prompt":
        other = Prompts.of(lines, model)
        if len(other) != 1 or len(other.ids[0]) != length:
            sizes = ", ".join(str(len(ids)) for ids in other.ids)
            raise OptionError(
                f"{intervention} needs one reference prompt of {length} tokens, as many as the "
                f"prompt; the given ones have {sizes}"
            )
        source = model.capture(other, ["z"]).z_by_site()
    return [entry.edit_of(of, source, stack) for stack, of in stacks.items()]


def logits_at(
    model: Model,
    inputs: Mapping[str, Any],
    n: int,
    position: int,
    edits: Sequence[Edit] = (),
    going_on: GoingOn = lambda: None,
) -> Float[Tensor, "d_vocab"]:
    """Return the logits of one position of a prompt of n tokens, under edits.

    `going_on` is called at every layer; what it raises ends the run.
    """
    if not 0 <= position < n:
        raise OptionError(f"position {position}; the prompt has positions 0 to {n - 1}")
    last = n - position if "logits_to_keep" in takes(model.module) else n
    if 4 * last * model.d_vocab > LOGITS:
        raise OptionError(
            f"the logits of {last:,} positions and {model.d_vocab:,} tokens take more than "
            f"{LOGITS / 1e9:.1f} GB; choose a position near the end, or a shorter prompt"
        )
    with torch.no_grad(), model.edited(*edits):
        out = model.read(inputs, lambda *_: going_on(), last=last, streamed=True)
    return position_logits(model, out, n - position)


def position_logits(
    model: Model, out: Float[Tensor, "1 pos d_vocab"], from_end: int
) -> Float[Tensor, "d_vocab"]:
    """Return one position of a run's output, counted from 1 at its end."""
    if out.dim() != 3 or out.shape[-1] != model.d_vocab:
        raise PromptError(
            f"{model.name} returns {list(out.shape)}, not one logit per token; load it with its "
            "language-model head to see the effect of an ablation"
        )
    return out[0, -from_end].detach().float().cpu()


def moved(
    model: Model, before: Float[Tensor, "d_vocab"], after: Float[Tensor, "d_vocab"] | None
) -> dict[str, Any]:
    """Return the likeliest tokens of both runs, and how far their distributions are apart."""
    runs = [before] if after is None else [before, after]
    chosen: dict[int, None] = {}
    for logits in runs:
        chosen |= dict.fromkeys(logits.topk(min(TOP, len(logits))).indices.tolist())
    logs = [x.double().log_softmax(-1) for x in runs]
    ids = sorted(chosen, key=lambda i: -float(before[i]))
    rows = [
        {
            "id": i,
            "token": text,
            **{
                name: {
                    "logit": float(logits[i]),
                    "probability": float(log[i].exp()),
                    "rank": 1 + int((logits > logits[i]).sum()),
                }
                for name, logits, log in zip(("before", "after"), runs, logs, strict=False)
            },
        }
        for i, text in zip(ids, separate_words(model, ids), strict=True)
    ]
    kl = None if after is None else float((logs[0].exp() * (logs[0] - logs[1])).sum())
    sentence = "" if after is None else change_sentence(rows)
    return {"tokens": rows, "kl": kl, "said": sentence}


def change_sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what an edit does to the likeliest token of the plain run, and what is likeliest then."""
    first = next(row for row in rows if row["before"]["rank"] == 1)
    then = min(rows, key=lambda row: row["after"]["rank"])
    a, b = (first[side]["probability"] for side in ("before", "after"))
    now = f"{100 * a:.1f} % to {100 * b:.1f} %"
    name = f"“{shown(first['token'])}”"
    if f"{a:.3f}" == f"{b:.3f}":
        change = f"The probability of {name} stays at {100 * a:.1f} %"
    else:
        change = f"The probability of {name} {'falls' if b < a else 'rises'} from {now}"
    rank = first["after"]["rank"]
    if rank == 1:
        return f"{change}; it stays the likeliest token."
    return f"{change}, from rank 1 to {rank:,}; “{shown(then['token'])}” becomes the likeliest."
