"""What every result says about the model it comes from and the versions that ran it."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from interp import __version__

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.core.protocols import IdentifiedModel


def model_provenance(model: IdentifiedModel) -> dict[str, Any]:
    """What provenance says about a model and the versions that ran it."""
    unused = {"unused_tensors": list(model.unused)} if model.unused else {}
    return unused | {
        "model_id": model.name,
        "revision": model.revision,
        "content_hash": model.content_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "attention": model.attention,
        "source": model.source,
        "versions": versions(),
    }


def result_provenance(
    model: IdentifiedModel,
    made_by: str,
    prompts: Prompts | None = None,
    *,
    seed: int | None = None,
    engine: str = "stored",
    **options: Any,
) -> dict[str, Any]:
    """Provenance of a result: the model, its prompts, options, seed, engine and versions.

    Args:
        made_by: the public function, such as "interp.lens.logit_lens".
        prompts: None where only weights were read.
        engine: the one that was really used.
        options: arguments that change the numbers.
    """
    about: dict[str, Any] = {"prompts": "none: weights only", "engine": "weights"}
    if prompts is not None:
        about = {"prompts": prompts.design, "prompts_hash": prompts.hash}
        about |= {"n_prompts": len(prompts), "engine": engine}
    about |= {"options": options, "seed": seed, "made_by": made_by}
    return model_provenance(model) | about


def versions() -> dict[str, str]:
    """Versions of what computes results."""
    import torch
    import transformers

    return {
        "interp": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
