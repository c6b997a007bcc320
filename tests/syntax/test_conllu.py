"""Reading CoNLL-U: what the file says, and one line with file and line for what it may not say."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from beside import TREEBANK, needs
from hypothesis import given
from hypothesis import strategies as st
from together import over

from interp.core.errors import OptionError, PromptError
from interp.syntax.conllu import read_conllu

DOGS = "# text = Dogs bark.\n1 Dogs _ NOUN _ _ 2 nsubj\n2 bark _ VERB _ _ 0 root _ SpaceAfter=No\n"
DOGS += "3 . _ PUNCT _ _ 2 punct\n"


def lines(short: str) -> str:
    """CoNLL-U of lines whose columns stand between spaces, the last ones left out."""
    out = []
    for line in short.removesuffix("\n").split("\n"):
        cells = line.split(" ")
        plain = not line or line.startswith("#")
        out.append(line if plain else "\t".join([*cells, *["_"] * (10 - len(cells))]))
    return "\n".join(out) + "\n"


def read(tmp_path: Path, content: str | bytes, **options):
    path = tmp_path / "bank.conllu"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_conllu(path, **options)


def test_a_sentence_as_it_stands(tmp_path: Path) -> None:
    content = "# sent_id = a-1\n" + lines(DOGS)
    bank = read(tmp_path, content)
    [one] = bank
    assert one.words == ("Dogs", "bark", ".")
    assert one.heads == (1, -1, 1)
    assert one.relations == ("nsubj", "root", "punct")
    assert one.upos == ("NOUN", "VERB", "PUNCT")
    assert (one.text, one.sent_id, one.line) == ("Dogs bark.", "a-1", 1)
    assert one.spans == ((0, 4), (5, 9), (9, 10))
    assert bank.name == "bank"
    assert bank.content_hash == hashlib.sha256(content.encode()).hexdigest()
    assert bank.notes == ()


MIXED = """# text = I don't know\u2028 it
1 I _ PRON _ _ 4 nsubj
2-3 don't
2 do _ AUX _ _ 4 aux 4:aux
3 n't _ PART _ _ 4 advmod
4 know _ VERB _ _ 0 root
4.1 what _ PRON
5 it _ PRON _ _ 4 obj
"""


def test_words_of_a_multi_word_token_share_its_characters(tmp_path: Path) -> None:
    bank = read(tmp_path, lines(MIXED))
    [one] = bank
    assert one.words == ("I", "do", "n't", "know", "it")
    assert one.heads == (3, 3, 3, -1, 3)
    assert one.spans == ((0, 1), (2, 7), (2, 7), (8, 12), (14, 16))
    assert one.multiword == ((1, 3),)
    assert bank.counts == {
        "sentences": 1,
        "words": 5,
        "multiword_tokens": 1,
        "empty_nodes": 1,
        "enhanced_sentences": 1,
        "skipped_sentences": 0,
    }
    assert "enhanced" in bank.notes[0]
    assert "1 empty node: ignored" in bank.notes


@pytest.mark.parametrize(
    "changed",
    [
        lambda c: c.replace("\n", "\r\n"),
        lambda c: c.partition("\n")[2].replace("\n", "\r\n"),
        lambda c: c.replace("\n", "\r"),
        lambda c: "\ufeff" + c,
        lambda c: "\n \n" + c,
        lambda c: c + "\n\n\n",
        lambda c: c.rstrip("\n"),
        lambda c: "# a licence, say\n\n" + c,
    ],
    ids=[
        "crlf",
        "crlf, no text",
        "cr",
        "bom",
        "blank before",
        "blank after",
        "no end of line",
        "comments alone",
    ],
)
def test_the_same_tree_however_the_file_is_laid_out(tmp_path: Path, changed) -> None:
    [plain] = read(tmp_path, lines(DOGS))
    [one] = read(tmp_path, changed(lines(DOGS)))
    assert (one.words, one.heads, one.spans, one.text) == (
        plain.words,
        plain.heads,
        plain.spans,
        plain.text,
    )


def test_a_text_is_put_together_where_the_file_has_none(tmp_path: Path) -> None:
    bank = read(tmp_path, lines(DOGS.partition("\n")[2]))
    assert bank.sentences[0].text == "Dogs bark."
    assert bank.sentences[0].spans == ((0, 4), (5, 9), (9, 10))
    assert "text reconstructed" in bank.notes[0]


@pytest.mark.parametrize("text", ["Cats bark.", "Dogs bark. Loudly", "Dogs bark"])
def test_a_text_of_other_words_has_no_offsets(tmp_path: Path, text: str) -> None:
    bank = read(tmp_path, lines(DOGS.replace("Dogs bark.", text, 1)))
    assert bank.sentences[0].spans is None
    assert "line 1" in bank.notes[0]


HEADED = "1 a _ X _ _ {} dep\n2 b _ X _ _ {} dep\n3 c _ X _ _ {} dep\n"
WRONG = {
    "1\ta\t_\tX\t_\t_\t0\troot\t_\n": (1, "9 columns"),
    lines("1 a _ X _ _ 0 root _ _ _"): (1, "11 columns"),
    "1 a _ X _ _ 0 root _ _\n": (1, "separated by tabs"),
    lines("x a _ X _ _ 0 root"): (1, "'x' is not an id"),
    lines("1 a _ X _ _ 0 root\n3 b _ X _ _ 1 dep"): (2, "id 3, but 2 is expected"),
    lines("2-3 ab\n1 a _ X _ _ 0 root\n2 b _ X _ _ 1 dep"): (1, "id 2-3, but 1 is expected"),
    lines("1-1 a\n1 a _ X _ _ 0 root"): (1, "fewer than two words"),
    lines("1-2 a\n1 a _ X _ _ 0 root"): (2, "ends at word 2, but the sentence has 1"),
    lines("1-2 a\n1 a _ X _ _ 0 root\n2-3 b\n2 b _ X _ _ 1 dep"): (3, "overlaps the previous one"),
    lines("1 a _ X _ _ 0 root\n2.1 b"): (2, "follows word 1"),
    lines(HEADED.format("_", 1, 1)): (1, "has no head (_)"),
    lines("1 a _ X _ _ 0 _"): (1, "has no relation (_)"),
    lines(HEADED.format(0, "1x", 1)): (2, "head '1x'"),
    lines(HEADED.format(0, "-1", 1)): (2, "head '-1'"),
    lines(HEADED.format(0, 4, 1)): (2, "as head 4, of 3 words"),
    lines(HEADED.format(0, 2, 1)): (2, "as head itself"),
    lines(HEADED.format(0, 0, 1)): (2, "words 1, 2 are roots"),
    lines(HEADED.format(0, 3, 2)): (2, "2 -> 3 -> 2 form a cycle"),
    lines(HEADED.format(2, 3, 1)): (1, "no word has head 0"),
    lines("1.1 a"): (1, "follows word 0"),
    lines("0.1 a"): (1, "the sentence has no words"),
    lines("1 \u00a0 _ X _ _ 0 root"): (1, "column 2 is empty"),
}


@over("wrong", WRONG, ids=[f"{at}-{what}" for at, what in WRONG.values()])
@over("before", [0, 1], ids=["alone", "after another"])
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, wrong: str, before: int) -> None:
    line, what = WRONG[wrong]
    good = lines(DOGS) + "\n"
    with pytest.raises(PromptError) as caught:
        read(tmp_path, good * before + wrong)
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'bank.conllu'}, line {line + 5 * before}: ")
    assert what in told
    assert "\n" not in told
    bank = read(tmp_path, good + wrong + "\n" + good, on_error="skip")
    assert bank.counts["sentences"] == 2
    assert bank.counts["skipped_sentences"] == 1
    assert what in bank.skipped[0]
    assert what in bank.notes[0]


def test_a_byte_of_another_encoding_is_named(tmp_path: Path) -> None:
    content = lines(DOGS).encode() + b"\n" + lines(DOGS.replace("Dogs", "Béars")).encode("latin-1")
    with pytest.raises(PromptError, match=r"line 6: byte 0xe9 \(byte 11 of the line\).*iconv"):
        read(tmp_path, content)
    assert len(read(tmp_path, content, on_error="skip")) == 1


WIDE = {"UTF-16": ("utf-16-le", "utf-16-be"), "UTF-32": ("utf-32-le", "utf-32-be")}


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "marked"])
@pytest.mark.parametrize("on_error", ["refuse", "skip"])
@pytest.mark.parametrize("name", WIDE)
def test_wide_encodings_are_refused_whole(tmp_path: Path, name: str, mark: str, on_error) -> None:
    for encoding in WIDE[name]:
        told = f"begins as {name}" if mark else "the byte 0x00"
        with pytest.raises(PromptError, match=rf"line 1: .*{told}.*UTF-8") as caught:
            read(tmp_path, (mark + lines(DOGS)).encode(encoding), on_error=on_error)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only\n", b"\xef\xbb\xbf"])
def test_a_file_without_sentences_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PromptError, match=r"bank\.conllu contains no sentence"):
        read(tmp_path, content)


def test_a_file_that_is_skipped_whole_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"contains no sentence; 1 skipped.*line 1: 2 columns"):
        read(tmp_path, "1\ta\n", on_error="skip")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="No such file"):
        read_conllu(tmp_path / "none.conllu")
    with pytest.raises(PromptError, match="cannot read"):
        read_conllu(tmp_path)
    with pytest.raises(OptionError, match="on_error='drop'"):
        read(tmp_path, lines(DOGS), on_error="drop")


def test_the_first_sentences(tmp_path: Path) -> None:
    bank = read(tmp_path, (lines(DOGS) + "\n") * 3)
    assert bank.first(2).sentences == bank.sentences[:2]
    assert bank.first(9) == bank
    with pytest.raises(OptionError, match="1 or more"):
        bank.first(0)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=7))
def test_exactly_the_trees_are_read(tmp_path_factory, heads: list[int]) -> None:
    import networkx as nx

    n = len(heads)
    graph = nx.DiGraph([(head, at + 1) for at, head in enumerate(heads)])
    is_tree = (
        heads.count(0) == 1
        and max(heads) <= n
        and len(graph) == n + 1
        and nx.is_arborescence(graph)
    )
    content = lines("".join(f"{at + 1} w _ X _ _ {h} dep\n" for at, h in enumerate(heads)))
    folder = tmp_path_factory.mktemp("trees")
    if is_tree:
        assert read(folder, content).sentences[0].heads == tuple(h - 1 for h in heads)
    else:
        with pytest.raises(PromptError, match="line "):
            read(folder, content)


@needs(TREEBANK)
def test_the_english_web_treebank() -> None:
    bank = read_conllu(TREEBANK)
    assert bank.counts == {
        "sentences": 2001,
        "words": 25147,
        "multiword_tokens": 359,
        "empty_nodes": 4,
        "enhanced_sentences": 2001,
        "skipped_sentences": 0,
    }
    assert all(s.spans is not None for s in bank)
    assert all(s.text_from_file for s in bank)
    one = bank.sentences[2]
    assert [one.text[a:b] for a, b in one.spans or ()][:3] == ["Bush", "nominated", "Jennifer"]
