"""Retrieval heads: planted heads found and no others, chance by formula, and what is refused."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import zoo
from beside import real
from sklearn.metrics import roc_auc_score

import interp
from interp import planted
from interp.core.errors import PromptError
from interp.heads import needle
from interp.heads.needle.choice import select
from interp.heads.needle.copying import CopyPaste
from interp.heads.needle.text import Needle
from interp.heads.per_head import by_site

IDS = Path(__file__).parent / "needles_of_ids.jsonl"


def heads(built: planted.Planted, *roles: str) -> set[tuple[int, int]]:
    return {head for role in roles for head in built.roles[role]}


def auc(scores: dict[tuple[int, int], float], wanted: set[tuple[int, int]]) -> float:
    return float(roc_auc_score([h in wanted for h in scores], list(scores.values())))


def by_head(values) -> dict[tuple[int, int], float]:
    return {(s.layer, h): float(v) for s, x in values.items() for h, v in enumerate(x.mean(0))}


# --- planted heads ------------------------------------------------------------------------------


def test_copying_heads_come_first_and_alone(planted_zoo, zoo_model) -> None:
    """Copy suppression looks at the token about to be written, so it copies by this score too."""
    instances = needle.ids_instances(zoo_model, needles=3, lengths=(30, 60), depths=(0, 1))
    found = needle.copy_paste(zoo_model, instances)
    scores = found.score()
    wanted = heads(planted_zoo, "induction", "bystander", "copy_suppression")
    assert auc(scores, wanted) == 1
    assert min(scores[h] for h in wanted) == 1
    assert max(s for h, s in scores.items() if h not in wanted) < 0.25
    assert bool((found.right == 1).all())
    assert select(scores, least=0.5) == [interp.Head(*h) for h in sorted(wanted)]


def test_the_models_own_decoding_of_what_it_can_copy_gives_the_same_scores(
    planted_zoo, zoo_model
) -> None:
    instances = needle.ids_instances(zoo_model, needles=2, lengths=(30,), depths=(0.5,))
    forced = needle.copy_paste(zoo_model, instances)
    decoded = needle.copy_paste(zoo_model, instances, authors=True)
    assert bool((forced.right == 1).all())
    assert bool((decoded.right == 1).all())
    for site, x in forced.values.items():
        torch.testing.assert_close(decoded.values[site], x)


def test_questions_find_what_holds_the_needle(planted_zoo, zoo_model) -> None:
    instances = needle.ids_instances(zoo_model, needles=4, lengths=(40,), depths=(0, 0.5, 1))
    found = needle.question_mass(zoo_model, instances)
    asked, other = (
        by_head(by_site(zoo_model, found, metric))
        for metric in ("question_mass", "question_mass_other")
    )
    wanted = heads(planted_zoo, "induction", "bystander", "copy_suppression", "duplicate_token")
    assert auc(asked, wanted) == 1
    assert min(asked[h] for h in wanted) > 0.98
    # a question about what is not there: nothing to find, so every head is near its noise
    assert max(abs(other[h]) for h in wanted) < 1e-5
    assert np.mean(list(other.values())) < 0.05
    # attention by position alone is the same under every question: exactly nothing is left
    for head in heads(planted_zoo, "previous_token", "offset", "local_window"):
        assert abs(asked[head]) < 1e-6


# --- definitions --------------------------------------------------------------------------------


def by_hand(model: interp.Model, x: needle.Instance) -> dict[tuple[int, int], float]:
    """The score of one instance, a head and a step at a time, from the whole stored pattern."""
    ids = x.prompt + x.answer[:-1]
    cache = model.capture([list(ids)], ["pattern"])
    found = {}
    for layer in range(model.n_layers):
        for head in range(model.n_heads):
            copied = set()
            for step, token in enumerate(x.answer):
                row = cache["pattern", layer][0, head, x.length - 1 + step]
                top = int(row.argmax())
                if x.span[0] <= top < x.span[1] and ids[top] == token:
                    copied.add(token)
            found[layer, head] = len(copied) / len(set(x.answer))
    return found


def test_scores_are_those_of_the_definition() -> None:
    model = interp.load("bundled:induction")
    instances = needle.ids_instances(model, needles=2, lengths=(20, 33), depths=(0.3,), seed=4)
    found = needle.copy_paste(model, instances)
    for trial, x in enumerate(instances):
        want = by_hand(model, x)
        for site, values in found.values.items():
            for head in range(site.n_heads):
                assert float(values[trial, head]) == pytest.approx(want[site.layer, head])
    assert 0 < max(found.score().values()) <= 1


def test_a_token_copied_twice_counts_once(zoo_model) -> None:
    """Set semantics: at most 1; the authors' count divides by the length instead."""
    context = (0, 5, 6, 7, 6, 7, *range(10, 25))
    x = needle.Instance(
        context=context,
        question=(5,),
        span=(2, 6),
        document=(1, 6),
        null=(9,),
        other=(8,),
        needle=0,
        length=len(context) + 1,
        depth=0.0,
        steps=4,
    )
    assert x.answer == (6, 7, 6, 7)
    found = needle.copy_paste(zoo_model, [x])
    assert by_hand(zoo_model, x) == pytest.approx(found.score())
    assert max(found.score().values()) <= 1


