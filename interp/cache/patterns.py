"""Gates of key-value heads in DuoAttention's files: read, written, and used to cut caches.

A folder holds `full_attention_heads.tsv`, layers by key-value heads, tab separated, without a
header, values slightly outside 0 to 1 being possible, and `config.json` with `sink_size` and
`recent_size`. There `recent_size` counts tokens before the current one, so it is one less than
`Window.recent`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.cache.windows import KVHead, Window, kv_heads
from interp.core.errors import OptionError, StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.result import Result
from interp.model.content import model_provenance
from interp.model.model_argument import one_model

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd


GATES, CONFIG = "full_attention_heads.tsv", "config.json"


@dataclass(frozen=True, eq=False, repr=False)
class GatePattern(Result):
    """One gate per key-value head, and the window of heads whose cache is cut.

    Args:
        kv: the key-value heads, in order of layers.
        gates: the gate of each, 0 to 1.
        window: what a cut cache keeps; None for a file of gates without a config.
    """

    kv: tuple[KVHead, ...]
    gates: tuple[float, ...]
    window: Window | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "a file holds one gate per head"
    _units = ("stack", "layer", "kv_head")
    _holds = (KVHead, Window)
    _per_row = ("kv", "gates")

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame([h._asdict() for h in self.kv], columns=list(self._units))
        return frame.assign(score=list(self.gates), metric="gate", unit="gate")

    def windows(self, cut: float, window: Window | None = None) -> dict[KVHead, Window]:
        """Return the heads with the lowest gates and the window that each keeps.

        Args:
            cut: share of all key-value heads whose cache is cut; ties are cut in order of layers.
            window: what they keep; by default that of the file.

        Raises:
            OptionError: the share is out of range, or there is no window.
        """
        kept = window or self.window
        if not 0 < cut <= 1 or kept is None:
            raise OptionError(
                f"cut={cut}, window={kept}: give a share above 0 and at most 1, and a Window where "
                "the file has no config"
            )
        order = np.argsort(np.array(self.gates), kind="stable")[: round(cut * len(self.kv))]
        return {self.kv[at]: kept for at in sorted(order.tolist())}

    def __repr__(self) -> str:
        return f"GatePattern of {len(self.kv)} key-value heads, window {self.window}"


def read_pattern(path: str | PathLike, model: Any) -> GatePattern:
    """Read gates in DuoAttention's layout, for the heads of a model.

    Args:
        path: a folder, or the `.tsv` file itself.
        model: the model that the gates belong to; its heads name the rows.

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
    gates = np.clip(table, 0, 1).reshape(-1)
    made = model_provenance(read) | {"made_by": "interp.cache.read_pattern"}
    return GatePattern(heads, tuple(gates.tolist()), window, made | {"file": str(file)})


def _window_of(path: Path) -> Window:
    try:
        settings = json.loads(read_bytes(path))
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
