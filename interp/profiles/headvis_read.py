"""Trees of HeadVis read for pages: numbers per head, and sampled sequences as examples.

A tree is other people's data: every file is checked against its expected form and a limit of size,
and no name in it leads to a file outside of its folder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.errors import StoreError
from interp.profiles.examples import example_context
from interp.profiles.headvis import CONFIG, HEADS, PATTERN, SCATTER
from interp.profiles.result import UNITS

BYTES = 64_000_000  # of one file
KEYS = 3  # largest keys of a row that are shown
MOST = 50_000  # heads, and entries of a list
READ = 2048  # heads whose sequences are read; a larger tree shows numbers alone
SAMPLE = "in the kept sequences alone, no estimate of the corpus"
"""The note on tables that Neuronpedia makes from the sequences that it keeps."""
_METRICS = {
    "self_attention_score": "Attention of queries on themselves; query 0, always 1, is included.",
    "prev_token_score": "Attention on the token before, mean over queries.",
    "pattern_entropy": "Entropy of the attention in nats, the sink included.",
    "qk_distance": "Mean distance from query to key in tokens, the sink included.",
    "qk_distance_variance": "Variance of that distance, the sink included.",
    "induction_score": "Attention after earlier copies, over queries with an earlier copy; of a "
    "token that repeats at once it counts attention on itself.",
}
"""The quantities that the metrics of Neuronpedia measure, by their code."""
_UNITS = UNITS | {
    "pattern_entropy": "nats",
    "qk_distance": "tokens",
    "qk_distance_variance": "tokens²",
}
_TOKENS = 12  # of a table


@dataclass(frozen=True)
class HeadVisTree:
    """Heads of a tree in the form in which pages read a profile: no sentences, no errors.

    Args:
        rows: a number per head and metric of the scatter.
        descriptions: of every head its name, and tables of its kept sequences.
        examples: of sequences of every head the query with the largest weight off key 0.
        provenance: model, corpus and settings that the tree states.
    """

    rows: tuple[Mapping[str, Any], ...]
    descriptions: tuple[Mapping[str, Any], ...]
    examples: tuple[Mapping[str, Any], ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)


def is_headvis(folder: Path) -> bool:
    """Return True for a folder with the files of a HeadVis tree."""
    return (folder / CONFIG).is_file() and (folder / SCATTER).is_file()


def read_headvis(folder: str | os.PathLike) -> HeadVisTree:
    """Read a HeadVis tree, such as Neuronpedia serves it or `write_headvis` wrote it.

    Raises:
        StoreError: a file is missing, too large, outside of the folder, or has another form.
    """
    place = Path(folder)
    config = _object(_json(place / CONFIG, place), f"{place / CONFIG}")
    scatter = _list(_json(place / SCATTER, place), f"{place / SCATTER}")
    pattern = _text(config.get("head_data_pattern", PATTERN), "head_data_pattern", place / CONFIG)
    texts = _object(
        config.get("metric_descriptions") or {}, f"{place / CONFIG}: metric_descriptions"
    )
    settings = config.get("pipeline_config")
    settings = settings if isinstance(settings, dict) else {}
    n = settings.get("actual_sequences_processed") or settings.get("n_sequences") or 1
    n = n if isinstance(n, int) and n > 0 else 1
    rows, descriptions, examples = [], [], []
    for at, one in enumerate(scatter):
        where = f"{place / SCATTER}: row {at}"
        row = _object(one, where)
        layer, head = (_whole(row.get(name), f"{where}: {name}") for name in ("layer", "head"))
        name = f"L{layer}H{head}"
        about = {"stack": "decoder", "layer": layer, "head": head}
        rows += [
            about | _number(metric, value, n, f"{where}: {metric}")
            for metric, value in row.items()
            if metric not in about
        ]
        facts: dict[str, Any] = {}
        file = pattern.replace("{layer}", str(layer)).replace("{head}", str(head))
        if len(scatter) <= READ and _inside(place, file).is_file():
            document = _json(_inside(place, file), place)
            facts, shown = _head(_object(document, f"{HEADS}/{file}"), f"{place / HEADS / file}")
            examples += [{"name": name, **x} for x in shown]
        descriptions.append(
            {**about, "name": name, "status": "", "sentence": "", "entries": []} | facts
        )
    if not rows:
        raise StoreError(f"{place / SCATTER} has no head with a number; expected a row per head")
    return HeadVisTree(
        tuple(rows),
        tuple(descriptions),
        tuple(examples),
        {
            "model_id": str(config.get("model_name", "model")),
            "corpus": str(config.get("dataset_name", "")),
            "documents_used": n,
            "made_by": "a HeadVis tree",
            "metric_texts": _METRICS | {k: str(v) for k, v in texts.items() if k not in _METRICS},
            "settings": {k: v for k, v in settings.items() if isinstance(v, (str, int, float))},
        },
    )


def _inside(folder: Path, name: str) -> Path:
    """Return the file of a head; raises StoreError for one outside of the tree."""
    path = folder / HEADS / name
    if Path(name).name != name or not path.resolve().is_relative_to(folder.resolve()):
        raise StoreError(
            f"{folder / CONFIG}: head_data_pattern names {name!r}, which is not a file in {HEADS}"
        )
    return path


def _json(path: Path, folder: Path) -> Any:
    """Read a file of the tree; raises StoreError where it is missing, too large or not JSON."""
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise StoreError(f"{path} is a link to a file outside of the tree")
        size = path.stat().st_size
        if size > BYTES:
            raise StoreError(
                f"{path} has {size / 1e6:.0f} MB; files of a tree have at most {BYTES / 1e6:.0f} MB"
            )
        return parse_json(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON in UTF-8: {error}") from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StoreError(f"{where} is {_kind(value)}; expected an object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST:
        expected = f"expected a list of at most {MOST:,} entries"
        raise StoreError(f"{where} is {_kind(value)}; {expected}")
    return value


def _kind(value: Any) -> str:
    return f"a list of {len(value):,}" if isinstance(value, list) else f"a {type(value).__name__}"


def _text(value: Any, name: str, where: Path) -> str:
    if not isinstance(value, str):
        raise StoreError(f"{where}: {name} is {_kind(value)}; expected a text")
    return value


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST:
        raise StoreError(f"{where} is {str(value)[:40]!r}; expected a whole number from 0")
    return value


def _float(value: Any, where: str) -> float:
    """Return a number; NaN for null."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise StoreError(f"{where} is {str(value)[:40]!r}; expected a number or null")
    return float(value)


