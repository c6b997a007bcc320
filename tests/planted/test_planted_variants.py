"""Known heads of attention variants: mixed scores, weights that count, and a router."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import interp
from interp.model.calls.map_call import MapCall
from interp.model.edits import zero
from training import forms

VOCAB, LENGTH, D_HEAD, HEADS = 12, 16, 16, 4
PLACE, ONE, OUT = VOCAB, VOCAB + LENGTH, VOCAB + LENGTH + 1  # parts of the residual stream
WIDTH = OUT + VOCAB
IDS = torch.randint(2, VOCAB, (8, LENGTH), generator=torch.Generator().manual_seed(4))
IDS[:, 1:] += (IDS[:, 1:] == IDS[:, :-1]).int()  # the previous token is not the token itself
IDS.clamp_(max=VOCAB - 1)


def blank(name: str) -> Any:
    """A layer of zeros over one-hot tokens and positions, which norms leave as they are."""
    model: Any = forms.build(
        name,
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        head_dim=D_HEAD,
        max_position_embeddings=LENGTH,
        mlp=False,
    )
    for weight in model.parameters():
        weight.data.zero_()
    model.embed.weight.data[:, :VOCAB] = torch.eye(VOCAB)
    model.embed.weight.data[:, ONE] = 1
    model.positions.weight.data[:, PLACE:ONE] = torch.eye(LENGTH)
    # a token, a position and a constant: the mean square is 3 / WIDTH
    model.blocks[0].norm.weight.data.fill_(math.sqrt(3 / WIDTH))
    model.norm.weight.data.fill_(1)
    model.head.weight.data[:, OUT:] = torch.eye(VOCAB)
    return model


def part(module: Any, head: int) -> Tensor:
    """Rows of a projection that belong to a head."""
    return module.weight.data[head * D_HEAD : (head + 1) * D_HEAD]


def looks_back(rule: Any, query: int, key: int, size: float = 60.0) -> None:
    """Give a head the scores of a previous-token head."""
    part(rule.query, query)[:, PLACE:ONE] = torch.eye(LENGTH)[:D_HEAD]
    part(rule.key, key)[1:, PLACE : ONE - 1] = size * torch.eye(LENGTH - 1)[: D_HEAD - 1]


def moves_tokens(model: Any, value: int, head: int) -> None:
    """Let a head write the token that it attends to into the output."""
    attention = model.blocks[0].attention
    part(attention.rule.value, value)[:VOCAB, :VOCAB] = torch.eye(VOCAB)
    attention.out.weight.data[OUT:, head * D_HEAD : head * D_HEAD + VOCAB] = torch.eye(VOCAB)


def right(model: Any, heads: list[int], rows: Tensor | None = None) -> float:
    """Share of rows that predict the previous token without some heads."""
    logits = model.run(IDS.tolist(), edits=[zero([(0, h) for h in heads])] if heads else [])
    found = logits[:, 1:].argmax(-1) == IDS[:, :-1]
    return float((found if rows is None else found[rows]).float().mean())


def call_of(model: Any) -> MapCall:
    found: list[Any] = []
    model.read(IDS.tolist(), lambda site, call, real: found.append(call))
    return found[0]


@torch.no_grad()
def test_the_mixing_of_talking_heads_decides_which_head_looks_back():
    """Head 0 has the scores; mixing gives them to softmax 2, and softmax 2 to heads 3 and 1."""
    built = blank("talking_heads")
    rule = built.blocks[0].attention.rule
    looks_back(rule, 0, 0)
    rule.before.data[2, 0] = 1
    rule.behind.data[3, 2] = rule.behind.data[1, 2] = 1
    rule.behind.data[0, 0] = rule.behind.data[2, 1] = 1  # even attention
    moves_tokens(built, 3, 3)
    part(rule.value, 1)[:VOCAB, :VOCAB] = torch.eye(VOCAB)  # a bystander: its output is not read
    model = interp.load(built, name="mixed")
    table = interp.score(model, ["previous_token"], IDS.tolist(), null="none").to_pandas()
    score = table.set_index("head").score
    assert min(score[3], score[1]) > 0.99
    assert max(score[0], score[2]) < 0.3
    own = call_of(model).part("own")[:, :, 1:].diagonal(0, 2, 3).mean((0, 2))
    assert int(own.argmax()) == 0  # scores alone would name the wrong head
    assert float(own[3]) < 0.3
    assert right(model, []) == 1
    assert right(model, [0, 1, 2]) == 1
    assert right(model, [3]) < 0.3


@torch.no_grad()
def test_a_sigmoid_head_counts_what_a_softmax_head_averages():
    marker, counts = 2, []
    for name in ("sigmoid", "plain_softmax"):
        built = blank(name)
        rule = built.blocks[0].attention.rule
        part(rule.query, 0)[0, ONE] = 10.0
        part(rule.key, 0)[0, marker], part(rule.key, 0)[0, ONE] = 12.0, -6.0
        part(rule.value, 0)[0, ONE] = 1.0
        built.blocks[0].attention.out.weight.data[OUT + 1, 0] = 1.0
        model = interp.load(built, name=name)

        def to_marker(query, key, tokens):
            return (tokens[key] == marker) & (key <= query)

        table = interp.score(model, [to_marker], IDS.tolist(), null="none").to_pandas()
        score = table.set_index("head").score
        assert score[0] > 0.99
        assert max(score[1:]) < 0.6
        seen = IDS.eq(marker).cumsum(1).float()
        counts.append((call_of(model).map()[:, 0].sum(-1) - seen).abs().max())
        z = model.capture(IDS.tolist(), ["z"], layers=0)["z", 0][:, 0, :, 0]
        written = model.run(IDS.tolist(), edits=[zero([(0, 0)])])[..., 1]
        assert float(written.abs().max()) == 0  # only head 0 writes the count
        bystander = model.run(IDS.tolist(), edits=[zero([(0, 1)])])
        torch.testing.assert_close(bystander, model.run(IDS.tolist()))
        if name == "sigmoid":
            torch.testing.assert_close(z, seen, atol=1e-3, rtol=0)
    assert float(counts[0]) < 1e-3  # the row sum is the number of markers so far
    assert float(counts[1]) >= 1  # a softmax row sums to 1 whatever the number


@torch.no_grad()
def test_a_router_that_picks_a_head_for_one_kind_of_token_is_found():
    built = blank("mixture_of_heads")
    rule = built.blocks[0].attention.rule
    looks_back(rule, 2, 0)
    built.blocks[0].attention.rule.value.weight.data[:VOCAB, :VOCAB] = torch.eye(VOCAB)
    attention = built.blocks[0].attention
    attention.out.weight.data[OUT:, 2 * D_HEAD : 2 * D_HEAD + VOCAB] = torch.eye(VOCAB)
    even = (torch.arange(VOCAB) % 2 == 0).float()
    rule.router.weight.data[2, :VOCAB] = 40 * even - 20  # head 2 for even tokens alone
    rule.router.weight.data[0, :VOCAB] = 20 - 40 * even
    rule.router.weight.data[1, ONE] = 1.0
    model = interp.load(built, name="routed")

    def back_from_even(query, key, tokens):
        return (key == query - 1) & (tokens[query] % 2 == 0)

    def back_from_odd(query, key, tokens):
        return (key == query - 1) & (tokens[query] % 2 == 1)

    metrics = [back_from_even, back_from_odd]
    table = interp.score(model, metrics, IDS.tolist(), null="none").to_pandas()
    score = table.set_index(["metric", "head"]).score
    assert score["back_from_even", 2] > 0.99
    assert max(score["back_from_even", h] for h in (0, 1, 3)) < 0.3
    call = call_of(model)
    rows = IDS % 2 == 0
    assert float(call.map()[:, 2].sum(-1)[~rows].max()) < 1e-6  # closed for odd tokens
    assert float(call.map()[:, 2].sum(-1)[rows].min()) > 0.999
    unrouted = call.part("unrouted")[:, 2, 1:].diagonal(0, 1, 2)
    assert float(unrouted.min()) > 0.99  # the softmax itself looks back from every token
    picked = rows[:, 1:]
    assert right(model, [], picked) == 1
    assert right(model, [0, 1, 3], picked) == 1
    assert right(model, [2], picked) < 0.3
    own, without = model.run(IDS.tolist()), model.run(IDS.tolist(), edits=[zero([(0, 2)])])
    changed = (own - without).abs().amax(-1)
    assert float(changed[~rows].max()) < 1e-5
    assert float(changed[rows].min()) > 0.1
    assert score["back_from_odd", 2] < 1e-6
