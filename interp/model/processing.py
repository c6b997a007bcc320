"""Inputs of a model from text, pictures and sound, made by the processor of its checkpoint.

The processor resizes and normalises, writes the placeholders of pictures into the text and marks
them. What it is given is checked here, so that a mistake is reported before the model runs.
"""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from interp.core.errors import LoadError, PromptError
from interp.core.tokens import encoded_text
from interp.model.image_files import no_pillow, read_image
from interp.model.inputs import (
    PICTURES,
    SOUNDS,
    is_encoder_decoder,
    reads_pictures_in_text,
    takes,
)


class ReadsInputs(Protocol):
    """Attributes of a model that making its inputs needs."""

    module: Any
    tokenizer: Any
    revision: str | None
    processor: Any

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the model."""
        ...

    @property
    def config(self) -> Any:
        """The Hugging Face config."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of the inputs."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of floating-point inputs."""
        ...

    def inputs(self, prompts: Any) -> dict[str, Tensor]:
        """Return the inputs of prompts of text."""
        ...


_ORDER = ("input_ids", "attention_mask", "decoder_input_ids")


def processed(
    model: ReadsInputs,
    *,
    text: str | Sequence[str] | None = None,
    images: Any = None,
    audio: Any = None,
    sampling_rate: int | None = None,
    videos: Any = None,
) -> dict[str, Tensor]:
    """Return the tensors that the model's own processor makes of prompts."""
    if videos is not None:
        raise PromptError(
            f"{model.name}: videos cannot be given as prompts; give frames as images=, or run and "
            "capture the tensors that the model's own processor makes of a video"
        )
    texts = [text] if isinstance(text, str) else None if text is None else list(text)
    names = takes(model.module)
    given: dict[str, Any] = {}
    if images is not None:
        if not set(PICTURES) & names:
            raise PromptError(f"{model.name} ({model.kind}) reads no pictures{_reads(names)}")
        given["images"] = pictures = _pictures(images)
        texts = _with_placeholders(model, texts, pictures)
        if not reads_pictures_in_text(model.module):
            given["images"] = [one for each in pictures for one in each]
    rate = None
    if audio is not None:
        if not set(SOUNDS) & names:
            raise PromptError(f"{model.name} ({model.kind}) reads no sound{_reads(names)}")
        sounds, rate = _sounds(model, audio, sampling_rate)
        given["audio"] = sounds
    if not given:
        if texts is None:
            raise PromptError("no prompts given")
        return model.inputs(texts)
    inputs = _made(model, texts, given, rate)
    kinds = {k: model.dtype if x.is_floating_point() else x.dtype for k, x in inputs.items()}
    return {k: x.to(model.device, kinds[k]) for k, x in inputs.items()}


def processor_of(model: ReadsInputs) -> Any:
    """Return the processor of a model: the one it was given, else that of its folder or hub id."""
    if model.processor is not None:
        return model.processor
    from transformers import AutoProcessor, PreTrainedTokenizerBase

    source = str(getattr(model.config, "name_or_path", "") or "")
    missing = (
        f"{model.name} has no processor of pictures or sound (preprocessor_config.json) beside its "
        "weights; set model.processor, or give the tensors by the names of the model's arguments"
    )
    if not source:
        raise LoadError(missing)
    try:
        processor = AutoProcessor.from_pretrained(source, revision=model.revision or "main")
    except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise LoadError(f"{missing} ({first})") from error
    if isinstance(processor, PreTrainedTokenizerBase):
        raise LoadError(missing)
    model.processor = processor
    return processor


def _reads(names: set[str]) -> str:
    known = {
        "input_ids": "text",
        "pixel_values": "pictures",
        "input_features": "sound",
        "input_values": "sound",
    }
    kinds = dict.fromkeys(what for name, what in known.items() if name in names)
    return f"; it reads {' and '.join(kinds)}" if kinds else ""


def _pictures(images: Any) -> list[list[Any]]:
    """Return the pictures of each prompt, as RGB images."""
    one = not isinstance(images, (list, tuple))
    per_prompt = [images] if one else list(images)
    if not per_prompt:
        raise PromptError("no pictures given; leave images out for a text alone")
    nested = [each if isinstance(each, (list, tuple)) else [each] for each in per_prompt]
    pictures, number = [], 0
    for each in nested:
        pictures.append([_picture(x, number + i) for i, x in enumerate(each)])
        number += len(each)
    return pictures


def _picture(x: Any, number: int) -> Any:
    if isinstance(x, (str, Path)):
        return read_image(x).convert("RGB")
    try:
        from PIL import Image
    except ImportError as error:
        raise no_pillow(error) from error
    if isinstance(x, Image.Image):
        if x.mode != "RGB":
            raise PromptError(
                f"picture {number} has the mode {x.mode!r}; expected 'RGB'; convert it: "
                "image.convert('RGB')"
            )
        return x
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise PromptError(
            f"picture {number} is an array {array.shape} of {array.dtype}; expected "
            "[height, width, 3] of 8-bit RGB values (uint8), a PIL image or a path"
        )
    return Image.fromarray(array)