def _number(metric: str, value: Any, n: int, where: str) -> dict[str, Any]:
    score = _float(value, where)
    unit = _UNITS.get(metric, "share of attention" if metric in _METRICS else "")
    nan = math.nan
    return {
        "metric": metric,
        "score": score if math.isfinite(score) else nan,
        "low": nan,
        "high": nan,
        "null": nan,
        "n": n,
        "unit": unit,
    }


def _head(found: dict[str, Any], where: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the tables of a head under names that say what they are, and its examples."""
    facts: dict[str, Any] = {}
    for key in ("top_query_tokens", "top_key_tokens"):
        rows = [
            _object(x, f"{where}: {key}") for x in _list(found.get(key) or [], f"{where}: {key}")
        ]
        shown = [[str(x.get("token", "")), _float(x.get("weight"), where)] for x in rows[:_TOKENS]]
        if shown:
            facts[f"{key} ({SAMPLE})"] = shown
    distances = found.get("qk_distance_histogram")
    if distances:
        one = _object(distances, f"{where}: qk_distance_histogram")
        edges, values = (
            [_float(x, where) for x in _list(one.get(k, []), f"{where}: {k}")]
            for k in ("bin_edges", "bin_values")
        )
        bins = [[f"from {a:g}", v] for a, v in zip(edges, values, strict=False) if v > 0]
        facts[f"attention by distance ({SAMPLE})"] = bins
    sequences = _list(found.get("sequences") or [], f"{where}: sequences")
    read = [_sequence(one, f"{where}: sequence {at}") for at, one in enumerate(sequences)]
    real = [one for one in read if one is not None]
    real.sort(key=lambda one: (-one["interval"], -one["value"]))
    return facts, [_shown(one, at, len(real)) for at, one in _chosen(real)]


def _chosen(found: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Return the two highest sequences, one in the middle, and the lowest."""
    n = len(found)
    return [(at, found[at]) for at in dict.fromkeys((0, 1, n // 2, n - 1)) if 0 <= at < n]


def _shown(one: dict[str, Any], at: int, n: int) -> dict[str, Any]:
    return {
        "kind": f"interval {one['interval']}",
        "document": f"sequence {one['id']}, {at + 1} of {n}",
        "surprise": None,
        **example_context(one["tokens"], one["query"], one["keys"]),
    }


def _sequence(given: Any, where: str) -> dict[str, Any] | None:
    """Return tokens and the row with the largest weight of one sequence; None without a weight."""
    one = _object(given, where)
    tokens = [_text(x, "token", Path(where)) for x in _list(one.get("tokens"), f"{where}: tokens")]
    n = _whole(one.get("seq_len", len(tokens)), f"{where}: seq_len")
    places = [_index(x, n, where) for x in _list(one.get("attention_indices"), f"{where}: indices")]
    values = [_float(x, where) for x in _list(one.get("attention_values"), f"{where}: values")]
    if len(places) != len(values):
        raise StoreError(
            f"{where} has {len(places)} attention_indices and {len(values)} attention_values; "
            "expected as many"
        )
    if n > len(tokens):
        raise StoreError(f"{where}: seq_len is {n} for {len(tokens)} tokens")
    cells = zip(values, places, strict=True)
    pairs = [(v, q, k) for v, (q, k) in cells if q > 0 and k > 0 and not math.isnan(v)]
    if not pairs:
        return None
    _, query, _ = max(pairs)
    row = sorted(((v, k) for v, q, k in pairs if q == query), reverse=True)[:KEYS]
    return {
        "id": str(one.get("sequence_id", "")),
        "interval": _whole(one.get("interval", 0), f"{where}: interval"),
        "value": row[0][0],
        "tokens": tokens,
        "query": query,
        "keys": [(k, v) for v, k in row],
    }


def _index(value: Any, n: int, where: str) -> tuple[int, int]:
    """Return query and key of a flat index."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < n * n:
        raise StoreError(
            f"{where}: attention index {str(value)[:40]!r} lies outside of {n} x {n} pairs"
        )
    return divmod(value, n)
