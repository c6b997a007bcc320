"""Pictures of detectors on small examples, as their docstrings show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.model.segments import segments_of_words

if TYPE_CHECKING:
    from interp.heads.declaration import Analysis


def picture(analysis: Analysis, text: str, **options: Any) -> None:
    """Print the targets of an ideal head: rows are queries, columns keys, `#` marks a target.

    Of a detector that reads segments, the words `image`, `audio`, `special` and `register` stand
    for these segments, and all others for text.
    """
    words = text.split()
    names = list(dict.fromkeys(words))
    tokens = np.array([names.index(w) for w in words])
    at = np.arange(len(words))
    segments = segments_of_words(words) if analysis.reads_segments else None
    target = np.broadcast_to(
        analysis.predicate(at[:, None], at[None, :], tokens, segments, **options),
        (len(words), len(words)),
    )
    print("  " + " ".join(words))
    for word, row in zip(words, target, strict=True):
        print(word + " " + " ".join("#" if hit else "." for hit in row))
