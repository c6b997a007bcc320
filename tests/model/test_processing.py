"""Prompts of pictures and sound go through the checkpoint's processor; mistakes are told."""

from __future__ import annotations

import warnings
import wave
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from zoo.joint import JOINT

import interp
from interp.core.errors import LoadError, PromptError
from interp.model.processing import _written

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")


@pytest.fixture(scope="module")
def llava(llava_folder) -> interp.Model:
    return interp.load(llava_folder)


def picture(seed: int = 0, size: tuple[int, int] = (40, 48)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def test_pictures_and_text_are_what_the_processor_makes(llava, llava_folder, tmp_path):
    from transformers import AutoProcessor

    path = tmp_path / "a.png"
    Image.fromarray(picture()).save(path)
    inputs = llava.inputs(text="w5 w6 w7", images=path)
    own = AutoProcessor.from_pretrained(llava_folder)(
        text="<image>w5 w6 w7", images=Image.fromarray(picture()), return_tensors="pt"
    )
    assert set(inputs) == {"input_ids", "attention_mask", "pixel_values"}
    for name, x in inputs.items():
        assert torch.equal(x, own[name])
    assert int((inputs["input_ids"] == 120).sum()) == 16
    same = llava.inputs(text="<image> w5 w6 w7", images=Image.fromarray(picture()))
    assert torch.equal(same["pixel_values"], inputs["pixel_values"])
    cache = llava.capture(inputs, ["pattern"])
    assert {s for _, _, s in cache} == {"vision", "decoder"}
    two = llava.inputs(text=["w5", "w6"], images=[picture(1), picture(2)])
    assert two["pixel_values"].shape[0] == 2
    several = llava.inputs(text="<image> w5 <image> w6", images=[[picture(1), picture(2)]])
    assert int((several["input_ids"] == 120).sum()) == 32
    assert llava.run(several).isfinite().all()
    unmarked = llava.inputs(text="w5 w6", images=[[picture(1), picture(2)]])
    assert int((unmarked["input_ids"] == 120).sum()) == 32


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": "<image> w5", "images": [[picture(), picture()]]}, "2 pictures for 1 placeh"),
        ({"text": ["w5", "w6"], "images": picture()}, "2 texts and pictures for 1 prompts"),
        ({"text": "w5", "images": []}, "no pictures given"),
        ({"text": "w5", "images": np.zeros((4, 4, 3))}, r"\(4, 4, 3\) of float64; expected"),
        ({"text": "w5", "images": np.zeros((4, 4), np.uint8)}, r"array \(4, 4\) of uint8"),
        ({"text": "w5", "images": "there-is-none.png"}, "cannot be read"),
        ({"text": "w5", "images": __file__}, "not an image that pillow can read"),
        ({"text": "w5", "audio": np.zeros(10)}, "reads no sound; it reads text and pictures"),
    ],
)
def test_a_wrong_picture_is_told(llava, given, message):
    with pytest.raises(PromptError, match=message):
        llava.inputs(**given)


def test_a_picture_of_another_mode_is_told(llava):
    grey = Image.fromarray(picture()[..., 0])
    with pytest.raises(PromptError, match="mode 'L'; expected 'RGB'"):
        llava.inputs(text="w5", images=grey)


def test_unfilled_placeholders_are_told(llava):
    inputs = llava.inputs(text="w5 w6", images=picture())
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][0, 3] = 9
    with pytest.raises(PromptError, match="do not fill the placeholders"):
        llava.run(inputs)


def test_a_model_of_text_takes_no_picture(loaded):
    with pytest.raises(PromptError, match="reads no pictures; it reads text"):
        loaded("llama").inputs(text="a", images=picture())
    with pytest.raises(PromptError, match="no prompts given"):
        loaded("llama").inputs()


def test_videos_are_refused_with_what_to_give():
    model = interp.load(JOINT["llava"].build(), name="mine")
    with pytest.raises(PromptError, match="mine: videos cannot be given as prompts; give frames"):
        model.inputs(text="a", videos=[picture()])


def test_a_model_without_a_processor_is_told():
    model = interp.load(JOINT["llava"].build(), name="mine")
    with pytest.raises(LoadError, match="mine has no processor of pictures or sound"):
        model.inputs(text="a", images=picture())


def test_a_vision_model_takes_pictures_of_its_own_size(loaded):
    from transformers import ViTImageProcessor

    model = interp.load(zoo.FAMILIES["swin"].build())
    side = model.config.image_size
    model.processor = ViTImageProcessor(size={"height": side, "width": side})
    inputs = model.inputs(images=[picture(0), picture(1)])
    assert tuple(inputs["pixel_values"].shape) == (2, 3, side, side)
    assert model.run(inputs).isfinite().all()
    model = interp.load(zoo.FAMILIES["clip"].build())
    model.processor = ViTImageProcessor(size={"height": 8, "width": 8})
    inputs = zoo.FAMILIES["clip"].inputs(batch=1)
    inputs |= model.inputs(images=picture())
    with pytest.raises(PromptError, match="another size than it was made for"):
        model.run(inputs)


@pytest.fixture(scope="module")
def whisper() -> interp.Model:
    from transformers import WhisperFeatureExtractor

    family = zoo.FAMILIES["whisper"]
    model = interp.load(family.build())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of filters without a frequency
        model.processor = WhisperFeatureExtractor(
            feature_size=8, sampling_rate=1000, hop_length=10, n_fft=40, chunk_length=1
        )
    model.processor.n_samples = 240  # 24 frames, as the model takes
    model.processor.nb_max_frames = 24
    return model


def test_sound_is_what_the_feature_extractor_makes(whisper, tmp_path):
    whole = (np.sin(np.arange(240) / 7) * 32767).astype("<i2")
    samples = whole.astype(np.float32) / 32768
    inputs = whisper.inputs(audio=samples, sampling_rate=1000)
    assert tuple(inputs["input_features"].shape) == (1, 8, 24)
    assert inputs["decoder_input_ids"].tolist() == [[2]]
    assert whisper.run(inputs).isfinite().all()
    path = tmp_path / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(1000)
        file.writeframes(whole.tobytes())
    read = whisper.inputs(audio=[path])
    torch.testing.assert_close(read["input_features"], inputs["input_features"], atol=0, rtol=0)


def test_written_text_is_what_the_decoder_has_read_before_each_token() -> None:
    def tokenizer(text: str) -> dict[str, list[int]]:
        return {"input_ids": [2, *(len(word) for word in text.split()), 3]}

    model: Any = SimpleNamespace(
        config=SimpleNamespace(decoder_start_token_id=2), tokenizer=tokenizer, name="mine"
    )
    assert _written(model, ["aaaa bbbbb", "cccccc ddddddd"], 2).tolist() == [[2, 4, 5], [2, 6, 7]]
    assert _written(model, None, 2).tolist() == [[2], [2]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"audio": np.zeros(0)}, "sound 0 has no samples"),
        ({"audio": np.zeros((2, 9))[None]}, "expected one row of samples"),
        ({"audio": np.zeros(9), "sampling_rate": 16000}, "16000 samples per second"),
        ({"audio": __file__}, "not a .wav file"),
        ({"audio": "there-is-none.wav"}, "cannot be read"),
        ({"audio": np.zeros(9), "images": picture()}, "reads no pictures; it reads sound"),
    ],
)
def test_wrong_sound_is_told(whisper, given, message):
    with pytest.raises(PromptError, match=message):
        whisper.inputs(**given)
