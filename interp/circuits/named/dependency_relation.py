"""Syntactic heads: those that find the word on which another depends."""

from interp.heads.declaration import experiment


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
