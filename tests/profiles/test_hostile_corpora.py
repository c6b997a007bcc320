"""Corpora of strangers: packed files without end, and links that lead out of a folder."""

from __future__ import annotations

import gzip

import pytest

from interp.core.errors import PromptError
from interp.core.text_file import require_inside
from interp.profiles import sources


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.json.gz", "a.txt"])
def test_a_document_without_end_is_not_read_whole(tmp_path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(sources, "LONGEST", 1000)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wb") as file:
        file.write(b'["' + b"a" * 5_000_000)
    with pytest.raises(PromptError, match="more than 1,000 characters"):
        list(sources.documents_of(tmp_path / name, "text"))


def test_a_link_that_leads_out_of_a_corpus_is_refused(tmp_path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("one")
    (corpus / "b.txt").symlink_to(corpus / "a.txt")
    assert [d.text for d in sources.documents_of(corpus, "text")] == ["one", "one"]
    (corpus / "c.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(PromptError, match=r"c\.txt is a link that leads out of"):
        list(sources.documents_of(corpus, "text"))
    (tmp_path / "link").symlink_to(corpus)  # the folder itself may be one
    (corpus / "c.txt").unlink()
    assert len(list(sources.documents_of(tmp_path / "link", "text"))) == 2
    assert require_inside(corpus, []) == []
