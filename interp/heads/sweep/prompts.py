"""Prompts of a sweep: pictures and sound as prompts, and metrics that need or make prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, PromptError

if TYPE_CHECKING:
    from interp.core.protocols import Reporter
    from interp.heads.declaration import BoundAnalysis
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


def with_their_segments(
    model: Model, metrics: Sequence[BoundAnalysis], prompts: Any, voice: Reporter, *, alone: bool
) -> list[BoundAnalysis]:
    """Return the metrics whose segments the prompts hold; the reason is reported for others."""
    from interp.heads.segment_targets import require_segments

    usable = []
    for metric in metrics:
        try:
            if metric.analysis.names_segments:
                require_segments(metric, model, prompts)
        except PromptError as error:
            if alone:
                raise
            voice.note(f"{metric.label} is omitted on {model.name}: {error}")
        else:
            usable.append(metric)
    return usable


def tell_own_prompts(bounds: Sequence[BoundAnalysis], voice: Reporter) -> None:
    """Report that experiments make their own prompts, so that the user's are not ignored silently.

    Raises OptionError if only experiments are requested.
    """
    experiments = [b.label for b in bounds if b.analysis.kind == "experiment"]
    if not experiments:
        return
    text = (
        f"{', '.join(experiments)} make{'s' if len(experiments) == 1 else ''} special prompts, so "
        f"--file and --max-length do not apply; use their options (interp list metrics NAME)"
    )
    if len(experiments) == len(bounds):
        raise OptionError(text)
    voice.note(text)
