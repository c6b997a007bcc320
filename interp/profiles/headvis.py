"""A profile written as a tree of HeadVis, in the form that Neuronpedia writes and reads."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError
from interp.core.files import write_atomically
from interp.core.json_document import plain
from interp.profiles.behaviours import ON

if TYPE_CHECKING:
    from interp.profiles.result import Profile

CONFIG, SCATTER, HEADS = "config.json", "scatter_data.json", "heads"
PATTERN = "L{layer}H{head}.json"
INTERVALS = 5
_APART = ("entry:", "line:", "explained_rules_part_")
"""Metrics that few heads have, or that repeat another."""
_SHOWN = ("needs_context", "explained_rules", "explained_position")  # beside the sequences
_GAP = "…"  # token for those that are left out

LayerHead = tuple[int, int]  # layer and head


def write_headvis(profile: Profile, folder: str | os.PathLike, *, stack: str | None = None) -> Path:
    """Write a profile as a HeadVis tree, for viewers that read it.

    The numbers of the scatter are those of the profile under its own names, and estimate the
    corpus. Sequences are its strong and typical examples, each with the row of one query, its
    largest keys alone; `interval` counts fifths of the queries by their largest attention off the
    sink, 5 the highest. Surprising examples have no place in the format. Tables of tokens and the
    histogram of distances are left out: of a few examples they would estimate nothing. Sentence,
    status and rules stand in each head's file under `interp`, which other readers pass over.

    Args:
        profile: the profile.
        folder: the folder, which must be empty or not exist.
        stack: attention stack to write, where the model has several; a tree has one.

    Returns:
        The folder.

    Raises:
        OptionError: the profile has several stacks and none is chosen, or the folder is not empty.
        StoreError: a file cannot be written.
    """
    out = Path(folder)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OptionError(f"{out} exists already and is not an empty folder; give another name")
    stacks = list(dict.fromkeys(str(one["stack"]) for one in profile.descriptions))
    if stack is None and len(stacks) > 1:
        raise OptionError(
            f"a HeadVis tree has one attention stack, and the profile has {', '.join(stacks)}; "
            "choose one with stack"
        )
    chosen = stacks[0] if stack is None else stack
    if chosen not in stacks:
        raise OptionError(f"the profile has no stack {chosen}; it has {', '.join(stacks)}")
    heads = [one for one in profile.descriptions if one["stack"] == chosen]
    numbers, texts = _numbers(profile, chosen)
    _write(out / CONFIG, _config(profile, [_place(one) for one in heads], texts))
    _write(
        out / SCATTER,
        [
            {"layer": layer, "head": head}
            | {name: numbers[layer, head].get(name) for name in texts}
            for layer, head in map(_place, heads)
        ],
    )
    _write(out / "server_config.json", {})
    _write(out / "attributions" / "manifest.json", {})
    for one in heads:
        layer, head = _place(one)
        content = _head(profile, one, numbers[layer, head])
        _write(out / HEADS / f"L{layer}H{head}.json", content)
    return out


def _write(path: Path, content: Any) -> None:
    write_atomically(path, json.dumps(content, ensure_ascii=False, allow_nan=False).encode())


def _place(one: Mapping[str, Any]) -> LayerHead:
    return int(one["layer"]), int(one["head"])


def _numbers(
    profile: Profile, stack: str
) -> tuple[dict[LayerHead, dict[str, float | None]], dict[str, str]]:
    """Return the numbers of every head by name, and what each name means."""
    by_head: dict[LayerHead, dict[str, float | None]] = {}
    texts: dict[str, str] = {}
    for row in profile.rows:
        name = str(row["metric"])
        if row["stack"] == stack and not name.startswith(_APART):
            by_head.setdefault(_place(row), {})[name] = _rounded(row["score"])
            texts[name] = f"{name.replace('_', ' ')}, {row['unit']}"
    behaviours = profile.behaviours
    if behaviours is None:
        return by_head, texts
    on = [i for i, name in enumerate(behaviours.names) if name.startswith(ON)]
    texts |= {
        behaviours.names[i]: f"attention {behaviours.phrases[i]}, share off the sink" for i in on
    }
    for at, one in enumerate(profile.descriptions):
        if one["stack"] == stack:
            values = {behaviours.names[i]: _rounded(behaviours.values[at, i]) for i in on}
            by_head.setdefault(_place(one), {}).update(values)
    return by_head, texts


def _rounded(x: Any) -> float | None:
    return round(float(x), 4) if math.isfinite(float(x)) else None


def _config(
    profile: Profile, heads: Sequence[LayerHead], texts: Mapping[str, str]
) -> dict[str, Any]:
    """Return what a viewer reads first."""
    provenance = profile.provenance
    options = provenance.get("options", {})
    model = str(provenance.get("model_id") or provenance.get("model") or "")
    return {
        "model_name": model,
        "np_model_id": model.rsplit("/", 1)[-1].lower(),
        "dataset_name": str(provenance.get("corpus", "")),
        "heads": [list(place) for place in heads],
        "n_layers": 1 + max(layer for layer, _ in heads),
        "n_heads": 1 + max(head for _, head in heads),
        "n_intervals": INTERVALS,
        "metrics": list(texts),
        "metric_descriptions": dict(texts),
        "head_data_pattern": PATTERN,
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [],
        "custom_tables": [],
        "statistics_display": {
            name: {"label": name.replace("_", " "), "format": "default"}
            for name in ("n_samples", *_SHOWN)
        },
        "pipeline_config": {
            "made_by": "interp.profiles.write_headvis",
            "dataset_name": str(provenance.get("corpus", "")),
            "n_sequences": provenance.get("documents_used"),
            "actual_sequences_processed": provenance.get("documents_used"),
            "seq_len": options.get("max_length"),
            "dtype": str(provenance.get("dtype", "")),
            "attn_implementation": str(provenance.get("attention", "")),
            "sample_seed": provenance.get("seed"),
            "profile": plain(dict(provenance)),
        },
    }


def _head(
    profile: Profile, one: Mapping[str, Any], numbers: Mapping[str, float | None]
) -> dict[str, Any]:
    """Return the file of one head."""
    sequences = []
    examples = [x for x in profile.examples_of(one["name"]) if x["kind"] != "surprise"]
    typical = [x for x in examples if x["kind"] == "uniform"]
    for at, example in enumerate(examples):
        # typical examples are one of each fifth, the largest first
        place = typical.index(example) if example["kind"] == "uniform" else 0
        interval = INTERVALS - place * INTERVALS // max(len(typical), 1)
        sequences.append({"sequence_id": at, "interval": interval, **_sequence(example)})
    return {
        "sequences": sequences,
        "statistics": {"n_samples": len(sequences), **{x: numbers.get(x) for x in _SHOWN}},
        "interp": plain(
            {
                "status": one["status"],
                "sentence": one["sentence"],
                "entries": [
                    {k: v for k, v in x.items() if k != "examples"} for x in one["entries"]
                ],
            }
        ),
    }


def _sequence(example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens of an example, with one for each gap, and the row of its query."""
    tokens: list[str] = []
    moved: dict[int, int] = {}
    for at, token in enumerate(example["tokens"]):
        tokens += [_GAP] if at in example["gaps"] else []
        moved[at] = len(tokens)
        tokens.append(str(token))
    keys = sorted((moved[int(key)], round(float(mass), 4)) for key, mass in example["keys"])
    query, n = moved[int(example["query"])], len(tokens)
    return {
        "tokens": tokens,
        "attention_indices": [query * n + key for key, _ in keys],
        "attention_values": [mass for _, mass in keys],
        "seq_len": n,
        "max_activation": max((mass for _, mass in keys), default=0.0),
    }
