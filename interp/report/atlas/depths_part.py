"""Parts of the atlas on depths of an encoder and on sentences of long texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.ties import ranked, within
from interp.report.atlas.rows import FoundPart, frame_rows, made_of, plain_value, stated_weights

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.text.chains.anchors_result import Anchors

RECEIVERS, SENTENCES = 20, 200  # heads that the text names, and sentences of a chain in colours


def decoder_lens_part(found: ResultRows) -> FoundPart:
    """Return the loss of the target where the decoder reads each layer of the encoder."""
    frame: Any = found.to_pandas()
    norm = f"{found.norm} is applied to each depth" if found.norm else "without a final norm"
    text = (
        f"Loss of the target when the decoder reads the encoder's state after each layer ({norm}), "
        f"on {found.per_prompt.shape[1]} prompts: {frame['score'].iloc[0]:.3g} nats per token at "
        f"the embedding, {frame['score'].iloc[-1]:.3g} at the last layer, where the logits equal "
        f"the model's own {within(found.residual)}. A high loss can mean another basis "
        "as well as missing information."
    )
    columns = {name: [plain_value(x) for x in frame[name]] for name in ("score", "low", "high")}
    line: Any = {
        "name": "loss",
        "kind": "result",
        "x": list(range(len(frame))),
        "y": columns["score"],
        "low": columns["low"],
        "high": columns["high"],
    }
    part = _part("lens", "DecoderLens", text, frame, found.provenance)
    part["figure"] = {
        "draw": "curves",
        "x": "encoder layers read (0: the embedding)",
        "y": "nats per token",
        "lines": [line],
    }
    return _of(part, found.provenance)


def anchors_part(found: Anchors) -> FoundPart:
    """Return the sentences of long texts, coloured by what later ones attend to and depend on."""
    texts = []
    for number, name in enumerate(found.chains):
        rows = np.flatnonzero(found.of_chain == number)[:SENTENCES]
        measures = [
            (f"{measure} ({unit})", [plain_value(x) for x in values[rows]])
            for measure, values, unit in _measures(found)
            if np.isfinite(values[rows]).any()
        ]
        sentences = [f"{found.index[row]} {found.texts[row]} " for row in rows]
        texts.append({"name": name, "tokens": sentences, "rows": measures})
    heads = list(dict.fromkeys(str(head) for some in found.receivers for head in some))
    text = "; ".join(_largest(found, name) for name in found.measures)
    part = _part(
        "anchors",
        "Anchors: sentences that later ones depend on",
        f"The sentence with the largest value by each measure, and the mean of its text: {text}.",
        found.to_pandas(),
        found.provenance,
    )
    part["heads"] = heads
    part["figure"] = {"draw": "texts", "texts": texts}
    note = "A receiver head of the anchors: its attention from far behind goes to few sentences"
    return _of(part, found.provenance, dict.fromkeys(heads, note))


def _measures(found: Anchors) -> list[tuple[str, np.ndarray, str]]:
    from interp.text.chains.anchors_result import UNITS

    return [(name, np.asarray(values), UNITS[name]) for name, values in found.values.items()]


def _largest(found: Anchors, measure: str) -> str:
    frame: Any = found[measure].to_pandas().dropna(subset="score")
    if not len(frame):
        return f"{measure}: none"
    row = frame.loc[frame["score"].idxmax()]
    error = "" if row["sem"] != row["sem"] else f" ± {row['sem']:.2g}"
    return (
        f"{measure}: sentence {row['sentence']} of {row['chain']}, {row['score']:.3g}{error} "
        f"{row['unit']}, mean {row['null']:.3g}"
    )


def receivers_part(found: ResultRows) -> FoundPart:
    """Return the heads whose attention from far behind goes to few sentences."""
    frame: Any = ranked(found.to_pandas(), "score")
    notes = {}
    for row in frame.to_dict("records"):
        null = "" if row["null"] != row["null"] else f", {row['null']:.2f} with shuffled tokens"
        error = "" if row["sem"] != row["sem"] else f" ± {row['sem']:.2g}"
        notes[_label(row)] = (
            f"Receiver head: kurtosis {row['score']:.2f}{error} over sentences{null}, on "
            f"{row['n']} texts"
        )
    first = [_label(row) for row in frame.head(RECEIVERS).to_dict("records")]
    part = _part(
        "anchors",
        "Receiver heads",
        f"{found}. Null: the tokens of each text in random order.",
        frame,
        found.provenance,
    )
    part["heads"] = first[:3]
    return _of(part, found.provenance, notes)


def _label(row: Any) -> str:
    label = f"L{row['layer']}H{row['head']}"
    return label if row["stack"] in (None, "decoder") else f"{row['stack']} {label}"


def _part(kind: str, title: str, text: str, frame: Any, made: Any) -> Any:
    same = [name for name in ("stack", "metric") if name in frame and frame[name].nunique() == 1]
    return {
        "id": "",
        "kind": kind,
        "title": title,
        "text": text,
        "heads": [],
        **frame_rows(frame, ("model", *same)),
        "provenance": made_of(made),
    }


def _of(part: Any, made: Any, notes: dict[str, str] | None = None) -> FoundPart:
    return FoundPart(part, str(made.get("model_id") or ""), stated_weights(made), notes=notes or {})
