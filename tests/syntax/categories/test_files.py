"""Labelled texts: files of every kind, generated documents, code, and the words of tokens."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from syntax.categories.reading import OWN, text_tokenizer

import interp
from interp.cli.main import main
from interp.core.errors import OptionError, PromptError
from interp.syntax import LabelledText, Span, read_labelled_texts
from interp.syntax.categories._made import (
    DELIMITER,
    NUMBER,
    code_documents,
    people_texts,
    topic_texts,
    with_brackets,
    with_pattern,
)
from interp.syntax.categories._source import bracket_spans, code_spans
from interp.syntax.categories._texts import Tokenized, key_codes

CONLL_2012 = """#begin document (nw/one); part 000
one 0 0 Mary NNP (S* - - - - (PERSON) * (0)
one 0 1 Smith NNP * - - - - * * (1
one 0 2 's POS * - - - - * * -
one 0 3 dog NN * - - - - * * 1)
one 0 4 saw VBD * see - - - * * -
one 0 5 New NNP * - - - - (GPE* * (2
one 0 6 York NNP *) - - - - *) * 2)

one 0 0 She PRP * - - - - * * (0)|(3
one 0 1 left VBD * - - - - * * 3)
#end document
"""


def marked(text: LabelledText, label: str) -> list[tuple[str, str]]:
    return [(text.text[s.start : s.end], s.group) for s in text.spans if s.label == label]


def test_conll_2012(tmp_path) -> None:
    path = tmp_path / "one.conll"
    path.write_text(CONLL_2012)
    [text] = read_labelled_texts(path)
    assert text.text == "Mary Smith 's dog saw New York She left"
    assert text.document == "(nw/one); part 000"
    assert marked(text, "PERSON") == [("Mary", "")]
    assert marked(text, "GPE") == [("New York", "")]
    assert set(marked(text, "mention")) == {
        ("Mary", "0"),
        ("Smith 's dog", "1"),
        ("New York", "2"),
        ("She", "0"),
        ("She left", "3"),
    }
    assert [w for w, _ in marked(text, "VBD")] == ["saw", "left"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("(GPE*", "*", r"line 8: an entity is closed that is not open"),
        ("* * 1)", "* * 4)", r"line 5: mention 4 is closed that is not open"),
        ("* * 3)", "* * -", "mention 3 is opened and never closed"),
        ("one 0 4 saw VBD *", "saw VBD", r"line 6: 9 columns"),
        ("* * (1\n", "* * (x-1\n", r"'\(x-1' is not a coreference"),
        ("#end document\n", "", "has no #end document"),
    ],
)
def test_wrong_lines_of_conll_2012(tmp_path, old, new, told) -> None:
    path = tmp_path / "one.conll"
    assert old in CONLL_2012
    path.write_text(CONLL_2012.replace(old, new, 1))
    with pytest.raises(PromptError, match=told):
        read_labelled_texts(path)


def test_columns_of_tags(tmp_path) -> None:
    path = tmp_path / "two.bio"
    path.write_text("-DOCSTART- O\n\nAnn B-PER\nLee I-PER\nmet O\nBo B-PER\nRay B-PER\n\nNo O\n")
    first, second = read_labelled_texts(path)
    assert marked(first, "PER") == [("Ann Lee", ""), ("Bo", ""), ("Ray", "")]
    assert second.spans == ()
    path.write_text("Ann PERSON\n")
    with pytest.raises(PromptError, match=r"line 1: 'PERSON' is not a tag such as B-PER"):
        read_labelled_texts(path)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("[1]", "no text"),
        ('{"text": "a b", "spans": [[0, 5, "x"]]}', r"0 to 5 is empty or outside the 3 char"),
        ('{"text": "a b", "spans": [[0, 1]]}', "is not a span"),
        ('{"text": "a b", "tags": []}', "unknown field 'tags'"),
        ("{", "not JSON"),
        ('{"text": "a b"}', "has no labelled spans"),
    ],
)
def test_wrong_lines_of_json(tmp_path, row, told) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(row)
    with pytest.raises(PromptError, match=told):
        read_labelled_texts(path)


def test_kinds_of_python_tokens() -> None:
    source = "def f(a):\n    return [a, 'x', 1.5]  # no (\n"
    found = {(source[s.start : s.end], s.label) for s in code_spans(source, "python")}
    assert {("def", "keyword"), ("f", "name"), ("'x'", "string"), ("1.5", "number")} <= found
    assert {("# no (", "comment"), (",", "delimiter"), ("[", "opening"), ("]", "closing")} <= found
    assert sum(label == "opening" for _, label in found) == 2  # not the one of the comment
    with pytest.raises(PromptError, match="is not valid Python"):
        code_spans("def f(:\n  '''", "python")


def test_brackets_match_by_kind() -> None:
    found = {s.start: s.group for s in bracket_spans("(a[b)c]{d}")}
    assert found == {2: "pair 2", 6: "pair 2", 7: "pair 7", 9: "pair 7"}  # ) closes no [
    nested = {s.start: s.group for s in bracket_spans("((a))")}
    assert nested[0] == nested[4] != nested[1] == nested[3]


def test_other_languages_need_tree_sitter() -> None:
    with pytest.raises(OptionError, match="pip install tree-sitter tree-sitter-nolanguage"):
        code_spans("x", "nolanguage")
    pytest.importorskip("tree_sitter", reason="needs pip install 'interp[code]'")
    pytest.importorskip("tree_sitter_javascript", reason="needs pip install 'interp[code]'")
    source = "function f(é) { return é + [1]; } // x"
    found = {(source[s.start : s.end], s.label) for s in code_spans(source, "javascript")}
    assert {("function", "keyword"), ("é", "identifier"), ("+", "operator")} <= found
    assert {("1", "number"), ("// x", "comment"), ("[", "opening"), (";", "delimiter")} <= found
    with pytest.raises(PromptError, match="is not valid javascript"):
        code_spans("function (", "javascript")


def test_no_noun_of_a_document_occurs_twice() -> None:
    for text in topic_texts(20, seed=3):
        words = [text.text[s.start : s.end] for s in text.spans]
        assert len(words) == len(set(words)) == 12
        assert {len([s for s in text.spans if s.group == g]) for _, _, _, g, _ in text.spans} == {4}
    assert topic_texts(seed=1) == topic_texts(seed=1) != topic_texts(seed=2)
    orders = {tuple(s.group for s in t.spans) for t in topic_texts(20)}
    assert len(orders) > 10  # so that the labels of another document are a null


def test_mentions_are_names_or_their_pronouns() -> None:
    for text in people_texts(10):
        for said, who in marked(text, "mention"):
            assert said == who or said.lower() in ("she", "he")
    for text in code_documents(6):
        compile(text.text, "generated", "exec")


def test_patterns() -> None:
    text = [LabelledText("It was 3.5, or 12. Yes! a.b", ())]
    spans = with_pattern(text, NUMBER, "numbers")[0].spans
    assert [text[0].text[s.start : s.end] for s in spans] == ["3.5", "12"]
    spans = with_pattern(text, DELIMITER, "delimiters")[0].spans
    assert [text[0].text[s.start : s.end] for s in spans] == [",", ".", "!"]
    with pytest.raises(PromptError, match="no matching brackets"):
        with_brackets(text)


def test_a_token_has_the_label_of_most_of_its_characters() -> None:
    text = LabelledText(" abc d", (Span(1, 3, "x"), Span(5, 6, "x"), Span(2, 3, "y")))
    characters = ((), (), (1, 2, 3), (5,), (1,), (2, 3))
    at = Tokenized((text,), ((0,) * 6,), (characters,))
    assert key_codes(at, "x")[0].tolist() == [-1, -1, 1, 1, 1, 1]
    assert key_codes(at, "y")[0].tolist() == [-1, -1, 0, 0, 0, 1]


def test_command(tmp_path) -> None:
    from syntax.categories.reading import category_model

    model = category_model(lambda word: 0 if word in "()[]" else None)
    folder = tmp_path / "reader"
    model.module.save_pretrained(folder)
    text_tokenizer().save_pretrained(folder)
    given = ["texts", "categories", str(folder), "--file", str(OWN)]
    told = CliRunner().invoke(main, [*given, "--set", "labels=NOUN,mention", "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    names = {"labelled:label=NOUN", "labelled:label=mention", "coreference:label=mention"}
    assert {row["metric"] for row in rows} == names
    out = tmp_path / "scores.csv"
    told = CliRunner().invoke(main, [*given, "-o", str(out)])
    assert told.exit_code == 0, told.output
    assert "labelled:label=NOUN" in told.stdout
    assert "other texts" in told.stdout
    assert len(interp.HeadTable.load(out)) == len(interp.HeadTable.load(out).to_pandas())
    told = CliRunner().invoke(main, [*given, "--set", "labels=none"])
    assert told.exit_code != 0
    assert "has no spans of the label 'none'" in told.stderr
    told = CliRunner().invoke(main, ["score", "planted:zoo", "-m", "categories"])
    assert "has no tokenizer" in told.stderr
    assert told.stderr.count("omitted on planted:zoo") == 1  # one sentence for all eleven
