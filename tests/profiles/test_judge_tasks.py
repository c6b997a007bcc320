"""Verdicts on heads and circuits that are said to do a task, on models whose circuit is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beside import STORIES, needs
from circuits.test_bogus_sets import KNOWN, found_in, of_nodes, writers
from click.testing import CliRunner

import interp
from interp.circuits import make_contrast
from interp.circuits.contrast import hashes
from interp.cli.main import main
from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError, StoreError, UnknownName
from interp.profiles import verdict
from interp.profiles.task_verdict import JudgedShares
from interp.profiles.verdict import HOLDS, IN_PART, NOT

NAMES = "trained:names"
INPUT = "embed"


@pytest.fixture
def verdict_about(tmp_path: Path) -> Callable:
    """Judge with a ledger of one's own, so that every question is a first one."""

    def ask(given: Any, claim: Any, **options: Any) -> Any:
        folder = tmp_path / f"ledger {len([*tmp_path.iterdir()])}"
        options = {"questions": folder, "n_documents": 48, **options}
        model = found_in(given)[0] if isinstance(given, str) else given
        return interp.judge(model, claim, **options)

    return ask


def numbers(found: Any) -> dict[str, float]:
    return dict(zip(found.number, found.score, strict=True))


@pytest.mark.parametrize(
    ("name", "heads", "word"),
    [
        ("planted:induction", "L1H0", HOLDS),
        ("planted:induction", "L0H3+L1H0", HOLDS),
        ("planted:induction", "L1H0+L1H2", HOLDS),  # with a bystander
        ("planted:induction", "L1H2", NOT),
        ("planted:induction", "L0H0+L1H1", NOT),
        ("planted:backup", "L1H0", NOT),  # L2H0 takes over
        ("planted:backup", "L1H0+L2H0", HOLDS),
        (NAMES, "L2H3", HOLDS),
        (NAMES, "L2H0", NOT),
        ("trained:induction", "L1H2", HOLDS),
        ("trained:induction", "L1H1", NOT),
        ("compiled:reverse", "L3H0", HOLDS),
        ("compiled:reverse", "L0H0+L3H0", HOLDS),
        ("compiled:reverse", "L1H0", NOT),
    ],
)
def test_heads_that_do_a_task_hold_and_others_do_not(
    verdict_about: Callable, name: str, heads: str, word: str
) -> None:
    model = interp.load(name) if name.startswith("compiled") else name
    found = verdict_about(model, f"{heads}=task:{name}")
    assert found.facts["verdict"] == word, found.facts["p"]
    assert found.facts["question"] == 1


def test_what_takes_over_and_what_is_restored_stand_beside_the_word(
    verdict_about: Callable,
) -> None:
    found = verdict_about("planted:backup", "L1H0=task:planted:backup")
    shares = numbers(found)
    assert shares["share lost"] < 0.01
    assert shares["share restored"] > 0.99
    assert shares["share lost with stand-ins: L2H0"] > 0.99
    text = " ".join(str(found).split()) + " ".join(found_text(found).split())
    assert "lost without them and L2H0 (chosen on other pairs) 1.00" in text
    alone = numbers(verdict_about("planted:backup", "L1H0+L2H0=task:planted:backup"))
    assert alone["share lost"] > 0.99
    assert alone["share lost: L1H0"] < 0.01
    assert not any("stand-ins" in name for name in alone)
    half = numbers(verdict_about("trained:induction", "L0H1=task:trained:induction"))
    assert 0.3 < half["share lost"] < 0.7  # nothing takes over what is left
    assert not any("stand-ins" in name for name in half)


def found_text(found: Any) -> str:
    from interp.report.printed.hypothesis import hypothesis_text

    return hypothesis_text([found])


