"""Parts of the atlas with pictures: a pair of sentences, times of words, maps over images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.report.atlas.rows import (
    FoundPart,
    between,
    frame_rows,
    made_of,
    plain_value,
    stated_weights,
)

if TYPE_CHECKING:
    from interp.alignment.pictures import PairAlignment
    from interp.core.result_rows import ResultRows

IMAGES, SIDE = 4, 96  # shown of the images of a result, and pixels of each side


def pair_part(found: PairAlignment) -> FoundPart:
    """Return how one head aligns one sentence pair, as a matrix and as lines."""
    label = f"cross {found.head}"
    figure: Any = {
        "draw": "alignment",
        "layer": found.head.layer,
        "head": found.head.head,
        "row": found.rows,
        "source": list(found.source),
        "target": list(found.target),
        "weights": plain_value(found.weights),
        "links": plain_value(sorted(found.links)),
        "sure": None if found.sure is None else plain_value(sorted(found.sure)),
        "possible": plain_value(sorted(found.possible)),
    }
    part = _part("alignment", "Alignment of one sentence pair", f"{found}.", found)
    part |= {"heads": [label], "figure": figure}
    error = "" if found.sure is None else f", alignment error rate {found.error:.3f}"
    return _of(part, found, {label: f"Alignment of {' '.join(found.target)[:60]}{error}"})


def word_times_part(found: ResultRows) -> FoundPart:
    """Return when the words of the first recording are spoken, with its spectrogram."""
    mine = np.flatnonzero(found.of_recording == 0)
    starts = zip(found.score[mine].tolist(), found.token[mine].tolist(), strict=True)
    figure: Any = {
        "draw": "sound",
        "bands": plain_value(found.bands),
        "attention": plain_value(found.attention),
        "tokens": list(found.tokens),
        "seconds": found.sound,
        "title": found.attention_title,
        "starts": [*map(list, starts)],
    }
    labels = [f"cross {head}" for head in found.of]
    error = " The error of a start is a jackknife over the heads." if len(found.of) > 1 else ""
    text = f"{found}. The picture is {found.recordings[0]}; dots are found starts.{error}"
    part = _part("speech", "Times of spoken words", text, found)
    part |= {"heads": labels, "figure": figure}
    note = f"Times of spoken words in {found.recordings[0]}, beside its spectrogram"
    return _of(part, found, dict.fromkeys(labels, note))


def time_errors_part(found: ResultRows) -> FoundPart:
    """Return the error of token times by every cross-attention head, and by sets of heads."""
    frame: Any = found.to_pandas()
    notes, sets = {}, []
    for heads, row in zip(found.of, frame.to_dict("records"), strict=True):
        sentence = (
            f"{row['score']:.3f}{between(row['low'], row['high'])} s from the gold times, "
            f"{row['null']:.3f} s with its rows in random order (p {row['p_holm']:.2g} by Holm)"
        )
        if row["heads_read"] == str(heads[0]):
            notes[f"cross {heads[0]}"] = f"Times of speech: {sentence}"
        else:
            names = ", ".join(f"cross {head}" for head in heads)
            sets.append((row["heads_read"], names, sentence, heads))
    text = (
        f"Mean distance of start times to gold times on {len(found.judged)} judged recordings; "
        f"evenly spaced tokens {found.evenly_spaced:.3f} s."
    )
    text += "".join(
        f" {name.capitalize()} ({names}): {sentence}." for name, names, sentence, _ in sets
    )
    part = _part("speech", "Error of times of speech", text, found)
    part["heads"] = list(dict.fromkeys(f"cross {head}" for *_, heads in sets for head in heads))
    return _of(part, found, notes)


def maps_part(found: ResultRows) -> FoundPart:
    """Return maps over the first images."""
    from interp.vision.overlay import reduced_image

    images = [
        {
            "pixels": plain_value(np.round(reduced_image(pixels, SIDE), 3)),
            "maps": {
                name: plain_value(maps[at])
                for name, maps in zip(found.methods, found.maps, strict=True)
            },
        }
        for at, pixels in enumerate(found.pixels[:IMAGES])
    ]
    units = ", ".join(
        f"{name} ({unit})" for name, unit in zip(found.methods, found.method_units, strict=True)
    )
    text = f"{found}: {units}; each map on its own colour scale. A map says where a model looks, "
    text += "not what it uses."
    part = _part("maps", "Maps over images", text, found)
    part["figure"] = {"draw": "maps", "images": images}
    return _of(part, found, {})


def _part(kind: str, title: str, text: str, found: Any) -> Any:
    rows = frame_rows(found.to_pandas(), ("model", "metric", "stack"))
    return {
        "id": "",
        "kind": kind,
        "title": title,
        "text": text,
        "heads": [],
        **rows,
        "provenance": made_of(found.provenance),
    }


def _of(part: Any, found: Any, notes: dict[str, str]) -> FoundPart:
    made = found.provenance
    return FoundPart(part, str(made.get("model_id") or ""), stated_weights(made), notes=notes)
