"""Our own treebank is valid Universal Dependencies, as far as a program can tell.

The rules are those of UD version 2: https://universaldependencies.org/u/overview/syntax.html and
the checks of its validator at levels 1 to 3.
"""

from __future__ import annotations

import hashlib

import pytest
from beside import TREEBANK, needs

from interp.core.resources import folder
from interp.syntax.conllu import read_conllu
from interp.syntax.treebank import Sentence

PATH = folder("data") / "treebank.conllu"
BANK = read_conllu(PATH)
UPOS = {
    "ADJ",
    "ADP",
    "ADV",
    "AUX",
    "CCONJ",
    "DET",
    "INTJ",
    "NOUN",
    "NUM",
    "PART",
    "PRON",
    "PROPN",
    "PUNCT",
    "SCONJ",
    "SYM",
    "VERB",
    "X",
}
RELATIONS = {
    "acl",
    "advcl",
    "advmod",
    "amod",
    "appos",
    "aux",
    "case",
    "cc",
    "ccomp",
    "clf",
    "compound",
    "conj",
    "cop",
    "csubj",
    "dep",
    "det",
    "discourse",
    "dislocated",
    "expl",
    "fixed",
    "flat",
    "goeswith",
    "iobj",
    "list",
    "mark",
    "nmod",
    "nsubj",
    "nummod",
    "obj",
    "obl",
    "orphan",
    "parataxis",
    "punct",
    "reparandum",
    "root",
    "vocative",
    "xcomp",
}
SUBTYPES = {
    "acl:relcl",
    "aux:pass",
    "cc:preconj",
    "compound:prt",
    "det:predet",
    "nmod:poss",
    "nsubj:pass",
    "obl:agent",
    "obl:unmarked",
}
RIGHTWARD = {"conj", "fixed", "flat", "appos", "goeswith", "orphan"}  # heads come first
FUNCTION = {"aux", "cop", "case", "mark", "cc", "punct"}  # these take hardly any dependents
UNDER_FUNCTION = {"fixed", "goeswith", "conj", "cc", "punct", "advmod"}
OF = {
    "det": {"DET", "PRON"},
    "nummod": {"NUM"},
    "cc": {"CCONJ", "ADV"},
    "aux": {"AUX"},
    "cop": {"AUX"},
    "punct": {"PUNCT"},
    "case": {"ADP", "PART", "SCONJ"},
    "mark": {"SCONJ", "PART"},
    "expl": {"PRON"},
    "amod": {"ADJ", "VERB"},
    "nsubj": {"NOUN", "PROPN", "PRON", "NUM", "DET"},
    "obj": {"NOUN", "PROPN", "PRON", "NUM", "DET"},
    "iobj": {"NOUN", "PROPN", "PRON"},
    "obl": {"NOUN", "PROPN", "PRON", "NUM"},
    "nmod": {"NOUN", "PROPN", "PRON", "NUM"},
    "advmod": {"ADV", "PART"},
}


def base(relation: str) -> str:
    return relation.partition(":")[0]


def problems(one: Sentence) -> list[str]:
    """What is not UD in a sentence, one text each."""
    out = []
    for at, word in enumerate(one.words):
        told = f"{one.sent_id} {at + 1} {word} {one.relations[at]}"
        out += [f"{told}: {what}" for what in [*wrong_by_itself(one, at), *wrong_there(one, at)]]
        subjects = [r for r in children(one, at) if base(r) in ("nsubj", "csubj")]
        objects = children(one, at).count("obj")
        if (len(subjects) > 1 and "expl" not in children(one, at)) or objects > 1:
            out.append(f"{told}: two subjects or two objects")
    return out


def wrong_by_itself(one: Sentence, at: int) -> list[str]:
    relation, tag, kind = one.relations[at], one.upos[at], base(one.relations[at])
    out = []
    if tag not in UPOS:
        out.append(f"{tag} is no part of speech")
    if kind not in RELATIONS or (":" in relation and relation not in SUBTYPES):
        out.append("no such relation")
    if (relation == "root") != (one.heads[at] == -1):
        out.append("the root and nothing else has head 0")
    if (tag == "PUNCT") != (kind == "punct"):
        out.append("punctuation and nothing else is punct")
    if kind in OF and tag not in OF[kind] and "fixed" not in children(one, at):
        out.append(f"a {tag}")
    return out


