"""DecoderLens: the decoder reads an earlier encoder layer in place of the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutput

from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.ties import within
from interp.core.tokens import separate_words, words
from interp.draw.parts import FoundPart, plain_value, result_part
from interp.model.calls.call import precise
from interp.model.content import model_provenance, result_provenance, tensors_hash
from interp.model.hooks.inference import inference
from interp.model.inputs import is_encoder_decoder, takes
from interp.model.model_argument import takes_model
from interp.model.precision import why_inexact

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
_CLOSE = 1e-4  # relative to the largest entry of the last encoder states
_NORMS = ("final_layer_norm", "layer_norm")  # T5; Whisper, mBART, Pegasus, M2M-100


@takes_model
def decoder_lens(
    model: Model,
    prompts: Any,
    *,
    labels: Sequence[Sequence[int]] | None = None,
    batch_size: int = 16,
) -> ResultRows:
    """Let the decoder read the encoder's state after every layer, and measure the target's loss.

    The encoder's final norm is applied to every depth, as the decoder was trained to read normed
    states; encoders that end without one (BART) are read as they are. At the last depth the logits
    are the model's own, which is checked.

    Args:
        model: the encoder-decoder model.
        prompts: `Prompts` with decoder inputs (`encode_pairs(model, pairs).prompts`), or a mapping
            of input tensors with `decoder_input_ids`, such as those of a speech model.
        labels: the right token of each decoder row, per prompt, -1 for a row that is not judged; by
            default the next token that the decoder is fed, without its last row.
        batch_size: prompts per forward pass.

    Returns:
        One row per depth of the encoder, from "embedding" on: depth, score (mean loss per target
        token, mean over prompts) with sem and n, rank (mean rank of the right token, 0 the highest)
        with rank_sem, and reads (the most likely tokens of the first prompt). Arrays:
        rank_per_prompt, `[row, prompt]`; top_tokens. Facts: labels, the right tokens of the first
        prompt; residual, the largest difference of the logits at the last depth to the model's own;
        norm, the encoder norm that is applied to every depth, empty where the encoder ends without.

    Reference: Langedijk et al. 2023, "DecoderLens: Layerwise Interpretation of Encoder-Decoder
    Transformers".

    Raises:
        OptionError: the model has no encoder beside a decoder.
        PromptError: the decoder's input is missing, or labels do not fit it.
        UnreadableAttention: the encoder's layers and final norm do not give its output, or
            decoding that does not give the model's logits.

    Unit: nats per token.

    Cost: One forward pass, and one of the decoder per encoder layer.

    Null: depth 0, the embedding.

    Not for: what an encoder layer is used for: the decoder was trained on the last one only, so a
    high loss can mean another basis as well as missing information.
    """
    if not is_encoder_decoder(model.module) or "encoder" not in model.stacks:
        raise OptionError(
            f"{model.name} ({model.kind}) has no encoder beside a decoder; give an encoder-decoder "
            "model, such as bundled:reorder"
        )
    judgements: list[tuple[Array, Array]] = []
    first: tuple[tuple[str, ...], ...] = ()
    names: tuple[str, ...] = ()
    worst, norm, start = 0.0, "", 0
    for batch in _batches(model, prompts, batch_size):
        inputs = model.inputs(batch)
        right = _labels(inputs, labels, start)
        states, norm = encoder_states(model, inputs)
        with torch.no_grad():
            plain = model.run(inputs)
        losses, ranks, tops = [], [], []
        logits = plain
        for state in states:
            with torch.no_grad():
                logits = model.run(_decoding(model, inputs, state))
            loss, rank = _judged(logits, right)
            losses.append(loss)
            ranks.append(rank)
            if not judgements:
                real = right[0] >= 0
                ids = logits[0, : right.shape[1]].argmax(-1)[real].tolist()
                tops.append(separate_words(model, ids))
        off = float((logits - plain).abs().max())
        if off > _CLOSE * float(plain.abs().max()):
            raise UnreadableAttention(
                f"{model.name}: decoding the last encoder layer gives logits that differ from the "
                f"model's own by {off:.2g}: "
                + why_inexact(model.dtype, "earlier layers cannot be read in its place")
            )
        worst = max(worst, off)
        if not judgements:
            first = tuple(tops)
            names = words(model, right[0][right[0] >= 0].tolist())
        judgements.append((np.stack(losses), np.stack(ranks)))
        start += len(right)
    per_prompt, rank = (np.concatenate([x[i] for x in judgements], 1) for i in (0, 1))
    depths = ("embedding", *(f"layer {i}" for i in range(len(per_prompt) - 1)))
    provenance = _made(model, prompts) | {"final_norm": norm or "none"}
    return lens_rows(
        depths, per_prompt, rank, first, provenance, labels=names, residual=worst, norm=norm
    )


def lens_rows(
    depths: Sequence[str],
    loss: Float[Array, "depth prompt"],
    rank: Float[Array, "depth prompt"],
    top_tokens: Sequence[Sequence[str]],
    made: Mapping[str, Any],
    **facts: Any,
) -> ResultRows:
    """Return a row per depth from the loss and the rank of the right token on each prompt."""
    of_loss, of_rank = cluster_summary(loss.T), cluster_summary(rank.T)
    columns = {
        "depth": depths,
        "metric": "target_loss",
        "score": of_loss.score,
        "sem": of_loss.sem,
        "n": of_loss.n,
        "unit": "nats per token",
        "rank": of_rank.score,
        "rank_sem": of_rank.sem,
        "reads": [" ".join(map(str.strip, row)) for row in top_tokens],
    }
    return ResultRows(
        "DecoderLens",
        columns,
        ("depth",),
        made,
        facts,
        loss,
        arrays={"rank_per_prompt": rank, "top_tokens": tuple(map(tuple, top_tokens))},
        by="lowest",
    )


def encoder_states(model: Model, inputs: Mapping[str, Any]) -> tuple[list[Tensor], str]:
    """Return the encoder's output as if each depth were its last, and the norm that was applied."""
    layers = sorted(site.layer for site in model.sites if site.stack == "encoder")
    cache = model.capture(inputs, ("resid_pre", "resid_post"), stack="encoder")
    raw = [cache["resid_pre", layers[0], "encoder"]]
    raw += [cache["resid_post", layer, "encoder"] for layer in layers]
    encoder: Any = model.module.get_encoder()  # type: ignore[operator]
    encoder_inputs = {k: x for k, x in inputs.items() if k in takes(encoder)}
    with torch.no_grad(), inference(encoder):
        last = encoder(**encoder_inputs)[0]
        for name in ("", *_NORMS):
            norm = getattr(encoder, name, None) if name else torch.nn.Identity()
            if norm is None:
                continue
            states = [norm(x) for x in raw]
            off = float((states[-1] - last).abs().max())
            if off <= _CLOSE * float(last.abs().max()):
                return states, name
    raise UnreadableAttention(
        f"{model.name}: the last encoder layer, with or without its final norm, does not give the "
        "encoder's output, so earlier layers cannot be read in its place"
    )


