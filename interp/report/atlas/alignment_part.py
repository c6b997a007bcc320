"""Parts of the atlas on encoder-decoders: word alignments, and the loss without each head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.ties import ranked
from interp.report.atlas.rows import FoundPart, between, frame_rows, made_of, stated_weights

if TYPE_CHECKING:
    from interp.alignment.result import HeadAlignments
    from interp.core.result_rows import ResultRows

_ROW = {"emits": "the row that emits a word", "fed": "the row that is fed a word"}


def alignment_part(found: HeadAlignments) -> FoundPart:
    """Return the alignment error of every cross-attention head, in the better of its rows."""
    frame: Any = found.to_pandas()
    notes: dict[str, str] = {}
    for row in ranked(frame, "score", lowest=True).to_dict("records"):
        label = f"cross L{row['layer']}H{row['head']}"
        notes.setdefault(
            label,
            f"Word alignment ({_ROW[row['rows']]}): error rate {row['score']:.3f}"
            f"{between(row['low'], row['high'])}, null {row['null']:.3f}",
        )
    part = _table("Word alignment by cross attention", f"{found}.", frame, found.provenance)
    part["heads"] = [f"cross {head}" for head in found.best().of]
    return _own(part, found.provenance, notes)


def translation_part(found: ResultRows) -> FoundPart:
    """Return what the loss of the target rises by without each head."""
    frame: Any = ranked(found.to_pandas(), "score")
    notes, needed = {}, []
    for row in frame.to_dict("records"):
        label = f"{row['stack']} L{row['layer']}H{row['head']}"
        notes[label] = (
            f"Translation: without it the loss of the target rises by {row['score']:+.3g}"
            f"{between(row['low'], row['high'])} nats per token; confidence "
            f"{row['confidence']:.2f}, position variance {row['position_variance']:.3g}"
        )
        if row["low"] > 0:
            needed.append(label)
    part = _table("Heads of the translation", f"{found}.", frame, found.provenance)
    part["heads"] = needed[:4]
    return _own(part, found.provenance, notes)


def _table(title: str, text: str, frame: Any, made: Any) -> Any:
    same = [name for name in ("stack", "metric") if frame[name].nunique() == 1]
    return {
        "id": "",
        "kind": "alignment",
        "title": title,
        "text": text,
        "heads": [],
        **frame_rows(frame, ("model", *same)),
        "provenance": made_of(made),
    }


def _own(part: Any, made: Any, notes: dict[str, str]) -> FoundPart:
    return FoundPart(part, str(made.get("model_id") or ""), stated_weights(made), notes=notes)