def test_the_same_token_outside_the_needle_is_no_copy(planted_zoo, zoo_model) -> None:
    """Two places hold the answer; the induction head looks at the one after the key."""
    context = (0, 5, 6, *range(10, 20), 6, *range(20, 25))
    about = {"question": (5,), "null": (9,), "other": (8,), "needle": 0, "depth": 0.0, "steps": 1}
    [induction] = planted_zoo.roles["induction"]
    for at, want in ((2, 1.0), (13, 0.0)):
        x = needle.Instance(
            context=context, span=(at, at + 1), document=(at, at + 1), length=20, **about
        )
        assert x.answer == (6,)
        assert needle.copy_paste(zoo_model, [x]).score()[induction] == want


def test_instances_in_a_batch_score_as_they_do_alone(zoo_model) -> None:
    instances = needle.ids_instances(zoo_model, needles=2, lengths=(20, 31), depths=(0.1, 0.9))
    together = needle.copy_paste(zoo_model, instances)
    alone = [needle.copy_paste(zoo_model, [x]) for x in instances]
    for site, x in together.values.items():
        torch.testing.assert_close(x, torch.cat([a.values[site] for a in alone]))


def test_where_a_needle_stands(zoo_model) -> None:
    for x in needle.ids_instances(
        zoo_model, needles=2, lengths=(20, 40), depths=(0, 0.5, 1), answer=3
    ):
        assert len(x.prompt) == x.length
        assert x.context[x.document[0]] == x.question[0]
        assert x.document == (x.span[0] - 1, x.span[1])
        assert len(set(x.answer)) == 3
        gap = (x.document[0] - 1) / (x.length - 1 - 1 - 4)
        assert gap == pytest.approx(x.depth, abs=0.04)
        # one source for every copy, and nothing that answers the other questions
        for token in (*x.question, *x.answer):
            assert x.context.count(token) == 1
        assert not {*x.null, *x.other} & set(x.context)


# --- chance -------------------------------------------------------------------------------------


def test_random_weights_copy_at_the_rate_of_an_even_draw() -> None:
    """Mean over steps of 1 / visible keys: what a top key drawn evenly would score."""
    tiny = zoo.FAMILIES["llama"].model("sdpa")
    config = type(tiny.config)(**(tiny.config.to_dict() | {"vocab_size": 400}))  # type: ignore[arg-type]
    want = np.mean([1 / (24 + step) for step in range(4)])
    means = []
    for seed in range(8):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = interp.load(type(tiny)(copy.deepcopy(config)).eval(), name="random")
        instances = needle.ids_instances(
            model, needles=10, lengths=(24,), depths=(0.2, 0.5, 0.8), seed=seed
        )
        found = needle.copy_paste(model, instances)
        assert found.chance.numpy() == pytest.approx(want)
        means.append(np.mean(list(found.score().values())))
    # trials of one model share its heads, so the error is over models
    error = np.std(means, ddof=1) / len(means) ** 0.5
    assert np.mean(means) == pytest.approx(want, abs=4 * error)
    assert 4 * error < want / 3


