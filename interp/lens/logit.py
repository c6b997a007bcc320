"""The logit lens: final norm and unembedding applied to intermediate layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.tokens import separate_words, token_id
from interp.lens.finish import finish, model_layers, one_input, predicting_stack, texts
from interp.lens.tuned import translated
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.model.sources.placement import require_one_device

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model


@takes_model
def logit_lens(
    model: Model,
    prompt: Any,
    *,
    k: int = 5,
    target: str | int | None = None,
    tuned: ResultRows | None = None,
) -> ResultRows:
    """Apply the final norm and the unembedding to the stream after every layer.

    The deepest logits are the model's own, which is checked. Early layers need not use the
    basis of the unembedding; a lens shows what is decodable there, not what the model uses.

    Args:
        model: the loaded model.
        prompt: one text, or token ids.
        k: tokens to keep at each depth and position.
        target: a token whose logit and rank are tracked.
        tuned: translators of `tuned_lens`, which then come before the final norm.

    Returns:
        One row per depth (0 is "embedding") and position: depth, position, token, top (the most
        likely token), logit (the largest) and, with a target, target_logit and target_rank (0 the
        highest). The score is the logit of the target, or without one the largest. Facts: tokens,
        depths and target; top_ids, top_tokens and top_logits, the k largest, `[depth, position,
        k]`; target_logits and target_ranks, `[depth, position]`; residual, the largest difference
        of the deepest logits to the model's own.

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
    require_one_device(model.module, model.name, "the logit lens")
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
            read = stream if tuned is None else translated(tuned, depth, stream)
            depth_logits = end(read)[0]
            best = depth_logits.topk(k, dim=-1)
            tops.append(best.indices.cpu())
            values.append(best.values.cpu().double())
            if wanted is not None:
                mine = depth_logits[:, wanted]
                logits.append(mine.cpu().double())
                ranks.append((depth_logits > mine[:, None]).sum(-1).cpu())
    top = torch.stack(tops).numpy()
    ids = inputs.get("decoder_input_ids", inputs["input_ids"])[0].tolist()
    tokens, depths = texts(model, ids), ("embedding", *(f"layer {layer}" for layer in layers))
    top_tokens = tuple(tuple(separate_words(model, row.tolist()) for row in depth) for depth in top)
    top_logits = torch.stack(values).numpy()
    aim = None if wanted is None else texts(model, [wanted])[0]
    columns = {
        "depth": [depth for depth in depths for _ in tokens],
        "position": [*range(len(tokens))] * len(depths),
        "token": [*tokens] * len(depths),
        "top": [cell[0] for depth in top_tokens for cell in depth],
        "logit": top_logits[..., 0].ravel(),
    }
    facts: dict[str, Any] = {
        "metric": "largest logit" if aim is None else f"logit of {aim!r}",
        "unit": "logit",
        "target": aim,
        "target_ranks": None,
        "tokens": tokens,
        "depths": depths,
        "top_ids": top,
        "top_tokens": top_tokens,
        "top_logits": top_logits,
        "residual": float((depth_logits - cache.logits[0].to(depth_logits)).abs().max()),
    }
    if aim is not None:
        facts["target_ranks"] = torch.stack(ranks).numpy()
        facts["target_logits"] = torch.stack(logits).numpy()
        columns["target_logit"] = facts["target_logits"].ravel()
        columns["target_rank"] = facts["target_ranks"].ravel()
    provenance = result_provenance(
        model, "interp.lens.logit_lens", Prompts((tuple(ids),)), k=k, target=target
    )
    return ResultRows(
        "LogitLens",
        columns,
        ("depth", "position", "token"),
        provenance | {"ids": ids, "tuned": tuned is not None},
        facts,
        why_no_per_prompt="it has a single prompt",
        same_as={"score": "logit" if aim is None else "target_logit"},
    )


def logit_lens_figure(found: ResultRows, k: int = 20) -> go.Figure:
    """Draw the scores, depth by position, or the k rows of `top` as bars."""
    from interp.draw.charts import grid
    from interp.draw.rows import bars_of

    if len(found) != len(found.depths) * len(found.tokens):
        return bars_of(found, k)
    score = found.top_logits[..., 0] if found.target is None else found.target_logits
    hover = [
        [
            f"{depth}, {token!r}: first {first[0]!r}"
            for token, first in zip(found.tokens, row, strict=True)
        ]
        for depth, row in zip(found.depths, found.top_tokens, strict=True)
    ]
    return grid(score, found.depths, found.tokens, hover=hover, title=found.metric, unit="logit")


present("LogitLens", plot=logit_lens_figure)
