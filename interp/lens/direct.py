"""Direct logit attribution: a logit as the sum of the contributions of all parts of the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.table import HeadTable
from interp.core.ties import ordered_by, ranked, within
from interp.core.tokens import show, token_id
from interp.lens.finish import (
    Finish,
    finish,
    model_layers,
    one_input,
    predicting_stack,
    row_of,
    texts,
)
from interp.lens.stream_writers import EMBEDDING, StreamWriters
from interp.model.content import model_provenance
from interp.model.locate.norms import HELD_NORMS
from interp.model.model_argument import takes_model
from interp.model.precision import why_inexact
from interp.model.sources.placement import require_one_device

if TYPE_CHECKING:
    from interp.model.model import Model

ANOTHER_WRITER = (
    "something besides attention and MLPs writes to the stream, or a norm is applied to it "
    "(post-norm)"
)
_RESIDUAL = 1e-4  # relative to the sum of absolute parts: float32 error over many layers


@takes_model
def direct_logit_attribution(
    model: Model,
    prompt: Any,
    target: str | int | None = None,
    *,
    contrast: str | int | None = None,
    position: int = -1,
) -> ResultRows:
    """Split a logit into what each head, each MLP, the embedding and the biases add to it directly.

    The scales of the final norm, and of norms between heads and the stream (Gemma 2), are held at
    their values on this input; gain, centring and bias are folded exactly, so that the parts sum to
    the logit up to rounding, which is checked. Effects through later layers are not included: a
    head that acts through others may contribute nothing.

    Args:
        model: the loaded model.
        prompt: one text, or token ids.
        target: a token; by default the model's top prediction.
        contrast: a second token whose logit is subtracted.
        position: position at which the logit is read.

    Returns:
        One row per head, MLP, layer without heads (such as "L0 conv"), the embedding (with
        positions) and the biases (of attention layers, norms and the unembedding): part, stack,
        layer, head and score, the contribution. Facts:
        target; position and token at which the logit is read; value, the model's own number, before
        a soft cap if it has one; parts, all contributions by name, the largest first; table, those
        of heads; mlps, by layer; embedding; bias; residual, value minus the sum of all parts.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

    Raises:
        UnreadableAttention: the stream is not a plain sum of attention and MLPs (post-norm
            models), or a nonlinear layer precedes the unembedding.
        PromptError, OptionError: the token or position does not exist.

    Unit: logit.

    Cost: One forward pass.

    Null: none: the parts sum to the logit, which is checked.

    Not for: heads that act through other heads, which contribute nothing here; nor post-norm
    models, which are refused.
    """
    require_one_device(model.module, model.name, "a direct effect")
    inputs, stack = one_input(model, prompt), predicting_stack(model)
    parts = StreamWriters(model, stack)
    cache = parts.capture(inputs)
    layers = model_layers(model, stack)
    end = finish(model, cache, stack)
    row = row_of(position, cache.logits.shape[1])
    first = int(cache.logits[0, row].argmax()) if target is None else token_id(model, target)
    second = None if contrast is None else token_id(model, contrast)
    if first == second:
        raise OptionError(f"the contrast is the target itself, {show(model, first)}")
    towards = torch.zeros(cache.logits.shape[-1], dtype=torch.double, device=cache.logits.device)
    towards[first] += 1
    if second is not None:
        towards[second] -= 1
    direction, bias = end.back(towards, cache["resid_post", layers[-1], stack][0, row])
    records, unit = [], "logit" if end.cap is None else "logit before the cap"
    name = f"logit of {show(model, first)}"
    name += "" if second is None else f" minus {show(model, second)}"
    metric = "direct_logit"
    for site in parts.sites:
        heads, constant = parts.along_heads(cache, site, row, direction)
        bias += constant
        records.append(
            {
                "model": model.name,
                "stack": site.stack,
                "layer": site.layer,
                "metric": metric,
                "score": heads.cpu().numpy(),
                "n_kv_heads": site.n_kv_heads,
                "unit": unit,
                "kind": site.kind,
            }
        )
    beside = parts.beside_heads(cache, row, direction)
    value = _value(
        end, cache.logits[0, row], towards, cache["resid_post", layers[-1], stack][0, row]
    )
    scores = [float(x) for r in records for x in r["score"]]
    every = [*scores, *beside.values(), bias]
    residual = value - sum(every)
    size = sum(map(abs, every)) + 1e-6
    if abs(residual) > _RESIDUAL * size:
        raise UnreadableAttention(
            f"{model.name}: the parts sum to {sum(every):.6g}, but the {name} is {value:.6g}: "
            + why_inexact(model.dtype, ANOTHER_WRITER)
        )
    ids = inputs.get("decoder_input_ids", inputs["input_ids"])[0].tolist()
    about = model_provenance(model) | {
        "target": name,
        "position": row,
        "ids": ids,
        "residual": residual,
        "null": "none",
        "prompts": {"design": "one prompt", "n": 1},
        "seed": None,
        "made_by": "interp.lens.direct_logit_attribution",
        "norms": HELD_NORMS,
    }
    notes = {} if end.cap is None else {"soft cap": end.cap}
    table = HeadTable.from_records(records, {(model.name, metric): about})
    several = len(table.stacks) > 1
    rows = [
        (
            f"{r['stack'] + ' ' if several else ''}L{r['layer']}H{r['head']}",
            r["stack"],
            r["layer"],
            r["head"],
            r["score"],
        )
        for r in table.wide().to_dict("records")
    ]
    beside["biases"] = bias
    rows += [(part, math.nan, math.nan, math.nan, x) for part, x in beside.items()]
    names, values = [each[0] for each in rows], [float(each[4]) for each in rows]
    facts = {
        "metric": metric,
        "unit": unit,
        "target": name,
        "position": row,
        "value": value,
        "token": texts(model, [ids[row]])[0],
        "table": table,
        "mlps": parts.mlps(beside),
        "embedding": beside[EMBEDDING],
        "bias": bias,
        "residual": residual,
        "notes": notes,
        "parts": dict(ordered_by(zip(names, values, strict=True), lambda item: abs(item[1]))),
    }
    columns = dict(
        zip(("part", "stack", "layer", "head", "score"), zip(*rows, strict=True), strict=True)
    )
    return ResultRows(
        "DirectLogits",
        columns,
        ("part", "stack", "layer", "head"),
        about,
        facts,
        by="abs",
        why_no_per_prompt="it has a single prompt",
    )


def _value(end: Finish, logits: Tensor, towards: Tensor, stream: Tensor) -> float:
    if end.cap is None:
        return float(logits.double() @ towards)
    with torch.no_grad():
        return float(Finish(end.model, end.leaving, end.factor, None)(stream).double() @ towards)


def direct_logits_summary(found: ResultRows) -> str:
    """Return the logit and its largest parts."""
    rows = ranked(found.wide(), "score", absolute=True)
    scale = float(rows["score"].abs().to_numpy(float).max())
    rows = rows.head(found._asked or 10)
    best = "\n".join(
        f"  {name:<10} {x:+.4g}" for name, x in zip(rows["part"], rows["score"], strict=True)
    )
    return (
        f"{found.target} = {found.value:.6g} at {found.token!r} (position {found.position})\n"
        f"{best}\n  the parts sum to it {within(found.residual, scale)}"
    )


present("DirectLogits", summary=direct_logits_summary)