def _decoding(model: Model, inputs: Mapping[str, Any], state: Tensor) -> dict[str, Any]:
    """Return the inputs of a run whose encoder is replaced by a state."""
    names = ("attention_mask", "decoder_input_ids", "decoder_attention_mask")
    read = {k: inputs[k] for k in names if k in inputs and k in takes(model.module)}
    return read | {"encoder_outputs": BaseModelOutput(last_hidden_state=state)}  # type: ignore[arg-type]


def _batches(model: Model, prompts: Any, size: int) -> list[Any]:
    if isinstance(prompts, Mapping):
        if "decoder_input_ids" not in prompts:
            raise PromptError("the inputs lack decoder_input_ids, so there is nothing to predict")
        return [prompts]
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    return list(model.batches(tokenized, size))


def _labels(
    inputs: Mapping[str, Tensor], labels: Sequence[Sequence[int]] | None, start: int
) -> Int[Tensor, "prompt row"]:
    """Return the right id of each decoder row; -1 where there is none."""
    ids = inputs["decoder_input_ids"]
    mask = inputs.get("decoder_attention_mask")
    if labels is None:
        right = ids[:, 1:].clone()
        if mask is not None:
            right[mask[:, 1:] == 0] = -1
    else:
        right = torch.full_like(ids, -1)
        for row in range(len(ids)):
            if start + row >= len(labels) or not 0 < len(labels[start + row]) <= ids.shape[1]:
                raise PromptError(
                    f"labels of prompt {start + row} are missing, or more than the rows of its "
                    "decoder; give one id per row"
                )
            ids_of_prompt = torch.tensor(labels[start + row], device=ids.device)
            right[row, : len(ids_of_prompt)] = ids_of_prompt
    empty = (right < 0).all(1).nonzero()
    if right.shape[1] == 0 or len(empty):
        at = start + (int(empty[0]) if len(empty) else 0)
        raise PromptError(f"the decoder input of prompt {at} has one token, so nothing follows it")
    return right


