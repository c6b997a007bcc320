"""Results of caches, gates, probes, categories and token importance in a folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from probes.made_features import PLANTED, made

from interp.cache.cards import card_rows
from interp.cache.plan_result import CachePlan
from interp.cache.windows import KVHead, Window
from interp.causal.gating.result import LearnedGates
from interp.causal.steering.result import dose_rows
from interp.core.json_document import json_document
from interp.core.result_rows import ResultRows
from interp.core.table import HeadTable
from interp.probes import HeadFeatures, train_probe
from interp.report.atlas.build import build_atlas
from interp.report.atlas.folder import read_folder
from interp.report.atlas.page import atlas_page

MADE = {"model_id": "tiny", "content_hash": "c" * 64, "task": "copying"}
KV = (KVHead("decoder", 0, 0), KVHead("decoder", 0, 1))


def scores(metric: str = "induction", made_by: str = "interp.score") -> HeadTable:
    """Scores of four query heads that share two key-value heads."""
    return HeadTable.from_scores(
        model="tiny",
        metric=metric,
        score=np.array([[0.1, 0.2, 0.3, 0.9]]),
        sem=0.01,
        n=8,
        null=0.05,
        null_sem=0.01,
        unit="fraction",
        n_kv_heads=2,
        provenance={"content_hash": "c" * 64, "made_by": made_by},
    )


def cards() -> ResultRows:
    """The first head loses nothing with a window; the second needs the 16 last tokens."""
    losses = np.zeros((2, 2, 12))
    losses[1, 0] = np.linspace(0.4, 0.6, 12)
    facts = {"sink": 4, "recents": (4, 16), "max_loss": 0.01, "length": 49}
    mass = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    return card_rows(KV, losses, mass, np.zeros(2), (64, 64), facts, MADE)


def plan() -> CachePlan:
    return CachePlan(
        KV,
        (Window(4, 4), None),
        (512, 3136),
        (3136, 3136),
        (0.0, 0.5),
        49,
        0.02,
        0.95,
        np.full(8, 0.001),
        np.full(8, 0.001),
        MADE,
    )


def gates() -> LearnedGates:
    gate = np.array([[1.0, 0.0, 0.1, 0.9], [1.0, 0.0, 0.3, 0.9]])
    names = tuple(f"L0H{i}" for i in range(4))
    return LearnedGates(
        "hard_concrete",
        names,
        tuple((x,) for x in names),
        gate,
        gate,
        np.ones(4),
        "units",
        None,
        (10, 10),
        (True, True),
        {},
        {},
        "nats",
        False,
        None,
        MADE,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    scores().to_parquet(tmp_path / "table.parquet")
    for name, one in (("cards", cards()), ("plan", plan()), ("gates", gates())):
        (tmp_path / f"tiny-{name}").mkdir()
        one.save(tmp_path / f"tiny-{name}" / f"{name}.json")
    return tmp_path


def notes_on(atlas, label: str) -> list[str]:
    return [link["text"] for link in atlas["models"][0]["cards"][label].get("parts", [])]


def test_the_record_of_a_csv_is_no_result_of_its_own(folder: Path) -> None:
    plain = read_folder(folder)
    cards().save(folder / "tiny-cards" / "cards.csv")
    scores().save(folder / "tiny-cards" / "scores.csv")
    assert len(list(folder.rglob("*.csv.provenance.json"))) == 2
    again = read_folder(folder)
    assert again.notes == plain.notes == []
    assert [*map(repr, again.parts)] == [*map(repr, plain.parts)]


def test_a_fifo_among_the_kept_nulls_is_left_out(folder: Path) -> None:
    (folder / "nulls").mkdir()
    os.mkfifo(folder / "nulls" / "null.json")
    assert read_folder(folder).nulls == []


def test_every_result_is_a_part_of_its_model(folder: Path) -> None:
    atlas = build_atlas(folder)
    assert atlas.get("notes", []) == []
    [model] = atlas["models"]
    assert {p["title"] for p in model["results"]} == {
        "What each cache must keep",
        "Cache plan",
        "Learned gates (hard concrete): copying",
    }
    by_title = {p["title"]: p for p in model["results"]}
    assert "1 of 2 key-value heads need no more" in by_title["What each cache must keep"]["text"]
    assert by_title["Learned gates (hard concrete): copying"]["heads"] == ["L0H0", "L0H3"]


def test_a_card_says_what_the_head_keeps_and_at_what_budget(folder: Path) -> None:
    atlas = build_atlas(folder)
    first, last = notes_on(atlas, "L0H1"), notes_on(atlas, "L0H2")
    assert any(x.startswith("Its cache needs 8 [8, 8] of 49 tokens") for x in first)
    assert any(x.startswith("Its cache needs 20 [20, 20] of 49 tokens") for x in last)
    assert any("+0.5 [" in x for x in last)  # the loss with the smallest window, with its interval
    assert any(x.startswith("The cache plan keeps 8 tokens (4+4): 512") for x in first)
    assert any(x.startswith("The cache plan keeps all tokens: 3,136") for x in last)
    # query heads that share a cache share its notes
    assert [x for x in notes_on(atlas, "L0H0") if "cache" in x] == [
        x for x in first if "cache" in x
    ]


def test_a_card_gives_the_gate_with_its_interval(folder: Path) -> None:
    [told] = [x for x in notes_on(build_atlas(folder), "L0H2") if x.startswith("Gate")]
    assert told.startswith("Gate for copying: 0.20 [0, 1] over 2 restarts, removed")


def test_a_probe_gives_the_loss_without_each_head(folder: Path) -> None:
    made_up, y, where = made(signal=1.5)
    mine = [i for i, place in enumerate(made_up.places) if place[1] == PLANTED[1]]
    places = tuple(("decoder", 0, made_up.places[i][2]) for i in mine)
    about = {"name": "tiny", "hash": "c" * 64}
    features = HeadFeatures(made_up.x[:, mine], places, "z", made_up.items, about)
    found = train_probe(features, y.tolist(), where.tolist(), folds=3, n_permutations=19)
    found.save(folder / "probe.json")
    atlas = build_atlas(folder)
    [part] = [p for p in atlas["models"][0]["results"] if p["kind"] == "probe"]
    assert f"{found.scores['auc']:.3f} of the pairs in order on held-out documents" in part["text"]
    assert "with shuffled labels, p = " in part["text"]
    assert part["heads"][0] == f"L0H{PLANTED[2]}"
    score = found.top(1).to_pandas()["score"].iloc[0]
    assert any(f"rises by {score:+.3g} [" in x for x in notes_on(atlas, f"L0H{PLANTED[2]}"))


def test_steering_is_drawn_over_the_factors(folder: Path) -> None:
    values = np.linspace(0, 1, 12).reshape(3, 4)
    random = np.full((2, 3, 4), 0.5)
    curve = dose_rows(
        "tiny",
        ("L0H3",),
        "scale",
        (-1.0, 1.0, 2.0),
        (("copying", "logits", True), ("plain_loss", "nats/token", False)),
        (values, values),
        (random, random),
        (None, None),
        MADE,
    )
    curve.save(folder / "steer.json")
    atlas = build_atlas(folder)
    [part] = [p for p in atlas["models"][0]["results"] if p["kind"] == "steering"]
    assert part["heads"] == ["L0H3"]
    assert "1 is the model itself. copying: 0.136 [" in part["text"]
    first = part["figure"]["lines"][0]
    assert first["x"] == [-1.0, 1.0, 2.0]
    assert first["y"] == pytest.approx(values.mean(1))
    assert [line["kind"] for line in part["figure"]["lines"]] == ["result", "random"] * 2
    assert "Steering L0H3" in atlas_page(atlas)


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_categories_become_scores_and_copies_of_scores_do_not(folder: Path, suffix: str) -> None:
    scores("labelled:label=NOUN", "interp.syntax.category_scores").save(folder / f"mine{suffix}")
    scores("copied").save(folder / f"page{suffix}")  # as `interp atlas` writes beside its page
    names = [m["name"] for m in build_atlas(folder)["models"][0]["metrics"]]
    assert names == ["induction", "labelled:label=NOUN"]


def test_token_importance_is_drawn_with_its_faithfulness(folder: Path) -> None:
    rows = [
        {"position": i, "token": t, "special": i == 0, "rsq": 0.1 * i, "effect": 0.2 * i}
        for i, t in enumerate(["<s>", " a", "</script>"])
    ]
    made = {
        "tokens": rows,
        "summary": {"spearman": [{"method": "rsq", "mean": 0.6, "sem": 0.1, "n": 9}]},
        "differences": {},
        "limits": {},
        "texts": ["a"],
        "provenance": {"model_id": "tiny"},
    }
    (folder / "tokens.json").write_bytes(json_document(made))
    atlas = build_atlas(folder)
    [part] = [p for p in atlas["models"][0]["results"] if p["kind"] == "attribution"]
    assert [name for name, _ in part["figure"]["rows"]] == ["rsq", "effect of hiding the token"]
    assert any(p["kind"] == "faithfulness" for p in atlas["pages"])
    page = atlas_page(atlas)
    assert "Importance of tokens by published measures" in page
    assert page.count("</script>") == page.count("<script")


def test_a_damaged_result_is_named_on_the_page(folder: Path) -> None:
    path = folder / "tiny-gates" / "gates.json"
    path.write_text(path.read_text()[:-40] + "}", encoding="utf-8")
    notes = build_atlas(folder)["notes"]
    assert any("gates.json could not be read" in note for note in notes)
