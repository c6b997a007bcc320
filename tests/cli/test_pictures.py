"""Pictures and sound on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")


@pytest.fixture(scope="module")
def picture_files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    files = []
    for seed in range(4):
        pixels = np.random.default_rng(seed).integers(0, 256, (36, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{seed}.png")
        files.append(str(folder / f"{seed}.png"))
    return files


def given(files: list[str]) -> list[str]:
    return [x for file in files for x in ("--image", file)]


def test_score_reads_pictures_with_a_text_for_all(run, llava_folder, picture_files):
    command = ["score", str(llava_folder), "-m", "segment_mass,entropy", "--null", "none", "--json"]
    done = run(*command, *given(picture_files[:2]), "--text", "w5 w6")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found["rows"] if isinstance(found, dict) else found
    assert {row["stack"] for row in rows} == {"vision", "decoder"}
    assert {row["n"] for row in rows} == {2}


def test_check_lists_the_towers(run, llava_folder):
    done = run("check", llava_folder)
    assert done.exit_code == 0
    assert "vision.0 with a picture" in done.stdout
    assert "decoder.1 with a picture" in done.stdout


def test_view_shows_a_picture_inside_text(run, llava_folder, picture_files, tmp_path):
    out = tmp_path / "v.html"
    done = run("view", llava_folder, "--image", picture_files[0], "--text", "w5 w6", "-o", out)
    assert done.exit_code == 0, done.stderr
    assert out.stat().st_size > 10_000


@pytest.mark.parametrize("method", ["sinks", "grounding", "dropping", "schedule", "contrast"])
def test_each_analysis_prints_and_writes(run, llava_folder, picture_files, tmp_path, method):
    command = [
        "study",
        "pictures",
        str(llava_folder),
        "-m",
        method,
        *given(picture_files),
        "--text",
        "w5",
    ]
    command += [] if method == "sinks" else ["--answer", "w9"] * 4
    command += ["--layer", "1"] if method == "dropping" else []
    done = run(*command, "-o", str(tmp_path / "out"))
    if method == "sinks":  # two layers: none from layer 2 on
        assert done.exit_code == 2
        assert "no attention from it on" in done.stderr
        return
    assert done.exit_code == 0, done.stderr
    kinds = {"grounding": "GroundingHeads", "schedule": "PruningSchedule"}
    assert kinds.get(method, "ImageTokenEffects") in done.stdout
    [folder] = (tmp_path / "out").iterdir()
    ends = ("json", "csv", "csv.provenance.json", "html")
    assert {p.name for p in folder.iterdir()} == {f"{method}.{end}" for end in ends}


OWN = '''
"""Attention to images."""

from interp.heads import detector


@detector
def to_images(query, key, segments):
    """Attend from text to the images, the first ones left out."""
    return (segments[query] == "text") & (segments[key] == "image") & (key > 3)
'''


def test_score_runs_detectors_that_name_segments(run, llava_folder, picture_files, tmp_path):
    own = tmp_path / "to_images.py"
    own.write_text(OWN)
    command = ["score", str(llava_folder), "--null", "none", "--json", "-m"]
    done = run(*command, f"segments,{own}", *given(picture_files[:2]), "--text", "w5 w6")
    assert done.exit_code == 0, done.stderr
    assert "patch_to_register is omitted" in done.stderr
    assert "names the segment 'register'" in done.stderr
    found = json.loads(done.stdout)
    rows = found["rows"] if isinstance(found, dict) else found
    assert {row["metric"] for row in rows} == {"text_to_image", "to_images"}
    assert {row["stack"] for row in rows} == {"decoder"}
    means = {
        m: np.mean([r["score"] for r in rows if r["metric"] == m])
        for m in ("text_to_image", "to_images")
    }
    assert 0 < means["to_images"] < means["text_to_image"] < 1


def test_prompts_without_images_are_one_error_for_a_metric_of_images(run, llava_folder):
    done = run("score", str(llava_folder), "-m", "text_to_image")
    assert done.exit_code == 1
    assert "do not have (decoder: text, special)" in done.stderr
    done = run("score", str(llava_folder), "-m", "text_to_image,entropy", "--null", "none")
    assert done.exit_code == 0
    assert "text_to_image is omitted" in done.stderr
    assert "entropy" in done.stdout
    done = run("score", "bundled:induction", "-m", "text_to_image")
    assert done.exit_code == 1
    assert done.stderr.count("names the segment 'image'") == 1
