"""Builders of the planted models: roles, their order, and the positions their heads attend to.

Every builder takes the same sizes: `layers`, `heads` and `kv_heads` per layer, `vocab` tokens
(token 0 begins a sequence), `context` positions over which the attention targets are guaranteed,
and the `seed` of everything random. Heads that are not planted are random.
"""

from __future__ import annotations

from interp.planted.assemble import Planted, Sizes, Stage, assemble

INDUCTION = [Stage(("previous_token",)), Stage(("induction",), key="previous")]


def induction(
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build a previous-token head and an induction head that copies what followed last time."""
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    attends = {"previous_token": ["previous_token"], "induction": ["induction"]}
    return assemble("induction", INDUCTION, attends, sizes)


def duplicate_token(
    *,
    layers: int = 1,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build a head on earlier copies of the current token, else on the token itself.

    It writes a copy to a separate subspace that the unembedding does not read.
    """
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    attends = {"duplicate_token": ["duplicate_token"]}
    return assemble("duplicate_token", [Stage(("duplicate_token",))], attends, sizes)


def copy_suppression(
    *,
    layers: int = 1,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build a head that finds the predicted token in the context and lowers its logit.

    The prediction comes from a table of bigrams in the embedding (`Planted.successor`).
    """
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [Stage(("copy_suppression",))]
    return assemble("copy_suppression", stages, {}, sizes, bigrams=True)


def bystander(
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build induction, and a head with the same attention as the induction head but without effect.

    The bystander writes a copy of what it attends to into a subspace that is never read.
    """
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [INDUCTION[0], Stage(("induction", "bystander"), key="previous")]
    attends = {"previous_token": ["previous_token"], "induction": ["induction", "bystander"]}
    return assemble("bystander", stages, attends, sizes)


def backup(
    *,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build induction, and a later head that copies only if the induction head did not.

    The induction head marks what it has written; the backup head attends to the first token where
    it sees the mark, and attends and copies like an induction head elsewhere.
    """
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [*INDUCTION, Stage(("backup",), key="previous")]
    attends = {
        "previous_token": ["previous_token"],
        "induction": ["induction"],
        "first_token": ["backup"],
    }
    return assemble("backup", stages, attends, sizes)


def sink(
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build induction, and in each of its layers a head on the first token, whose value is zero."""
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [
        Stage(("previous_token", "sink")),
        Stage(("induction", "sink"), key="previous"),
    ]
    attends = {
        "previous_token": ["previous_token"],
        "induction": ["induction"],
        "first_token": ["sink"],
    }
    return assemble("sink", stages, attends, sizes)


def positional(
    *,
    layers: int = 1,
    heads: int = 6,
    kv_heads: int = 3,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build heads on the previous token, three tokens back, and the last four tokens evenly."""
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [Stage(("previous_token", "offset", "local_window"))]
    attends = {
        "previous_token": ["previous_token"],
        "offset": ["offset"],
        "local_window": ["local_window", "previous_token", "offset"],
    }
    return assemble("positional", stages, attends, sizes)


def noise(
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build random heads only, with scores of about one nat, as a null of the same shape."""
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    return assemble("noise", [], {}, sizes)


def retriever(
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 32768,
    seed: int = 0,
) -> Planted:
    """Build induction, and a head that attends evenly and copies: frequent tokens are predicted.

    It answers every family of `interp.heads.needle.families` at any length that its positions hold:
    keys, values and variables by induction, common words by counting.
    """
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [INDUCTION[0], Stage(("induction", "counting"), key="previous")]
    attends = {"previous_token": ["previous_token"], "induction": ["induction"]}
    return assemble("retriever", stages, attends, sizes)


def zoo(
    *,
    layers: int = 4,
    heads: int = 8,
    kv_heads: int = 4,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build every mechanism in one model; copy suppression here undoes what induction predicts."""
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [
        Stage(("previous_token", "duplicate_token", "offset", "local_window", "sink")),
        Stage(("induction", "bystander", "sink"), key="previous"),
        Stage(("backup",), key="previous"),
        Stage(("copy_suppression",)),
    ]
    attends = {
        "previous_token": ["previous_token"],
        "duplicate_token": ["duplicate_token"],
        "offset": ["offset"],
        "local_window": ["local_window", "previous_token", "offset"],
        # Copy suppression attends to the token that induction predicts, where induction attends,
        # and to every earlier copy of it.
        "induction": ["induction", "bystander"],
        "first_token": ["sink", "backup"],
    }
    return assemble("zoo", stages, attends, sizes)
