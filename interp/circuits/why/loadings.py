"""Parts of a head's output, by source position and upstream writer.

    found = head_loadings(model, "L1H2", prompts)
    found.top(5), loadings_by(found, "writer"), loadings_by(found, "source")

With attention patterns and norms held at their values in the run, a head's output is a sum over
source positions and over what was written there before: `A_ij * part_j W_V W_O`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.circuits.linear_scores import LinearScores
from interp.circuits.why.batches import asked_heads, asked_prompts, decomposed
from interp.circuits.why.stream_parts import MOST_FEATURES, StreamDictionary, StreamParts
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, UnknownName, UnreadableAttention
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.tokens import token_id
from interp.lens.finish import finish, row_of
from interp.model.calls.call import precise
from interp.model.capture import capture
from interp.model.content import model_provenance
from interp.model.locate.layout import ReadMatrix
from interp.model.locate.norms import HELD_NORMS
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.model.calls.sites import Site
    from interp.model.head_arguments import HeadsLike
    from interp.model.model import Model

Array = np.ndarray
EVERY = "all"
_CLOSE = 1e-5  # largest difference of the sum of parts from the head's output, of the largest part


_Part = tuple[int, int, str, str]
"""Layer, head, source position and upstream writer of a row."""


def _loading_rows(
    parts: Sequence[_Part],
    per_prompt: Float[Array, "row prompt"],
    clusters: tuple[str, ...] | None,
    facts: Mapping[str, Any],
    made: Mapping[str, Any],
) -> ResultRows:
    summary = cluster_summary(per_prompt.T, clusters)
    units = ("layer", "head", "source", "writer")
    columns = dict(zip(units, zip(*parts, strict=True), strict=True)) | {
        "score": summary.score,
        "sem": summary.sem,
        "n": summary.n,
        "clusters": summary.clusters,
    }
    return ResultRows(
        "HeadLoadings", columns, units, made, facts, per_prompt, clusters=clusters, by="abs"
    )


def loadings_by(found: ResultRows, unit: str) -> ResultRows:
    """Sum loadings over the other unit: return one row per head and writer, or source."""
    if unit not in ("writer", "source"):
        raise UnknownName("unit", unit, ("writer", "source"))
    heads = zip(found.layer.tolist(), found.columns["head"].tolist(), strict=True)
    labels = list(zip(heads, found.columns[unit], strict=True))
    names = list(dict.fromkeys(labels))
    place = {name: i for i, name in enumerate(names)}
    total = np.zeros((len(names), found.per_prompt.shape[1]))
    np.add.at(total, [place[label] for label in labels], found.per_prompt)
    parts = [(*head, EVERY, x) if unit == "writer" else (*head, x, EVERY) for head, x in names]
    return _loading_rows(parts, total, found.clusters, found.facts, found.provenance)


@takes_model
def head_loadings(
    model: Model,
    heads: HeadsLike,
    prompts: Any,
    *,
    target: str | int | None = None,
    contrast: str | int | None = None,
    position: int = -1,
    dictionaries: Sequence[StreamDictionary] = (),
    features: int = MOST_FEATURES,
) -> ResultRows:
    """Split the direct effect of heads on a logit over source positions and upstream writers.

    Args:
        model: The model.
        heads: One head or several.
        prompts: Texts or lists of token ids of one length.
        target: A token; by default the model's top prediction in each prompt.
        contrast: A second token whose logit is subtracted; otherwise the mean of all logits is.
        position: Position at which the heads write and the logit is read.
        dictionaries: Features of the stream that stand in place of the writers before them.
        features: Number of features with a row of their own.

    Returns:
        One row per head, source position and upstream writer: layer, head, source, writer, score
        (the part, mean over prompts), sem, n and clusters. The rows of one head sum to the direct
        effect of its output along the direction; `loadings_by` sums them by writer or by source.
        Facts: direction, what it is; position, at which the heads write; errors, by head, the
        largest difference of the sum of parts from the head's output vector, of the length of the
        largest output.

    Raises:
        UnreadableAttention: The stream is not a plain sum, the values are not one matrix times it,
            or the parts do not sum to a head's output.
        OptionError: There is no such head, or the prompts have several lengths.
        PromptError: The token does not exist.

    Unit: Logit, through the final norm with its scale held.

    Cost: Two forward passes and one over random unit vectors per batch of prompts.

    Null: None; compare with a head of random weights, or with the same on other prompts.

    Not for: effects through later layers.

    Reference: Kamath et al. 2025, "Tracing Attention Computation Through Feature Interactions".
    """
    chosen, given = asked_heads(model, heads), asked_prompts(model, prompts)
    lengths = sorted({len(ids) for ids in given.ids})
    if len(lengths) > 1:
        raise OptionError(
            f"the prompts have {lengths[0]} to {lengths[-1]} tokens, so their positions do not "
            "correspond; give prompts of one length"
        )
    place = row_of(position, lengths[0])
    right = None if target is None else token_id(model, target)
    wrong = None if contrast is None else token_id(model, contrast)
    rows: dict[tuple[int, int, str, str], Array] = {}
    errors = {f"L{s.layer}H{h}": 0.0 for s, h in chosen}
    for which, run in decomposed(model, given):
        stream = StreamParts(run, dictionaries, features)
        towards = _directions(run, place, right, wrong)
        for site, head in chosen:
            names, loadings, error = loadings_of(stream, site, head, place, towards)
            name = f"L{site.layer}H{head}"
            errors[name] = max(errors[name], error)
            for j in range(loadings.shape[1]):
                for w, writer in enumerate(names):
                    key = (site.layer, head, str(j), writer)
                    if key not in rows:
                        rows[key] = np.zeros(len(given))
                    rows[key][which] = loadings[:, j, w].cpu().numpy()
    text = "top prediction" if target is None else str(target)
    text += f" minus {contrast}" if contrast is not None else ""
    provenance = model_provenance(model) | {
        "made_by": "interp.circuits.head_loadings",
        "norms": HELD_NORMS,
        "options": {"heads": list(errors), "target": text, "position": place},
        "prompts": {"design": given.design, "n": len(given), "hash": given.hash},
        "prompts_hash": given.hash,
        "prompt_ids": list(given.prompt_ids),
    }
    facts = {
        "model": model.name,
        "metric": f"head_loadings:direction={text}",
        "unit": "logit",
        "direction": text,
        "position": place,
        "errors": errors,
    }
    return _loading_rows(
        list(rows), np.stack(list(rows.values())), given.clusters, facts, provenance
    )


def loadings_of(
    stream: StreamParts, site: Site, head: int, query: int, towards: Float[Tensor, "batch d_model"]
) -> tuple[tuple[str, ...], Float[Tensor, "batch source part"], float]:
    """Return the parts of one head's output along a direction, and the error of their sum."""
    parts = stream.before(site)
    path = OutputPath(stream.scores, site, head)
    loadings = path.read(parts.x, towards.double(), query)
    whole = stream.scores.written[:, query, stream.scores.index[f"L{site.layer}H{head}"]].double()
    error = path.error(parts.x, whole, query)
    return parts.names, loadings, error


