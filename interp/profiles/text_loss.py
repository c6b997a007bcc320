"""Loss of a model per token of a sample of text, beside that of a table of token frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import NonFiniteError
from interp.core.prompts import Prompts
from interp.core.standard_errors import standard_error

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.model.model import Model
    from interp.profiles.corpus import Sample, TextWindow
    from interp.profiles.predictions import Prediction

N_WINDOWS = 32  # windows of a sample on which the loss is measured


@torch.no_grad()
def mean_loss(
    model: Model, prediction: Prediction, windows: Sequence[TextWindow]
) -> tuple[float, float, int]:
    """Return the loss per token in nats, its standard error over documents, and the tokens."""
    sums, counts = [], []
    for predicted in map(prediction.of, windows):
        logits = model.run(Prompts((predicted.window.ids,)))[0].float()
        rows = logits[torch.as_tensor(predicted.places, device=logits.device)]
        truth = torch.as_tensor(predicted.tokens, device=logits.device)
        sums.append(float(torch.nn.functional.cross_entropy(rows, truth, reduction="sum")))
        counts.append(len(truth))
    loss, n_tokens = sum(sums) / sum(counts), np.array(counts)
    if not np.isfinite(loss):
        raise NonFiniteError(f"{model.name}: the loss per token of a text is {loss}")
    rest = (sums - loss * n_tokens) / n_tokens.mean()  # a ratio of sums, linear in its documents
    error = standard_error(rest[None], [window.cluster for window in windows])[0]
    return loss, float(error), sum(counts)


def table_loss(model: Model, prediction: Prediction, sample: Sample) -> float:
    """Return the loss per token of a table of the token frequencies of the other half.

    The N tokens of T kinds that the other half of the sample holds are smoothed with T tokens
    spread evenly over the vocabulary (Witten and Bell), so that a token that it lacks has a share.
    """
    losses: list[Float[np.ndarray, " token"]] = []
    judged = sample.windows[:N_WINDOWS]
    for part in (0, 1):
        seen = [window.ids[1:] for window in sample.windows if window.part != part]
        counts = np.bincount(np.concatenate(seen), minlength=model.d_vocab)
        kinds = np.count_nonzero(counts)
        shares = (counts + kinds / len(counts)) / (counts.sum() + kinds)
        losses += [-np.log(shares[prediction.of(w).tokens]) for w in judged if w.part == part]
    return float(np.concatenate(losses).mean())


def loss_facts(model: Model, prediction: Prediction | str, sample: Sample) -> dict[str, Any]:
    """Return the loss per token on at most 32 windows of a sample, and whether it is foreign."""
    if isinstance(prediction, str):
        return {"why_no_loss": prediction, "foreign": ""}
    windows = sample.windows[:N_WINDOWS]
    facts: dict[str, Any] = {"predicted": prediction.name, "loss_documents": len(windows)}
    loss, facts["loss_sem"], facts["loss_tokens"] = mean_loss(model, prediction, windows)
    facts["loss"], table = loss, table_loss(model, prediction, sample)
    why = f"{loss:.2f} nats per token, and a table of token frequencies has {table:.2f}"
    return facts | {"table_loss": table, "foreign": why if loss > table else ""}