@pytest.mark.parametrize("name", ["planted:induction", NAMES, "trained:induction"])
def test_the_right_circuit_holds_and_others_do_not(verdict_about: Callable, name: str) -> None:
    right = (INPUT, *KNOWN[name])
    assert verdict_about(name, of_nodes(name, right)).facts["verdict"] == HOLDS
    inner = [node for node in writers(name) if node not in right]
    rng = np.random.default_rng(0)
    for nodes in (
        writers(name),  # the model as a whole is no better than a random set of its size
        (INPUT, right[1]),
        (INPUT, *inner),
        (INPUT, *(inner[i] for i in rng.permutation(len(inner))[:3])),
    ):
        found = verdict_about(name, of_nodes(name, nodes))
        assert found.facts["verdict"] == NOT, (nodes, numbers(found))
    whole = verdict_about(name, of_nodes(name, writers(name)))
    assert numbers(whole) == pytest.approx({"share kept": 1, "random sets": 1}, abs=1e-6)
    assert "not shown to be so far ahead of the control" in found_text(whole)


def test_only_the_edges_of_a_circuit_carry_clean_values(verdict_about: Callable) -> None:
    circuit = of_nodes("planted:induction", (INPUT, *KNOWN["planted:induction"]))
    edges = [("embed", "L0H3.v"), ("L0H3", "L1H0.k"), ("L1H0", "logits")]
    for at, word in ((3, HOLDS), (2, NOT), (1, NOT)):
        tables = dict(circuit.tables) | {
            "smallest": [dict(circuit.tables["smallest"][0]) | {"separated": True}],
            "smallest_edges": [{"from": a, "to": b} for a, b in edges[:at]],
        }
        found = verdict_about("planted:induction", replace(circuit, tables=tables))
        assert found.facts["verdict"] == word
        assert f"and {at} edge" in found.facts["subject"]


def test_a_circuit_is_the_same_from_every_form_of_file(
    verdict_about: Callable, tmp_path: Path
) -> None:
    model, _ = found_in(NAMES)
    circuit = of_nodes(NAMES, (INPUT, *KNOWN[NAMES]))
    given: list[Any] = [circuit]
    for suffix in ("json", "toml"):
        circuit.save(tmp_path / f"c.{suffix}")
        given.append(str(tmp_path / f"c.{suffix}"))
    circuit.to_json(tmp_path / "own.json")
    circuit.to_mib(model, tmp_path / "mib.json")
    given += [f"{tmp_path}/own.json=task:{NAMES}", f"{tmp_path}/mib.json=task:{NAMES}"]
    found = [verdict_about(NAMES, each) for each in given]
    assert [x.facts["verdict"] for x in found] == [HOLDS] * 5
    for other in found[1:]:
        assert numbers(other) == pytest.approx(numbers(found[0]), abs=1e-6)
    assert len({x.facts["hypothesis"].partition(" (")[2] for x in found}) == 1  # one digest
    with pytest.raises(OptionError, match=r"a task that it does not name; give .*mib\.json=task:"):
        verdict_about(NAMES, str(tmp_path / "mib.json"))


def test_edges_that_a_file_leaves_out_are_left_out(verdict_about: Callable, tmp_path: Path) -> None:
    """In the form of InterpBench's edges at MIB: marks of nodes and of some edges between them."""
    model, _ = found_in(NAMES)
    circuit, path = of_nodes(NAMES, (INPUT, *KNOWN[NAMES])), tmp_path / "interpbench_graph.json"
    document = json.loads(circuit.to_mib(model))
    inside = [name for name, held in document["edges"].items() if held["in_graph"]]
    into = [name for name in inside if name.endswith("->logits")]
    for name, held in document["edges"].items():
        held |= {"score": 0.0, "in_graph": held["in_graph"] and name not in into}
    path.write_text(json.dumps(document))
    found = verdict_about(NAMES, f"{path}=task:{NAMES}")
    assert f"and {len(inside) - len(into)} edges" in found.facts["subject"]
    assert numbers(found)["share kept"] == pytest.approx(
        0, abs=1e-6
    )  # nothing of the circuit reaches the logits
    document["edges"][into[0]]["in_graph"] = True
    path.write_text(json.dumps(document))
    assert (
        f"and {len(inside) - len(into) + 1} edge"
        in verdict_about(NAMES, f"{path}=task:{NAMES}").facts["subject"]
    )


