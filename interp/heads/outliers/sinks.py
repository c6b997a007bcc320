"""Attention sinks at any position of a prompt, and heads that are dormant on one domain only.

The sink metric of Gu et al. 2025, "When Attention Sink Emerges in Language Models" (their
eval_sink_open_source.py): position k receives alpha_k, the mean attention from the queries that see
it; a head has a sink there if alpha_k > epsilon. A position that few queries see has a large alpha
by chance (the last token sees itself), so a sink must be visible to at least a quarter of the
queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.heads.one_call import BATCH, reduced, seen_by
from interp.heads.outliers.passes import HeadValues, each_call
from interp.heads.per_head import by_site, head_value_columns
from interp.heads.scoring import choose_engine
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp_kernels.reductions import Received

if TYPE_CHECKING:
    from interp.model.model import Model

EPSILON = 0.3
SEEN = 4  # a sink is visible to at least one in this many queries


@takes_model
def sink_mass(
    model: Model,
    prompts: Any,
    *,
    position: int | None = None,
    epsilon: float = EPSILON,
    engine: str = "auto",
) -> ResultRows:
    """Measure the attention on each head's strongest sink, in every prompt.

    Args:
        model: the model to run.
        prompts: texts, ids or `Prompts`; Gu et al. use 64 tokens each.
        position: consider this position only (0 for Gu et al.'s Sink_1), not all positions.
        epsilon: mean attention above which a position is a sink.
        engine: "stored", "streamed" or "auto".

    A head that attends uniformly to all visible tokens has mass H_T / T on position 0 (0.0741 for T
    = 64).

    Returns:
        One row per head: stack, layer, head, sink_mass (the score: attention on the strongest sink,
        mean over prompts) with sem and n, sink_share (the share of prompts with a sink) and
        position (the commonest of the strongest sinks). Array `[row, prompt]`: positions. Facts:
        sink_metric, the share of heads and prompts with a sink (the metric of Gu et al.); at_first,
        the share of those sinks that are on the first token, NaN if there is none.

    Raises:
        OptionError: some prompt is too short for the position, or epsilon is no mean attention.
        PromptError: the prompts do not fit the model.

    Unit: attention per query.

    Cost: One forward pass per prompt, streamed where long.

    Null: uniform attention: H_T / T.

    Not for: comparing prompts of different lengths with one threshold.

    Reference: Gu et al. 2025, "When Attention Sink Emerges in Language Models".
    """
    if not 0 < epsilon < 1:
        raise OptionError(f"epsilon={epsilon}: attention on a sink lies between 0 and 1")
    tokenized = Prompts.of(prompts, model)
    shortest = min(map(len, tokenized.ids), default=0)
    if position is not None and not 0 <= position < shortest:
        raise OptionError(
            f"position {position} does not exist in every prompt: the shortest has "
            f"{shortest} tokens"
        )

    def measure(site: Site, call: Call, engine: str) -> tuple[Tensor, ...]:
        seen = seen_by(call)
        alpha = reduced(call, Received(), engine).double() / seen.clamp_min(1)
        if position is not None:
            alpha = alpha[..., position : position + 1]
            return alpha[..., 0], torch.full_like(alpha[..., 0], position)
        alpha = alpha.masked_fill(seen < -(-call.z.shape[2] // SEEN), -1.0)
        best = alpha.max(-1)
        return best.values, best.indices

    measured = each_call(model, tokenized, measure, engine=engine)
    columns, mass = head_value_columns(
        {"sink_mass": {site: x[0] for site, x in measured.items()}},
        tokenized.clusters,
    )
    columns["sink_mass"] = columns.pop("score")
    shares = {site: (x[0] > epsilon).double().mean(0) for site, x in measured.items()}
    columns["sink_share"] = [float(x) for share in shares.values() for x in share]
    places = {site: x[1] for site, x in measured.items()}
    columns["position"] = [int(x) for at in places.values() for x in at.mode(0).values]
    positions = head_value_columns({"position": places})[1]
    on = mass > epsilon
    facts = {
        "metric": "sink_mass",
        "unit": "attention mass",
        "limits": (0.0, 1.0),
        "sink_metric": float(torch.cat(list(shares.values())).mean()),
        "at_first": float((positions[on] == 0).mean()) if on.any() else float("nan"),
    }
    provenance = result_provenance(
        model,
        "interp.heads.outliers.sink_mass",
        tokenized,
        engine=choose_engine(model, tokenized, BATCH, engine),
        position=position,
    )
    return ResultRows(
        "SinkMass",
        columns,
        ("stack", "layer", "head"),
        provenance,
        facts,
        mass,
        arrays={"positions": positions},
        same_as={"score": "sink_mass"},
        clusters=tokenized.clusters,
        interval_by="kind",
    )


@takes_model
def active_dormant_sinks(
    model: Model, dormant_on: Any, active_on: Any
) -> tuple[HeadValues, HeadValues]:
    """Measure the sink mass of every head on two sets of prompts.

    A head that rests on a sink in one set only is active-dormant.

    Reference: Guo et al. 2024, "Active-Dormant Attention Heads" (arXiv 2410.13835).

    Raises:
        PromptError: the two sets are the same prompts, or do not fit the model.

    Unit: attention per query.

    Cost: One forward pass per prompt.

    Null: the other set of prompts.

    Not for: sets of prompts of different lengths.
    """
    first, second = Prompts.of(dormant_on, model), Prompts.of(active_on, model)
    same = set(first.ids) & set(second.ids)
    if same:
        raise PromptError(
            f"{len(same)} prompts are in both sets, so they do not separate two domains; give two "
            f"disjoint sets"
        )
    one, other = (by_site(model, sink_mass(model, part)) for part in (first, second))
    return one, other