def test_the_null_of_answered_instances_is_that_rate(zoo_model) -> None:
    table = interp.score(zoo_model, "retrieval:success=0.5,needles=1,depths=1,lengths=1")
    [made] = table.provenance.values()
    assert made["null"] == "an even draw of the top key, computed"
    want = np.mean([1 / (48 + step) for step in range(4)])
    assert table.to_pandas()["null"].to_numpy() == pytest.approx(want, rel=1e-6)


# --- the experiment -----------------------------------------------------------------------------


def test_a_trained_model_has_retrieval_heads_with_errors() -> None:
    model = interp.load("bundled:induction")
    table = interp.score(model, "retrieval", null="none")
    rows = table.to_pandas()
    first = rows.sort_values("score").iloc[-1]
    assert (first["layer"], first["score"] > 0.7, 0 < first["sem"] < 0.1) == (1, True, True)
    assert (rows["n"] == 48).all()
    assert rows[rows["layer"] == 0]["score"].max() < 0.3
    [made] = table.provenance.values()
    notes = " ".join(made["notes"])
    answered = re.search(r"answered: (\d+) of 48 instances completely", notes)
    assert answered
    assert 24 < int(answered[1]) < 48  # it fails some, which count and are told
    assert "counted: 48 of 48" in notes


def test_needles_of_a_file_and_what_it_asks(zoo_model) -> None:
    given, haystack = needle.read_task(IDS)
    bundled = interp.load("bundled:induction")
    instances = needle.text_instances(bundled, given, haystack, lengths=(40,), depths=(0.5,))
    assert [x.answer for x in instances] == [tuple(n.answer) for n in given]
    assert all(x.question == (n.needle[0],) for x, n in zip(instances, given, strict=True))
    assert instances[0].other == instances[1].question
    assert max(needle.copy_paste(bundled, instances).score().values()) > 0.5


def test_needles_of_text() -> None:
    model = interp.load("bundled:induction")
    hay = "On Monday Anna went to the market. It was cold. Ben was there, too! " * 12
    wanted = Needle("The code of Anna is 4 7 1 9 .", "What is the code of Anna?", "4 7 1 9")
    [early, late] = needle.text_instances(model, [wanted], hay, lengths=(90,), depths=(0, 0.7))
    for x in (early, late):
        assert model.tokenizer.decode(x.answer).strip() == "4 7 1 9"
        assert model.tokenizer.decode(x.context[slice(*x.document)]).strip() == wanted.needle
        assert model.tokenizer.decode(x.question).endswith("code of Anna?\nAnswer:")
        assert x.length == len(x.prompt) == 90
        before = model.tokenizer.decode(x.context[1 : x.document[0]]).strip()
        assert before == "" or before[-1] in ".!"
    assert early.document[0] == 1
    assert late.document[0] > 20
    asked = by_site(model, needle.question_mass(model, [late]), "question_mass")
    assert asked[model.sites[0]].shape == (1, model.n_heads)


