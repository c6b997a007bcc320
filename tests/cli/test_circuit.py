"""`interp circuit`: what it prints and writes."""

from __future__ import annotations

import json
import re
from collections import Counter

import networkx as nx
import pandas as pd
import pytest
import torch
import zoo
from circuits.speller import speller
from transformers import GPT2LMHeadModel

import interp
from interp.circuits.find import find_circuit
from interp.circuits.nodes import node_of
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast, split_templates
from interp.core.errors import OptionError
from interp.model.locate.probe import probe

FAST = ("-n", 12, "--method", "codes:codes=32,epochs=20,repeats=2,permutations=10", "--random", 4)


def test_a_mean_over_prompts_of_yours_replaces_heads(run, errors, tmp_path) -> None:
    reference = tmp_path / "mine.txt"
    args = (
        "circuit", "bundled:induction", "--task", "induction", "-n", 4, "--random", 2, "--method",
        "attribution_patching", "--ablation",
    )  # fmt: skip
    shown = []
    for text in ("once upon a time", "two small dogs ran to a tree"):
        reference.write_text(text + "\n")
        out = tmp_path / text
        result = run(*args, "mean-dataset", "--reference", reference, "-o", out)
        assert "others mean-dataset: CMD" in result.stdout
        [told] = out.rglob("evaluation.json")
        assert f"lines of {reference.name}" in told.read_text()
        shown.append(json.loads(told.read_text())["figures"])
    assert shown[0] != shown[1]
    assert "name their file with --reference" in errors(*args, "mean-dataset")[1][0]
    wrong = errors(*args, "zero", "--reference", reference)[1][0]
    assert (
        "--reference applies to --ablation mean-dataset only; omit it for --ablation zero" in wrong
    )


def test_a_circuit_in_all_its_forms(run, tmp_path) -> None:
    args = (
        "circuit", "planted:bystander", "--task", "induction", *FAST, "--units", "edge", "-o",
        tmp_path,
    )  # fmt: skip
    result = run(*args)
    assert result.exit_code == 0
    assert result.stdout.startswith("planted:bystander\n  induction, codes, edges: score (codes)")
    assert "on 12 other pairs, others corrupted: CMD" in result.stdout
    assert "; CPR 0." in result.stdout
    assert "the first 2 heads when autoencoders are resampled: Jaccard" in result.stdout
    assert "built in L0H3 L1H0: AUROC" in result.stdout
    folder = tmp_path / "planted-bystander"
    found = Circuit.from_json(folder / "circuit.json")
    assert found.made["options"]["codes"] == 32
    assert len(found.edges) == 28
    assert Circuit.from_toml(folder / "circuit.toml").to_dict() == found.to_dict()
    assert nx.read_graphml(folder / "circuit.graphml").number_of_nodes() == 8
    assert (folder / "circuit.dot").read_text().startswith("digraph")
    assert (folder / "circuit.mmd").read_text().startswith("flowchart")
    assert len(pd.read_csv(folder / "nodes.csv")) == 8
    assert pd.read_csv(folder / "evaluation.csv")["heads"].tolist() == [1, 2, 4, 8]
    told = json.loads((folder / "evaluation.json").read_text())
    figures = {row["figure"]: row for row in told["figures"]}
    assert set(figures) == {
        "CMD", "CMD, found on", "CPR", "faithfulness", "completeness", "not needed", "Jaccard",
        "AUROC", "faithfulness of the set", "completeness of the set",
    }  # fmt: skip
    for name in ("faithfulness", "completeness"):
        assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"]
    assert {row["head"] for row in told["minimality"]} == set(told["one_out"])
    assert all(row["low"] <= row["lost"] <= row["high"] for row in told["minimality"])
    assert figures["CMD"]["low"] <= figures["CMD"]["value"] <= figures["CMD"]["high"]
    assert {n for n, row in figures.items() if not row["ablation"]} == {"Jaccard", "AUROC"}
    assert figures["CPR"]["ablation"] == figures["completeness"]["ablation"] == "corrupted"
    assert f"CPR {figures['CPR']['value']:.3f}" in result.stdout
    assert f"Jaccard {figures['Jaccard']['value']:.2f}" in result.stdout
    assert told["pairs"] == "on 12 other pairs"
    assert told["edges"].startswith("not evaluated: ")
    page = (folder / "circuit.html").read_text()
    assert '<td class="text">CPR</td>' in page
    assert "Table: stability" in page
    svg = (folder / "circuit.svg").read_text()
    assert "28 of 28 edges" in svg
    assert svg in page
    assert "default-src 'none'" in page
    assert "Table: controls" in page
    assert json.loads((folder / "circuit.json").read_text())["level"] == "edge"
    assert run(*args).stdout == result.stdout


