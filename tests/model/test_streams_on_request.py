"""Streams are searched once, when first asked for, and not by what runs at that time."""

from __future__ import annotations

import gc
import pickle

import pytest
import zoo

import interp
from interp.core.prompts import Prompts
from interp.model.locate import streams_on_request
from interp.model.random_weights import random_init

PROMPTS = Prompts(((5, 6, 7, 8), (9, 10, 11, 12)))


@pytest.fixture
def searches(monkeypatch):
    """Sites of each search that was made."""
    made = []

    def counted(model, events, sites):
        made.append(len(sites))
        return find(model, events, sites)

    find = streams_on_request.find_streams
    monkeypatch.setattr(streams_on_request, "find_streams", counted)
    return made


def loaded():
    return interp.load(zoo.FAMILIES["llama"].model("sdpa"))


def test_a_score_of_attention_searches_no_streams(searches) -> None:
    model = loaded()
    interp.score(model, "entropy", PROMPTS, null="none")
    assert searches == []
    first = model.sites[0].streams
    assert set(first) >= {"resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"}
    assert first["resid_pre"].module
    assert len(model.sites[-1].streams) == len(first)
    assert searches == [len(model.sites)], "one search for all sites"


def test_a_search_amid_a_run_is_not_part_of_it(searches) -> None:
    model, quiet = loaded(), loaded()
    seen = []

    def visit(site, call, real):
        seen.append((site.name, dict(site.streams)))

    with model.visited(visit):
        model.run(PROMPTS)
    assert [name for name, _ in seen] == [site.name for site in model.sites]
    assert len(searches) == 1
    assert [streams for _, streams in seen] == [dict(site.streams) for site in quiet.sites]


def test_a_site_outlives_its_model() -> None:
    model = loaded()
    asked, never = model.sites, interp.load(zoo.FAMILIES["llama"].build("sdpa")).sites
    found = dict(asked[0].streams)
    drawn = random_init(model, 0)
    del model
    gc.collect()
    assert dict(asked[0].streams) == found == dict(drawn.sites[0].streams)
    assert pickle.loads(pickle.dumps(asked[0])).streams == found
    assert dict(never[0].streams) == {}, "the model is gone, and nobody can use its modules"