class OutputPath:
    """The path from the stream at each source through a head's values to what the head adds.

    Raises:
        UnreadableAttention: Values are not one matrix times the stream, or are gated.
    """

    def __init__(self, run: LinearScores, site: Site, head: int) -> None:
        w, kv = run.weights[site], site.kv_head(head)
        reading, self.name = w.layout.v, f"L{site.layer}H{head}"
        w.require("ov")
        assert isinstance(reading, ReadMatrix)
        if reading.own_norm is not None or site.gated:
            raise UnreadableAttention(
                f"{site.name} ({site.module}): values have a norm or a gate of their own, so they "
                "are not one matrix times the stream"
            )
        self.model = run.model.name
        self.factor = run.factor(site, reading).double()
        self.W_V, self.b_V = w.W_V[kv].double(), w.b_V[kv].double()
        self.pattern = run.cache["pattern", site.layer][:, head].double()
        self.output = run.outputs[site].of([head])

    def read(
        self, x: Float[Tensor, "batch pos part d_model"], towards: Tensor, query: int
    ) -> Float[Tensor, "batch source part"]:
        """Return what each part adds along a direction; the last part holds the values' bias."""
        into = self.output.at(query).along(towards.double()[:, None])[:, 0, 0]  # [batch, d_v]
        weight = self.pattern[:, query]
        loadings = torch.einsum("bpwm,bm->bpw", x.double(), into @ self.W_V.T)
        loadings = loadings * self.factor[..., None]
        loadings[:, :, -1] += (into @ self.b_V)[:, None]
        return loadings * weight[..., None]

    def error(self, x: Tensor, whole: Float[Tensor, "batch d_model"], query: int) -> float:
        """Return the difference of the sum of all parts from the head's output, relative to it."""
        stream = x.sum(2).double() * self.factor[..., None]
        values = stream @ self.W_V + self.b_V
        output, weight = self.output.at(query), self.pattern[:, query]
        out = output.added((weight[:, None] @ values)[:, :, None])[:, 0, 0]
        error = float((out - whole).abs().max())
        size = max(float(whole.abs().max()), 1e-12)
        of_sources = weight[..., None] * output.added(values[:, :, None])[:, :, 0].abs()
        sums = float(of_sources.sum(1).max())
        if error > _CLOSE * max(size, sums, 1e-6):
            raise UnreadableAttention(
                f"{self.model}: the parts of the output of {self.name} differ from it by "
                f"{error:.2g}, with entries up to {size:.2g}; its values are not one matrix times "
                "the stream, or the model is not in float32"
            )
        return error / size


def _directions(
    run: LinearScores, place: int, right: int | None, wrong: int | None
) -> Float[Tensor, "batch d_model"]:
    model = run.model
    site = run.sites[-1]
    last = capture(model, run.inputs, ("resid_post",), layers=[site.layer])
    end = finish(model, last, site.stack)
    logits, directions = precise(last.logits), []
    stream = precise(last["resid_post", site.layer])
    for row in range(len(logits)):
        size = logits.shape[-1]
        direction = torch.zeros(size, dtype=torch.float64, device=logits.device)
        if wrong is None:
            direction -= 1 / size
        else:
            direction[wrong] -= 1.0
        direction[int(logits[row, place].argmax()) if right is None else right] += 1.0
        directions.append(end.back(direction, stream[row, place])[0])
    return torch.stack(directions)


def head_loadings_summary(found: ResultRows) -> str:
    """Return the number of parts of the heads' outputs, and the largest."""
    best = "".join(
        f", largest {r['writer']} at {r['source']} {r['score']:+.3g}"
        for r in found.top(1).wide().to_dict("records")
    )
    return (
        f"HeadLoadings({', '.join(found.errors)} of {found.facts['model']} on {found.direction}: "
        f"{len(found)} parts over {found.per_prompt.shape[1]} prompts{best} logits)"
    )


present(
    "HeadLoadings",
    summary=head_loadings_summary,
    text="interp.report.printed.circuits:loadings_text",
)