def test_a_circuit_of_before_is_measured_again(run, errors, tmp_path) -> None:
    args = ("circuit", "planted:bystander", "--task", "induction", *FAST)
    first = run(*args, "-o", tmp_path).stdout
    for name in ("circuit.toml", "circuit.json"):
        again = run(*args, "--circuit", tmp_path / "planted-bystander" / name)
        assert again.stdout == first
    file = tmp_path / "planted-bystander" / "circuit.toml"
    for wrong, told in (
        (("planted:backup", "--task", "induction"), "planted:backup has 3 of 4"),
        (("planted:sink", "--task", "induction"), "with the weights sha256"),
        (
            ("planted:bystander", "--task", "planted:bystander"),
            "is a circuit for induction, not for",
        ),
    ):
        code, lines = errors("circuit", *wrong, *FAST, "--circuit", file)
        assert code == 1
        assert told in lines[0]
    Circuit.from_toml(file).top(2, heads_only=True).to_toml(tmp_path / "first.toml")
    told = run(*args, "--truth", tmp_path / "first.toml").stdout
    assert "first.toml: AUROC 1.000 [1.000, 1.000]; 2 of its 2 heads" in told


@pytest.mark.parametrize(
    ("name", "heads"), [("refusal", "L1H3"), ("copy_suppression", "L0H3"), ("sink", "L0H3 L1H2")]
)
def test_planted_tasks_are_measured_against_what_was_built_in(run, errors, name, heads) -> None:
    model = f"planted:{name}"
    args = ("-n", 6, "--method", "exact_patching", "--random", 2)
    assert (
        f"built in {heads}: AUROC 1.000 [1.000, 1.000]"
        in run("circuit", model, "--task", model, *args).stdout
    )
    code, lines = errors("circuit", "planted:noise", "--task", model, *args)
    assert code == 1
    assert f"the task {model} is for the model {model}" in lines[0]


def test_templates_are_held_out(run, tmp_path) -> None:
    folder = tmp_path / "words"
    _model_of_words(folder)
    args = (
        "circuit", folder, "--task", "subject_verb", "-n", 12, "--method", "attribution_patching",
        "--random", 3, "-o", tmp_path,
    )  # fmt: skip
    told = run(*args).stdout
    assert "on 12 pairs of 1 held-out of 3 templates (The {S} {L} the {D}), others" in told
    made = json.loads((tmp_path / "words" / "evaluation.json").read_text())
    assert made["made"]["template_names"] == ["1", "2"]
    assert made["made"]["evaluated_on"]["template_names"] == ["0"]
    assert "1 held-out of 3 templates" in made["pairs"]
    assert "1 held-out of 3 templates" in (tmp_path / "words" / "circuit.html").read_text()
    # what a circuit of before was found on stays out, whatever this seed would hold out
    assert any(split_templates("subject_verb", seed)[1] != (0,) for seed in (1, 2))
    for seed in (1, 2):
        again = run(*args[:-2], "--circuit", tmp_path / "words" / "circuit.toml", "--seed", seed)
        assert "held-out of 3 templates (The {S} {L} the {D}), others" in again.stdout
    assert "on 12 other pairs, others" in run(*args, "--same-templates").stdout
    again = run(*args[:-2], "--circuit", tmp_path / "words" / "circuit.toml")
    assert "on 12 other pairs, others" in again.stdout  # none of the templates is left
    made = json.loads((tmp_path / "words" / "evaluation.json").read_text())
    assert made["made"]["evaluated_on"]["template_names"] == ["0", "1", "2"]


