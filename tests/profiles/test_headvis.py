"""HeadVis trees: written from a profile, read back, Neuronpedia's own tables, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from report.profile_sample import profile

from interp.cli.main import main
from interp.core.errors import OptionError, StoreError
from interp.profiles import read_headvis, write_headvis
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import atlas_page

HOSTILE = "</script><img src=x onerror=alert(1)>"
FILES = ("config.json", "scatter_data.json", "server_config.json", "attributions/manifest.json")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def neuronpedia_tree(folder: Path, **head: Any) -> Path:
    """Two heads with the six metrics and tables of Neuronpedia."""
    names = [
        "self_attention_score",
        "prev_token_score",
        "pattern_entropy",
        "qk_distance",
        "qk_distance_variance",
        "induction_score",
    ]
    rows = [
        {"layer": 0, "head": h, **{name: round(0.1 * (at + h), 4) for at, name in enumerate(names)}}
        for h in (0, 1)
    ]
    rows[1]["induction_score"] = None
    config = {
        "model_name": "org/Tiny",
        "dataset_name": "pile",
        "heads": [[0, 0], [0, 1]],
        "n_layers": 1,
        "n_heads": 2,
        "n_intervals": 5,
        "metrics": names,
        "metric_descriptions": {"prev_token_score": "their words", "other": "of another tool"},
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "pipeline_config": {"actual_sequences_processed": 2000, "seq_len": 512},
    }
    tokens = ["<s>", "Tom", " said", " hi", " Tom"]
    sequences = [
        {
            "sequence_id": 7,
            "interval": i,
            "tokens": tokens,
            "seq_len": 5,
            "max_activation": 0.9,
            "attention_indices": [0, 4 * 5 + 1, 4 * 5 + 2, 3 * 5 + 0],  # 4 -> 1, 4 -> 2, sink
            "attention_values": [1.0, 0.1 * i, 0.05, 0.9],
        }
        for i in (1, 2, 3, 4, 5, 5)
    ]
    content = {
        "sequences": sequences,
        "qk_distance_histogram": {"bin_edges": [0, 1, 2, 4], "bin_values": [0.5, 0.0, 3.2]},
        "top_query_tokens": [{"token": " Tom", "weight": 2.5}],
        "top_key_tokens": [{"token": HOSTILE, "weight": 1.5}],
        "histogram": {"bin_edges": [0, 1], "bin_values": [2000]},
        "statistics": {"n_samples": 6, "mean_max_activation": 0.8},
    } | head
    (folder / "heads").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "scatter_data.json").write_text(json.dumps(rows))
    (folder / "heads" / "L0H0.json").write_text(json.dumps(content))
    return folder


def test_a_profile_is_written_in_the_form_of_neuronpedia(tmp_path: Path) -> None:
    tree = write_headvis(profile(), tmp_path / "tree")
    assert all((tree / name).is_file() for name in FILES)
    config = read(tree / "config.json")
    assert config["heads"] == [[layer, head] for layer in (0, 1) for head in range(4)]
    assert (config["n_layers"], config["n_heads"], config["has_umap"]) == (2, 4, False)
    assert set(config["metric_descriptions"]) == set(config["metrics"])
    rows = read(tree / "scatter_data.json")
    assert rows[1]["loss_without"] == 0.012
    assert set(rows[1]) == {"layer", "head", *config["metrics"]}
    head = read(tree / "heads" / "L0H0.json")
    # three strong examples, one typical; the surprising one has no place in the format
    assert [one["interval"] for one in head["sequences"]] == [5, 5, 5, 5]
    one = head["sequences"][0]
    assert one["tokens"][4] == "…"  # a token stands for those that are left out
    n = one["seq_len"]
    pairs = [divmod(index, n) for index in one["attention_indices"]]
    assert [(one["tokens"][q], one["tokens"][k]) for q, k in pairs] == [
        (" home", "Tom"),
        (" home", "."),
    ]
    assert one["attention_values"] == [0.85, 0.1]
    assert one["max_activation"] == 0.85
    assert not {"top_query_tokens", "top_key_tokens", "qk_distance_histogram"} & set(head)
    assert head["interp"]["sentence"].startswith("Of its attention off the sink")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    found = profile()
    back = read_headvis(write_headvis(found, tmp_path / "tree"))
    stated = found.to_pandas()
    stated = stated[~stated["metric"].str.startswith("entry:")]
    before = {(r["layer"], r["head"], r["metric"]): r["score"] for r in stated.to_dict("records")}
    after = {(r["layer"], r["head"], r["metric"]): r["score"] for r in back.rows}
    assert after == pytest.approx(before, abs=1e-4)
    assert {one["sentence"] for one in back.descriptions} == {""}  # a tree has none
    [first, *_] = [one for one in back.examples if one["name"] == "L0H0"]
    assert first["tokens"][first["query"]] == " home"
    # its first key is token 0, which is left out as a sink
    assert [first["tokens"][key] for key, _ in first["keys"]] == ["."]


def test_a_tree_of_neuronpedia_makes_the_same_pages(tmp_path: Path) -> None:
    tree = neuronpedia_tree(tmp_path / "tree")
    atlas = build_atlas(tree)
    [model] = atlas["models"]
    assert model["name"] == "org/Tiny"
    assert model["roles"] == [None, None]
    metrics = {one["name"]: one for one in model["metrics"]}
    assert metrics["induction_score"]["score"] == [0.5, None]
    assert "it counts attention on itself" in metrics["induction_score"]["text"]
    card = model["cards"]["L0H0"]["profile"]
    assert card["sentence"] == ""
    assert [one["kind"] for one in card["examples"]] == [
        "interval 5",
        "interval 5",
        "interval 3",
        "interval 1",
    ]
    [key, *_] = card["examples"][0]["keys"]
    assert key == (1, 0.5)
    assert any("in the kept sequences alone, no estimate of the corpus" in k for k in card["facts"])
    assert "profile" in model["cards"]["L0H1"]  # without a file of its own
    page = atlas_page(atlas)
    assert HOSTILE not in page
    assert "2 heads with examples; no description was fitted." in page


def test_commands_write_a_tree_and_show_it(tmp_path: Path) -> None:
    (tmp_path / "results" / "m").mkdir(parents=True)
    profile().save(tmp_path / "results" / "m" / "profile.json")
    asked = ["results", "headvis", str(tmp_path / "results"), "-o", str(tmp_path / "tree")]
    run = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    assert "8 heads" in run.output
    page = tmp_path / "atlas.html"
    asked = ["atlas", str(tmp_path / "tree"), "-o", str(page)]
    run = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    assert "hub/base" in page.read_text(encoding="utf-8")


def test_a_folder_with_files_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(OptionError, match="exists already and is not an empty folder"):
        write_headvis(profile(), tmp_path)


def test_a_model_of_several_stacks_needs_a_choice(tmp_path: Path) -> None:
    import dataclasses

    found = profile()
    one = {**found.descriptions[0], "stack": "encoder", "name": "encoder L0H0"}
    both = dataclasses.replace(found, descriptions=(*found.descriptions, one))
    with pytest.raises(OptionError, match="has decoder, encoder; choose one"):
        write_headvis(both, tmp_path / "tree")
    with pytest.raises(OptionError, match="no stack cross"):
        write_headvis(both, tmp_path / "tree", stack="cross")
    assert write_headvis(both, tmp_path / "tree", stack="decoder").is_dir()


def broken_config(**change: Any):
    def write(tree: Path) -> None:
        path = tree / "config.json"
        path.write_text(json.dumps(read(path) | change))

    return write


def broken_scatter(content: str):
    return lambda tree: (tree / "scatter_data.json").write_text(content)


def broken_sequence(**change: Any):
    def write(tree: Path) -> None:
        path = tree / "heads" / "L0H0.json"
        head = read(path)
        head["sequences"][2] |= change
        path.write_text(json.dumps(head))

    return write


BAD = {
    "no JSON": (broken_scatter("{"), "is not JSON in UTF-8"),
    "deep JSON": (broken_scatter("[" * 100_000), "is not JSON in UTF-8"),
    "no list": (broken_scatter("{}"), "expected a list"),
    "no head": (broken_scatter("[]"), "has no head with a number"),
    "a row of another form": (broken_scatter("[3]"), "row 0 is a int; expected an object"),
    "a layer that is no number": (
        broken_scatter('[{"layer": "0", "head": 1, "x": 1}]'),
        "layer is '0'; expected a whole",
    ),
    "a text for a number": (
        broken_scatter('[{"layer": 0, "head": 1, "x": "big"}]'),
        "x is 'big'; expected a number",
    ),
    "a way out": (broken_config(head_data_pattern="../../L{layer}H{head}.json"), "not a file in"),
    "an absolute way out": (broken_config(head_data_pattern="/etc/passwd"), "not a file in"),
    "attributes in the pattern": (
        broken_config(head_data_pattern="{layer.__class__}/x"),
        "not a file in",
    ),
    "an index outside": (broken_sequence(attention_indices=[25]), "lies outside of 5 x 5 pairs"),
    "fewer values": (broken_sequence(attention_values=[1.0]), "expected as many"),
    "a token that is no text": (broken_sequence(tokens=[1, 2]), "expected a text"),
    "too few tokens": (broken_sequence(tokens=["a"]), "seq_len is 5 for 1 tokens"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_trees_are_refused_with_one_error(case: str, tmp_path: Path) -> None:
    change, said = BAD[case]
    tree = neuronpedia_tree(tmp_path / "tree")
    change(tree)
    with pytest.raises(StoreError, match="tree") as error:
        read_headvis(tree)
    assert said in str(error.value)


def test_a_link_to_a_file_outside_is_refused(tmp_path: Path) -> None:
    tree = neuronpedia_tree(tmp_path / "tree")
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (tree / "heads" / "L0H0.json").unlink()
    (tree / "heads" / "L0H0.json").symlink_to(secret)
    with pytest.raises(StoreError, match="not a file in heads"):
        read_headvis(tree)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch) -> None:
    from interp.profiles import headvis_read

    tree = neuronpedia_tree(tmp_path / "tree")
    monkeypatch.setattr(headvis_read, "BYTES", 100)
    with pytest.raises(StoreError, match="files of a tree have at most"):
        read_headvis(tree)
