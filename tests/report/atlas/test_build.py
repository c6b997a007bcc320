"""The atlas document: from tables, from folders with every kind of result, and from models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interp
from interp import planted
from interp.core.errors import OptionError, StoreError
from interp.core.json_document import json_document, stored_document
from interp.core.store import Key, Store
from interp.core.table import HeadTable
from interp.report.atlas.build import build_atlas
from interp.report.atlas.document import Atlas
from interp.report.atlas.page import atlas_page

MADE = {"made_by": "test", "null": "shuffled-tokens", "content_hash": "a" * 64, "end": "high"}


def scores(
    name: str = "tiny", *, layers: int = 2, heads: int = 4, null: bool = True, **made: Any
) -> HeadTable:
    rng = np.random.default_rng(0)
    parts = []
    for metric in ("induction", "previous_token", "first_token", "local_window", "recency"):
        x = rng.uniform(0.02, 0.04, (layers, heads))
        x[-1, -1] = 0.9 if metric == "induction" else x[-1, -1]
        columns: dict[str, Any] = {"sem": 0.01, "n": 16, "unit": "attention mass"}
        if null:
            columns |= {"null": 0.03, "null_sem": 0.002, "null_sd": 0.01}
            columns["p"] = np.where(x > 0.5, 1e-9, 0.5)
        about = MADE | made | ({} if null else {"null": "none"})
        parts.append(
            HeadTable.from_scores(
                model=name, metric=metric, score=x, provenance=about, n_kv_heads=heads, **columns
            )
        )
    return HeadTable.concat(parts)


def stored(folder: Path, table: HeadTable, version: str | None = None) -> Path:
    store = Store(folder)
    for model in table.models:
        for metric in table.metrics:
            one = table.where(model=model, metric=metric)
            weights = one.provenance[model, metric]["content_hash"]
            versions = {} if version is None else {"versions": {"interp": version}}
            made = {key: about | versions for key, about in one.provenance.items()}
            store.write(Key(model, weights, metric, {}), HeadTable(one.wide(), made))
    return folder


def plain(atlas: Atlas) -> Atlas:
    """The document after a round through JSON that refuses NaN."""
    return json.loads(json.dumps(atlas, allow_nan=False))


def test_a_table_gives_columns_in_the_order_of_the_heads() -> None:
    atlas = plain(build_atlas(scores()))
    [model] = atlas["models"]
    labels = [place["label"] for place in model["heads"]]
    assert labels == [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    assert model["roles"] == ["unclear"] * 7 + ["induction"]
    assert {role["id"]: role["count"] for role in model["legend"]}["unclear"] == 7
    metric = {one["name"]: one for one in model["metrics"]}["induction"]
    assert (metric["low"], metric["high"]) == (0.0, 1.0)
    assert all(len(metric[c]) == 8 for c in ("score", "sem", "n", "null_score", "null_sem", "p"))
    assert metric["score"][-1] == 0.9
    assert metric["score_low"][-1] < 0.9 < metric["score_high"][-1]
    assert metric["null_values"] == [0.03] * 8
    assert model["cards"]["L1H3"]["evidence"][0]["role"] == "induction"
    assert atlas["comparisons"] == atlas["pages"] == atlas["notes"] == []


def test_without_nulls_nothing_is_claimed() -> None:
    [model] = plain(build_atlas(scores(null=False)))["models"]
    assert model["roles"] == [None] * 8
    assert not any(one["found"] or one["judged"] for one in model["statements"])
    assert model["metrics"][0]["null"] is None
    assert model["metrics"][0]["p"] == [None] * 8
    assert not any("evidence" in card for card in model["cards"].values())


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 4), (3, 1)])
def test_a_model_of_one_layer_or_one_head(layers: int, heads: int) -> None:
    [model] = plain(build_atlas(scores(layers=layers, heads=heads)))["models"]
    assert len(model["heads"]) == layers * heads
    assert model["roles"][-1] == "induction"


def test_a_name_with_markup_has_a_plain_id() -> None:
    [model] = plain(build_atlas(scores("<b>org/x & y</b>")))["models"]
    assert model["name"] == "<b>org/x & y</b>"
    assert set(model["id"]) <= set("abcdefghijklmnopqrstuvwxyz/-.".replace("/", ""))


def test_two_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    a, b = scores(), scores(content_hash="b" * 64)
    first, second = stored(tmp_path / "a", a), stored(tmp_path / "b", b)
    atlas = plain(build_atlas(first, second))
    assert [model["name"] for model in atlas["models"]] == ["tiny@aaaaaaaa", "tiny@bbbbbbbb"]
    assert len({model["id"] for model in atlas["models"]}) == 2
    assert any("called tiny" in note for note in atlas["notes"])
    [comparison] = atlas["comparisons"]
    assert comparison["metrics"][0]["difference"] == [0.0] * 8
    assert comparison["metrics"][0]["p"] == [None] * 8
    assert "without a test" in comparison["text"]


def test_names_that_differ_only_in_signs_have_different_ids() -> None:
    atlas = build_atlas(scores("a/b"), scores("a b"))
    assert [model["id"] for model in atlas["models"]] == ["a-b", "a-b-2"]


def test_the_draws_behind_a_null_come_with_the_scores(tmp_path: Path) -> None:
    """Of a folder that `interp score` wrote: six draws of random weights, as many heads each."""
    model = interp.load("bundled:one-layer")
    made = interp.score(model, ["ov_copying", "previous_token"], null_cache=tmp_path / "nulls")
    weights = made.provenance["bundled:one-layer", "ov_copying"]["content_hash"]
    for metric in made.metrics:
        one = made.where(metric=metric)
        Store(tmp_path).write(Key("bundled:one-layer", weights, metric, {}), one)
    [shown] = plain(build_atlas(tmp_path))["models"]
    metrics = {one["name"]: one for one in shown["metrics"]}
    for metric in metrics.values():
        assert (metric["draws"], len(metric["drawn_values"])) == (6, 48)
    own = metrics["ov_copying"]
    assert np.mean(own["drawn_values"]) == pytest.approx(np.mean(own["null_score"]), rel=1e-9)
    # of other prompts, or damaged: the page shows the nulls of the table alone
    for path in (tmp_path / "nulls").glob("*.json"):
        document = stored_document(path.read_bytes())
        document["key"]["seed"] = 7
        path.write_bytes(json_document(document) if "ov" in path.name else b"{")
    [shown] = plain(build_atlas(tmp_path))["models"]
    assert not any("drawn_values" in metric for metric in shown["metrics"])


def test_draws_of_the_cache_of_this_machine_are_shown_and_named(tmp_path: Path) -> None:
    """Of the same metric, prompts and seed, if their mean is the null of the table."""
    model = interp.load("bundled:one-layer")
    made = interp.score(model, "ov_copying", null_cache=True)
    made.save(tmp_path / "table.parquet")
    [one] = plain(build_atlas(tmp_path))["models"][0]["metrics"]
    assert (one["draws"], len(one["drawn_values"]), one["draws_shared"]) == (6, 48, True)
    assert np.mean(one["drawn_values"]) == pytest.approx(np.mean(one["null_score"]), rel=1e-9)
    page = atlas_page(build_atlas(tmp_path))
    assert '"shared":1' in page
    assert "kept by earlier runs on this machine" in page
    # a table in memory is shown as it is, and draws with another mean are of another model
    assert "draws" not in plain(build_atlas(made))["models"][0]["metrics"][0]
    frame = made.to_pandas()
    other = HeadTable(frame.assign(null=frame["null"] + 0.01), made.provenance)
    other.save(tmp_path / "table.parquet")
    assert "draws" not in plain(build_atlas(tmp_path))["models"][0]["metrics"][0]


def test_a_half_written_file_is_a_note_and_the_rest_is_shown(tmp_path: Path) -> None:
    stored(tmp_path, scores())
    path = next(p for p in sorted(tmp_path.glob("*.parquet")) if "recency" in p.name)
    path.write_bytes(path.read_bytes()[:100])
    (tmp_path / "ablate.parquet").write_bytes(b"PAR1")
    (tmp_path / "trees.json").write_text('[{"format": "interp dependency tr', encoding="utf-8")
    (tmp_path / ".trees.json.tmp123").write_text("{", encoding="utf-8")
    atlas = plain(build_atlas(tmp_path))
    [model] = atlas["models"]
    assert {metric["name"] for metric in model["metrics"]} == {
        "induction",
        "previous_token",
        "first_token",
        "local_window",
    }
    said = " ".join(atlas["notes"])
    for name in (path.name, "ablate.parquet", "trees.json"):
        assert f"{name} could not be read" in said
    assert len(atlas["notes"]) == 3


def test_a_document_with_missing_parts_is_a_note(tmp_path: Path) -> None:
    stored(tmp_path, scores())
    document = [{"checks": [{"model": "tiny"}], "provenance": {}}]
    (tmp_path / "verify.json").write_bytes(json_document(document))
    atlas = build_atlas(tmp_path)
    assert [note for note in atlas["notes"] if "verify.json could not be read" in note]


def test_results_of_another_version_are_shown_and_noted(tmp_path: Path) -> None:
    atlas = build_atlas(stored(tmp_path, scores(), "0.0.1"))
    assert len(atlas["models"][0]["metrics"]) == 5
    assert any("made by interp 0.0.1" in note for note in atlas["notes"])


def test_files_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    stored(tmp_path, scores())
    (tmp_path / "package.json").write_text('{"name": "x"}', encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    assert build_atlas(tmp_path)["notes"] == []


def test_an_empty_folder_and_a_missing_one_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="interp score MODEL --out"):
        build_atlas(tmp_path)
    with pytest.raises(StoreError, match="not a folder of results"):
        build_atlas(tmp_path / "none")


def test_ablations_become_effects_and_metrics(tmp_path: Path) -> None:
    stored(tmp_path, scores())
    label = "ablation:kind=zero,task=second_copy_loss"
    table = HeadTable.from_scores(
        model="tiny",
        metric=label,
        score=[[0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 4.0]],
        sem=0.05,
        n=16,
        unit="nats (+ helps)",
        provenance=MADE | {"null": "none"},
    )
    table.to_parquet(tmp_path / "ablate.parquet")
    [model] = plain(build_atlas(tmp_path))["models"]
    assert [m["group"] for m in model["metrics"]][-1] == "causal"
    [effect] = model["cards"]["L1H3"]["effects"]
    assert (effect["task"], effect["intervention"]) == ("second_copy_loss", "ablation, zero")
    assert effect["low"] < effect["value"] == 4.0 < effect["high"]


def test_a_circuit_becomes_a_part_and_its_heads_link_to_it(tmp_path: Path) -> None:
    from interp.circuits.nodes import NodeSet, Share
    from interp.circuits.result import Circuit

    stored(tmp_path, scores())
    chosen = NodeSet(
        ("L1H3", "mlp0"), (("mlp0", "L1H3.q"), ("L1H3", "logits")), Share(0.85, 0.8, 0.9, 0.9), 0.8
    )
    found = Circuit(
        "tiny",
        2,
        4,
        "induction",
        "by_hand",
        "edge",
        ("L1H3", "L0H0", "mlp0"),
        np.array([3.0, 2.0, np.nan]),
        np.array([0.1, 0.1, np.nan]),
        8,
        "logits",
        edges=(("L0H0", "L1H3.q"), ("mlp0", "L1H3.q")),
        edge_score=np.array([1.0, 0.5]),
        made=MADE,
        tables=chosen.tables({}),
    )
    inner = tmp_path / "tiny"
    inner.mkdir()
    found.to_json(inner / "circuit.json")
    evaluation = {
        "figures": [
            {"figure": "faithfulness", "value": 0.1, "low": 0.0, "high": 0.2},
            {"figure": "faithfulness of the set", "value": 0.8, "low": 0.7, "high": 0.9},
        ],
        "pairs": "on 8 other pairs",
    }
    (inner / "evaluation.json").write_bytes(json_document(evaluation))
    [model] = plain(build_atlas(tmp_path))["models"]
    [part] = model["results"]
    assert part["kind"] == "circuit"
    assert part["heads"] == ["L1H3"]
    assert "2 nodes (L1H3, mlp0) and 2 edges; it keeps 0.85 [0.80, 0.90] on" in part["text"]
    assert "Measured on 8 other pairs, it keeps 0.8 [0.7, 0.9]" in part["text"]
    figure: Any = part["figure"]
    assert figure["chosen"] == ["L1H3", "mlp0"]
    assert figure["edges"] == [["mlp0", "L1H3.q", 0.5], ["L1H3", "logits", None]]
    assert [node["id"] for node in figure["nodes"]] == ["L1H3", "mlp0", "logits"]
    assert [node["score"] for node in figure["nodes"]] == [3.0, None, None]  # one not patched
    [link] = model["cards"]["L1H3"]["parts"]
    assert link["part"] == part["id"]
    assert "parts" not in model["cards"].get("L0H1", {})


def test_results_of_a_model_without_scores_are_pages(tmp_path: Path) -> None:
    document = {
        "heads": [{"layer": 0, "head": 0, "metric": "projection", "score": 1.0}],
        "directions": [],
        "curves": [],
        "sahara": {"centred": ["L0H0"]},
        "refused": [1.0, 0.0],
        "provenance": {"model_id": "other"},
    }
    (tmp_path / "safety.json").write_bytes(json_document(document))
    atlas = plain(build_atlas(tmp_path))
    assert atlas["models"] == []
    [page] = atlas["pages"]
    assert page["title"] == "Refusal, other"
    assert page["heads"] == ["L0H0"]


def test_a_loaded_model_adds_examples_and_what_its_heads_write() -> None:
    built = planted.build("induction", context=64, vocab=32)
    model = interp.load(built.model, name="planted")
    metrics = ["induction", "previous_token"]
    table = interp.score(model, metrics, null_draws=3, null_cache=False)
    atlas = plain(build_atlas(table, models=[model]))
    [(layer, head)] = built.roles["induction"]
    card = atlas["models"][0]["cards"][f"L{layer}H{head}"]
    example = card["examples"][0]
    assert example["metric"] == "induction"
    assert len(example["weights"]) == example["query"] + 1
    assert sum(example["weights"]) == pytest.approx(1, abs=0.01)
    # the head attends to the token after an earlier copy of the current one, and copies it
    key = int(np.argmax(example["weights"]))
    assert example["tokens"][key - 1] == example["tokens"][example["query"]]
    assert all(up[0] == token for token, up in card["writes"]["ov"])
    assert card["writes"]["up"][0][1] > 0 > card["writes"]["down"][0][1]
    near = [one for c in atlas["models"][0]["cards"].values() for one in c.get("nearest", [])]
    assert near  # the random heads attend alike
    assert all(0.5 <= one["similarity"] <= 1 for one in near)


def test_a_loaded_model_that_is_not_in_the_results_is_a_note() -> None:
    model = interp.load(planted.build("noise", context=64, vocab=32).model, name="other")
    atlas = build_atlas(scores(), models=[model])
    assert any("other is loaded, but there are no scores" in note for note in atlas["notes"])


def test_a_folder_that_is_being_written_to(tmp_path: Path) -> None:
    """A file that is listed and then gone is a note, not an error."""
    folder = stored(tmp_path, scores())
    gone = next(iter(folder.glob("*.parquet")))
    copy = tmp_path / "moved"
    copy.mkdir()
    from interp.report.atlas import folder as reading

    real = reading._written

    def written(path: Path) -> float:
        if gone.exists():
            shutil.move(gone, copy / "elsewhere.bin")
        return real(path)

    reading._written = written
    try:
        atlas = build_atlas(folder)
    finally:
        reading._written = real
    assert any(f"{gone.name} could not be read" in note for note in atlas["notes"])
    assert len(atlas["models"][0]["metrics"]) == 4