def _model_of_words(folder) -> None:
    """A model with random weights that happen to tell singular from plural a little."""
    tokenizer = speller()
    config = zoo.FAMILIES["gpt2"].build("sdpa").config
    config.vocab_size, config.n_positions = len(tokenizer), 64
    for seed in range(200):
        torch.manual_seed(seed)
        module = GPT2LMHeadModel(config).eval()
        model = probe(module, "words", tokenizer)
        try:
            for templates in ((1, 2), None):
                make_contrast(model, "subject_verb", n=12, templates=templates).gap(model)
        except OptionError:
            continue
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return
    raise AssertionError("no seed will do")


def test_a_circuit_beside_a_published_one(run, errors, tmp_path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'model = "planted:bystander"\nn_layers = 2\nn_heads = 4\ntask = "induction"\n'
        'granularity = "head"\nsource = "it was built so"\n'
        "[roles]\nprevious_token = ['L0H3']\ninduction = ['L1H0']\n"
    )
    args = ("circuit", "planted:bystander", "--task", "induction", *FAST, "--truth")
    result = run(*args, own)
    assert "own.toml: AUROC" in result.stdout
    assert "of its 2 heads among the top 2" in result.stdout
    code, lines = errors(*args, "ioi_gpt2_small")
    assert code == 1
    assert "is a circuit of gpt2 (12 layers of 12 heads)" in lines[0]


def test_what_is_wrong_with_a_command(errors) -> None:
    for args, told in (
        (("--task", "inductio"), "did you mean induction"),
        (("--task", "induction", "--method", "code"), "did you mean codes"),
        (("--task", "induction", "--method", "codes:x=1"), "option of codes"),
        (("--task", "induction", "--method", "codes:epochs"), "codes:option=value"),
    ):
        code, lines = errors("circuit", "planted:bystander", *args)
        assert code in (1, 2)
        assert told in lines[0]


def test_a_model_that_does_not_do_the_task(errors) -> None:
    code, lines = errors("circuit", "planted:noise", "--task", "induction", *FAST)
    assert code == 1
    assert "does not do induction" in lines[0]
    code, lines = errors("circuit", "bundled:induction", "--task", "ioi", *FAST)
    assert "24 of 24 names" in lines[0]


def test_edges_are_measured_against_those_that_were_built_in(run, tmp_path) -> None:
    args = (
        "circuit", "planted:induction", "--task", "induction", "--method", "exact-patching",
        "--units", "edge", "-n", 4, "--random", 2, "-o", tmp_path,
    )  # fmt: skip
    told = run(*args).stdout
    assert "  edges: top edges of 110 clean, others corrupted: CMD 0." in told
    assert "\n    built in L0H3>L1H0.k: AUROC 1.000 [1.000, 1.000] of 48 between heads\n" in told
    assert "faithfulness 1.00, random circuits with as many in each layer 0.00 [0.00," in told
    folder = tmp_path / "planted-induction"
    edges = json.loads((folder / "evaluation.json").read_text())["edges"]
    assert edges["truth"] == [["L0H3", "L1H0.k"]]
    assert edges["against_truth"]["auroc"] == 1.0
    assert "L0H3&gt;L1H0.k: AUROC 1.000" in (folder / "circuit.html").read_text()


