"""Image files that are too large, damaged or missing are refused in one line, wherever they go."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

import interp
from interp.core.errors import PromptError
from interp.heads.patterns.capturing import image_inputs
from interp.model.image_files import read_image
from interp.vision import read_images

pytest.importorskip("PIL")


def png(path: Path, width: int, height: int) -> Path:
    """Write a PNG whose header says its size, with the pixels of one row at most."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )
    return path


@pytest.mark.parametrize("side", [30_000, 10_000])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path, side) -> None:
    path = png(tmp_path / "large.png", side, side)
    with pytest.raises(PromptError, match=r"large\.png has more than the 89,478,485 pixels"):
        read_image(path)
    model = interp.load("bundled:shapes")
    with pytest.raises(PromptError, match="make the image smaller"):
        image_inputs(model, str(interp.bundled.path("shapes")), path)
    with pytest.raises(PromptError, match="make the image smaller"):
        read_images(model, tmp_path)


def test_damaged_and_missing_images_are_refused(tmp_path) -> None:
    assert read_image(png(tmp_path / "row.png", 5, 1)).size == (5, 1)
    (tmp_path / "short.png").write_bytes(png(tmp_path / "row.png", 40, 40).read_bytes()[:45])
    (tmp_path / "text.png").write_text("no image")
    for name, said in (
        ("short", "cannot be read as an image"),
        ("text", "is not an image that pillow can read"),
        ("none", "cannot be read as an image: No such file"),
    ):
        with pytest.raises(PromptError, match=said):
            read_image(tmp_path / f"{name}.png")
