"""Images of a folder, and masks beside them, read as a model takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError
from interp.core.text_file import require_inside
from interp.model.image_files import read_image
from interp.model.model_argument import takes_model
from interp.vision.images import checked_labels, classes_by_text, expected_size, has_classes

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images of a folder.

    Args:
        pixels: the images, normalised.
        names: their files, below the folder.
        labels: class of each image, from the name of its subfolder; None without subfolders.
        masks: True at the pixels of the object; None without masks.
    """

    pixels: Float[Array, "image channel row column"]
    names: tuple[str, ...]
    labels: Int[Array, " image"] | None = None
    masks: Bool[Array, "image row column"] | None = None

    def __len__(self) -> int:
        return len(self.names)


@takes_model
def read_images(
    model: Model,
    folder: str | Path,
    *,
    masks: str | Path | None = None,
    resize: bool = False,
    limit: int | None = None,
    texts: Sequence[str] | None = None,
) -> LabelledImages:
    """Read the images of a folder for a model, with labels from subfolders and masks.

    Images lie in the folder, or in subfolders named after their class, as for torchvision's
    ImageFolder. They are scaled to 0 to 1 and normalised with mean and deviation of the model's
    `preprocessor_config.json` or `processor_config.json` (0.5 and 0.5 without one). A mask is a
    picture of the same name in another folder; its pixels above the middle are the object.

    Args:
        model: a model that reads images.
        folder: the folder.
        masks: folder of masks.
        resize: resize images and masks to the size of the config; otherwise other sizes are errors.
        limit: largest number of images, evenly spaced in the order of their names.
        texts: texts of the classes, for a model without classes. A subfolder is named after one
            text, or by words that only that text has; without texts, the sorted subfolders are the
            classes.

    Raises:
        PromptError: there are no images, a file is not an image, or it has another size or mode.
        OptionError: a subfolder is not a class of the model, or a mask is missing or empty.
    """
    root = Path(folder)
    if not root.is_dir():
        raise PromptError(f"{root} is not a folder of images")
    files = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES)
    files = require_inside(root, files)
    if not files:
        raise PromptError(f"{root} holds no images; known suffixes: {', '.join(SUFFIXES)}")
    if limit is not None and limit < len(files):
        files = [files[i] for i in np.linspace(0, len(files) - 1, limit).round().astype(int)]
    channels, high, wide = expected_size(model)
    mean, deviation = _normalisation(model, channels)
    pixels = [
        (_picture(model, p, _MODES.get(channels, "RGB"), (high, wide), resize) - mean) / deviation
        for p in files
    ]
    names = tuple(p.relative_to(root).as_posix() for p in files)
    return LabelledImages(
        np.stack(pixels).astype(np.float32),
        names,
        _labels(model, names, texts),
        None if masks is None else _masks(model, Path(masks), names, (high, wide), resize),
    )


def _picture(
    model: Model, path: Path, mode: str, size: tuple[int, int], resize: bool
) -> Float[Array, "channel row column"]:
    """Return an image with values from 0 to 1."""
    image = read_image(path)
    if resize:
        from PIL.Image import Resampling

        image = image.convert(mode).resize((size[1], size[0]), Resampling.BICUBIC)
    if (image.height, image.width) != size:
        raise PromptError(
            f"{path} has {image.height} x {image.width} pixels; the config of {model.name} asks "
            f"for {size[0]} x {size[1]}: resize it, or read with resize=True (--set resize)"
        )
    if image.mode != mode:
        raise PromptError(
            f"{path} has the mode {image.mode}; {model.name} takes {mode}: convert it, or read "
            "with resize=True (--set resize), which converts too"
        )
    x = np.asarray(image, dtype=np.float64) / 255
    return x[None] if x.ndim == 2 else x.transpose(2, 0, 1)


def _normalisation(model: Model, channels: int) -> tuple[Array, Array]:
    """Return mean and deviation of the model's preprocessor, per channel."""
    folder = Path(str(getattr(model.config, "name_or_path", "") or ""))
    known: dict[str, Any] = {}
    for name in ("processor_config.json", "preprocessor_config.json"):
        if (folder / name).is_file():
            known = parse_json((folder / name).read_text(encoding="utf-8"))
            known = known.get("image_processor", known)  # of a processor of images and text
    statistics = [
        np.resize(np.array(known.get(key, [0.5]), dtype=float), channels)[:, None, None]
        for key in ("image_mean", "image_std")
    ]
    return statistics[0], statistics[1]


def _labels(
    model: Model, names: tuple[str, ...], texts: Sequence[str] | None
) -> Int[Array, " image"] | None:
    folders = [name.split("/")[0] for name in names if "/" in name]
    if not folders:
        return None
    if len(folders) < len(names):
        raise OptionError(
            "some images lie in subfolders and some do not; put each into a subfolder named after "
            "its class, or none"
        )
    if not has_classes(model):
        return classes_by_text(folders, texts)
    return checked_labels(model, folders, len(names))


def _masks(
    model: Model, folder: Path, names: tuple[str, ...], size: tuple[int, int], resize: bool
) -> Bool[Array, "image row column"]:
    masks = []
    for name in names:
        stem = folder / Path(name).with_suffix("")
        files = [stem.with_suffix(s) for s in SUFFIXES if stem.with_suffix(s).is_file()]
        if not files:
            raise OptionError(f"there is no mask of {name} in {folder}; give one of the same name")
        mask = _picture(model, files[0], "L", size, resize)[0] > 0.5
        if not mask.any():
            raise OptionError(f"the mask {files[0]} is empty; leave its image out")
        masks.append(mask)
    return np.stack(masks)