def test_edges_are_listed_and_written(run, tmp_path) -> None:
    """What is called edges are edges: on the screen, the largest first, and in a file."""
    args = (
        "circuit", "planted:induction", "--task", "planted:induction", "--method",
        "exact-patching", "--units", "edge", "-n", 4, "--random", 2, "--top", 3, "-o", tmp_path,
    )  # fmt: skip
    shown = run(*args).stdout.splitlines()
    folder = tmp_path / "planted-induction"
    table = pd.read_csv(folder / "edges.csv")
    assert list(table) == ["from", "to", "score", "sem", "n", "unit", "in_set"]
    assert len(table) == 110
    assert table["score"].abs().is_monotonic_decreasing
    assert (table["unit"] == "logits").all()
    assert {"L0H3 -> L1H0.k", "L1H0 -> logits"} <= set(table["from"] + " -> " + table["to"])
    found = Circuit.from_json(folder / "circuit.json")
    assert shown[1] == "  planted:induction, exact_patching, edges: score (logits)"
    for line, row in zip(shown[2:5], table.itertuples(), strict=False):
        assert line.split()[:3] == [row[1], "->", row[2]]
        assert float(line.split()[3]) == pytest.approx(row.score, rel=1e-3)
        at = found.edges.index((row[1], row[2]))
        assert found.edge_sem[at] == pytest.approx(row.sem)
    assert shown[5] == "    and 107 more, 3 of all 110 in the smallest set"
    assert shown[6] == "  nodes: score (logits)"
    assert Circuit.from_toml(folder / "circuit.toml").to_dict() == found.to_dict()
    heads = run(*args[:6], *args[8:], "--method", "exact-patching").stdout  # no edges, no list
    assert " -> " not in heads


def test_the_default_has_edges_and_a_set_that_is_judged_on_other_pairs(
    run, errors, tmp_path
) -> None:
    model = "planted:induction"
    args = (
        "circuit", model, "--task", model, "-n", 6, "--random", 2, "--map", "attention", "-o",
        tmp_path,
    )  # fmt: skip
    shown = run(*args).stdout
    assert shown.splitlines()[1] == f"  {model}, verified_edges, edges: score (logits)"
    assert "smallest set: 3 nodes, 3 edges, chosen to keep 0.8, and keeps 1.00 [1.00, 1" in shown
    assert "completeness 1.00 [1.00, 1.00]" in shown
    assert "of 200 forward passes over all pairs, and " in shown
    assert "11 of 11 nodes and " in shown
    assert " edges between the set's nodes patched one by one\n" in shown
    assert "attention at one position restored, held-out pairs: share of the gap" in shown
    folder = tmp_path / "planted-induction"
    table = pd.read_csv(folder / "edges.csv")
    assert table["in_set"].sum() == 3
    assert set(table["measured"]) == {"patched alone"}
    nodes = pd.read_csv(folder / "set.csv").set_index("node")
    assert set(nodes.index) == {"embed", "L0H3", "L1H0"}
    assert nodes["needed"].all()
    of_map = pd.read_csv(folder / "map_attention.csv").set_index(["layer", "place"])
    assert of_map.loc[(1, "end"), "share"] == pytest.approx(1, abs=0.02)
    two = run(*args[:6], "--size", 2, "--random", 2, "--evaluations", 40).stdout
    assert "of 40 forward passes" in two
    told = errors(*args[:6], "--method", "codes", "--evaluations", 40)[1][0]
    assert "codes takes no --evaluations; omit it, or use verified_edges or acdc" in told


