"""What a command prints, its page and its files hold the same numbers: all circuit tasks, methods.

`test_agreement.py` asks the same of every kind of result.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import zoo
from beside import STORIES
from circuits.speller import speller
from report.test_agreement import disagreeing, heading_of, rounding, value
from sampled import sampled
from transformers import GPT2LMHeadModel

from interp.circuits.result import Circuit
from interp.circuits.tasks import TASKS, make_contrast
from interp.core.errors import OptionError
from interp.core.registry import CIRCUIT_METHODS
from interp.core.table import HeadTable
from interp.heads.between_models.result import ModelDifferences
from interp.model.locate.probe import probe
from interp.profiles import Profile

pytestmark = pytest.mark.slow
SHORT = {
    "edge_masks": "edge_masks:steps=20,restarts=1",
    "codes": "codes:epochs=20,permutations=9",
    "acdc": "acdc:max_evaluations=20",
    "svd_trace": "svd_trace:check=2",
}
"""Options with which a method that trains or searches takes about a second."""
UNABLE = (
    "does not do",
    "too few pairs to tell",
    "the task needs",
    "which this task needs",
    "cannot be made",
)
"""What the command says of a model that is not able to do the task, or does not know its words."""
NO_HEADS = ("compiled:nary_sequencemap",)
"""Tasks of models whose heads do nothing, so that there is no circuit of heads."""
FEW = ("-n", 8, "--random", 2, "--top", 3, "-q")
ROW = re.compile(r"^ {4}(\S+) +([-\d.e]+) ± ([-\d.e]+)", re.MULTILINE)


def data_of(page: str, name: str) -> dict:
    [text] = re.findall(rf'type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def near(text: str, number: float) -> bool:
    return abs(value(text) - number) <= rounding(text)


def circuit_disagrees(folder: Path, printed: str) -> list[str]:
    """What differs between the saved circuit, its other files, its page and the printed lines."""
    found = Circuit.load(folder / "circuit.toml")
    table = found.to_pandas()
    nodes = table[table["metric"] == "node score"].set_index("node")
    page = (folder / "circuit.html").read_text(encoding="utf-8")
    drawn = data_of(page, "circuit")
    same = found.to_dict() == Circuit.load(folder / "circuit.json").to_dict()
    wrong = [] if same else ["circuit.json"]
    if [node["id"] for node in drawn["nodes"]] != list(found.ranking):
        wrong.append("the order of nodes on the page")
    for node in drawn["nodes"]:
        row = nodes.loc[node["id"]]
        for name, column in (("effect", "score"), ("low", "low"), ("high", "high")):
            there = node.get(name)
            if not np.isclose(np.nan if there is None else there, row[column], equal_nan=True):
                wrong.append(f"{node['id']} {name}: {there} drawn, {row[column]} in the table")
    edges = table[table["metric"] == "edge score"].set_index(["from", "to"])["score"]
    for source, target, effect, *_ in drawn["edges"]:
        if effect is None:  # an edge of the set that was not measured
            chosen = found.chosen is not None and (source, target) in found.chosen.edges
            if not chosen or (source, target) in edges.index:
                wrong.append(f"{source} to {target}: drawn without its effect")
        elif not np.isclose(effect, edges[source, target], rtol=1e-3, atol=1e-12):
            wrong.append(f"{source} to {target}: {effect} drawn, {edges[source, target]}")
    rows = pd.read_csv(folder / "nodes.csv").set_index("node")["score"]
    if not np.allclose(rows, nodes["score"].loc[rows.index], equal_nan=True):
        wrong.append("nodes.csv")
    listed = printed.partition("held-out pairs:")[0]
    for node, score, sem in ROW.findall(listed):
        row = nodes.loc[node]
        if not (near(score, row["score"]) and near(sem, row["sem"])):
            wrong.append(f"{node}: {score} ± {sem} printed, {row['score']} ± {row['sem']}")
    return wrong + heading_disagrees(found, folder, heading_of(page), printed)


def heading_disagrees(found: Circuit, folder: Path, line: str, printed: str) -> list[str]:
    """What the first line of the page says that the files or the printed lines do not say."""
    if found.chosen is None:
        n, first, effect = re.match(
            r"Of (\d+) nodes of .*?, (\S+) matters most for .*?: (\S+)", line
        ).groups()
        right = int(n) == len(found.nodes) and first == found.ranking[0]
        at = found.nodes.index(first)
        if effect != "not":  # patched
            right &= near(effect, found.score[at])
        return [] if right else [line]
    nodes, share = re.search(r"(\d+) nodes? [^;]*?keeps? (-?\d+) %", line).groups()
    figures = json.loads((folder / "evaluation.json").read_text())["figures"]
    kept = [x["value"] for x in figures if x["figure"] == "faithfulness of the set"]
    right = int(nodes) == len(found.chosen.nodes)
    if "matters" in found.tables:
        named = [row["node"] for row in found.tables["matters"] if row["node"][:1] == "L"]
        right &= line.startswith(f"{len(named)} head" if named else "no head")
        right &= f": {line.split(';', maxsplit=1)[0]}; " in printed
    right &= near(share, 100 * (kept or [found.chosen.share[0]])[0])
    said = re.search(r"smallest set: (\d+) nodes?.*?keeps (-?[\d.]+)", printed)
    if said and kept:
        right &= said[1] == nodes and near(said[2], kept[0])
    return [] if right else [line]


@pytest.mark.parametrize("method", sampled(CIRCUIT_METHODS))
def test_circuits_of_every_method(run, tmp_path, method) -> None:
    asked = ["--task", "planted:bystander", "-m", SHORT.get(method, method)]
    found = run("circuit", "planted:bystander", *asked, *FEW, "-o", tmp_path)
    assert found.exit_code == 0, found.stderr
    assert circuit_disagrees(tmp_path / "planted-bystander", found.stdout) == []


def models_of(task: str, folder: Path) -> Iterator[str]:
    """The model that a task is made for, or random ones that happen to do it a little."""
    about = TASKS[task]
    if about.model or task == "induction":
        yield about.model or "planted:bystander"
        return
    if task.startswith("stories:"):
        yield from ["bundled:stories", *([str(STORIES)] if STORIES.exists() else [])]
        return
    tokenizer = speller()
    config: Any = zoo.FAMILIES["gpt2"].build("sdpa").config
    config.vocab_size, config.n_positions = len(tokenizer), 64
    config.marker_token_id, config.refusal_token_ids = 7, [9]
    for seed in range(20):
        torch.manual_seed(seed)
        module = GPT2LMHeadModel(config).eval()
        model = probe(module, "words", tokenizer)
        try:
            make_contrast(model, task, n=8).gap(model)
        except OptionError:
            continue
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield str(folder)
    if STORIES.exists():  # beside the repository, which a clone does not have
        yield str(STORIES)


@pytest.mark.parametrize("task", sampled(TASKS))
def test_circuits_of_every_task(run, tmp_path, task) -> None:
    asked = ["--task", task, "-m", "attribution_patching", *FEW]
    if len(TASKS[task].templates) > 1:
        asked += ["--set", "same_templates"]
    for model in models_of(task, tmp_path / "words"):
        found = run("circuit", model, *asked, "-o", tmp_path / "out")
        if not any(reason in found.stderr for reason in UNABLE):
            break
        shutil.rmtree(tmp_path / "out")
    else:
        pytest.skip("no small model does it, so there is no circuit")
    if "with all heads and with none" in found.stderr:
        assert task in NO_HEADS
        return
    assert found.exit_code == 0, found.stderr
    (folder,) = (path.parent for path in tmp_path.glob("out/*/circuit.toml"))
    assert circuit_disagrees(folder, found.stdout) == []


def test_scores(run, tmp_path) -> None:
    found = run("score", "bundled:induction", "-m", "induction,first_token", "-o", tmp_path, "-q")
    table = HeadTable.load(tmp_path / "table.parquet")
    assert table.equals(HeadTable.load(tmp_path / "table.csv"))
    assert disagreeing(table, found.stdout) == []
    page = (tmp_path / "heads.html").read_text(encoding="utf-8")
    (model,) = data_of(page, "atlas")["models"]
    for metric in model["metrics"]:
        rows = table.where(metric=metric["name"]).to_pandas()
        labels = [
            f"L{layer}H{head}" for layer, head in zip(rows["layer"], rows["head"], strict=True)
        ]
        assert labels == model["labels"]
        np.testing.assert_allclose(column(metric["score"]), rows["score"], rtol=1e-4)
    roles = re.findall(r"(\d+) (induction) heads?", found.stdout)
    assert roles
    for count, name in roles:
        assert f"{count} {name}" in heading_of(page)


def column(text: str) -> np.ndarray:
    """Numbers of a page: the upper three bytes of each, as base64."""
    raw = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 3)
    return np.pad(raw, ((0, 0), (0, 1))).copy().view(">f4")[:, 0].astype(float)


def test_a_comparison(run, tmp_path) -> None:
    asked = ["planted:induction", "planted:bystander", "-m", "induction", "-q"]
    found = run("compare", *asked, "-o", tmp_path)
    (folder,) = (path.parent for path in tmp_path.glob("*/differences.html"))
    table = ModelDifferences.load(folder / "differences.parquet")
    line = heading_of((folder / "differences.html").read_text(encoding="utf-8"))
    assert f"{line}." in found.stdout
    assert disagreeing(table, found.stdout) == []
    assert f"{int((table.to_pandas()['p_holm'] < 0.05).sum())} of 8 heads differ" in line


def test_a_profile(run, tmp_path) -> None:
    rng = np.random.default_rng(0)
    lines = [json.dumps({"ids": [0, *map(int, rng.integers(1, 9, 20))]}) for _ in range(10)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    asked = ["planted:bystander", "--corpus", tmp_path / "corpus.jsonl", "--set", "field=ids", "-q"]
    found = run("profile", *asked, "-o", tmp_path / "out")
    assert found.exit_code == 0, found.stderr
    (path,) = (tmp_path / "out").rglob("profile.json")
    stored = Profile.load(path)
    stored.save_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    line = heading_of(page)
    (model,) = data_of(page, "atlas")["models"]
    drawn = {metric["name"]: column(metric["score"]) for metric in model["metrics"]}
    for metric, rows in stored.to_pandas().groupby("metric"):
        if metric in drawn:
            heads = zip(rows["layer"], rows["head"], strict=True)
            at = [model["labels"].index(f"L{layer}H{head}") for layer, head in heads]
            np.testing.assert_allclose(drawn[metric][at], rows["score"], rtol=1e-4)
    assert len(set(drawn) & set(stored.to_pandas()["metric"])) > 3
    counts = re.findall(r"(\d+) of (\d+) heads|(\d+) in part|(\d+) not", line)
    assert counts
    for number in re.findall(r"\d+", line.partition(": ")[2].partition("(")[0]):
        assert number in str(stored).splitlines()[0]
    assert disagreeing(stored, found.stdout) == []
