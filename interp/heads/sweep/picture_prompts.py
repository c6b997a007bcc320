"""Prompts of pictures, sound and text, and the inputs that a model makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True)
class PicturePrompts:
    """Files of pictures or sound and the texts beside them, one prompt each.

    Args:
        images: picture files.
        audio: .wav files.
        text: a text per file, or one for all.
    """

    images: tuple[Path, ...] = ()
    audio: tuple[Path, ...] = ()
    text: tuple[str, ...] = ()

    @classmethod
    def asked(
        cls, images: tuple[Path, ...], audio: tuple[Path, ...], text: tuple[str, ...]
    ) -> PicturePrompts | None:
        """Return the prompts, or None if no file is given."""
        if not images and not audio:
            if text:
                raise OptionError("--text needs --image or --audio; give texts by --file")
            return None
        if images and audio:
            raise OptionError("--image and --audio cannot be combined; a prompt has one of them")
        files = len(images) + len(audio)
        if len(text) not in (0, 1, files):
            raise OptionError(f"{len(text)} --text for {files} files; give one for all, or each")
        return cls(images, audio, text)

    def inputs(self, model: Model) -> dict[str, Any]:
        """Return the tensors that the model's processor makes of them."""
        files = len(self.images) + len(self.audio)
        text = list(self.text) * (files if len(self.text) == 1 else 1) or None
        if self.images:
            return model.inputs(text=text, images=list(self.images))
        return model.inputs(text=text, audio=list(self.audio))
