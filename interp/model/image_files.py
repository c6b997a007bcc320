"""Image files: the one place that opens them, and says in one line why one cannot be read."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.errors import OptionError, PromptError
from interp.core.installed import package_error

if TYPE_CHECKING:
    from PIL.Image import Image


def no_pillow(error: ImportError) -> OptionError:
    """Return the error for pillow that is not there."""
    return package_error(error, "reading images", "PIL", "pip install 'interp[images]'")


def read_image(path: str | Path) -> Image:
    """Return the image of a file, decoded, in the mode in which it is stored."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise no_pillow(error) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                file.load()
                return file.copy()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PromptError(
            f"{path} has more than the {Image.MAX_IMAGE_PIXELS or 0:,} pixels that are decoded; "
            "models read a few hundred per side: make the image smaller"
        ) from error
    except UnidentifiedImageError as error:
        raise PromptError(f"{path} is not an image that pillow can read") from error
    # pillow raises SyntaxError and ValueError for damaged files of some formats
    except (OSError, SyntaxError, ValueError) as error:
        stated = getattr(error, "strerror", None) or error
        raise PromptError(f"{path} cannot be read as an image: {stated}") from error
