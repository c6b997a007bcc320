"""Verdicts on variables in subspaces: true ones hold, random and dormant directions do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from circuits.test_variables import ANSWER, _transformer
from click.testing import CliRunner

import interp
from interp.circuits import find_variables
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.variables.interchanges import (
    Interchange,
    induction_interchanges,
    place_interchanges,
)
from interp.circuits.variables.places import InterchangeRuns, Subspace, places_of
from interp.circuits.variables.search import varying
from interp.cli.main import main
from interp.core.errors import OptionError, PromptError, StoreError, UnknownName
from interp.profiles.verdict import HOLDS, IN_PART, NOT
from interp.report.printed.hypothesis import hypothesis_text

PLANTED, BUNDLED = "planted:induction", "bundled:induction"
WITH, SHUFFLED = "with the subspace", "control: the answer of another pair instead"
VARYING = "with only the part of the change that varies over the prompts"
WHOLE = "with the whole of the place (upper bound)"


@pytest.fixture(scope="module")
def holder_model() -> interp.Model:
    return interp.load(PLANTED)


@pytest.fixture(scope="module")
def searched(holder_model: interp.Model) -> Any:
    return find_variables(holder_model, None, ["L1H0", "L0H3"], ranks=[64], steps=6)


@pytest.fixture
def judged_on_pairs(tmp_path: Path) -> Callable:
    """Judge with a ledger of one's own, so that every question is a first one."""

    def ask(model: Any, claim: Any, **options: Any) -> Any:
        folder = tmp_path / f"ledger {len([*tmp_path.iterdir()])}"
        return interp.judge(model, claim, **{"questions": folder, "n_documents": 48, **options})

    return ask


def numbers(found: Any) -> dict[str, float]:
    return dict(zip(found.number, found.score, strict=True))


def directions_of(searched: Any, variable: str, place: str) -> np.ndarray:
    rows = zip(searched.variable, searched.place, strict=True)
    [at] = [i for i, row in enumerate(rows) if row == (variable, place)]
    found = np.asarray(searched.directions)[at]
    return found[~np.isnan(found).all(1)][:, : int(searched.k[at])]


def said(searched: Any, directions: np.ndarray, **columns: Any) -> Any:
    """A search that states one row, with other directions and columns."""
    row = {name: values[:1] for name, values in searched.columns.items()}
    row |= {"finding": ["found"], "k": [directions.shape[1]]}
    row |= {name: [value] for name, value in columns.items()}
    arrays = {"directions": directions[None], "quantiles": searched.arrays["quantiles"][:1]}
    return replace(searched, columns=row, arrays=arrays)


def random_directions(width: int, k: int, seed: int) -> np.ndarray:
    normal = np.random.default_rng(seed).normal(size=(width, k))
    return np.linalg.qr(normal)[0].astype(np.float32)


def written(path: Path, pairs: Sequence[Interchange]) -> Path:
    path.write_text("".join(json.dumps(asdict(pair)) + "\n" for pair in pairs))
    return path


@pytest.mark.parametrize(
    ("place", "word"),
    [
        ("content:L1H0", HOLDS),
        ("pointer:L0H3", HOLDS),
        ("pointer:L1H0", NOT),
        ("content:L0H3", NOT),
    ],
)
def test_a_planted_variable_holds_where_it_is(
    judged_on_pairs: Callable, holder_model: Any, searched: Any, place: str, word: str
) -> None:
    found = judged_on_pairs(holder_model, searched, head=place)
    assert found.facts["verdict"] == word, numbers(found)
    assert found.facts["question"] == 1
    shares = numbers(found)
    assert (shares["share followed"] > 0.9) == (shares[WITH] > 0.9) == (word == HOLDS)
    assert len(found.facts["random_scores"]) == 20
    if word == NOT:
        assert "not shown to be so far ahead of every control" in hypothesis_text([found])


def test_a_whole_head_is_judged_beside_the_others_of_its_layer(
    judged_on_pairs: Callable, holder_model: Any, searched: Any
) -> None:
    for place, word in (("L1H0", HOLDS), ("L1H2", NOT)):
        claim = said(searched, np.eye(128, dtype=np.float32), variable="content", place=place)
        found = judged_on_pairs(holder_model, claim)
        assert found.facts["verdict"] == word
        assert numbers(found)[WITH] == numbers(found)[WHOLE] == (word == HOLDS)
        assert sorted(found.facts["random_scores"]) == [0, 0, int(word == NOT)]
        assert "control: other heads of the layer, whole (0.00 to" in hypothesis_text([found])