def test_a_verdict_is_the_same_from_a_file(verdict_about: Callable, tmp_path: Path) -> None:
    found = verdict_about(NAMES, f"L1H0+L2H3=task:{NAMES}")
    for suffix in ("json", "parquet"):
        found.save(tmp_path / f"v.{suffix}")
        again = type(found).load(tmp_path / f"v.{suffix}")
        assert found_text(again) == found_text(found)
        assert again.interval(0.5).equals(found.interval(0.5))
    found.save(tmp_path / "v.html")
    page = (tmp_path / "v.html").read_text(encoding="utf-8")
    assert "control: as many random other heads" in page
    assert found.interval(0.5)["low"].iloc[0] > found.low[0]


def test_the_interval_is_that_of_redrawn_pairs(verdict_about: Callable) -> None:
    """Ends of a percentile bootstrap, by other code; pairs of this task are independent."""
    found = verdict_about(NAMES, f"L2H3=task:{NAMES}")
    values, n = np.asarray(found.per_prompt), int(found.n[0])
    assert found.clusters is None
    drawn = np.random.default_rng(5).integers(n, size=(4000, n))
    ends = np.quantile(values[:, drawn].mean(2), (0.025, 0.975), axis=1)
    assert found.low == pytest.approx(ends[0], abs=0.03)
    assert found.high == pytest.approx(ends[1], abs=0.03)
    assert 0.02 < found.high[0] - found.low[0] < 0.5


def outside(
    module: Any, ids: torch.Tensor, other: torch.Tensor, heads: Sequence[str], mlps: Sequence[int]
) -> torch.Tensor:
    """Logits at the end of `ids`, with what heads and MLPs write on `other`, by plain hooks."""
    blocks, kept, handles = module.transformer.h, {}, []

    def keep(layer: int) -> None:
        def head(_: Any, args: Any) -> None:
            kept["heads", layer] = args[0].clone()

        def mlp(_: Any, __: Any, output: torch.Tensor) -> None:
            kept["mlp", layer] = output.clone()

        handles.append(blocks[layer].attn.c_proj.register_forward_pre_hook(head))
        handles.append(blocks[layer].mlp.register_forward_hook(mlp))

    def put(layer: int) -> None:
        def head(_: Any, args: Any) -> Any:
            z = args[0].clone()
            for name in heads:
                if name.startswith(f"L{layer}H"):
                    part = slice(12 * int(name[3:]), 12 * (int(name[3:]) + 1))
                    z[..., part] = kept["heads", layer][..., part]
            return (z,)

        def mlp(_: Any, __: Any, output: torch.Tensor) -> Any:
            return kept["mlp", layer] if layer in mlps else output

        handles.append(blocks[layer].attn.c_proj.register_forward_pre_hook(head))
        handles.append(blocks[layer].mlp.register_forward_hook(mlp))

    with torch.no_grad():
        for act, given in ((keep, other), (put, ids)):
            for layer in range(3):
                act(layer)
            logits = module(given).logits[:, -1]
            while handles:
                handles.pop().remove()
    return logits.double()