@pytest.mark.parametrize("level", ["edge", "head"])
def test_screen_page_file_and_python_name_the_same_set(run, tmp_path, level) -> None:
    """Not the first heads of the ranking: the chosen nodes, MLPs included, and their edges."""
    model, name = interp.load("bundled:induction"), "bundled:induction"
    args = (
        "circuit", name, "--task", "induction", "-n", 16, "--units", level, "--random", 2, "-o",
        tmp_path,
    )  # fmt: skip
    screen = run(*args).stdout
    chosen = find_circuit(model, make_contrast(model, "induction", n=16), level=level).chosen
    folder = tmp_path / "bundled-induction"
    assert Circuit.from_toml(folder / "circuit.toml").chosen == chosen
    assert Circuit.from_json(folder / "circuit.json").chosen == chosen
    assert chosen.separated == (level == "edge")
    assert any(node.startswith("mlp") for node in chosen.nodes)
    # the screen: the nodes by name, and the numbers of both
    of, between = ("", "") if level == "edge" else ("all ", " between them")
    size = f"{len(chosen.nodes)} nodes, {of}{len(chosen.edges)} edges{between}"
    lines = screen.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"  chosen set: {size}; keeps"))
    assert lines[at].endswith(chosen.told())
    assert lines[at + 1].split() == list(chosen.nodes)
    (judged,) = (line for line in lines if line.startswith(f"  smallest set: {size}, chosen"))
    figures = json.loads((folder / "evaluation.json").read_text())["figures"]
    (kept,) = (row for row in figures if row["figure"] == "faithfulness of the set")
    assert f"and keeps {kept['value']:.2f} [{kept['low']:.2f}, {kept['high']:.2f}]" in judged
    # the page: its sentence, and every node and edge of its drawing
    page = (folder / "circuit.html").read_text()
    told = page.partition("The chosen set has ")[2]
    assert told.startswith(f"{len(chosen.nodes)} nodes ({', '.join(chosen.nodes)}) and {of}")
    assert f"{len(chosen.edges)} edges{between}; it {chosen.told()}. Measured" in told
    value = re.search(r"Measured [^,]*, it keeps (-?[\d.]+) \[", told)
    assert float(value[1]) == pytest.approx(kept["value"], abs=0.01)
    drawing = re.search(r'<svg[^>]*class="figure graph".*?</svg>', page, re.DOTALL)[0]
    assert set(re.findall(r'data-node="(\w+)"', drawing)) == {*chosen.nodes, "logits"}
    drawn = Counter(re.findall(r'data-from="(\w+)" data-to="(\w+)"', drawing))
    assert drawn == Counter((a, node_of(b)) for a, b in chosen.edges)
    nodes = pd.read_csv(folder / "set.csv")["node"]
    assert nodes.tolist() == list(chosen.nodes)


def test_what_was_found_stays_when_the_evaluation_is_stopped(run, monkeypatch, tmp_path) -> None:
    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("interp.circuits.set_evaluation.evaluate_set", stopped)
    args = ("circuit", "planted:bystander", "--task", "induction", "-n", 6, "--random", 2)
    for out in ((), ("-o", tmp_path)):
        result = run(*args, *out)
        assert result.exit_code == 130
        assert result.stdout.startswith("planted:bystander\n  induction, verified_edges, edges")
        assert "\n  chosen set: 3 nodes, 3 edges; keeps 1.00" in result.stdout
        where = f"in {tmp_path / 'planted-bystander'}" if out else "printed above"
        said = f"interrupted in the evaluation: what was found is {where}; "
        assert said in result.stderr
    folder = tmp_path / "planted-bystander"
    assert Circuit.from_toml(folder / "circuit.toml").chosen.nodes == ("embed", "L0H3", "L1H0")
    assert {path.name for path in folder.iterdir()} == {
        "circuit.json", "circuit.toml", "circuit.graphml", "circuit.dot", "circuit.mmd",
        "circuit.svg", "nodes.csv", "edges.csv",
    }  # fmt: skip


