"""Attention sinks at any position of a prompt, and heads that are dormant on one domain only.

The sink metric of Gu et al. 2025, "When Attention Sink Emerges in Language Models" (their
eval_sink_open_source.py): position k receives alpha_k, the mean attention from the queries that see
it; a head has a sink there if alpha_k > epsilon. A position that few queries see has a large alpha
by chance (the last token sees itself), so a sink must be visible to at least a quarter of the
queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.heads.one_call import BATCH, reduced, seen_by
from interp.heads.outliers.passes import HeadValues, each_call
from interp.heads.per_head import PerHead
from interp.heads.scoring import choose_engine
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp_kernels.reductions import Received

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

EPSILON = 0.3
SEEN = 4  # a sink is visible to at least one in this many queries


@dataclass(frozen=True, eq=False, repr=False)
class SinkMass(PerHead):
    """Mean attention on the strongest sink and its position, per attention and prompt."""

    mass: HeadValues
    position: HeadValues
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _same_as = MappingProxyType({"score": "sink_mass"})

    def _measured(self) -> Mapping[str, HeadValues]:
        return {"sink_mass": self.mass}

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "sink_mass", "unit": "attention mass"}

    def share(self, epsilon: float = EPSILON) -> dict[Site, Float[Tensor, " head"]]:
        """Return the share of prompts in which each head has a sink."""
        if not 0 < epsilon < 1:
            raise OptionError(f"epsilon={epsilon}: attention on a sink lies between 0 and 1")
        return {site: (x > epsilon).double().mean(0) for site, x in self.mass.items()}

    def metric(self, epsilon: float = EPSILON) -> float:
        """Return the share of heads and prompts with a sink (metric of Gu et al.)."""
        shares = list(self.share(epsilon).values())
        return float(torch.cat(shares).mean())

    def at_first(self, epsilon: float = EPSILON) -> float:
        """Return the share of those sinks that are on the first token; NaN if there is none."""
        on = torch.cat([(x > epsilon).flatten() for x in self.mass.values()])
        first = torch.cat([(x == 0).flatten() for x in self.position.values()])
        return float(first[on].double().mean()) if bool(on.any()) else float("nan")

    def to_pandas(self, epsilon: float = EPSILON) -> pd.DataFrame:
        """Return one row per head, with the share of prompts that have a sink above `epsilon`."""
        frame = self._completed(self._rows(epsilon))
        return frame if self._kept is None else frame.iloc[self._kept].reset_index(drop=True)

    def _rows(self, epsilon: float = EPSILON) -> pd.DataFrame:
        """Return one row per head: mean mass, share of prompts with a sink, commonest position."""
        import pandas as pd

        share = self.share(epsilon)
        return pd.DataFrame(
            {
                "stack": site.stack, "layer": site.layer, "head": h,
                "sink_mass": float(x[:, h].mean()), "sink_share": float(share[site][h]),
                "position": int(self.position[site][:, h].mode().values),
            }
            for site, x in self.mass.items() for h in range(x.shape[1])
        )  # fmt: skip


@takes_model
def sink_mass(
    model: Model, prompts: Any, *, position: int | None = None, engine: str = "auto"
) -> SinkMass:
    """Measure the attention on each head's strongest sink, in every prompt.

    Args:
        model: the model to run.
        prompts: texts, ids or `Prompts`; Gu et al. use 64 tokens each.
        position: consider this position only (0 for Gu et al.'s Sink_1), not all positions.
        engine: "stored", "streamed" or "auto".

    A head that attends uniformly to all visible tokens has mass H_T / T on position 0 (0.0741 for T
    = 64).

    Raises:
        OptionError: some prompt is too short for the position.
        PromptError: the prompts do not fit the model.

    Unit: attention per query.

    Cost: One forward pass per prompt, streamed where long.

    Null: uniform attention: H_T / T.

    Not for: comparing prompts of different lengths with one threshold.

    Reference: Gu et al. 2025, "When Attention Sink Emerges in Language Models".
    """
    given = Prompts.of(prompts, model)
    shortest = min(map(len, given.ids), default=0)
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

    found = each_call(model, given, measure, engine=engine)
    return SinkMass(
        {site: x[0] for site, x in found.items()},
        {site: x[1] for site, x in found.items()},
        result_provenance(
            model, "interp.heads.outliers.sink_mass", given,
            engine=choose_engine(model, given, BATCH, engine), position=position,
        ),
    )  # fmt: skip


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
    return sink_mass(model, first).mass, sink_mass(model, second).mass
