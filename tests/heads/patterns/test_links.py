"""Strongest links of a long prompt: the pattern's own weights, and where they were planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from zoo import FAMILIES

import interp
from interp.core.ties import ordered
from interp.heads.patterns import long_view
from interp.heads.patterns.stack import strongest_links
from interp_kernels.reductions import Chosen


@pytest.mark.parametrize("family", ["gpt2", "gpt_oss", "bert", "bloom"])
def test_links_are_the_largest_distant_weights_of_the_pattern(family) -> None:
    model = interp.load(FAMILIES[family].model(), name=family, check=False)
    prompt = [5 + i % 7 for i in range(11)]
    found = long_view(model, prompt, block=4, heaviest=0)
    cache = model.capture([prompt])
    for (_, layer), pattern in cache.by_site("pattern").items():
        for head, dense in enumerate(pattern[0].double().numpy()):
            links = found.stacks[0].links[interp.Head(layer, head)]
            assert len({link.query for link in links}) == len(links) > 0
            sizes = [link.weight for link in links]
            assert ordered(sizes) == list(range(len(sizes)))
            for link in links:
                assert link.weight == pytest.approx(dense[link.query, link.key], abs=1e-6)
                assert link.key > 0
                assert abs(link.query - link.key) > 1
            query, key = np.indices(dense.shape)
            far = np.where((key > 0) & (abs(query - key) > 1), dense, 0)
            top = np.sort(dense, -1)[:, -4:].min(-1)  # a link is among the 4 largest of its query
            best = np.where(far.max(-1) >= top, far.max(-1), 0).max()
            assert links[0].weight == pytest.approx(best, abs=1e-6)


def test_the_strongest_links_are_the_planted_copies() -> None:
    model = interp.load("planted:induction")
    half = torch.randperm(model.d_vocab - 10)[:32] + 10
    found = long_view(model, torch.cat([half, half]).tolist(), block=16).links()
    first = found.iloc[0]
    assert first["query"] - first["key"] == 31
    assert first["weight"] > 0.9
    assert ordered(found["weight"]) == list(range(len(found)))
    of_head = found[(found["layer"] == first["layer"]) & (found["head"] == first["head"])]
    assert set(of_head["query"] - of_head["key"]) == {31}
    assert len(of_head) == 8


def test_first_keys_neighbours_and_empty_slots_are_no_links() -> None:
    weight = torch.tensor([[[[0.0, 0.0], [0.9, 0.1], [0.8, 0.0], [0.5, 0.4]]]])
    key = torch.tensor([[[[-1, -1], [0, 1], [2, -1], [0, 1]]]])
    tokens = ("a", "b", "c", "d")
    (links,) = strongest_links(Chosen(weight, key), tokens, tokens)
    assert [(link.query, link.key, link.query_token, link.key_token) for link in links] == [
        (3, 1, "d", "b")
    ]
    assert links[0].weight == pytest.approx(0.4)
    (across,) = strongest_links(Chosen(weight, key), tokens, ("x", "y", "z"), most=1)
    assert [(link.query, link.key) for link in across] == [
        (2, 2)
    ]  # other tokens have no neighbours


def test_the_page_lists_links(bundled_induction) -> None:
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(10, bundled_induction.d_vocab, (120,), generator=generator).tolist()
    found = long_view(bundled_induction, [*prompt, *prompt])
    page = found.html()
    assert "Strongest links, token by token" in page
    best = found.links().iloc[0]
    assert f"{best['query']:,}: " in page
    assert f"<td>{best['weight']:.3f}" in page or f">{best['weight']:.3f}<" in page
    kept = found.top(1).html()
    assert kept.count('class="token">') < page.count('class="token">')
