"""`interp circuit`: what it prints and writes."""

from __future__ import annotations

import json

import networkx as nx
import pandas as pd
import pytest
import torch
import zoo
from circuits.speller import speller
from transformers import GPT2LMHeadModel

from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast
from interp.circuits.tasks.named import split_templates
from interp.core.errors import OptionError
from interp.model.locate.probe import probe

FAST = ("-n", 12, "--method", "codes:codes=32,epochs=20,repeats=2,permutations=10", "--random", 4)


def test_a_mean_over_prompts_of_yours_replaces_heads(run, errors, tmp_path) -> None:
    reference = tmp_path / "mine.txt"
    args = (
        "circuit",
        "bundled:induction",
        "--task",
        "induction",
        "-n",
        4,
        "--random",
        2,
        "--method",
        "attribution_patching",
        "--kind",
    )
    shown = []
    for text in ("once upon a time", "two small dogs ran to a tree"):
        reference.write_text(text + "\n")
        out = tmp_path / text
        result = run(*args, "mean-dataset", "--reference", reference, "-o", out)
        assert "others mean-dataset: the first 3 heads keep" in result.stdout
        [told] = out.rglob("evaluation.json")
        assert f"lines of {reference.name}" in told.read_text()
        shown.append(json.loads(told.read_text())["figures"])
    assert shown[0] != shown[1]
    assert "name their file with --reference" in errors(*args, "mean-dataset")[1][0]
    wrong = errors(*args, "zero", "--reference", reference)[1][0]
    assert "--reference applies to --kind mean-dataset only; omit it for --kind zero" in wrong


@pytest.mark.slow
def test_a_circuit_in_all_its_forms(run, tmp_path) -> None:
    args = (
        "circuit",
        "planted:bystander",
        "--task",
        "induction",
        *FAST,
        "--units",
        "edge",
        "-o",
        tmp_path,
    )
    result = run(*args)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()[:2]
    assert first.startswith("planted:bystander: 3 nodes and all 12 edges keep 100 % [100, 100]")
    assert second.startswith("  induction, codes, edges: score (codes)")
    assert "on 12 other pairs, others corrupted: the first 2 heads keep" in result.stdout
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
        "faithfulness",
        "AUROC",
        "faithfulness of the set",
        "completeness of the set",
    }
    for name in ("faithfulness", "completeness of the set"):
        assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"]
    assert {n for n, row in figures.items() if not row["ablation"]} == {"AUROC"}
    assert figures["faithfulness"]["ablation"] == "corrupted"
    assert f"heads keep {figures['faithfulness']['value']:.2f} [" in result.stdout
    assert told["pairs"] == "on 12 other pairs"
    assert told["edges"].startswith("not evaluated: ")
    page = (folder / "circuit.html").read_text()
    assert '<td class="text">faithfulness</td>' in page
    assert f"{figures['faithfulness']['value']:.2f} [" in page.partition("of the first 2 heads")[0]
    svg = (folder / "circuit.svg").read_text()
    assert "28 of 28 edges" in svg
    assert svg in page
    assert "default-src 'none'" in page
    assert "<summary>Controls</summary>" in page
    assert json.loads((folder / "circuit.json").read_text())["level"] == "edge"
    assert run(*args).stdout == result.stdout


@pytest.mark.slow
def test_a_circuit_of_before_is_measured_again(run, errors, tmp_path) -> None:
    args = ("circuit", "planted:bystander", "--task", "induction", *FAST)
    first = run(*args, "-o", tmp_path).stdout
    for name in ("circuit.toml", "circuit.json"):
        again = run(*args, "--load", tmp_path / "planted-bystander" / name)
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
        code, lines = errors("circuit", *wrong, *FAST, "--load", file)
        assert code == 1
        assert told in lines[0]
    Circuit.from_toml(file).top(2, heads_only=True).to_toml(tmp_path / "first.toml")
    told = run(*args, "--against", tmp_path / "first.toml").stdout
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


@pytest.mark.slow
def test_templates_are_held_out(run, tmp_path) -> None:
    folder = tmp_path / "words"
    _model_of_words(folder)
    args = (
        "circuit",
        folder,
        "--task",
        "subject_verb",
        "-n",
        12,
        "--method",
        "attribution_patching",
        "--random",
        3,
        "-o",
        tmp_path,
    )
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
        again = run(*args[:-2], "--load", tmp_path / "words" / "circuit.toml", "--seed", seed)
        assert "held-out of 3 templates (The {S} {L} the {D}), others" in again.stdout
    assert "on 12 other pairs, others" in run(*args, "--set", "same_templates").stdout
    again = run(*args[:-2], "--load", tmp_path / "words" / "circuit.toml")
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
    args = ("circuit", "planted:bystander", "--task", "induction", *FAST, "--against")
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


@pytest.mark.slow
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
        "circuit",
        "planted:induction",
        "--task",
        "induction",
        "-n",
        6,
        "--random",
        2,
        "--method",
        "attribution_patching",
    )
    first = run(*args, "--seed", 1, "-o", tmp_path).stdout
    assert "on 6 other pairs" in first
    folder = tmp_path / "planted-induction"
    told = json.loads((folder / "evaluation.json").read_text())
    assert told["seen"] == 0
    saved = folder / "circuit.toml"
    found = Circuit.from_toml(saved)
    again = run(*args, "--seed", 0, "--load", saved, "-o", tmp_path / "again").stdout
    assert "on 6 other pairs" in again
    assert "pairs it was found on" not in again  # this seed makes other ones
    told = json.loads((tmp_path / "again/planted-induction/evaluation.json").read_text())
    assert told["seen"] == 0
    assert told["made"]["evaluated_on"]["prompts_hash"] != found.made["prompts_hash"]
    patched = pd.read_csv(folder / "patched.csv").set_index("node")
    assert patched.loc["L0H3", "effect"] > 5  # 0.04 by gradients
    assert abs(patched.loc["L0H3", "circuit_score"]) < 0.1


@pytest.mark.slow
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
    result = run(*args, tmp_path / "renamed", *FAST, "--against", file)
    assert result.exit_code == 0, result.stderr
    assert "first.toml: AUROC 1.000" in result.stdout
    code, lines = errors(*args, tmp_path / "other" / "mine", *FAST, "--against", file)
    assert code == 1
    assert "so it is another model" in lines[0]
    own = tmp_path / "own.toml"
    head = 'model = "gpt9"\nn_layers = 2\nn_heads = 4\ntask = "induction"\n'
    own.write_text(head + 'granularity = "head"\nsource = "x"\n[roles]\ninduction = ["L1H0"]\n')
    code, [told] = errors(*args, mine, *FAST, "--against", own)
    assert code == 1
    [hashed] = [word for word in told.split() if len(word) == 66]
    own.write_text(f"content_hash = {hashed}\n" + own.read_text())
    assert run(*args, mine, *FAST, "--against", own).exit_code == 0
