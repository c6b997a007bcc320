"""Texts of these metrics: a file, the project's treebank, or generated documents."""

from __future__ import annotations

from interp.core.errors import OptionError
from interp.syntax.categories._files import read_labelled_texts, texts_of_treebank
from interp.syntax.categories._made import code_documents, people_texts, topic_texts
from interp.syntax.categories._texts import LabelledText

OWN = ("treebank", "topics", "people", "code")


def texts_of_source(file: str, seed: int) -> list[LabelledText]:
    """Return labelled texts: of a name in `OWN`, otherwise of a file or folder."""
    if file == "treebank":
        from interp.core.resources import folder
        from interp.syntax.conllu import read_conllu

        return texts_of_treebank(read_conllu(folder("data") / "treebank.conllu"))
    builders = {"topics": topic_texts, "people": people_texts, "code": code_documents}
    return builders[file](seed=seed) if file in builders else read_labelled_texts(file)


def require_label(texts: list[LabelledText], label: str, file: str) -> None:
    """Raise unless the texts have spans of a label."""
    known = sorted({s.label for t in texts for s in t.spans})
    if label not in known:
        raise OptionError(f"{file} has no spans of the label {label!r}; it has {', '.join(known)}")
