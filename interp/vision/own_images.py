"""Images of `interp study vision`: a folder with labels, masks and cues, or drawn ones."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.core.text_file import read_lines

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images with what is known about them, and texts.

    Args:
        pixels: the images.
        origin: where they come from.
        labels: class of each image.
        masks: pixels of the object.
        cues: class that a cue suggests; -1 without a cue.
        texts: texts of the classes.
        bank: texts that may describe a head.
    """

    pixels: np.ndarray
    origin: str
    labels: np.ndarray | None
    masks: np.ndarray | None
    cues: np.ndarray | None
    texts: tuple[str, ...] | None
    bank: tuple[str, ...] | None

    @classmethod
    def of(
        cls,
        model: Model,
        images: Path | None,
        *,
        masks: Path | None,
        cues: Path | None,
        texts: Path | None,
        bank: Path | None,
        resize: bool,
        number: int,
        seed: int,
    ) -> Pictures:
        """Read a folder, or draw images for a bundled model."""
        from interp.vision.folder import read_images
        from interp.vision.images import vision_config

        vision_config(model)
        lines = tuple(None if x is None else _lines(x) for x in (texts, bank))
        if images is None:
            if masks is not None or cues is not None:
                raise OptionError("--set masks and --set cues belong to the images of --image DIR")
            drawn = _drawn(model, number, seed)
            return cls(
                drawn.pixels,
                "drawn by the package",
                drawn.labels,
                drawn.masks,
                drawn.cues,
                *lines,
            )
        pictures = read_images(
            model, images, masks=masks, resize=resize, limit=number, texts=lines[0]
        )
        suggested = None if cues is None else _cues(model, cues, pictures.names, lines[0])
        return cls(pictures.pixels, str(images), pictures.labels, pictures.masks, suggested, *lines)

    @property
    def hash(self) -> str:
        """Digest of the images and their labels."""
        digest = hashlib.sha256(self.pixels.tobytes())
        digest.update(b"" if self.labels is None else self.labels.tobytes())
        return digest.hexdigest()


def _drawn(model: Model, number: int, seed: int) -> Any:
    from interp.bundled.shape_images import PATTERNS, SIZE, shape_images
    from interp.vision.images import expected_size

    names = tuple((getattr(model.config, "id2label", None) or {}).values())
    if expected_size(model) != (3, SIZE, SIZE) or names != PATTERNS:
        raise PromptError(f"{model.name} was not trained on drawn shapes; give images: --image DIR")
    return shape_images(10_000 + seed, number, aligned=0.5)


def _lines(path: Path) -> tuple[str, ...]:
    lines = [line.strip() for line in read_lines(path)]
    lines = [line for line in lines if line]
    if not lines:
        raise PromptError(f"{path} holds no text; give one text per line")
    return tuple(lines)


def _cues(
    model: Model, path: Path, names: Sequence[str], texts: Sequence[str] | None
) -> np.ndarray:
    """Return the class each image's cue suggests, from a CSV of image and class."""
    from interp.vision.images import checked_labels, classes_by_text, has_classes

    rows = csv.reader(read_lines(path))
    class_of = {row[0]: row[1].strip() for row in rows if len(row) == 2}
    missing = [name for name in names if name not in class_of]
    if missing:
        raise OptionError(
            f"{path} has no cue of {missing[0]}; give a line 'image,class' per image, with an "
            "empty class where there is no cue"
        )
    classes = np.full(len(names), -1)
    shown = [i for i, name in enumerate(names) if class_of[name]]
    if shown:
        lines = [class_of[names[i]] for i in shown]
        is_classifier = has_classes(model)
        classes[shown] = (
            checked_labels(model, lines, len(lines))
            if is_classifier
            else classes_by_text(lines, texts)
        )
    return classes
