"""One suite over every way of holding a model: the same weights must give the same numbers.

Few families here, a third of those that a source can hold in the slow tests, all in the exhaustive.
"""

from __future__ import annotations

import importlib.util
from functools import cache

import pytest
import torch
from model.source_objects import NO_ATTENTION, NO_BRIDGE, NOT_OURS, TEXT, load_as, same
from sampled import sampled
from zoo.legacy import LEGACY

import interp
from interp.core.errors import OptionError, UnreadableAttention
from interp.model.check import check_model

pytestmark = [
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("transformer_lens", "nnsight"))),
        reason="transformer-lens or nnsight is not installed (the extras `tl` and `nnsight`)",
    ),
    *map(pytest.mark.filterwarnings, NOT_OURS),
    pytest.mark.filterwarnings("ignore::UserWarning:transformers.*"),
]

LOCAL = ("transformer-lens", "nnsight")
REMOTE = "nnsight remote=local"
FEW = ("gpt2", "llama", "bert", "t5")
METRICS = (
    "induction",
    "duplicate_token",
    "previous_token",
    "first_token",
    "local_window:width=3",
    "entropy",
    "attention_distance",
    "largest_weight",
)
PROMPTS = interp.Prompts(((9, 33, 21, 40, 33, 21, 21, 17, 9, 33), (9, 33, 21, 9, 33, 21)))
# of one length, for models whose numbers padding would change
EVEN = interp.Prompts(((9, 33, 21, 40, 33, 21, 21, 17, 9, 33), (9, 33, 21, 9, 33, 21, 5, 7, 6, 8)))
# elsewhere, only what goes through transformers' interface once per layer can be seen
OWN_CODE = tuple(f.name for f in LEGACY if f.name not in NO_ATTENTION)
SEEN = tuple(n for n in TEXT if n not in (*OWN_CODE, "albert"))


@cache
def loaded_as(source: str, name: str) -> interp.Model:
    return load_as(source, name)


def can_hold(source: str, name: str) -> bool:
    if name in NO_ATTENTION:
        return False
    return not (source == "transformer-lens" and name in NO_BRIDGE)


def cases(sources: tuple[str, ...], families: tuple[str, ...]) -> list:
    few = [(s, n) for s in sources for n in FEW if can_hold(s, n)]
    rest = [(s, n) for s in sources for n in families if can_hold(s, n) and n not in FEW]
    return [*few, *sampled(pytest.param(s, n) for s, n in rest)]


@pytest.mark.parametrize(
    ("source", "name"),
    # nnsight holds the very module of other families, which it runs itself in the test below
    cases(LOCAL[:1], tuple(TEXT)) + cases(LOCAL[1:], tuple(n for n in TEXT if n not in SEEN)),
)
def test_weights_activations_edits_and_scores_are_the_same(source: str, name: str) -> None:
    model, plain = loaded_as(source, name), loaded_as("transformers", name)
    assert model.content_hash == plain.content_hash
    assert [s.name for s in model.sites] == [s.name for s in plain.sites]
    assert model.source.startswith(source)
    # what every attention reads and gives
    names = ["v", "pattern", "z", *(["q", "k"] if all(s.has_qk for s in plain.sites) else [])]
    given = EVEN if plain.padding.changes(PROMPTS) else PROMPTS
    got, want = model.capture(given, names), plain.capture(given, names)
    same(got.logits, want.logits)
    for site in plain.sites:
        for at in names:
            same(got[at, site.layer, site.stack], want[at, site.layer, site.stack])
    # what an edit does
    last = [s for s in plain.sites if s.kind == "softmax"][-1]
    head = interp.Head(last.layer, 1)
    for edit in (interp.zero(head, stack=last.stack), interp.model.uniform(head, stack=last.stack)):
        same(model.run(given, [edit]), plain.run(given, [edit]))
    assert not torch.allclose(model.run(given, [edit]), want.logits, atol=1e-5)
    # what it all comes down to
    tables = [interp.score(m, METRICS, PROMPTS, null="none").to_pandas() for m in (model, plain)]
    same(*(torch.tensor(t["score"].to_numpy()) for t in tables), tolerance=1e-6)


@pytest.mark.parametrize(("source", "name"), cases((REMOTE,), SEEN))
def test_numbers_from_elsewhere_are_the_same(source: str, name: str) -> None:
    model = loaded_as(source, name)
    plain = loaded_as("transformers", name)
    # the maps of other layers are computed where the weights are
    here = [s for s in plain.sites if s.kind == "softmax"]
    assert [s.name for s in model.sites] == [s.name for s in here]
    for site, other in zip(model.sites, here, strict=True):
        for size in ("module", "n_heads", "n_kv_heads", "d_head", "d_v", "causal"):
            assert getattr(site, size) == getattr(other, size), (site.name, size)
    tables = [
        interp.score(m, METRICS, PROMPTS, null="shuffled-tokens", batch_size=1).to_pandas()
        for m in (model, plain)
    ]
    layers = {site.layer for site in here}
    tables[1] = tables[1][tables[1]["layer"].isin(layers)]
    for column in ("score", "sem", "null", "null_sem"):
        same(*(torch.tensor(t[column].to_numpy()) for t in tables), tolerance=1e-6)
    assert list(tables[0]["n"]) == list(tables[1]["n"])


@pytest.mark.parametrize("source", [*LOCAL, REMOTE])
def test_the_check_works_on_each(source: str) -> None:
    found = check_model(loaded_as(source, "llama"))
    assert found.passed
    assert len(found.sites) == 3
    assert max(s.pattern_error for s in found.sites) > 0, "sdpa and the formula round differently"


def test_weights_scores_are_the_same_and_refused_elsewhere() -> None:
    plain = loaded_as("transformers", "llama")
    want = interp.score(plain, ["ov_norm", "qk_norm", "k_composition"], null="none").to_pandas()
    for source in LOCAL:
        got = interp.score(
            loaded_as(source, "llama"), ["ov_norm", "qk_norm", "k_composition"], null="none"
        )
        same(*(torch.tensor(t["score"].to_numpy()) for t in (got.to_pandas(), want)))
    with pytest.raises(
        OptionError, match=r"ov_norm: its weights are not available here, since llama runs"
    ):
        interp.score(loaded_as(REMOTE, "llama"), ["ov_norm"])


@pytest.mark.parametrize(
    "name", ["gptj", *(pytest.param(n, marks=pytest.mark.slow) for n in OWN_CODE)]
)
def test_attention_that_a_trace_does_not_show_is_refused(name: str) -> None:
    with pytest.raises(UnreadableAttention, match=r"its own code; .*read it here"):
        load_as(REMOTE, name)


def test_layers_that_share_their_attention_are_refused_elsewhere() -> None:
    with pytest.raises(UnreadableAttention, match=r"runs 3 times in a forward"):
        load_as(REMOTE, "albert")
