"""Treebanks: sentences as dependency trees over words, with notes on ignored parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from interp.core.columns import with_noun
from interp.core.errors import OptionError, PromptError


class TreebankError(PromptError):
    """Error in a treebank, with its file, the line and the reason."""


@dataclass(frozen=True)
class Sentence:
    """Dependency tree over the syntactic words of a sentence.

    Args:
        words: their forms; a multi-word token such as *don't* counts as its words.
        heads: index of each word's head, from 0; -1 for the root.
        relations: as in the file, with subtypes such as `nmod:poss`.
        upos: universal part of speech, `_` if the file has none.
        text: the `# text` comment; without one, the words with the spacing given in the file.
        spans: characters (start, end) of every word in `text`; the words of a multi-word token all
            have its range. None if the text does not consist of these words.
        sent_id: the `# sent_id` comment, or "".
        line: first line of the sentence in the file, from 1.
        multiword: words (start, end) of each multi-word token.
        empty_nodes: nodes such as 5.1, which are not words and are ignored.
        enhanced: True if the file has enhanced dependencies for it, which are ignored.
        text_from_file: True if `text` comes from the file.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    upos: tuple[str, ...]
    text: str
    spans: tuple[tuple[int, int], ...] | None
    sent_id: str = ""
    line: int = 0
    multiword: tuple[tuple[int, int], ...] = ()
    empty_nodes: int = 0
    enhanced: bool = False
    text_from_file: bool = True

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class Treebank:
    """Sentences of one file; `content_hash` is the sha256 of its bytes, `skipped` its errors."""

    name: str
    sentences: tuple[Sentence, ...]
    content_hash: str
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sentences)

    def __iter__(self) -> Iterator[Sentence]:
        return iter(self.sentences)

    @property
    def counts(self) -> dict[str, int]:
        """Count sentences, words, multi-word tokens and ignored parts."""
        return {
            "sentences": len(self),
            "words": sum(map(len, self)),
            "multiword_tokens": sum(len(s.multiword) for s in self),
            "empty_nodes": sum(s.empty_nodes for s in self),
            "enhanced_sentences": sum(s.enhanced for s in self),
            "skipped_sentences": len(self.skipped),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes on ignored or reconstructed parts of the file, one line each."""
        counts, out = self.counts, []
        if counts["enhanced_sentences"]:
            text = with_noun(counts["enhanced_sentences"], "sentence")
            out.append(f"enhanced dependencies of {text}: ignored")
        if counts["empty_nodes"]:
            out.append(f"{with_noun(counts['empty_nodes'], 'empty node')}: ignored")
        rebuilt = sum(not s.text_from_file for s in self)
        if rebuilt:
            text = with_noun(rebuilt, "sentence")
            out.append(f"{text} without '# text': text reconstructed from the words")
        apart = [s for s in self if s.spans is None]
        if apart:
            out.append(
                f"{with_noun(len(apart), 'sentence')} with a '# text' that differs from the "
                f"words, the first on line {apart[0].line}: no character offsets"
            )
        if self.skipped:
            text = with_noun(len(self.skipped), "sentence")
            out.append(f"{text} with errors: skipped; the first: {self.skipped[0]}")
        return tuple(out)

    def first(self, n: int) -> Treebank:
        """Return the first n sentences, or all if there are fewer."""
        if n < 1:
            raise OptionError(f"{n} sentences of {self.name} cannot be taken; use 1 or more")
        return Treebank(self.name, self.sentences[:n], self.content_hash, self.skipped)
