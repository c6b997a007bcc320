"""Images, labels and files that do not fit are refused with what was expected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from vision.towers import drawn, noise, shapes, tower

from interp.bundled.shape_images import PATTERNS, recoloured, shape_images
from interp.core.errors import InterpError, OptionError, PromptError
from interp.vision import image_direct_effects, read_images
from interp.vision.images import PatchGrid, checked_labels, image_batch

ONE = torch.zeros(1, 3, 24, 24)
WRONG = {
    "asks for 24 x 24": torch.zeros(1, 3, 32, 32),
    "convert them to RGB": torch.zeros(2, 1, 24, 24),
    "channels last": torch.zeros(2, 24, 24, 3),
    "give floating-point": torch.zeros(2, 3, 24, 24, dtype=torch.uint8),
    r"\[image, channel, row, column\]": torch.zeros(24, 24),
    "NaN or infinite": torch.full((1, 3, 24, 24), torch.nan),
    "at least one": torch.zeros(0, 3, 24, 24),
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_images(said: str) -> None:
    with pytest.raises(PromptError, match=said) as raised:
        image_batch(shapes(), WRONG[said])
    assert "\n" not in str(raised.value)


def test_images_in_every_form() -> None:
    for given in (ONE, ONE[0], ONE.numpy(), {"pixel_values": ONE}):
        assert image_batch(shapes(), given).shape == (1, 3, 24, 24)
    assert image_batch(shapes(), drawn().part(slice(0, 2))).dtype == torch.float32
    with pytest.raises(PromptError, match="give pixel_values"):
        image_batch(shapes(), {"images": ONE})


def test_a_model_of_text_is_refused() -> None:
    with pytest.raises(PromptError, match="reads no images: its forward takes no pixel_values"):
        image_direct_effects("planted:bystander", ONE)


def test_labels() -> None:
    assert checked_labels(shapes(), ["rows", "plain"], 2).tolist() == [0, 3]
    with pytest.raises(OptionError, match=r"label 4 is not a class .* has 4: 0 \(rows\)"):
        checked_labels(shapes(), [4], 1)
    with pytest.raises(OptionError, match="3 labels for 2 images"):
        checked_labels(shapes(), [0, 1, 2], 2)
    with pytest.raises(OptionError, match="known: others, none"):
        image_direct_effects(tower("ViTForImageClassification"), noise(), against="all")


def test_grid_of_patches() -> None:
    grid = PatchGrid(2, 3, 3, True, (2, 2))
    assert grid.tokens == 9
    assert grid.names[:5] == ("CLS", "R1", "R2", "0,0", "0,1")
    mask = np.zeros((1, 4, 6), dtype=bool)
    mask[0, 0, :3] = True
    np.testing.assert_allclose(grid.shares(mask)[0], [0.5, 0.25, 0, 0, 0, 0])
    assert grid.centres()[4].tolist() == [1, 1]


def test_drawn_images_have_what_they_say() -> None:
    made = shape_images(0, 40, aligned=0.5)
    assert np.bincount(made.labels).tolist() == [10] * 4
    assert not (made.masks & made.corner).any()
    assert 0.3 < (made.cues == made.labels).mean() < 0.7
    again = shape_images(0, 40, aligned=0.5)
    assert np.array_equal(made.pixels, again.pixels)
    assert (shape_images(0, 40, cue="conflicting").cues != made.labels).all()
    rng = np.random.default_rng(0)
    other = recoloured(made, rng)
    assert np.array_equal(other.pixels[:, :, 4:], made.pixels[:, :, 4:])
    for wrong in ({"cue": "red"}, {"aligned": 2.0}):
        with pytest.raises(OptionError):
            shape_images(0, 4, **wrong)
    with pytest.raises(OptionError, match="at least one"):
        shape_images(0, 0)


def saved(folder: Path, size: tuple[int, int] = (24, 24), mode: str = "RGB") -> Path:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    for name in PATTERNS[:2]:
        (folder / name).mkdir(parents=True, exist_ok=True)
        image.new(mode, size, "white").save(folder / name / "one.png")
    return folder


def test_folders_of_images(tmp_path: Path) -> None:
    found = read_images(shapes(), saved(tmp_path / "a"), masks=saved(tmp_path / "m", mode="L"))
    assert found.names == ("columns/one.png", "rows/one.png")
    assert found.labels is not None
    assert found.masks is not None
    assert found.labels.tolist() == [1, 0]
    assert np.all(found.pixels == 1)  # white, with mean and deviation of 0.5
    assert found.masks.all()
    large = saved(tmp_path / "b", size=(30, 20), mode="L")
    with pytest.raises(PromptError, match="20 x 30 pixels; the config of bundled:shapes asks for"):
        read_images(shapes(), large)
    assert read_images(shapes(), large, resize=True, limit=1).pixels.shape == (1, 3, 24, 24)
    with pytest.raises(PromptError, match="has the mode L"):
        read_images(shapes(), saved(tmp_path / "c", mode="L"))
    with pytest.raises(OptionError, match=r"no mask of columns/one\.png"):
        read_images(shapes(), tmp_path / "a", masks=tmp_path)
    (tmp_path / "a" / "rows").rename(tmp_path / "a" / "ovals")
    with pytest.raises(OptionError, match="'ovals' is not a class"):
        read_images(shapes(), tmp_path / "a")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.png").write_text("no image")
    for folder, said in (("d", "is not an image that pillow can read"), ("no", "not a folder")):
        with pytest.raises(InterpError, match=said):
            read_images(shapes(), tmp_path / folder)