@pytest.fixture
def essays(tmp_path: Path) -> Path:
    """The paragraphs that come with the package, in three orders."""
    lines = (Path(__file__).parents[3] / "data" / "prompts.txt").read_text().splitlines()
    for at in range(3):
        (tmp_path / f"{at}.txt").write_text(" ".join(lines[at:] + lines[:at]))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "lengths"), [("bundled:induction", (120, 240)), real("stories260k", (150, 300))]
)
def test_needles_in_essays_for_small_models(source: str, lengths, essays: Path) -> None:
    """They cannot answer, and the notes say so; copying heads show above chance all the same."""
    model = interp.load(source)
    wanted = [
        Needle("The little dog was Max and he had a blue hat.", "Who was the dog?", "Max"),
        Needle(
            "Lily hid the big key under the old green box.",
            "Where did Lily hide the key?",
            "under the old green box",
        ),
    ]
    found = needle.copy_paste(
        model,
        needle.text_instances(model, wanted, essays, lengths=lengths, depths=(0.2, 0.8)),
    )
    assert {x.length for x in found.instances} == set(lengths)
    assert float(found.right.max()) < 1
    best = max(found.score().values())
    assert best > 5 * float(found.chance.mean())
    with pytest.raises(PromptError, match="no instance reaches success"):
        found.solved(1.0)
    frame = needle.selection_stability(found, n_boot=50)
    assert list(frame["part"]) == ["all", "needle 0", "needle 1", *(f"length {n}" for n in lengths)]


# --- which heads, and how surely ----------------------------------------------------------------


def example(values: np.ndarray, needles: list[int], model: interp.Model) -> CopyPaste:
    [x] = needle.ids_instances(model, needles=1, lengths=(30,), depths=(0.5,))
    instances = tuple(replace(x, needle=n) for n in needles)
    n = len(needles)
    return CopyPaste(
        {model.sites[0]: torch.tensor(values)}, torch.ones(n), torch.ones(n), instances
    )


def test_stability_of_a_score_that_every_needle_agrees_on(zoo_model) -> None:
    values = np.tile([0.9, 0.5, 0.05, 0.0], (12, 1))
    frame = needle.selection_stability(example(values, [0, 1, 2] * 4, zoo_model), n_boot=20)
    assert list(frame["part"]) == ["all", "needle 0", "needle 1", "needle 2"]
    assert list(frame["n"]) == [12, 4, 4, 4]
    for name in ("heads", "heads_low", "heads_high"):
        assert (frame[name] == 2).all()
    assert frame[["overlap", "overlap_low", "spearman", "spearman_high"]].to_numpy() == (
        pytest.approx(1.0)
    )


def test_stability_of_a_score_that_needles_disagree_on(zoo_model) -> None:
    values = np.array([[0.9, 0.8, 0.0, 0.0]] * 6 + [[0.0, 0.0, 0.8, 0.9]] * 6)
    found = example(values, [0] * 6 + [1] * 6, zoo_model)
    frame = needle.selection_stability(found, top=2, n_boot=50).set_index("part")
    assert frame.loc["needle 0", "overlap"] == 0
    assert frame.loc["needle 0", "spearman"] == pytest.approx(-8 / 9)
    assert frame.loc["all", "heads"] == 4
    assert 0 < frame.loc["all", "overlap"] < 0.9
    assert frame.loc["all", "overlap_low"] == 0


def test_the_interval_of_a_count_is_that_of_the_bootstrap(zoo_model) -> None:
    """One head at 0 or 1 by a coin: it reaches 1/2 in half of the resamples of 8 trials or more."""
    values = np.array([[1.0], [0.0]] * 4)
    frame = needle.selection_stability(
        example(values, [0] * 8, zoo_model), least=0.5, n_boot=2000, seed=1
    )
    row = frame.iloc[0]
    assert (row["heads"], row["heads_low"], row["heads_high"]) == (1, 0, 1)
    values[:] = 0.6
    row = needle.selection_stability(example(values, [0] * 8, zoo_model), least=0.5).iloc[0]
    assert (row["heads_low"], row["heads_high"]) == (1, 1)


def test_selection_by_value_and_by_share(zoo_model) -> None:
    scores = {(0, 0): 0.3, (0, 1): 0.9, (1, 0): 0.1, (1, 1): 0.3}
    assert [str(h) for h in select(scores, least=0.3)] == ["L0H1", "L0H0", "L1H1"]
    assert [str(h) for h in select(scores, share=0.5)] == ["L0H1", "L0H0"]
    assert [str(h) for h in select(scores, share=0.01)] == ["L0H1"]
    table = interp.score(zoo_model, "echo", null="none")
    assert len(select(table, share=0.14)) == round(0.14 * len(table))
