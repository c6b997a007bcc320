"""Texts with a target for each, from a file."""

from __future__ import annotations

from pathlib import Path

from interp.core.errors import OptionError


def targets_of(file: Path, target: str | None) -> tuple[list[str], list[str], list[str] | None]:
    """Return texts, targets and contrasts of a file of texts, some lines with their own target."""
    from interp.attribution.evaluation.run import read_texts

    texts, targets, contrasts = [], [], []
    for at, line in enumerate(read_texts(file), 1):
        text, tab, line_target = line.partition("\t")
        asked = line_target if tab else target
        if not asked:
            raise OptionError(
                f"{file} line {at} has no target; write it after a tab, or give --target"
            )
        word, bar, other = asked.partition("|")
        texts.append(text)
        targets.append(word)
        contrasts += [other] if bar else []
    if contrasts and len(contrasts) != len(texts):
        raise OptionError(
            f"{len(contrasts)} of {len(texts)} lines of {file} have a contrast; give it to all or "
            "to none"
        )
    return texts, targets, contrasts or None
