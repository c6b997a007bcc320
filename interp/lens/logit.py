"""The logit lens: final norm and unembedding applied to intermediate layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.result import Result
from interp.core.tokens import separate_words, token_id
from interp.lens.finish import finish, model_layers, one_input, predicting_stack, texts
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.lens.tuned import TunedLens
    from interp.model.model import Model

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class LogitLens(Result):
    """Logits of the stream at every depth and position; depth 0 is the embedding.

    The score of a row is the logit of the target, or without a target the largest logit.

    Args:
        top_ids, top_logits: the k largest at each depth and position.
        target_logit, target_rank: of the target token, if there is one; rank 0 is the highest.
        residual: largest difference of the deepest logits to the model's own.
    """

    tokens: tuple[str, ...]
    depths: tuple[str, ...]
    top_ids: Int[Array, "depth pos k"] = field(repr=False)
    top_tokens: tuple[tuple[tuple[str, ...], ...], ...] = field(repr=False)
    top_logits: Float[Array, "depth pos k"] = field(repr=False)
    target: str | None
    target_logit: Float[Array, "depth pos"] | None = field(repr=False)
    target_rank: Int[Array, "depth pos"] | None = field(repr=False)
    residual: float
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "it has a single prompt"
    _units = ("depth", "position", "token")

    @property
    def _same_as(self) -> Mapping[str, str]:  # type: ignore[override]
        return {"score": "logit" if self.target is None else "target_logit"}

    def _facts(self) -> Mapping[str, Any]:
        kind = "largest logit" if self.target is None else f"logit of {self.target!r}"
        return {"metric": kind, "unit": "logit"}

    def plot(self, k: int = 20) -> go.Figure:
        """Draw a heat map of the scores, depth by position, with the top token in each cell."""
        from interp.draw.charts import grid

        if self._kept is not None:
            return super().plot(k)
        score = self.top_logits[..., 0] if self.target_logit is None else self.target_logit
        hover = [
            [
                f"{depth}, {token!r}: first {first[0]!r}"
                for token, first in zip(self.tokens, row, strict=True)
            ]
            for depth, row in zip(self.depths, self.top_tokens, strict=True)
        ]
        title = str(self._facts()["metric"])
        return grid(score, self.depths, self.tokens, hover=hover, title=title, unit="logit")

    def _rows(self) -> pd.DataFrame:
        """Return one row per depth and position."""
        import pandas as pd

        rows = []
        for d, depth in enumerate(self.depths):
            for p, token in enumerate(self.tokens):
                row = {"depth": depth, "position": p, "token": token}
                row |= {"top": self.top_tokens[d][p][0], "logit": self.top_logits[d, p, 0]}
                if self.target_logit is not None and self.target_rank is not None:
                    row |= {
                        "target_logit": self.target_logit[d, p],
                        "target_rank": self.target_rank[d, p],
                    }
                rows.append(row)
        return pd.DataFrame(rows)


@takes_model
def logit_lens(
    model: Model,
    prompt: Any,
    *,
    k: int = 5,
    target: str | int | None = None,
    tuned: TunedLens | None = None,
) -> LogitLens:
    """Apply the final norm and the unembedding to the stream after every layer.

    The deepest logits are the model's own, which is checked. Early layers need not use the
    basis of the unembedding; a lens shows what is decodable there, not what the model uses.

    Args:
        model: the loaded model.
        prompt: one text, or token ids.
        k: tokens to keep at each depth and position.
        target: a token whose logit and rank are tracked.
        tuned: translators of `tuned_lens`, which then come before the final norm.

    Reference: nostalgebraist 2020, "interpreting GPT: the logit lens".

    Raises:
        UnreadableAttention: there is no unembedding, or a nonlinear layer precedes it.
        PromptError: the target token does not exist.
        OptionError: there are several prompts, k exceeds the vocabulary, or the translators are
            those of another model.

    Unit: logit.

    Cost: One forward pass and the unembedding at every depth.

    Null: none: look at the rank among all tokens.

    Not for: early layers, as what the model predicts: they need not be in the basis of the
    unembedding.
    """
    if not 1 <= k <= model.d_vocab:
        raise OptionError(f"k={k} is out of range; give 1 to {model.d_vocab}")
    if tuned is not None and tuned.provenance["content_hash"] != model.content_hash:
        raise OptionError(
            f"the translators were trained on {tuned.provenance['model_id']}, whose weights are "
            f"not those of {model.name}; train them on this model with tuned_lens"
        )
    inputs, stack = one_input(model, prompt), predicting_stack(model)
    cache = model.capture(inputs, ("resid_pre", "resid_post"), stack=stack)
    layers = model_layers(model, stack)
    end = finish(model, cache, stack)
    streams = [cache["resid_pre", layers[0], stack]]
    streams += [cache["resid_post", layer, stack] for layer in layers]
    wanted = None if target is None else token_id(model, target)
    tops, values, logits, ranks = [], [], [], []
    with torch.no_grad():
        for depth, stream in enumerate(
            streams
        ):  # one depth at a time: logits of all positions are large
            read = stream if tuned is None else tuned.translated(depth, stream)
            found = end(read)[0].double()
            best = found.topk(k, dim=-1)
            tops.append(best.indices.cpu())
            values.append(best.values.cpu())
            if wanted is not None:
                mine = found[:, wanted]
                logits.append(mine.cpu())
                ranks.append((found > mine[:, None]).sum(-1).cpu())
    top = torch.stack(tops).numpy()
    ids = inputs.get("decoder_input_ids", inputs["input_ids"])[0].tolist()
    return LogitLens(
        texts(model, ids),
        ("embedding", *(f"layer {layer}" for layer in layers)),
        top,
        tuple(tuple(separate_words(model, row.tolist()) for row in depth) for depth in top),
        torch.stack(values).numpy(),
        None if wanted is None else texts(model, [wanted])[0],
        torch.stack(logits).numpy() if logits else None,
        torch.stack(ranks).numpy() if ranks else None,
        float((found - cache.logits[0].double()).abs().max()),
        result_provenance(
            model, "interp.lens.logit_lens", Prompts((tuple(ids),)), k=k, target=target
        )
        | {"ids": ids, "tuned": tuned is not None},
    )