def test_other_directions_do_not_hold(
    judged_on_pairs: Callable, holder_model: Any, searched: Any
) -> None:
    """Those of another layer, and random ones: half of a head gives half of the answers."""
    elsewhere = directions_of(searched, "content", "L1H0")
    claim = said(searched, elsewhere, variable="content", place="L0H3")
    assert judged_on_pairs(holder_model, claim).facts["verdict"] == NOT
    claim = said(searched, directions_of(searched, "pointer", "L0H3"), place="L1H0")
    assert judged_on_pairs(holder_model, claim).facts["verdict"] not in (HOLDS, IN_PART)
    claim = said(searched, random_directions(128, 64, 0), variable="content", place="L1H0")
    found = judged_on_pairs(holder_model, claim)
    assert found.facts["verdict"] not in (HOLDS, IN_PART)
    assert 0.2 < numbers(found)[WITH] < 0.8
    assert 0.2 < numbers(found)["random sets"] < 0.8
    assert numbers(found)[WHOLE] == 1


@pytest.mark.slow
def test_none_of_20_random_subspaces_holds(
    judged_on_pairs: Callable, holder_model: Any, searched: Any
) -> None:
    words = []
    for seed in range(20):
        directions = random_directions(128, (4, 16, 64, 96)[seed % 4], seed)
        claim = said(searched, directions, variable="content", place="L1H0")
        words.append(judged_on_pairs(holder_model, claim, seed=seed).facts["verdict"])
    assert not {HOLDS, IN_PART} & {*words}


def test_a_dormant_direction_does_not_hold(judged_on_pairs: Callable, tmp_path: Path) -> None:
    """What nothing reads varies, and what is read does not: together they give the answers."""
    holder = interp.load(_transformer(), name="planted variables")
    prompts = [(0, a, b, 0) for a in range(1, 5) for b in range(5, 9)]
    pairs = ANSWER.interchanges(prompts, "a", n=240)
    searched = find_variables(holder, pairs, ["L0H0"], ranks=[2], steps=8)
    searched = replace(searched, facts=searched.facts | {"base_prompts": []})
    task = written(tmp_path / "pairs.jsonl", pairs)
    joined = np.float32(np.sqrt(0.5)) * np.vstack([np.eye(2), np.eye(2)]).astype(np.float32)
    held = np.eye(4, dtype=np.float32)[:, :2]
    for directions, place, share in ((joined, "L0H2", 0), (held, "L0H0", 1)):
        said(searched, directions, place=place).save(tmp_path / f"{place}.json")
        found = judged_on_pairs(holder, f"{tmp_path / place}.json=task:{task}")
        shares = numbers(found)
        assert (shares["share followed"], shares[VARYING], shares[WITH]) == (share, share, 1)
        assert found.n.tolist() == [16] * len(found)  # a pair of each base prompt


def test_answers_that_are_all_the_same_do_not_hold(
    judged_on_pairs: Callable, holder_model: Any, searched: Any, tmp_path: Path
) -> None:
    """The subspace is the right one, and the pairs cannot tell: the answer is the same in all."""
    rng, pairs = np.random.default_rng(5), []
    for _ in range(40):
        drawn = rng.choice(np.arange(4, 60), 24, replace=False).tolist()
        base, source = [*drawn[:12], drawn[3]], [*drawn[12:], drawn[15]]
        source[4] = 3
        pairs.append(Interchange(tuple(base), tuple(source), 3, drawn[4], "content"))
    task = written(tmp_path / "pairs.jsonl", pairs)
    searched.save(tmp_path / "v.json")
    found = judged_on_pairs(holder_model, f"content:L1H0={tmp_path}/v.json=task:{task}")
    assert numbers(found)["share followed"] > 0.9
    assert numbers(found)[SHUFFLED] > 0.9
    assert found.facts["beaten"] == [SHUFFLED]
    assert found.facts["verdict"] not in (HOLDS, IN_PART)


