"""What every script that trains a small bundled model does alike: its pace, and what it leaves."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def pace(step: int, steps: int, warmup: int) -> float:
    """The share of the learning rate at a step: a linear rise, then half a cosine down to 0.02."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


def written(model: Any, tokenizer: Any, out: Path) -> dict[str, Any]:
    """Write model and tokenizer; what the training record says of them."""
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
        },
        "weights_sha256": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
    }


def told(record: dict[str, Any], card: str, out: Path) -> None:
    """Write the training record and the model card."""
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (out / "README.md").write_text(card, encoding="utf-8")


def pair(found: list[float]) -> str:
    """A mean with its standard error."""
    return f"{found[0]:.4f} ± {found[1]:.4f}"