def _with_placeholders(
    model: ReadsInputs, texts: list[str] | None, pictures: list[list[Any]]
) -> list[str] | None:
    """Return the texts with one placeholder per picture; checked where a text holds its own."""
    if texts is None:
        if reads_pictures_in_text(model.module):
            texts = [""] * len(pictures)
        return texts
    if not reads_pictures_in_text(model.module):
        return texts  # a tower of text beside one of pictures: their numbers may differ
    if len(texts) != len(pictures):
        raise PromptError(
            f"{len(texts)} texts and pictures for {len(pictures)} prompts; give as many of each, "
            "and several pictures of one prompt as a list"
        )
    processor = processor_of(model)
    token = getattr(processor, "boi_token", None) or getattr(processor, "image_token", None)
    if not isinstance(token, str):
        return texts
    marked = []
    for i, (text, mine) in enumerate(zip(texts, pictures, strict=True)):
        slots = text.count(token)
        if slots and slots != len(mine):
            raise PromptError(
                f"prompt {i} has {len(mine)} picture{'s' * (len(mine) != 1)} for {slots} "
                f"placeholder{'s' * (slots != 1)} ({token}); give one for each, or leave the "
                "placeholders out"
            )
        marked.append(text if slots else token * len(mine) + text)
    return marked


def _sounds(
    model: ReadsInputs, audio: Any, sampling_rate: int | None
) -> tuple[list[np.ndarray], int | None]:
    """Return sounds as arrays, and their samples per second."""
    one = isinstance(audio, (str, Path)) or (np.ndim(audio) == 1 and not _paths(audio))
    listed: list[Any] = [audio] if one else list(audio)  # type: ignore[arg-type]
    expected = getattr(_feature_extractor(model), "sampling_rate", None)
    sounds = []
    for i, each in enumerate(listed):
        rate = sampling_rate
        if isinstance(each, (str, Path)):
            array, rate = read_wav(Path(each))
        else:
            array = np.asarray(each, dtype=np.float32)
        if array.ndim != 1:
            raise PromptError(
                f"sound {i} has the shape {array.shape}; expected one row of samples (one channel)"
            )
        if not len(array):
            raise PromptError(f"sound {i} has no samples; give at least one frame of sound")
        if expected is not None and rate not in (None, expected):
            raise PromptError(
                f"sound {i} has {rate} samples per second; {model.name} was trained on {expected}; "
                "resample it"
            )
        sounds.append(array)
    if not sounds:
        raise PromptError("no sound given; leave audio out for a text alone")
    return sounds, expected


def _paths(audio: Any) -> bool:
    return isinstance(audio, (list, tuple)) and all(isinstance(x, (str, Path)) for x in audio)


def _feature_extractor(model: ReadsInputs) -> Any:
    processor = processor_of(model)
    return getattr(processor, "feature_extractor", processor)


def read_wav(path: Path) -> tuple[np.ndarray, int]:
    """Return the samples of a .wav file of one channel, -1 to 1, and their number per second."""
    try:
        with wave.open(str(path)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error.strerror or error}") from error
    except (wave.Error, EOFError) as error:
        raise PromptError(f"{path} is not a .wav file of plain samples: {error}") from error
    if channels != 1 or width != 2:
        raise PromptError(
            f"{path} has {channels} channels of {8 * width} bits; expected one channel of 16 bits"
        )
    return np.frombuffer(data, "<i2").astype(np.float32) / 32768, rate


def _made(
    model: ReadsInputs, texts: list[str] | None, given: dict[str, Any], rate: int | None
) -> dict[str, Tensor]:
    """Call the processor, or its part for pictures or sound where it has only that."""
    processor = processor_of(model)
    if texts is not None and getattr(model, "chat", False):
        raise PromptError(
            f"{model.name}: --chat is for texts alone; beside pictures or sound write the text "
            "with the marks of the template"
        )
    options: dict[str, Any] = {"return_tensors": "pt"}
    joint = hasattr(processor, "tokenizer") and "input_ids" in takes(model.module)
    try:
        if "audio" in given:
            extractor = _feature_extractor(model)
            inputs = dict(
                extractor(given["audio"], sampling_rate=rate, padding=True, **options)
                if "input_values" in takes(model.module)
                else extractor(given["audio"], sampling_rate=rate, **options)
            )
            if is_encoder_decoder(model.module):
                inputs["decoder_input_ids"] = _written(model, texts, len(given["audio"]))
        elif texts is not None and joint:
            shown = given["images"]
            inputs = dict(
                encoded_text(processor, text=texts, images=shown, padding=True, **options)
            )
        else:
            pixels = getattr(processor, "image_processor", processor)
            inputs = dict(pixels(images=given["images"], **options))
            if texts is not None:
                if model.tokenizer is None:
                    raise PromptError(f"{model.name} has no tokenizer, so it takes no text")
                inputs |= dict(encoded_text(model.tokenizer, texts, padding=True, **options))
    except (ValueError, IndexError, TypeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise PromptError(f"{model.name}: its processor refuses these inputs: {first}") from error
    known = takes(model.module)
    kept = {k: x for k, x in inputs.items() if isinstance(x, Tensor) and k in known}
    first = [k for k in _ORDER if k in kept]
    return {k: kept[k] for k in (*first, *(k for k in kept if k not in first))}


def _written(model: ReadsInputs, texts: list[str] | None, count: int) -> Tensor:
    """Return the decoder's inputs: the start token, then the tokens of what is written."""
    start = getattr(model.config, "decoder_start_token_id", None)
    start = 0 if start is None else int(start)
    if texts is None:
        return torch.full((count, 1), start)
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so it takes no text")
    if len(texts) != count:
        raise PromptError(f"{len(texts)} texts for {count} sounds; give one for each")
    rows = [encoded_text(model.tokenizer, t)["input_ids"] for t in texts]
    rows = [row[1:] if row and row[0] == start else row for row in rows]
    if len({len(row) for row in rows}) > 1:
        raise PromptError("the texts have different numbers of tokens; give them one by one")
    return torch.tensor([[start, *row[:-1]] for row in rows])