def _judged(logits: Tensor, right: Tensor) -> tuple[Array, Array]:
    """Return the mean loss and the mean rank of the right tokens of every prompt."""
    logits = precise(logits[:, : right.shape[1]])
    real = right >= 0
    ids = right.clamp_min(0)
    loss = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none")
    right_logits = logits.gather(-1, ids[..., None])
    rank = (logits > right_logits).sum(-1)
    n = real.sum(1)
    loss, rank = ((x.double() * real).sum(1) / n for x in (loss, rank))
    return loss.cpu().numpy(), rank.cpu().numpy()


def _made(model: Model, prompts: Any) -> dict[str, Any]:
    made_by = "interp.lens.decoder_lens"
    if not isinstance(prompts, Mapping):
        return result_provenance(model, made_by, Prompts.of(prompts, model))
    tensors = {k: x for k, x in prompts.items() if isinstance(x, Tensor)}
    about = {"prompts": "given tensors", "prompts_hash": tensors_hash(tensors)}
    about |= {"made_by": made_by, "engine": "stored", "seed": None, "options": {}}
    return model_provenance(model) | about


def decoder_lens_summary(found: ResultRows) -> str:
    """Return the loss by depth of the encoder."""
    loss = zip(found.depth, found.per_prompt.mean(1), strict=True)
    text = ", ".join(f"{name} {x:.3g}" for name, x in loss)
    norm = f"; {found.norm} applied" if found.norm else ""
    return f"DecoderLens, loss in nats per token by depth of the encoder{norm}: {text}"


def decoder_lens_figure(found: ResultRows, k: int = 20) -> go.Figure:
    """Draw the loss at each depth with its 95 % interval, in the order of the encoder."""
    from interp.draw.charts import bars

    rows = found.to_pandas().head(k)
    return bars(rows, list(rows["depth"]), title="DecoderLens", unit="nats per token")


def decoder_lens_part(found: ResultRows) -> FoundPart:
    """Return the loss of the target where the decoder reads each layer of the encoder."""
    frame: Any = found.to_pandas()
    norm = f"{found.norm} is applied to each depth" if found.norm else "without a final norm"
    text = (
        f"Loss of the target when the decoder reads the encoder's state after each layer ({norm}), "
        f"on {found.per_prompt.shape[1]} prompts: {frame['score'].iloc[0]:.3g} nats per token at "
        f"the embedding, {frame['score'].iloc[-1]:.3g} at the last layer, where the logits equal "
        f"the model's own {within(found.residual)}. A high loss can mean another basis "
        "as well as missing information."
    )
    columns = {name: [plain_value(x) for x in frame[name]] for name in ("score", "low", "high")}
    line: Any = {
        "name": "loss",
        "kind": "result",
        "x": list(range(len(frame))),
        "y": columns["score"],
        "low": columns["low"],
        "high": columns["high"],
    }
    x = "encoder layers read (0: the embedding)"
    figure = {"draw": "curves", "x": x, "y": "nats per token", "lines": [line]}
    return result_part(found, "lens", "DecoderLens", text, figure=figure)


present(
    "DecoderLens",
    summary=decoder_lens_summary,
    plot=decoder_lens_figure,
    part=decoder_lens_part,
)