@pytest.fixture(scope="module")
def own_pairs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Forty pairs of a file, the last six with their sides exchanged, and their ids."""
    model, _ = found_in(NAMES)
    pairs = make_contrast(model, NAMES, n=40, seed=5)
    clean, corrupted = (torch.tensor(x.ids) for x in (pairs.clean, pairs.corrupted))
    with torch.no_grad():
        right, wrong = (model.module(x).logits[:, -1].argmax(-1) for x in (clean, corrupted))
    clean[34:], corrupted[34:] = corrupted[34:].clone(), clean[34:].clone()
    path, lines = tmp_path_factory.mktemp("pairs") / "own.jsonl", []
    for a, b, c, d in zip(clean, corrupted, right, wrong, strict=True):
        row = {"prompt": a.tolist(), "corrupted": b.tolist(), "answer": int(c), "wrong": int(d)}
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))
    return path, clean, corrupted, right, wrong


def test_numbers_are_those_of_plain_hooks(verdict_about: Callable, own_pairs: Any) -> None:
    path, clean, corrupted, right, wrong = own_pairs
    module = found_in(NAMES)[0].module

    def value(ids: torch.Tensor, *replaced: Any) -> np.ndarray:
        logits = outside(module, ids, corrupted if ids is clean else clean, *replaced)
        rows = torch.arange(len(ids))
        return (logits[rows, right] - logits[rows, wrong]).numpy()

    gap = value(clean, (), ()) - value(corrupted, (), ())
    known = gap > 0
    assert known.sum() == 34

    def mean(share: np.ndarray) -> float:
        return float((share / gap)[known].clip(0, 1).mean())

    def lost(*heads: str) -> float:
        return mean(value(clean, (), ()) - value(clean, heads, ()))

    found = verdict_about(NAMES, f"L1H0+L2H3=task:{path}", n_documents=64)
    assert found.facts["without_gap"] == 6
    assert "6 further pairs had no gap in the right direction, and do not count" in " ".join(
        found_text(found).split()
    )
    assert found.n.tolist() == [34] * len(found)
    assert found.facts["gap"] == pytest.approx(gap[known].mean(), abs=1e-4)
    shares = numbers(found)
    restored = value(corrupted, ("L1H0", "L2H3"), ()) - value(corrupted, (), ())
    assert found.facts["random_sets"] in (7, 8, 9)  # of the nine that there are
    others = [lost(f"L1H{a}", f"L2H{b}") for a in (1, 2, 3) for b in (0, 1, 2)]
    assert np.abs(shares.pop("random sets") - np.array(others)).min() < 1e-4
    assert shares == pytest.approx(
        {
            "share lost": lost("L1H0", "L2H3"),
            "share lost: L1H0": lost("L1H0"),
            "share lost: L2H3": lost("L2H3"),
            "share restored": mean(restored),
        },
        abs=1e-4,
    )
    one = numbers(verdict_about(NAMES, f"L2H1=task:{path}", n_documents=64))
    others = [lost(head) for head in ("L2H0", "L2H2", "L2H3")]
    assert one["random sets"] == pytest.approx(np.median(others), abs=1e-4)

    nodes = (INPUT, *KNOWN[NAMES], "mlp1")
    outer = [n for n in writers(NAMES) if n not in nodes]
    heads, mlps = [n for n in outer if n[0] == "L"], [int(n[3:]) for n in outer if n[0] == "m"]
    replace(of_nodes(NAMES, nodes), task="own").save(path.with_name("circuit.json"))
    given = f"{path.with_name('circuit.json')}=task:{path}"
    kept = numbers(verdict_about(NAMES, given, n_documents=64))["share kept"]
    assert kept == pytest.approx(
        mean(value(clean, heads, mlps) - value(corrupted, (), ())), abs=1e-4
    )


def documents_of(folder: Path) -> list[list[str]]:
    [path] = folder.glob("*.jsonl")
    lines = [parse_json(line) for line in path.read_text().splitlines()]
    return [line["documents"] for line in lines[1:]]


def test_no_pair_judges_twice(verdict_about: Callable, own_pairs: Any, tmp_path: Path) -> None:
    folder, path = tmp_path / "one", own_pairs[0]
    for number in (1, 2, 3):
        given = f"L2H3=task:{NAMES}"
        found = verdict_about(NAMES, given, questions=folder, seed=0 if number < 3 else 1)
        assert (found.facts["question"], found.facts["fresh_left"]) == (number, None)
    found = verdict_about(NAMES, f"L2H3=task:{path}", questions=folder, n_documents=24)
    assert found.facts["fresh_left"] == 16
    assert "Of those read, 16 further pairs can judge later questions" in " ".join(
        found_text(found).split()
    )
    verdict_about(NAMES, f"L2H3=task:{path}", questions=folder, n_documents=12)
    every = documents_of(folder)
    assert [len(documents) for documents in every] == [48, 48, 48, 24, 12]
    assert len({key for documents in every for key in documents}) == 48 * 3 + 36
    with pytest.raises(PromptError, match=r"4 fresh pairs of .*own\.jsonl left of 40"):
        verdict_about(NAMES, f"L2H3=task:{path}", questions=folder, n_documents=12)
    assert len(documents_of(folder)) == 5


def test_pairs_that_chose_a_circuit_do_not_judge_it(
    verdict_about: Callable, own_pairs: Any, tmp_path: Path
) -> None:
    model, (path, *_) = found_in(NAMES)[0], own_pairs
    chose = hashes(make_contrast(model, str(path), n=10))
    circuit = of_nodes(NAMES, (INPUT, *KNOWN[NAMES]))
    circuit = replace(circuit, task="own", made=dict(circuit.made) | {"pairs": chose})
    circuit.save(tmp_path / "c.json")
    folder = tmp_path / "one"
    given = f"{tmp_path}/c.json=task:{path}"
    verdict_about(NAMES, given, questions=folder, n_documents=64)
    [documents] = documents_of(folder)
    assert len(documents) == 30
    assert not {*documents} & {f"pair:{pair}" for pair in chose}


def test_what_cannot_be_judged_is_refused_with_the_reason(
    verdict_about: Callable, tmp_path: Path
) -> None:
    right = of_nodes(NAMES, (INPUT, *KNOWN[NAMES]))
    every = "+".join(f"L{layer}H{h}" for layer in range(3) for h in range(4))
    for given, error, reason in (
        (f"L9H9=task:{NAMES}", OptionError, "has no head L9H9"),
        (f"L1H0+L1H0=task:{NAMES}", OptionError, "named twice"),
        (f"{every}=task:{NAMES}", OptionError, "names 12 of 12 heads"),
        ("L1H0=task:induction", OptionError, r"does not do|hardly does|too few|on every prompt"),
        (f"{tmp_path}/gone.json=task:{NAMES}", StoreError, "gone.json"),
        (found_in(NAMES)[1], OptionError, "scores of nodes and no set of them"),
        (replace(right, task="mine"), OptionError, "'mine', whose pairs it does not hold"),
        (replace(right, made={"content_hash": "0"}), OptionError, "with the weights sha256 0"),
        (replace(right, n_layers=9), OptionError, "9 layers"),
    ):
        with pytest.raises(error, match=reason):
            verdict_about(NAMES, given)
    with pytest.raises(OptionError, match="leave out corpus="):
        verdict_about(NAMES, f"L1H0=task:{NAMES}", corpus=["a text"])
    with pytest.raises(OptionError, match="leave out head='L1H0'"):
        verdict_about(NAMES, f"L1H0=task:{NAMES}", head="L1H0")
    with pytest.raises(UnknownName, match="nosuch"):
        verdict_about(NAMES, "L1H0=task:nosuch")
    right.save(tmp_path / "c.json")
    (tmp_path / "c.json").write_text((tmp_path / "c.json").read_text().replace("L2H3", "L2H2"))
    with pytest.raises(StoreError, match=r"changed|damaged|checksum"):
        verdict_about(NAMES, str(tmp_path / "c.json"))


def test_the_command_reads_the_hypothesis_before_it_loads_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for given, reason in (("task:nosuch", "unknown contrast task"), ("task:ioi", "no weights")):
        found = CliRunner().invoke(main, ["judge", str(tmp_path), f"L0H0={given}"])
        assert found.exit_code
        assert reason in found.output


def test_noise_is_not_ahead_of_noise() -> None:
    """Effects of heads that are not cut at 0 would be ahead of others of the same mean."""
    rng, found = np.random.default_rng(0), np.zeros(2)
    for _ in range(100):
        own, control = (rng.random((2, 64)) < 0.3).astype(float)
        measured = JudgedShares("own", {"own": own, "random sets": control}, 10)
        cut = {"random sets": (own - control).clip(0, 1)}
        for at, tested in enumerate((measured.tested, verdict.Tested.of_shares(own, cut, 0.1))):
            found[at] += tested.p[IN_PART] <= 0.05
    assert found[0] <= 5
    assert found[1] > 30


@needs(STORIES)
@pytest.mark.slow
def test_heads_of_the_story_model(tmp_path: Path) -> None:
    model = interp.load(str(STORIES))
    for given, word in (
        ("L5H4=task:ioi", HOLDS),
        ("L5H4+L6H11=task:ioi", HOLDS),
        ("L6H11=task:ioi", IN_PART),
        ("L1H9=task:ioi", NOT),
        ("L5H3+L6H10=task:ioi", NOT),
    ):
        found = interp.judge(model, given, questions=tmp_path / given)
        assert found.facts["verdict"] == word, (given, numbers(found))
