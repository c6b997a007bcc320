"""Pictures in the atlas: sentence pairs, spoken words, maps over images, depths, long texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.atlas_sample import HOSTILE
from report.browser import needs_browser
from report.looking import CUT, PALE, SQUEEZED

from interp.alignment.pictures import PairAlignment
from interp.alignment.time_result import time_error_rows
from interp.alignment.word_times import word_time_rows
from interp.core.head import Head
from interp.core.prompt_values import SUFFIX
from interp.core.result_rows import ResultRows
from interp.core.table import HeadTable
from interp.lens.encoder_layers import lens_rows
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import atlas_page
from interp.text.chains.anchors_result import Anchors
from interp.text.chains.receivers import receiver_rows
from interp.vision.maps import map_rows
from interp.vision.overlay import reduced_image

MADE = {"model_id": "tiny", "content_hash": "c" * 64}
THINKS = {"model_id": "thinker", "content_hash": "d" * 64}
CROSS = Head(1, 1, "cross")


def pair() -> PairAlignment:
    weights = np.array([[0.9, 0.1], [0.2, 0.7]])
    links = frozenset({(0, 0), (1, 1)})
    return PairAlignment(
        CROSS,
        "emits",
        (HOSTILE, "cat"),
        ("le", "chat"),
        weights,
        links,
        frozenset({(0, 0)}),
        frozenset({(0, 0)}),
        MADE,
    )


def words() -> ResultRows:
    two = np.array([0.0, 0.4])
    values = {
        "places": np.arange(2),
        "token": np.arange(2),
        "start": two,
        "end": np.array([0.4, 0.8]),
        "sem": np.full(2, np.nan),
        "even": two,
        "gold": np.array([0.0, 0.38]),
    }
    picture = {
        "bands": np.random.default_rng(0).random((8, 40)).astype(np.float32),
        "attention": np.eye(2, dtype=np.float32).repeat(10, 1),
        "tokens": (HOSTILE, "cat"),
        "sound": 0.8,
    }
    return word_time_rows(
        (CROSS,), (f"{HOSTILE}.wav",), np.array([0, 0]), (HOSTILE, "cat"), values, picture, MADE
    )


def errors() -> ResultRows:
    return time_error_rows(
        ("L1H1", "chosen heads together"),
        ((CROSS,), (CROSS,)),
        np.array([[0.1, 0.2]] * 2),
        np.array([0.5, 0.5]),
        0.3,
        np.array([0.005, 0.005]),
        np.zeros((2, 2, 2)),
        (1, 2),
        MADE,
    )


def maps() -> ResultRows:
    pixels = np.random.default_rng(0).random((1, 3, 120, 120))
    return map_rows(("rollout",), np.ones((1, 1, 2, 2)), pixels, ("attention mass",), MADE)


def lens() -> ResultRows:
    loss = np.array([[4.0, 5.0], [1.0, 2.0]])
    return lens_rows(
        ("embedding", "layer 0"),
        loss,
        loss,
        (("a",), ("b",)),
        MADE,
        labels=("b",),
        residual=0.0,
        norm="",
    )


def anchors() -> Anchors:
    values = {"receiver": np.array([0.1, 0.3, 0.2]), "suppression": np.array([np.nan, -0.5, 1.0])}
    nothing = np.full(3, -1)
    return Anchors(
        ("first", HOSTILE),
        np.array([0, 0, 1]),
        np.array([0, 1, 0]),
        ("One.", HOSTILE, "Two."),
        values,
        {},
        nothing,
        nothing,
        ((Head(0, 1, "decoder"),),) * 2,
        THINKS,
    )


def receivers() -> ResultRows:
    heads = tuple(Head(0, h, "decoder") for h in range(2))
    kurtosis = np.array([[1.0, 2.0], [9.0, 7.0]])
    return receiver_rows(
        heads,
        kurtosis,
        kurtosis / 10,
        np.ones((2, 3)),
        np.array([0, 0, 1]),
        ("a", "b", "c"),
        ("x", "y"),
        THINKS,
    )


@pytest.fixture
def pictured_results(tmp_path: Path) -> Path:
    tables = [
        HeadTable.from_scores(
            model=made["model_id"],
            metric="entropy",
            score=np.array([[0.1, 0.2], [0.3, 0.4]]),
            sem=0.01,
            n=8,
            unit="nats",
            stack=stack,
            provenance={"content_hash": made["content_hash"]},
        )
        for made, stack in ((MADE, "decoder"), (MADE, "cross"), (THINKS, "decoder"))
    ]
    HeadTable.concat(tables).to_parquet(tmp_path / "table.parquet")
    # values per prompt, which lie beside the scores and are no table of heads
    (tmp_path / f"tiny.entropy.x{SUFFIX}").write_bytes(b"PAR1")
    below = tmp_path / "tiny"
    below.mkdir()
    for name, one in (
        ("pair", pair()),
        ("word_times", words()),
        ("time_alignment", errors()),
        ("maps", maps()),
        ("decoder_lens", lens()),
        ("anchors", anchors()),
        ("receivers", receivers()),
    ):
        one.save(below / f"{name}.json")
    return tmp_path


def test_every_picture_is_a_part_and_its_texts_are_escaped(pictured_results: Path) -> None:
    atlas: Any = build_atlas(pictured_results)
    assert atlas["notes"] == []
    parts = {part["title"]: part for model in atlas["models"] for part in model["results"]}
    assert {title: part["figure"]["draw"] for title, part in parts.items() if "figure" in part} == {
        "Alignment of one sentence pair": "alignment",
        "Times of spoken words": "sound",
        "Maps over images": "maps",
        "DecoderLens": "curves",
        "Anchors: sentences that later ones depend on": "texts",
    }
    page = atlas_page(atlas)
    assert HOSTILE not in page
    assert "&lt;/script&gt;" in page
    assert "alignment error rate 0.333" in parts["Alignment of one sentence pair"]["text"]
    told = parts["Error of times of speech"]["text"]
    assert "Chosen heads together (cross L1H1): 0.150 [" in told
    assert "0.500 s with its rows in random order (p 0.01 by Holm)" in told
    assert (
        "4.5 nats per token at the embedding, 1.5 at the last layer"
        in (parts["DecoderLens"]["text"])
    )
    anchored = parts["Anchors: sentences that later ones depend on"]
    assert "receiver: sentence 1 of first, 0.3 attention weight, mean 0.2" in anchored["text"]
    assert anchored["figure"]["texts"][1]["tokens"] == ["0 Two. "]
    for name in ("spectrogram", "wrong: not a gold link", "rollout", "encoder layers read"):
        assert name in page


def test_cards_lead_to_the_pictures(pictured_results: Path) -> None:
    models = {model["name"]: model for model in build_atlas(pictured_results)["models"]}

    def notes(name: str, label: str) -> list[str]:
        model = models[name]
        return [link["text"] for link in model["cards"][label].get("parts", [])]

    assert set(notes("tiny", "cross L1H1")) == {
        "Alignment of le chat, alignment error rate 0.333",
        f"Times of spoken words in {HOSTILE}.wav, beside its spectrogram",
        "Times of speech: 0.150 [-0.485, 0.785] s from the gold times, 0.500 s with its rows in "
        "random order (p 0.01 by Holm)",
    }
    assert any(x.startswith("A receiver head of the anchors") for x in notes("thinker", "L0H1"))
    assert any(x.startswith("Receiver head: kurtosis 8.00 ± 1") for x in notes("thinker", "L0H1"))


def test_images_are_reduced_by_means() -> None:
    image = np.arange(36.0).reshape(1, 6, 6)
    np.testing.assert_allclose(reduced_image(image, 3)[0, 0], [3.5, 5.5, 7.5])
    assert reduced_image(image, 6) is image
    assert reduced_image(np.ones((3, 100, 7)), 8).shape == (3, 8, 7)
    np.testing.assert_allclose(reduced_image(np.ones((3, 100, 7)), 8), 1)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_pictures_can_be_read_on_a_screen(
    browser, pictured_results: Path, tmp_path: Path, theme, width
) -> None:
    path = tmp_path / "atlas.html"
    path.write_text(atlas_page(build_atlas(pictured_results)), encoding="utf-8")
    browser.emulate(theme, width)
    browser.open(path)
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    browser.run("for (const t of document.querySelectorAll('.cells text, text.sign')) t.remove()")
    assert browser.run("return document.querySelectorAll('svg.figure').length") == 5
    assert browser.run(PALE) == []
    assert browser.run(CUT) == []
    assert browser.run(SQUEEZED) == []
    browser.emulate("light", 1200)
