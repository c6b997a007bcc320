"""`interp study vision`: on drawn images, on folders, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from vision.towers import with_neuron

from interp.bundled.shape_images import PATTERNS, shape_images
from interp.core.table import HeadTable

SPURIOUS = "bundled:shapes-spurious"


def written(folder: Path, number: int = 24) -> Path:
    """Images, masks and cues as files."""
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    made = shape_images(0, number, aligned=0.5)
    cues = []
    for i, pixels in enumerate(made.pixels):
        name = f"{PATTERNS[made.labels[i]]}/{i:02}.png"
        for what in ("images", "masks"):
            (folder / what / name).parent.mkdir(parents=True, exist_ok=True)
        grey = np.round((pixels.clip(-1, 1) + 1) * 127.5).astype(np.uint8)
        image.fromarray(grey.transpose(1, 2, 0)).save(folder / "images" / name)
        mask = (made.masks[i] * 255).astype(np.uint8)
        image.fromarray(mask).save(folder / "masks" / name)
        cues.append((name, PATTERNS[made.cues[i]]))
    with (folder / "cues.csv").open("w", newline="") as file:
        csv.writer(file).writerows(cues)
    return folder


def test_drawn_images_and_the_planted_head(run, tmp_path) -> None:
    out = tmp_path / "out"
    done = run(
        "study", "vision", SPURIOUS, "-n", "80", "--method", "direct,cue", "-o", str(out), "-q"
    )
    assert "spurious_votes" in done.stdout
    assert "L2H1  spurious" in done.stdout
    assert "spurious heads: L2H1" in done.stdout
    folder = out / "shapes-spurious"
    page = (folder / "maps.html").read_text()
    assert page.count("<image") > 8
    assert "<table" in (folder / "direct.html").read_text()
    [table] = out.glob("vision-*.parquet")
    assert HeadTable.load(table).metrics == ("direct_image_effect", "spurious_votes")
    done = run("atlas", str(out), "-o", str(tmp_path / "atlas.html"))
    assert "could not be read" not in done.stderr
    assert "direct_image_effect" in (tmp_path / "atlas.html").read_text()


def test_a_folder_of_images(run, tmp_path) -> None:
    made = written(tmp_path)
    args = ("--image", str(made / "images"), "--set", f"masks={made / 'masks'}")
    cues = ("--set", f"cues={made / 'cues.csv'}")
    done = run(
        "study", "vision", SPURIOUS, *args, *cues, "--method", "agreement,distance", "--json", "-q"
    )
    metrics = {row["metric"] for row in json.loads(done.stdout)}
    assert metrics == {"attention_iou", "pointing_game", "patch_distance"}
    text = run("study", "vision", SPURIOUS, *args, *cues, "--method", "cue", "-q").stdout
    assert "images whose cue conflicts" in text
    assert "24 images" not in text.splitlines()[1]


def test_registers_and_pruning_are_measured_when_they_are_named(run, tmp_path) -> None:
    with_neuron().module.save_pretrained(tmp_path / "vit")
    out = tmp_path / "out"
    args = (
        str(tmp_path / "vit"),
        "-n",
        "24",
        "--method",
        "registers,pruning",
        "-o",
        str(out),
        "-q",
    )
    text = run("study", "vision", *args, "--image", str(written(tmp_path, 24) / "images")).stdout
    assert re.search(r"register_neuron +L0N64", text)
    assert re.search(r"register_norm +layer 0, with register", text)
    assert re.search(r"pruned_accuracy +keep", text)
    [table] = out.rglob("pruning.csv")
    assert "loss_change" in table.read_text()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((SPURIOUS, "--method", "dircet"), "did you mean direct"),
        ((SPURIOUS, "--method", ","), "names no measure"),
        ((SPURIOUS, "--method", "texts"), "--method texts needs --set bank"),
        ((SPURIOUS, "--set", "masks=."), "belong to the images"),
        ((SPURIOUS, "--set", "maps=rolout"), "did you mean rollout"),
    ],
)
def test_wrong_arguments(errors, args, said, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, lines = errors("study", "vision", *args, "-q")
    assert code == 2
    assert said in " ".join(lines)


def test_cues_that_do_not_fit(errors, tmp_path) -> None:
    made = written(tmp_path, 8)
    given = ("study", "vision", SPURIOUS, "--image", str(made / "images"), "--set")
    (tmp_path / "short.csv").write_text("rows/00.png,plain\n")
    code, [line] = errors(*given, f"cues={tmp_path / 'short.csv'}", "-q")
    assert code == 2
    assert "has no cue of" in line


def test_models_and_images_that_do_not_fit(errors, tmp_path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    image.new("RGB", (30, 20)).save(tmp_path / "one.png")
    code, [line] = errors("study", "vision", "bundled:induction", "-q")
    assert code
    assert "reads no images" in line
    code, [line] = errors("study", "vision", SPURIOUS, "--method", "registers", "-n", "8", "-q")
    assert code
    assert "after any layer" in line
    pooling = (
        "--set",
        "maps=pooling",
        "--method",
        "distance",
        "-n",
        "4",
        "-o",
        str(tmp_path / "out"),
    )
    code, lines = errors("study", "vision", SPURIOUS, *pooling, "-q")
    assert code
    assert "0 pooling attentions" in lines[-1]
    code, [line] = errors("study", "vision", SPURIOUS, "--image", str(tmp_path), "-q")
    assert code
    assert "asks for 24 x 24: resize it" in line
