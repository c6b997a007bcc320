"""Gates of key-value heads in DuoAttention's files: read, written, and used to cut caches.

A folder holds `full_attention_heads.tsv`, layers by key-value heads, tab separated, without a
header, values slightly outside 0 to 1 being possible, and `config.json` with `sink_size` and
`recent_size`. There `recent_size` counts tokens before the current one, so it is one less than
`Window.recent`.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.cache.windows import KVHead, Window, kv_heads
from interp.core.documents import parse_json
from interp.core.errors import OptionError, StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.ties import ordered
from interp.model.content import model_provenance
from interp.model.model_argument import one_model

if TYPE_CHECKING:
    from os import PathLike


GATES, CONFIG = "full_attention_heads.tsv", "config.json"


def windows_of(
    pattern: ResultRows, cut: float, window: Window | None = None
) -> dict[KVHead, Window]:
    """Return the heads with the lowest gates and the window that each keeps."""
    chosen = window or (None if pattern.window is None else Window(*pattern.window))
    if not 0 < cut <= 1 or chosen is None:
        raise OptionError(
            f"cut={cut}, window={chosen}: give a share above 0 and at most 1, and a Window where "
            "the file has no config"
        )
    places = zip(*(pattern.columns[name] for name in pattern.units), strict=True)
    kv = [KVHead(str(stack), int(layer), int(head)) for stack, layer, head in places]
    order = ordered(pattern.score, lowest=True)[: round(cut * len(kv))]
    return {kv[at]: chosen for at in sorted(order)}


def read_pattern(path: str | PathLike, model: Any) -> ResultRows:
    """Read gates in DuoAttention's layout, for the heads of a model.

    Args:
        path: a folder, or the `.tsv` file itself.
        model: the model that the gates belong to; its heads name the rows.

    Returns:
        One row per key-value head, in order of layers: stack, layer, kv_head and score, the gate, 0
        to 1. Fact: window, the first and the recent tokens that a cut cache keeps; None for a file
        of gates without a config. `windows_of` lists the caches to cut.

    Raises:
        StoreError: a file cannot be read, or does not hold numbers.
        OptionError: the gates are of another number of layers or key-value heads.
    """
    read = one_model(model)
    heads = kv_heads(read)
    path = Path(path)
    file = path if path.suffix == ".tsv" else path / GATES
    try:
        table = np.loadtxt(io.StringIO(read_bytes(file).decode()), delimiter="\t", ndmin=2)
    except ValueError as error:
        raise StoreError(
            f"{file} does not hold gates: {error}; expected one line per layer with one number per "
            "key-value head, separated by tabs"
        ) from error
    places = sorted({(h.stack, h.layer) for h in heads})
    sizes = [sum((h.stack, h.layer) == place for h in heads) for place in places]
    if len(table) != len(places) or set(sizes) != {table.shape[1]}:
        raise OptionError(
            f"{file} has gates of {len(table)} layers x {table.shape[1]} key-value heads; "
            f"{read.name} has {len(places)} x {max(sizes)}; give the pattern of this model"
        )
    window, settings = None, file.with_name(CONFIG)
    if settings.exists():
        window = _window_of(settings)
    gates = np.clip(table, 0, 1).reshape(-1).tolist()
    provenance = model_provenance(read) | {"made_by": "interp.cache.read_pattern"}
    return gate_rows(heads, gates, window, provenance | {"file": str(file)})


def gate_rows(
    heads: Sequence[KVHead], gates: Sequence[float], window: Window | None, made: Mapping[str, Any]
) -> ResultRows:
    """Return the gate of each key-value head, 0 to 1; see `read_pattern`."""
    units = ("stack", "layer", "kv_head")
    columns = dict(zip(units, zip(*heads, strict=True), strict=True)) | {"score": list(gates)}
    size = None if window is None else dataclasses.astuple(window)
    facts = {"metric": "gate", "unit": "gate", "window": size}
    why = "a file holds one gate per head"
    return ResultRows("GatePattern", columns, units, made, facts, why_no_per_prompt=why)


def _window_of(path: Path) -> Window:
    try:
        settings = parse_json(read_bytes(path))
        return Window(int(settings["sink_size"]), int(settings["recent_size"]) + 1)
    except (ValueError, KeyError, TypeError, OptionError) as error:
        raise StoreError(
            f"{path} does not hold the sizes of a window ({error}); expected the numbers "
            "'sink_size' and 'recent_size'"
        ) from error


def write_pattern(
    folder: str | PathLike, heads: Sequence[KVHead], gates: Sequence[float], window: Window
) -> Path:
    """Write gates in DuoAttention's layout; return the folder.

    Raises:
        OptionError: layers have different numbers of key-value heads, or the window keeps only the
            current token, which the layout cannot state.
        StoreError: the folder cannot be written.
    """
    if window.recent < 2:
        raise OptionError(
            "DuoAttention's recent_size counts tokens before the current one and cannot be 0; use "
            "a window of at least 2 recent tokens"
        )
    layers: dict[tuple[str, int], list[float]] = {}
    for head, gate in zip(heads, gates, strict=True):
        layers.setdefault((head.stack, head.layer), []).append(float(gate))
    if len({len(row) for row in layers.values()}) > 1:
        raise OptionError(
            "the layers have different numbers of key-value heads, and DuoAttention's layout has "
            "one row of equal length per layer"
        )
    text = io.StringIO()
    np.savetxt(text, np.array(list(layers.values())), delimiter="\t")
    folder = Path(folder)
    write_atomically(folder / GATES, text.getvalue().encode())
    sizes = {"sink_size": window.sink, "recent_size": window.recent - 1}
    write_atomically(folder / CONFIG, (json.dumps(sizes, indent=1) + "\n").encode())
    return folder


def gate_pattern_summary(found: ResultRows) -> str:
    """Return the number of gates, and the window of heads whose cache is cut."""
    window = "none" if found.window is None else "+".join(map(str, found.window))
    return f"GatePattern of {len(found)} key-value heads, window {window}"


present("GatePattern", summary=gate_pattern_summary)