def test_controls_of_codes_are_on_the_screen(run) -> None:
    """Where the help says to read them: per head, over all heads, and as a ranking."""
    assert "controls, printed below the scores" in " ".join(run("circuit", "--help").stdout.split())
    shown = run("circuit", "planted:bystander", "--task", "induction", *FAST).stdout
    assert "control: heads ranked alike by trained and untrained codes (Spearman): " in shown
    assert "control: heads with a p value below 0.05 over all heads: 0" in shown
    assert "control: AUROC of the same recipe: codes " in shown
    assert ", untrained 0." in shown.partition("same recipe")[2]
    row = next(line for line in shown.splitlines() if line.startswith("    L0H3"))
    assert "not patched; untrained " in row
    assert ", over all heads " in row
    traced = run(
        "circuit",
        "planted:bystander",
        "--task",
        "induction",
        "-n",
        6,
        "--random",
        2,
        "--method",
        "svd_trace",
    ).stdout
    assert "control: median number of slices in a signal, of " in traced
    assert "note: heads fire from a weight of 0.5" in traced
    assert "note: checked by patching: of the 2 heads and MLPs of most credit" in traced


def test_pairs_that_it_was_found_on_are_not_those_that_it_is_measured_on(run, tmp_path) -> None:
    """Though the seed of the second command makes the very pairs of the first."""
    args = (
        "circuit", "planted:induction", "--task", "induction", "-n", 6, "--random", 2, "--method",
        "attribution_patching",
    )  # fmt: skip
    first = run(*args, "--seed", 1, "-o", tmp_path).stdout
    assert "on 6 other pairs" in first
    assert "(0 is best; 0." in first
    assert "on the 6 pairs it was found on)" in first
    folder = tmp_path / "planted-induction"
    told = json.loads((folder / "evaluation.json").read_text())
    assert told["seen"] == 0
    assert told["found_on"]["n"] == 6
    saved = folder / "circuit.toml"
    found = Circuit.from_toml(saved)
    again = run(*args, "--seed", 0, "--circuit", saved, "-o", tmp_path / "again").stdout
    assert "on 6 other pairs" in again
    assert "pairs it was found on" not in again  # this seed makes other ones
    told = json.loads((tmp_path / "again/planted-induction/evaluation.json").read_text())
    assert told["seen"] == 0
    assert told["made"]["evaluated_on"]["prompts_hash"] != found.made["prompts_hash"]
    patched = pd.read_csv(folder / "patched.csv").set_index("node")
    assert patched.loc["L0H3", "effect"] > 5  # 0.04 by gradients
    assert abs(patched.loc["L0H3", "score"]) < 0.1


def test_a_truth_is_of_the_weights_and_not_of_a_folders_name(run, errors, tmp_path) -> None:
    """A circuit of before is the truth for the same model in another folder, and no other's."""
    from interp import planted

    for name, folder in (("bystander", "mine"), ("bystander", "renamed"), ("noise", "other/mine")):
        planted.build(name).model.save_pretrained(tmp_path / folder)
    mine, args = tmp_path / "mine", ("circuit", "--task", "induction")
    run(*args, mine, *FAST, "-o", tmp_path / "out")
    file = tmp_path / "first.toml"
    found = Circuit.from_toml(tmp_path / "out" / "mine" / "circuit.toml")
    found.top(2, heads_only=True).to_toml(file)
    result = run(*args, tmp_path / "renamed", *FAST, "--truth", file)
    assert result.exit_code == 0, result.stderr
    assert "first.toml: AUROC 1.000" in result.stdout
    code, lines = errors(*args, tmp_path / "other" / "mine", *FAST, "--truth", file)
    assert code == 1
    assert "so it is another model" in lines[0]
    own = tmp_path / "own.toml"
    head = 'model = "gpt9"\nn_layers = 2\nn_heads = 4\ntask = "induction"\n'
    own.write_text(head + 'granularity = "head"\nsource = "x"\n[roles]\ninduction = ["L1H0"]\n')
    code, [told] = errors(*args, mine, *FAST, "--truth", own)
    assert code == 1
    [hashed] = [word for word in told.split() if len(word) == 66]
    own.write_text(f"content_hash = {hashed}\n" + own.read_text())
    assert run(*args, mine, *FAST, "--truth", own).exit_code == 0
