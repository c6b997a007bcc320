"""Training of sparse dictionaries and transcoders from streamed activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.core.presenter import present
from interp.core.prompts import Prompts, bos_id
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.dictionaries.activations import FIRST, ROWS, ActivationStream
from interp.dictionaries.training_loop import checked_settings, fitted_dictionary
from interp.model.content import result_provenance
from interp.model.layer_tensors import place_width, require_place
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

CURVE_FACTS = {"metric": "explained_variance", "unit": "share of the variance of a batch"}


@takes_model
def train_dictionary(
    model: Model,
    prompts: Any,
    *,
    layer: int,
    site: str = "z",
    site_out: str | None = None,
    stack: str | None = None,
    architecture: str = "topk",
    d_sae: int | None = None,
    k: int = 8,
    sparsity: float | None = None,
    dead: Literal["auxk", "resample", "none"] = "auxk",
    dead_after: int = 100,
    steps: int = 1000,
    batch_rows: int = 512,
    rate: float = 2e-3,
    buffer_rows: int = ROWS,
    first: int = FIRST,
    batch_size: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Train a sparse dictionary of the activations of one layer, or a transcoder of its attention.

    Activations are scaled in training, and the scale is folded into the weights that are returned.
    Rows of the decoder keep norm 1.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        prompts: texts, ids or `Prompts` to train on; keep others for `score_dictionary`.
        layer: the layer.
        site: place that is read: z (all heads, concatenated), attn_out, a stream, or attn_in.
        site_out: place that is reconstructed, if not the same: `site="attn_in",
            site_out="attn_out"` is a transcoder of the attention layer.
        stack: attention stack, where a layer number is not enough.
        architecture: standard, topk, batchtopk (kept as jumprelu), jumprelu or gated.
        d_sae: number of features; by default four times the entries that are read.
        k: codes per position. For standard, gated and jumprelu, the number that the coefficient of
            sparsity is steered to.
        sparsity: a fixed coefficient of sparsity in place of the steered one.
        dead: what is done about features without a code in the last `dead_after` steps: "auxk" lets
            them reconstruct the error; "resample" points them at rows that are reconstructed badly,
            four times in the first 60 % of the steps; "none".
        dead_after: number of steps.
        steps: number of steps.
        batch_rows: rows (positions of prompts) per step.
        rate: learning rate of Adam; it falls to 0 over the last fifth of the steps.
        buffer_rows: rows of the shuffled buffer, which bounds the memory; see `ActivationStream`.
        first: positions at the beginning of each prompt that are left out.
        batch_size: prompts per forward pass.
        seed: seed of initial directions and of all orders.
        progress: see `Progress`.

    Returns:
        One row per recorded step: step, loss, score (explained variance of that step's batch), l0
        (codes per row), dead_share (features without a code in the last `dead_after` steps),
        coefficient of sparsity, revived (features that were resampled so far) and n, the rows of a
        batch. Objects, which files do not hold: dictionary, the trained one, and untrained, the one
        that training began with, its activation set to the same number of codes.

    Raises:
        UnknownName: the architecture, place or treatment of dead features does not exist.
        OptionError: a number is out of range.
        UnreadableAttention: the model has no such tensor in this layer.
        NonFiniteError: activations are not finite, or training diverges; nothing is written.

    Unit: explained variance of a batch, along the steps.

    Cost: One forward pass of the prompts if their rows fit the buffer, otherwise one per round of
        the prompts, and `steps` steps on the dictionary.

    Null: the untrained dictionary and others, by `score_dictionary` on other prompts.

    Not for: judging a dictionary by its training curve; score it on held-out prompts.

    Reference: Kissane et al. 2024, "Interpreting Attention Layer Outputs with Sparse Autoencoders"
    (arXiv 2406.17759); Gao et al. 2024 (arXiv 2406.04093) for TopK and AuxK; Bussmann et al. 2024
    (arXiv 2412.06410) for batch TopK; Rajamanoharan et al. 2024 for gated (arXiv 2404.16014) and
    JumpReLU (arXiv 2407.14435).
    """
    tokenized = Prompts.of(prompts, model)
    where = model.site(layer, stack)
    out = site_out or site
    for name in (site, out):
        require_place(name, where)
    d_in, d_out = place_width(model, site, where), place_width(model, out, where)
    d_sae = 4 * d_in if d_sae is None else d_sae
    settings = checked_settings(
        architecture, dead, dead_after, steps, batch_rows, rate, sparsity, k, d_sae
    )
    stream = ActivationStream(
        model, tokenized, where, (site, out), buffer_rows, first, batch_size, seed
    )
    options = {
        "layer": layer,
        "site": site,
        "site_out": out,
        "architecture": architecture,
        "d_sae": d_sae,
        "k": k,
        "sparsity": "steered to k" if sparsity is None else sparsity,
        "dead": dead,
        "dead_after": dead_after,
        "steps": steps,
        "batch_rows": batch_rows,
        "rate": rate,
        "buffer_rows": buffer_rows,
        "first": first,
        "seed": seed,
    }
    provenance = result_provenance(
        model, "interp.dictionaries.train_dictionary", tokenized, **options
    )
    longest = max(map(len, tokenized.ids))
    bos = bos_id(model)
    about = {
        "site": site,
        "site_out": out,
        "layer": where.layer,
        "stack": where.stack,
        "n_heads": where.n_heads if site == "z" else None,
        "model": {"name": model.name, "hash": model.content_hash},
        "about": {
            "options": options,
            "prompts": {
                "hash": tokenized.hash,
                "n": len(tokenized),
                "max_length": longest,
                "bos": bos is not None and all(ids[0] == bos for ids in tokenized.ids),
            },
        },
    }
    fit = fitted_dictionary(
        stream.batches(batch_rows),
        architecture,
        (d_in, d_out, d_sae, k),
        settings,
        f"{model.name}, {where.name}",
        seed,
        progress,
        out != site,
    )
    objects = {
        "dictionary": fit.trained.dictionary(*fit.scales, **about),
        "untrained": fit.untrained.dictionary(*fit.scales, **about),
    }
    return ResultRows(
        "DictionaryTraining",
        curve_columns(fit.curve, provenance["options"]["batch_rows"]),
        ("step",),
        provenance | {"buffer_bytes": stream.memory_bytes},
        {**CURVE_FACTS, "trained": repr(objects["dictionary"])},
        objects=objects,
        why_no_per_prompt="a step is a batch of positions of many prompts",
    )


def dictionary_training_summary(found: ResultRows) -> str:
    """Return the trained dictionary, and the last step of its curve."""
    return (
        f"{found.trained}\n  after {found.step[-1]:.0f} steps, on the last "
        f"training batch: explained variance {found.score[-1]:.3f}, {found.l0[-1]:.1f} codes per "
        f"position, {found.dead_share[-1]:.1%} of the features dead"
    )


def training_figure(curve: ResultRows) -> go.Figure:
    """Plot explained variance and dead share along the steps."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, y in (("explained variance", curve.score), ("dead features", curve.dead_share)):
        figure.add_scatter(x=curve.step, y=y, name=name, mode="lines")
    return figure.update_layout(
        title="Training of a dictionary", xaxis_title="step", yaxis_title="share"
    )


present("DictionaryTraining", summary=dictionary_training_summary, plot=training_figure)


def curve_columns(curve: Mapping[str, Sequence[float]], n: int) -> dict[str, Any]:
    """Return the columns of a curve, whose score is the explained variance of each step's batch."""
    columns: dict[str, Any] = {name: list(values) for name, values in curve.items()}
    columns["score"] = columns.pop("explained_variance")
    return columns | {"sem": np.nan, "n": n}
