"""Text embeddings of a model with an image and a text tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.tokens import encoded_text
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def text_embeddings(
    model: Model, texts: Sequence[str] | Mapping[str, Tensor]
) -> Float[np.ndarray, "text d"]:
    """Compute the embeddings of texts in the space of the image embeddings, normalised.

    Args:
        model: a model of two towers, such as CLIP or SigLIP.
        texts: texts, or `{"input_ids": ...}` of a model without a tokenizer.

    Raises:
        PromptError: the model has no text tower, or texts are given and it has no tokenizer.
    """
    module: Any = model.module
    if not hasattr(module, "get_text_features"):
        raise PromptError(
            f"{model.name} has no text tower; give a model of two towers, such as CLIP or SigLIP"
        )
    if isinstance(texts, Mapping):
        inputs = model.inputs(texts)
    elif model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer; give token ids: {{'input_ids': ...}}")
    else:
        length = module.config.text_config.max_position_embeddings
        # SigLIP was trained on texts padded to its whole context
        padding = "max_length" if "Siglip" in type(module).__name__ else True
        inputs = model.inputs(
            dict(
                encoded_text(
                    model.tokenizer,
                    list(texts),
                    return_tensors="pt",
                    padding=padding,
                    truncation=True,
                    max_length=length,
                )
            )
        )
    with torch.no_grad():
        embeddings = module.get_text_features(**inputs)
    embeddings = getattr(embeddings, "pooler_output", embeddings).double()
    return (embeddings / embeddings.norm(dim=-1, keepdim=True)).cpu().numpy()