def with_change(
    model: Any, h: int, ids: torch.Tensor, change: Any = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """What head h of the first layer holds, and the last logits once it was changed, by a hook."""
    columns, kept = slice(16 * h, 16 * (h + 1)), []

    def hook(_: Any, args: Any) -> Any:
        z = args[0].clone()
        kept.append(args[0][..., columns].clone())
        z[..., columns] += change
        return (z,)

    handle = model.module.model.layers[0].self_attn.o_proj.register_forward_pre_hook(hook)
    with torch.no_grad():
        logits = model.module(ids).logits[:, -1]
    handle.remove()
    return kept[0], logits


def most_of(held: torch.Tensor) -> torch.Tensor:
    """Projection onto the principal components that hold 99.9 % of the variance."""
    x = held.reshape(-1, held.shape[-1]).double()
    values, vectors = torch.linalg.eigh((x - x.mean(0)).T @ (x - x.mean(0)))
    n = int((values.flip(0).cumsum(0) < 0.999 * values.sum()).sum()) + 1
    chosen = vectors.flip(1)[:, :n]
    return (chosen @ chosen.T).float()


def test_numbers_are_those_of_plain_hooks(
    judged_on_pairs: Callable, searched: Any, tmp_path: Path
) -> None:
    model, h, k = interp.load(BUNDLED), 3, 13
    about = searched.provenance | {"content_hash": model.content_hash}
    directions = random_directions(16, k, 1)
    claim = replace(said(searched, directions, variable="pointer", place="L0H3"), provenance=about)
    claim.save(tmp_path / "v.json")
    pairs = [x for x in induction_interchanges(model, 60, seed=7) if x.variable == "pointer"]
    task = written(tmp_path / "pairs.jsonl", pairs)
    found = judged_on_pairs(model, f"{tmp_path}/v.json=task:{task}", n_documents=60)

    base, source = (torch.tensor([getattr(x, name) for x in pairs]) for name in ("base", "source"))
    own, plain = with_change(model, h, base)
    change = with_change(model, h, source)[0] - own
    r, inside = torch.from_numpy(directions), most_of(torch.cat([own, own + change]))

    graph = ResidualGraph.of(model)
    rows = place_interchanges(model, pairs)
    runs = InterchangeRuns(graph, rows)
    [place] = places_of(graph, ["L0H3"])
    space = Subspace.of([r])
    changed = with_change(model, h, base, change @ r @ r.T)[1]
    assert torch.allclose(runs.logits(runs.groups[0], place, space), changed, atol=1e-5)
    part = with_change(model, h, base, change @ r @ r.T @ inside)[1]
    only = replace(space, inside=varying(runs, place))
    assert torch.allclose(runs.logits(runs.groups[0], place, only), part, atol=1e-4)

    answers = torch.tensor([row.answer for row in rows])
    right = plain.argmax(-1) == torch.tensor([row.base_answer for row in rows])
    assert found.facts["without_gap"] == int((~right).sum()) > 0

    def mean(hits: torch.Tensor) -> float:
        return float(hits[right].double().mean())

    full = with_change(model, h, base, change)[1]
    hits, parts, all_of = (x.argmax(-1) == answers for x in (changed, part, full))
    shares = numbers(found)
    given = changed.argmax(-1)[right]
    same = (given[:, None] == answers[right]).double()
    same.fill_diagonal_(0)
    assert 0.1 < shares[WITH] < shares[WHOLE]
    assert shares.pop("random sets") == pytest.approx(
        sorted(found.facts["random_scores"])[10], abs=1e-6
    )
    assert shares == pytest.approx(
        {
            "share followed": mean(hits & parts),
            SHUFFLED: float(same.sum() / (len(given) * (len(given) - 1))),
            WITH: mean(hits),
            VARYING: mean(parts),
            WHOLE: mean(all_of),
        },
        abs=1e-5,
    )


def documents_of(folder: Path) -> list[list[str]]:
    [path] = folder.glob("*.jsonl")
    return [json.loads(line)["documents"] for line in path.read_text().splitlines()[1:]]


def test_no_base_prompt_judges_twice_or_after_the_search(
    judged_on_pairs: Callable, holder_model: Any, searched: Any, tmp_path: Path
) -> None:
    """Of 50 pairs with 30 base prompts, 10 of them searched, 20 can judge."""
    fresh = [x for x in induction_interchanges(holder_model, 20, seed=9) if x.variable == "content"]
    known = [
        x for x in induction_interchanges(holder_model, 160, seed=0) if x.variable == "content"
    ]
    task = written(tmp_path / "own.jsonl", [*fresh, *fresh, *known[:10]])
    searched.save(tmp_path / "v.json")
    claim, folder = f"content:L1H0={tmp_path}/v.json=task:{task}", tmp_path / "one"
    first = judged_on_pairs(holder_model, claim, questions=folder, n_documents=12)
    assert (first.n[0], first.facts["fresh_left"], first.facts["question"]) == (12, 8, 1)
    text = " ".join(hypothesis_text([first]).split())
    assert "Of those read, 8 further pairs can judge later questions" in text
    second = judged_on_pairs(holder_model, claim, questions=folder, n_documents=12)
    assert (second.n[0], second.facts["fresh_left"]) == (8, 0)
    with pytest.raises(PromptError, match=r"0 fresh pairs of .*own\.jsonl left of 50: the others"):
        judged_on_pairs(holder_model, claim, questions=folder, n_documents=12)
    every = documents_of(folder)
    assert [len(documents) for documents in every] == [12, 8]
    assert len({key for documents in every for key in documents}) == 20
    task = written(tmp_path / "searched.jsonl", known[:20])
    with pytest.raises(PromptError, match=r"fresh pairs of .*searched\.jsonl left of 20"):
        judged_on_pairs(holder_model, f"content:L1H0={tmp_path}/v.json=task:{task}")
    drawn = [
        judged_on_pairs(holder_model, searched, head="content:L1H0", questions=folder)
        for _ in (0, 1)
    ]
    assert [found.facts["fresh_left"] for found in drawn] == [None, None]
    assert len({key for documents in documents_of(folder) for key in documents}) == 20 + 2 * 48


def test_a_verdict_is_the_same_from_every_form_of_file(
    judged_on_pairs: Callable, holder_model: Any, searched: Any, tmp_path: Path
) -> None:
    first = judged_on_pairs(holder_model, searched, head="content:L1H0")
    for suffix in ("json", "toml", "parquet"):
        path = tmp_path / f"v.{suffix}"
        searched.save(path)
        found = judged_on_pairs(holder_model, f"content:L1H0={path}")
        assert numbers(found) == numbers(first)
        assert found.facts["hypothesis"].endswith(first.facts["hypothesis"].partition(" (")[2])
    found.save(tmp_path / "verdict.json")
    again = type(found).load(tmp_path / "verdict.json")
    assert hypothesis_text([again]) == hypothesis_text([found])
    assert again.interval(0.5).equals(found.interval(0.5))
    found.save(tmp_path / "verdict.html")
    page = (tmp_path / "verdict.html").read_text(encoding="utf-8")
    assert "control: random subspaces of this size" in page
    assert "control: the answer of another pair instead" in page


def test_the_interval_is_that_of_wilson_over_pairs_or_templates(
    judged_on_pairs: Callable, holder_model: Any, searched: Any, tmp_path: Path
) -> None:
    pairs = [x for x in induction_interchanges(holder_model, 40, seed=3) if x.variable == "content"]
    named = [replace(x, template=f"t{at % 5}") for at, x in enumerate(pairs)]
    searched.save(tmp_path / "v.json")
    for given, n in ((pairs, 40), (named, 5)):
        task = written(tmp_path / "pairs.jsonl", given)
        claim = said(searched, random_directions(128, 64, 2), variable="content", place="L1H0")
        claim.save(tmp_path / "v.json")
        found = judged_on_pairs(holder_model, f"{tmp_path}/v.json=task:{task}")
        z, p = 1.959964, found.score
        middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        assert found.facts["wordings"] == (None if n > 5 else 5)
        assert ("The intervals count the 5 wordings" in hypothesis_text([found])) == (n == 5)
        assert found.low == pytest.approx((middle - half) / (1 + z**2 / n), abs=1e-6)
        assert found.high == pytest.approx((middle + half) / (1 + z**2 / n), abs=1e-6)
        assert 0.2 < found.score[0] < 0.8


def test_a_place_at_one_position(
    judged_on_pairs: Callable, holder_model: Any, searched: Any
) -> None:
    directions = directions_of(searched, "content", "L1H0")
    for position, share in (("-1", 1), ("0", 0)):
        found = judged_on_pairs(
            holder_model, said(searched, directions, place="L1H0", position=position)
        )
        assert numbers(found)[WITH] == share
        assert f"content:L1H0@{position} (64 dimensions)" in found.facts["subject"]
    with pytest.raises(OptionError, match="position 40 of prompts of 1"):
        judged_on_pairs(holder_model, said(searched, directions, place="L1H0", position="40"))


def test_what_cannot_be_judged_is_refused_with_the_reason(
    judged_on_pairs: Callable, holder_model: Any, searched: Any, tmp_path: Path
) -> None:
    right = directions_of(searched, "content", "L1H0")
    own = searched.provenance["options"]
    no_pairs = searched.provenance | {"options": own | {"pairs": ""}}
    older = {name: value for name, value in searched.facts.items() if name != "base_prompts"}
    for claim, reason in (
        (said(searched, right * 1.1, place="L1H0"), "no orthonormal directions of 128 numbers"),
        (said(searched, right[:, [0, 0]], place="L1H0"), "no orthonormal directions"),
        (said(searched, right[:100], place="L1H0"), "no orthonormal directions of 128 numbers"),
        (said(searched, right * np.nan, place="L1H0"), "nothing was fitted there"),
        (said(searched, right, place="L0"), "no orthonormal directions of 512 numbers"),
        (
            said(searched, np.eye(512, dtype=np.float32), place="L0"),
            "whole of L0, so that there is",
        ),
        (said(searched, right, place="L1H0", variable="x"), "0 fresh pairs of induction left of 0"),
        (searched, r"several places; give one .*: content:L1H0, pointer:L0H3"),
        (replace(searched, provenance=no_pairs), "does not say how to make fresh pairs"),
        (replace(searched, facts=older), "does not say how to make fresh pairs"),
        (replace(searched, kind="Scores"), "these are Scores, not Variables"),
    ):
        with pytest.raises((OptionError, PromptError), match=reason):
            judged_on_pairs(holder_model, claim)
    with pytest.raises(UnknownName, match="unknown place of planted:induction 'L7H0'"):
        judged_on_pairs(holder_model, said(searched, right, place="L7H0"))
    with pytest.raises(UnknownName, match="unknown place of the search 'L7H0'"):
        judged_on_pairs(holder_model, searched, head="L7H0")
    with pytest.raises(OptionError, match="of planted:induction, and bundled:induction has other"):
        judged_on_pairs(BUNDLED, searched, head="content:L1H0")
    with pytest.raises(OptionError, match="judged on pairs of its task; leave out corpus="):
        judged_on_pairs(holder_model, searched, head="content:L1H0", corpus=["a text"])
    wrong = [
        replace(x, base_answer=x.base[0])
        for x in induction_interchanges(holder_model, 20, seed=3)
        if x.variable == "content"
    ]
    searched.save(tmp_path / "v.json")
    task = written(tmp_path / "wrong.jsonl", wrong)
    with pytest.raises(
        OptionError, match=r"does .*wrong\.jsonl on \d of \d+ fresh pairs; at least 8"
    ):
        judged_on_pairs(holder_model, f"content:L1H0={tmp_path}/v.json=task:{task}")
    text = (tmp_path / "v.json").read_text().replace('"content"', '"context"', 1)
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(StoreError, match=r"changed|damaged|checksum"):
        judged_on_pairs(holder_model, f"content:L1H0={tmp_path}/v.json")


def test_the_command_judges_what_the_search_wrote(
    searched: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    searched.save("v.json")
    run = CliRunner().invoke(main, ["judge", PLANTED, "pointer:L0H3=v.json", "-o", "v.html"])
    assert run.exit_code == 0, run.output
    text = " ".join(run.output.split())
    assert "pointer:L0H3=v.json (sha256 " in text
    assert "): holds; followed " in text
    assert "with the whole of the place (upper bound) 1.00" in text
    assert Path("v.html").stat().st_size > 1000
    Path("config.json").write_text("{}")
    run = CliRunner().invoke(main, ["judge", ".", "L5H0=v.json"])
    assert run.exit_code
    assert "unknown place of v.json 'L5H0'" in run.output  # before the model is loaded
