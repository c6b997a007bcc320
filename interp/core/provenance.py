"""What every result says about the model it comes from and the versions that ran it."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from interp import __version__

if TYPE_CHECKING:
    from interp.core.protocols import IdentifiedModel


def model_provenance(model: IdentifiedModel) -> dict[str, Any]:
    """What provenance says about a model and the versions that ran it."""
    import torch
    import transformers

    unused = {"unused_tensors": list(model.unused)} if model.unused else {}
    return unused | {
        "model_id": model.name,
        "revision": model.revision,
        "content_hash": model.content_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "attention": model.attention,
        "source": model.source,
        "versions": {
            "interp": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }
