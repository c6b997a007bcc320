"""Common parts of the scripts that train bundled models: their pace, and the files they write."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

FRONT_MATTER = """---
license: mit
language: en
library_name: transformers
pipeline_tag: text-generation
---
"""
"""What a card of a language model begins with."""


def pace(step: int, steps: int, warmup: int) -> float:
    """The share of the learning rate at a step: a linear rise, then half a cosine down to 0.02."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


@dataclass
class Lesson:
    """The training of one model, timed from when this is made."""

    name: str
    recipe: Any
    seed: int
    threads: int
    began: float = field(default_factory=time.monotonic)

    def over(
        self,
        model: Any,
        reader: Any,
        curve: list[list[float]],
        scores: dict[str, Any],
        card: Callable[[dict[str, Any]], str],
        out: Path,
    ) -> dict[str, Any]:
        """Write model, tokenizer, training record and model card; returns the record.

        Args:
            reader: the tokenizer, or what else prepares the model's inputs and can be saved.
        """
        trained = save_rounded(model, out)
        reader.save_pretrained(out)
        words = getattr(model.config, "vocab_size", None)
        record = {
            "model": self.name,
            "seed": self.seed,
            "recipe": asdict(self.recipe),
            **({} if words is None else {"vocab": words}),
            "parameters": sum(p.numel() for p in model.parameters()),
            "versions": versions(),
            **trained,
            "seconds": round(time.monotonic() - self.began, 1),
            "threads": self.threads,
            "loss_curve": curve,
            "scores": scores,
        }
        told(record, card(record), out)
        return record


def versions() -> dict[str, str]:
    """Return the versions on which the weights depend, besides the seed."""
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def save_rounded(model: Any, out: Path, stored: str = "float16") -> dict[str, str]:
    """Save a model with its weights rounded; it is loaded, and computes, in float32.

    Args:
        stored: data type of the stored weights. With bfloat16 they take a third less room packed.

    Returns:
        For the training record: the hash of the weights as trained in float32, the data type in
        which they are stored, and the hash of the stored file.
    """
    model.save_pretrained(out)
    trained, path = weights_sha256(out), out / "model.safetensors"
    rounded = {name: value.to(getattr(torch, stored)) for name, value in load_file(path).items()}
    save_file(rounded, path, metadata={"format": "pt"})
    return {"trained_sha256": trained, "stored": stored, "weights_sha256": weights_sha256(out)}


def weights_sha256(folder: Path) -> str:
    """Hash of the weights as they lie there."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def told(record: dict[str, Any], card: str, out: Path) -> None:
    """Write the training record and the model card."""
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (out / "README.md").write_text(card, encoding="utf-8")


def pair(found: list[float]) -> str:
    """A mean with its standard error."""
    return f"{found[0]:.4f} ± {found[1]:.4f}"