def wrong_there(one: Sentence, at: int) -> list[str]:
    relation, head, kind = one.relations[at], one.heads[at], base(one.relations[at])
    out = []
    if kind in RIGHTWARD and head > at:
        out.append("goes from right to left")
    if head >= 0 and base(one.relations[head]) in FUNCTION and kind not in UNDER_FUNCTION:
        out.append("hangs on a function word")
    if relation.endswith(":pass") and kind != "aux" and "aux:pass" not in children(one, head):
        out.append("a passive subject without its auxiliary")
    if kind == "cc" and "conj" not in [one.relations[head], *children(one, head)]:
        out.append("a conjunction with nothing joined")
    if kind == "punct" and not projective(one, at):
        out.append("crosses an arc")
    return out


def children(one: Sentence, at: int) -> list[str]:
    return [r for h, r in zip(one.heads, one.relations, strict=True) if h == at]


def projective(one: Sentence, at: int) -> bool:
    """Whether every word between this one and its head hangs below that head, and no arc is cut."""
    head = one.heads[at]
    low, high = sorted((at, head))

    def below(word: int) -> bool:
        while word not in (head, -1):
            word = one.heads[word]
        return word == head

    crossed = any(
        h >= 0 and min(w, h) < at < max(w, h) and not (min(w, h) <= head <= max(w, h))
        for w, h in enumerate(one.heads)
    )
    return all(below(w) for w in range(low + 1, high)) and not crossed


def test_every_sentence_is_valid() -> None:
    assert [p for one in BANK for p in problems(one)] == []


def test_the_text_is_the_words() -> None:
    for one in BANK:
        assert one.text_from_file
        assert one.spans is not None, one.text
        parts = {one.text[a:b] for a, b in one.spans}
        joined = {one.words[a] + one.words[a + 1] for a, b in one.multiword if b == a + 2}
        assert parts <= set(one.words) | joined, one.text
    assert len({s.text for s in BANK}) == len(BANK)
    assert len({s.sent_id for s in BANK}) == len(BANK)


def test_it_is_as_large_and_varied_as_its_readme_says() -> None:
    counts = BANK.counts
    told = (PATH.parent / "README.md").read_text(encoding="utf-8")
    row = next(line for line in told.splitlines() if line.startswith("| treebank.conllu |"))
    assert f"{counts['sentences']} sentences" in row
    assert f"{counts['words']:,} words" in row
    assert hashlib.sha256(PATH.read_bytes()).hexdigest() in row
    assert counts["multiword_tokens"] >= 10
    assert BANK.notes == ()
    found = {base(r) for one in BANK for r in one.relations}
    assert len(found) >= 25
    frequent = {r: sum(one.relations.count(r) for one in BANK) for r in ("obj", "det", "case")}
    assert min(frequent.values()) >= 50
    assert sum(one.text.endswith("?") for one in BANK) >= 10


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"upos": {2: "NAME"}}, "no part of speech"),
        ({"relations": {1: "subject"}}, "no such relation"),
        ({"relations": {1: "nsubj:short"}}, "no such relation"),
        ({"relations": {1: "root"}}, "head 0"),
        ({"relations": {0: "punct"}}, "is punct"),
        ({"relations": {0: "nummod"}}, "a DET"),
        ({"relations": {1: "conj"}}, "right to left"),
        ({"heads": {0: 8}}, "hangs on a function word"),
        ({"relations": {1: "nsubj:pass"}}, "passive"),
        ({"heads": {8: 1}}, "crosses"),
        ({"relations": {5: "nsubj"}}, "two subjects"),
    ],
)
def test_the_rules_find_what_is_wrong(change: dict, said: str) -> None:
    """The keeper lit the old lamp before dusk ."""
    [one] = [s for s in BANK if s.text == "The keeper lit the old lamp before dusk."]
    assert problems(one) == []
    fields = dict(vars(one))
    for name, places in change.items():
        values = list(fields[name])
        for at, value in places.items():
            values[at] = value
        fields[name] = tuple(values)
    assert any(said in p for p in problems(Sentence(**fields)))


@needs(TREEBANK)
def test_the_rules_of_shape_hold_throughout_a_published_treebank() -> None:
    """Rules that UD's own validator enforces must find nothing there; the rest has exceptions."""
    found = [p.rpartition(": ")[2] for one in read_conllu(TREEBANK) for p in problems(one)]
    assert {"a ADJ", "no such relation"} <= set(found)
    shape = ("crosses an arc", "goes from right to left", "no part of speech", "has head 0")
    assert [p for p in found if p.endswith(shape)] == []
