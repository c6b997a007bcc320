"""Named heads planted by hand on texts: found, the bystander not, and the null at chance."""

from __future__ import annotations

import numpy as np
import pytest
from circuits.handmade import MATCH, Handmade
from circuits.speller import speller

import interp
from interp.circuits.tasks import ioi_pairs as ioi
from interp.core.statistics import auroc


def rows_of(table: interp.HeadTable):
    frame = table.to_pandas()
    return frame.set_index("L" + frame["layer"].astype(str) + "H" + frame["head"].astype(str))


def found_by_rule(table: interp.HeadTable, planted: set[str], bystander: str) -> None:
    """The planted heads score above all others, and above the null; the bystander does not."""
    frame = rows_of(table)
    frame = frame[frame["n"] > 0]
    truth = np.array([name in planted for name in frame.index])
    assert auroc(frame["score"].to_numpy(), truth) == 1
    assert auroc((frame["score"] - frame["null"]).to_numpy(), truth) == 1
    best = frame.loc[sorted(planted), "score"].min()
    assert abs(frame.loc[bystander, "score"]) < 0.05 * best
    assert (frame["null"].abs() < 0.1 * best).all()
    assert (frame.loc[sorted(planted), "p"] < 0.01).all()


@pytest.fixture(scope="module")
def giving() -> interp.Model:
    """Duplicate names are found, inhibited at the end, and the mover copies the other name."""
    tokenizer = speller(begin=True)
    n = len(ioi.NAMES)
    spaces = {"name": n, "end": 1, "double": n, "inhibited": n, "out": n, "unread": n}
    made = Handmade(tokenizer, spaces, layers=3)
    for i, name in enumerate(ioi.NAMES):
        for spelled in (name, f" {name}"):
            made.embedding[tokenizer.convert_tokens_to_ids(spelled), made.at["name"].start + i] = 1
        token = tokenizer.convert_tokens_to_ids(f" {name}")
        made.unembedding[token, made.at["out"].start + i] = 1
    made.embedding[tokenizer.convert_tokens_to_ids(" to"), made.at["end"]] = 1
    name, position = made.eye("name"), made.eye("position")
    made.head(0, 1, [made.rest(), (MATCH, name, name), (-2 * MATCH, position, position)],
              [(name, made.eye("double"))])  # fmt: skip
    seen = [made.rest(), (MATCH, made.eye("end"), made.total("double"))]
    made.head(1, 2, seen, [(made.eye("double"), made.eye("inhibited"))])
    made.head(1, 3, seen, [(made.eye("double"), made.eye("unread"))])
    made.head(2, 0, [made.rest(), (MATCH, made.eye("end"), made.total("name")),
                     (-MATCH, made.eye("inhibited"), name)],
              [(name, 10 * made.eye("out"))])  # fmt: skip
    return made.build("giving")


def test_a_planted_name_mover_is_found(giving) -> None:
    found_by_rule(interp.score(giving, "name_mover", seed=0), {"L2H0"}, "L1H3")


def test_a_planted_s_inhibition_head_is_found(giving) -> None:
    table = interp.score(giving, "s_inhibition:movers=1,pairs=32", seed=0)
    found_by_rule(table, {"L1H2"}, "L1H3")
    frame = rows_of(table)
    assert (frame.loc[["L2H0", "L2H1"], "n"] == 0).all()  # they cannot reach the mover
    roles = interp.roles(table)
    assert [x.label for x in roles.assigned if x.role not in (None, "unclear")] in ([], ["L1H2"])


def test_the_null_of_s_inhibition_leaves_out_prompts_without_another_word(giving) -> None:
    from interp.circuits.named._inhibition import _other_words
    from interp.circuits.tasks import make_contrast

    task = make_contrast(giving, "ioi", n=8, seed=0)
    versions, alone = _other_words(giving, task, 0)
    assert alone == ()
    for ids, other, at in zip(task.clean.ids, versions, task.roles, strict=True):
        assert other is not None
        assert other != ids
        assert all(other[place] == ids[place] for place in at.values())
    empty = speller(things=False)
    other = interp.load(giving.module, tokenizer=empty, name="wordless")
    versions, alone = _other_words(other, task, 0)
    assert versions == [None] * 8
    assert alone == tuple(range(8))
