"""Heads of plain text that attend by position, token or grammatical relation."""

from __future__ import annotations

from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="mass on another near token",
    end="high",
    task="repeats",
)
def previous_token_text(model, lab, *, texts: int = 24, max_length: int = 64):
    """Attend to the token just before the current one, in natural text.

    Score = the attention on the token before, averaged over the rows of a text. A model that
    predicts the texts no better than uniform guessing gets no scores.

    Cost: One forward pass per text with patterns, and one for the loss.

    Null: the attention on one other token, drawn among the eight before it.

    Not for: telling a head that counts positions from one that follows words; the detector
    `previous_token` on random tokens does.

    Options:
        texts: number of texts.
        max_length: maximum tokens per text.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; the control
    is this project's.
    """
    from interp.circuits.named._on_text import on_text, token_before

    null = "another of the eight tokens before"
    return on_text(model, lab, "previous_token_text", texts, max_length, token_before, null)


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="mass on copies of another token",
    end="high",
    task="repeats",
)
def duplicate_token_text(model, lab, *, texts: int = 24, max_length: int = 64):
    """Attend to earlier copies of the current token, in natural text.

    Rows are tokens of lines of text that occurred before (a text's first token and its copies do
    not count, since many heads rest on it). Score = the attention on all earlier copies, averaged
    over the rows of a text: 1 for an ideal head. A model that predicts the texts no better than
    uniform guessing gets no scores.

    Cost: One forward pass per text with patterns, and one for the loss.

    Null: the attention on as many copies of another token of the text that is about as frequent so
    far and as far away, and of further ones where it has fewer; heads that rest on punctuation or
    frequent words score the same there.

    Not for: random tokens, where the detector `duplicate_token` has no such frequent words.

    Options:
        texts: number of texts.
        max_length: maximum tokens per text.

    Reference: Wang et al. 2022, "Interpretability in the Wild" (duplicate-token heads); the control
    is this project's.
    """
    from interp.circuits.named._on_text import equal_tokens, on_text

    null = "copies of another token as frequent"
    return on_text(model, lab, "duplicate_token_text", texts, max_length, equal_tokens, null)


@experiment(
    unit="share of dependents",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="share that the best fixed distance finds",
    end="high",
    task="none: no answer of a model rests on one relation",
)
def dependency_relation(
    model, lab, *, file: str = "treebank", relation: str = "nsubj", sentences: int = 200
):
    """Find the word on which a word depends in the grammar, such as the verb of a subject.

    A head finds it if its largest weight, among the words of the sentence, links the two. On every
    second sentence the direction of attention is chosen for each head. Score = the share of
    dependents found in the other sentences, averaged over sentences. A model that predicts the
    sentences no better than uniform guessing gets no scores.

    Cost: One forward pass per sentence.

    Null: the fixed distance that finds most dependents in the choosing sentences; a head above it
    reads more than positions.

    Not for: all relations at once, trees and their controls; those are `interp study trees`.

    Options:
        file: `treebank`, or a file of CoNLL-U sentences.
        relation: the relation, without subtype.
        sentences: number of sentences.

    Reference: Clark et al. 2019, "What Does BERT Look At?" (arXiv 1906.04341).
    """
    from interp.circuits.named._relation import finds_relation

    return finds_relation(model, lab, file, relation, sentences)
