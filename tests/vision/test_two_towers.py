"""CLIP and SigLIP in a folder with a tokenizer: planted heads, from the call and the command."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vision.towers import module_of
from vision.two_towers import (
    BANK,
    CLASSES,
    PLANTED,
    clip_folder,
    cued_pictures,
    picture_folder,
    tokenizer_of,
)

import interp
from interp import vision
from interp.core.errors import OptionError, PromptError

NUMBER = 96
IMAGES = cued_pictures(NUMBER)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp("clip")
    clip_folder(folder / "clip")
    return picture_folder(folder, NUMBER)


@pytest.fixture(scope="module")
def clip(made: Path) -> interp.Model:
    return interp.load(str(made / "clip"))


def test_texts_are_embedded_as_the_model_does(clip: interp.Model) -> None:
    module: Any = clip.module
    for texts in (CLASSES, ["a dog", "a red square"]):
        found = vision.text_embeddings(clip, texts)
        for text, mine in zip(texts, found, strict=True):  # alone, without padding
            with torch.no_grad():
                ids = clip.tokenizer(text, return_tensors="pt")["input_ids"]
                own = module.get_text_features(input_ids=ids).pooler_output[0]
            np.testing.assert_allclose(mine, own / own.norm(), atol=1e-5)


def test_direct_effects_sum_to_the_similarity(clip: interp.Model) -> None:
    pixels, classes, _ = IMAGES
    texts = vision.text_embeddings(clip, CLASSES)
    found = vision.image_direct_effects(clip, pixels, classes, texts=texts, against="none")
    with torch.no_grad():
        out = clip.module(
            pixel_values=torch.from_numpy(pixels),
            **clip.tokenizer(list(CLASSES), return_tensors="pt", padding=True),
        )
    cosine = (out.image_embeds @ out.text_embeds.T).numpy()[np.arange(NUMBER), classes]
    np.testing.assert_allclose(found.per_prompt.sum(0), cosine, atol=1e-5)
    against = vision.image_direct_effects(clip, pixels, classes, texts=texts)
    top = against.to_pandas().set_index("part")["score"].abs().nlargest(2)
    assert set(top.index) == {"L1H0", "L1H2"}


def test_the_planted_text_is_named_first(clip: interp.Model) -> None:
    bank = vision.text_embeddings(clip, BANK)
    found = vision.describe_heads(clip, IMAGES[0], bank, BANK, heads=["L1H0", "L1H1"], ranks=2)
    rows = found.to_pandas().set_index(["part", "rank"])
    assert rows.loc[("L1H1", 1), "text"] == PLANTED
    assert rows.loc[("L1H1", 1), "score"] > 0.999
    assert rows.loc[("L1H1", 1), "p"] == 0.05  # above all 19 random banks
    assert rows.loc[("L1H0", 1), "score"] < 0.5  # it writes a difference that no text has


def test_the_head_of_the_cue_is_located_and_corrected(clip: interp.Model) -> None:
    texts = vision.text_embeddings(clip, CLASSES)
    first, second = (tuple(x[half] for x in IMAGES) for half in (slice(48), slice(48, None)))
    located = vision.locate_spurious_heads(clip, *first, texts=texts)
    frame = located.to_pandas().set_index("part")
    assert frame.index[frame["spurious"]].tolist() == ["L1H2"]
    assert located.notes["wrong images follow the cue"]
    repaired = vision.correct_spurious_heads(clip, *second, located, how="forward", texts=texts)
    assert repaired.score[-3] < 0.5
    assert repaired.score[-2] == 1.0


def test_the_command(run, made: Path) -> None:
    given = (
        "study",
        "vision",
        str(made / "clip"),
        "--image",
        str(made / "images"),
        "--file",
        str(made / "classes.txt"),
        "-q",
    )
    bank, cues = ("--set", f"bank={made / 'words.txt'}"), ("--set", f"cues={made / 'cues.csv'}")
    text = run(*given, *bank, "--method", "texts").stdout
    assert re.search(rf"explained_variance +L1H1 +1\.000 .*{PLANTED}, then", text)
    text = run(*given, *cues, "--method", "cue").stdout
    assert re.search(r"L1H2 +spurious +1\.000", text)
    assert "spurious heads: L1H2" in text
    out = made / "out"
    table = run(*given, "--method", "direct,readouts", "--json", "-o", str(out)).stdout
    rows = json.loads(table)
    units = {(row["metric"], row["unit"]) for row in rows}
    assert {unit for metric, unit in units if metric.startswith("direct")} == {"cosine"}
    assert len({metric for metric, _ in units}) > 1
    assert len(list(out.rglob("maps.html"))) == 1


def test_the_guide_shows_what_the_command_prints(run, made: Path, monkeypatch) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "vision_heads.md"
    [shown] = re.findall(r"```text\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(made)
    shutil.copytree(made / "clip", made / "my-clip")
    for part in shown.split("$ interp ")[1:]:
        command, *lines = part.splitlines()
        printed = run(*command.split(), "-q").stdout.splitlines()
        for mine, own in zip(lines, printed, strict=True):
            assert re.sub(r" ± \S+", "", mine).split() == re.sub(r" ± \S+", "", own).split()


def test_images_without_texts_have_the_classes_of_their_folders(
    clip: interp.Model, made: Path
) -> None:
    read = vision.read_images(clip, made / "images")
    named = vision.read_images(clip, made / "images", texts=CLASSES)
    assert named.labels is not None
    assert read.labels is not None
    np.testing.assert_array_equal(read.labels, 1 - named.labels)  # green comes before red
    order = np.argsort([name.split("/")[1] for name in named.names])
    np.testing.assert_array_equal(named.labels[order], IMAGES[1])
    np.testing.assert_allclose(named.pixels[order], IMAGES[0], atol=0.005)


def test_a_processor_of_both_names_the_normalisation(made: Path, tmp_path: Path) -> None:
    folder = clip_folder(tmp_path / "clip")
    (folder / "preprocessor_config.json").unlink()
    config = {"image_processor": {"image_mean": [0.0] * 3, "image_std": [2.0] * 3}}
    (folder / "processor_config.json").write_text(json.dumps(config))
    read = vision.read_images(interp.load(str(folder)), made / "images", limit=4)
    assert read.pixels.min() >= 0
    assert 0 < read.pixels.max() <= 0.5


def test_siglip_reads_texts_padded_to_its_whole_context(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(BANK, ends=False)
    module: Any = module_of("SiglipModel").float()
    module.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = interp.load(str(tmp_path))
    [found] = vision.text_embeddings(model, ["a dog"])
    words = [tokenizer.vocab[word] for word in ("a", "dog")]
    ids = torch.tensor([[*words, *[tokenizer.pad_token_id] * 10]])
    mask = (torch.arange(12) < 2).long()[None]
    with torch.no_grad():
        own = module.get_text_features(input_ids=ids, attention_mask=mask).pooler_output[0]
    np.testing.assert_allclose(found, own / own.norm(), atol=1e-5)
    pixels = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0)).numpy()
    texts = vision.text_embeddings(model, BANK)
    described = vision.describe_heads(model, pixels, texts[:, :24], BANK, ranks=1, n_random=2)
    assert set(described.part) == {f"L{layer}H{head}" for layer in (0, 1) for head in range(3)}


def test_what_does_not_fit(clip: interp.Model, made: Path, tmp_path: Path, errors) -> None:
    with pytest.raises(OptionError, match="'green' is in 0 of the texts"):
        vision.read_images(clip, made / "images", texts=["a dog", "a cat"])
    with pytest.raises(OptionError, match="'red' is in 2 of the texts"):
        vision.read_images(clip, made / "images", texts=["a red dog", "a red cat", "green"])
    with pytest.raises(PromptError, match="has no tokenizer"):
        vision.text_embeddings(interp.load(clip.module), CLASSES)
    given = ("study", "vision", str(made / "clip"), "--image", str(made / "images"), "-q")
    code, [line] = errors(*given, "--method", "direct")
    assert code
    assert "--method direct needs --file" in line
    cues = tmp_path / "cues.csv"
    with (made / "cues.csv").open() as old, cues.open("w", newline="") as new:
        csv.writer(new).writerows([name, "blue"] for name, _ in csv.reader(old))
    more = ("--file", str(made / "classes.txt"), "--set", f"cues={cues}", "--method", "cue")
    code, [line] = errors(*given, *more)
    assert code
    assert "'blue' is in 0 of the texts" in line
