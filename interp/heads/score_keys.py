"""Keys of stored scores: everything that changes their numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.core.prompts import Prompts
from interp.core.store import Key
from interp.heads.declaration import BoundAnalysis
from interp.model.content import tensors_hash
from interp.model.identity import identity_of
from interp.model.model import Model
from interp.model.source_code import code_of


def score_keys(
    model: Model,
    metrics: Sequence[BoundAnalysis],
    prompts: Any,
    options: Mapping[str, Any],
    engine: str,
    *,
    by_cluster: bool,
) -> dict[str, Key]:
    """Return the key of each metric's scores, by its label."""
    about = identity_of(model)
    weights, keys = about.pop("content_hash"), {}
    for metric in metrics:
        code = code_of([metric.analysis.function])
        settings = about | dict(options) | {"metric_code": code}
        if metric.patterned():
            texts = isinstance(prompts, Prompts)
            settings["prompts"] = prompts.hash if texts else tensors_hash(prompts)
            settings["engine"] = engine
        if by_cluster:
            settings["by_cluster"] = True
        if files := _files(metric):
            settings["files"] = files
        keys[metric.label] = Key(model.name, weights, metric.label, settings)
    return keys


def _files(metric: BoundAnalysis) -> dict[str, str]:
    """Return the sha256 of the files that options name, since their content may change."""
    hashes = {}
    for value in metric.options.values():
        for name in value.split("+") if isinstance(value, str) else ():
            if name and Path(name).is_file():
                hashes[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return hashes
