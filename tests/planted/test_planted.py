"""Planted models do what they say: attention, causal effect, grouping, round trip, manners.

Attention is read from Hugging Face's own eager path and heads are ablated by a plain hook, so that
nothing here leans on the toolkit that these models are there to test.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from interp import planted
from interp.core.errors import OptionError, UnknownName
from interp.planted import PLANTED, builders

PERIOD, BATCH = 20, 6
# Sizes off the defaults in every direction; heads of one group, of two and of four.
VARIANTS = [
    {},
    {"kv_heads": 4, "seed": 1},
    {"heads": 8, "kv_heads": 2, "vocab": 33, "context": 200, "seed": 2},
    {"heads": 8, "kv_heads": 1, "layers": 5, "context": 3000, "seed": 3},
]


def repeats(vocab: int, period: int = PERIOD, batch: int = BATCH, seed: int = 0) -> torch.Tensor:
    """[BOS] + r + r with the tokens of r distinct, so that every target is a single key."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(batch, vocab - 1, generator=generator).argsort(-1)[:, :period] + 1
    return torch.cat([torch.zeros(batch, 1, dtype=torch.long), order, order], 1)


@torch.no_grad()
def attentions(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    model.set_attn_implementation("eager")
    return torch.stack(model(ids, output_attentions=True).attentions)  # layer batch head q k


@contextmanager
def ablated(model: LlamaForCausalLM, heads: list[tuple[int, int]]):
    """Zeroes heads where their output enters the output projection."""
    size = model.config.head_dim
    with ExitStack() as stack:
        for layer, head in heads:

            def zero(module, args, head=head):
                z = args[0].clone()
                z[..., head * size : (head + 1) * size] = 0
                return (z,)

            projection = model.model.layers[layer].self_attn.o_proj
            stack.callback(projection.register_forward_pre_hook(zero).remove)
        yield


@torch.no_grad()
def copy_logit(model: LlamaForCausalLM, ids: torch.Tensor) -> float:
    """Mean over the second copy of the next token's logit above the mean logit."""
    logits = model(ids).logits[:, PERIOD + 1 : -1]
    right = logits.gather(-1, ids[:, PERIOD + 2 :, None]).squeeze(-1)
    return float((right - logits.mean(-1)).mean())


def target_mass(detector: str, pattern: torch.Tensor) -> torch.Tensor:
    """Mass of a pattern [batch q k] of `repeats` on the target of each row that has one."""
    t = torch.arange(pattern.shape[-1])
    second = t[PERIOD + 1 :]
    if detector == "previous_token":
        return pattern[:, t[1:], t[1:] - 1]
    if detector == "offset":
        return pattern[:, t[3:], t[3:] - 3]
    if detector == "local_window":
        near = (t[:, None] - t < 4) & (t[:, None] >= t)
        return (pattern * near).sum(-1)
    if detector == "first_token":
        return pattern[:, :, 0]
    lag = {"induction": PERIOD - 1, "duplicate_token": PERIOD}[detector]
    return pattern[:, second, second - lag]


DETECTORS = (
    "previous_token",
    "induction",
    "duplicate_token",
    "first_token",
    "offset",
    "local_window",
)


@pytest.mark.parametrize("sizes", VARIANTS, ids=str)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_heads_attend_where_stated(name, sizes):
    model = planted.build(name, **_fitting(name, sizes))
    patterns = attentions(model.model, repeats(model.model.config.vocab_size))
    assert all(heads for detector, heads in model.attends.items()), model.attends
    for detector, heads in model.attends.items():
        for layer, head in heads:
            mass = target_mass(detector, patterns[layer, :, head])
            assert mass.min() > 0.99, (detector, layer, head, model.role(layer, head))


def test_positional_heads_hold_over_the_whole_context():
    model = planted.positional(heads=3, kv_heads=1, vocab=16, context=2500)
    ids = torch.randint(1, 16, (1, 2500), generator=torch.Generator().manual_seed(0))
    patterns = attentions(model.model, ids)
    for detector in ("previous_token", "offset", "local_window"):
        ((layer, head),) = model.roles[detector]
        assert target_mass(detector, patterns[layer, :, head]).min() > 0.99


def _fitting(name: str, sizes: dict) -> dict:
    if name == "selective_induction":  # a GPT-2, which groups no heads
        sizes = {k: v for k, v in sizes.items() if k != "kv_heads"}
    if name == "zoo" and sizes.get("heads", 8) < 8:
        sizes = sizes | {"heads": 8}
    if name == "positional" and sizes.get("kv_heads") == 4:
        sizes = sizes | {"heads": 8}
    return sizes


@pytest.mark.parametrize("name", ["noise", "zoo"])
def test_noise_heads_score_near_chance(name):
    model = planted.build(name)
    patterns = attentions(model.model, repeats(64, batch=32))
    t = torch.arange(patterns.shape[-1])
    uniform = torch.tril(torch.ones(len(t), len(t))) / (t[:, None] + 1)
    assert len(model.roles["noise"]) >= 8
    for detector in DETECTORS:
        chance = float(target_mass(detector, uniform[None]).mean())
        for layer, head in model.roles["noise"]:
            score = float(target_mass(detector, patterns[layer, :, head]).mean())
            # Positional detectors see one fixed random bias per head, which does not average out.
            assert 0.3 * chance < score < 2.5 * chance, (detector, layer, head)


def test_resting_heads_rest_on_the_first_token_where_nothing_matches():
    model = planted.zoo()
    first_copy = repeats(64)[:, : PERIOD + 1]
    patterns = attentions(model.model, first_copy)
    for role in ("induction", "bystander", "copy_suppression", "sink"):
        for layer, head in model.roles[role]:
            assert patterns[layer, :, head, :, 0].min() > 0.99, role
    ((layer, head),) = model.roles["duplicate_token"]
    assert patterns[layer, :, head].diagonal(dim1=-2, dim2=-1).min() > 0.99


def test_duplicate_head_shares_its_mass_over_earlier_copies_only():
    model = planted.duplicate_token()
    ids = torch.tensor([[0, 5, 6, 5, 7, 5, 8, 8]])
    ((layer, head),) = model.roles["duplicate_token"]
    pattern = attentions(model.model, ids)[layer, 0, head]
    assert pattern[5, [1, 3]].sum() > 0.99
    assert pattern[7, 6] > 0.99


@pytest.mark.parametrize("sizes", VARIANTS, ids=str)
def test_only_ablating_the_induction_head_destroys_the_copy(sizes):
    model = planted.bystander(**sizes)
    ids = repeats(model.model.config.vocab_size)
    whole = copy_logit(model.model, ids)
    assert whole > 9
    with torch.no_grad():
        logits = model.model(ids).logits
        with ablated(model.model, model.roles["bystander"]):
            unread = model.model(ids).logits
    assert (unread - logits).abs().max() < 1e-4  # float error of the rotated basis
    for role in ("induction", "previous_token"):
        with ablated(model.model, model.roles[role]):
            assert copy_logit(model.model, ids) < 1
    with ablated(model.model, model.roles["noise"]):
        assert abs(copy_logit(model.model, ids) - whole) < 1


def test_bystander_writes_much_although_nobody_reads_it():
    model = planted.bystander()
    ((layer, head),) = model.roles["bystander"]
    size = model.model.config.head_dim
    seen = []
    projection = model.model.model.layers[layer].self_attn.o_proj
    handle = projection.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        model.model(repeats(64))
    handle.remove()
    where = slice(head * size, (head + 1) * size)
    written = seen[0][..., where] @ projection.weight.T[where]
    assert torch.allclose(written[:, PERIOD + 1 :].norm(dim=-1), torch.tensor(1.0), atol=1e-3)
    # All of it lies in the subspace called null.
    null = model.subspaces["null"]
    assert torch.allclose(written @ null.T @ null, written, atol=1e-5)


def test_backup_matters_only_when_the_main_head_is_gone():
    model = planted.backup()
    ids, main, spare = repeats(64), model.roles["induction"], model.roles["backup"]
    with torch.no_grad():
        logits = model.model(ids).logits
        with ablated(model.model, spare):
            without_spare = model.model(ids).logits
    assert (without_spare - logits).abs().max() < 1e-4
    with ablated(model.model, main):
        assert copy_logit(model.model, ids) > 9
        ((layer, head),) = spare
        patterns = attentions(model.model, ids)
        assert target_mass("induction", patterns[layer, :, head]).min() > 0.99
    with ablated(model.model, main + spare):
        assert copy_logit(model.model, ids) < 1


def test_sink_is_silent_and_its_value_is_zero_only_at_the_first_token():
    model = planted.sink()
    ids = repeats(64)
    with torch.no_grad():
        logits = model.model(ids).logits
        with ablated(model.model, model.roles["sink"]):
            assert (model.model(ids).logits - logits).abs().max() < 1e-4
    for layer, head in model.roles["sink"]:
        attention = model.model.model.layers[layer].self_attn
        size = model.model.config.head_dim
        weight = attention.v_proj.weight.view(-1, size, model.model.config.hidden_size)
        value = model.model.model.embed_tokens.weight @ weight[head // 2].T
        assert value[0].norm() < 1e-5
        assert value[1:].norm(dim=-1).min() > 0.9


def test_copy_suppression_takes_back_the_logit_of_a_prediction_seen_before():
    model = planted.copy_suppression()
    assert model.successor is not None
    follows = model.successor.tolist()
    token = 7
    seen = torch.tensor([[0, 3, follows[token], 9, token]])
    fresh = torch.tensor([[0, 3, follows[follows[token]], 9, token]])
    assert len({*seen[0].tolist(), *fresh[0].tolist()}) == 6
    with torch.no_grad():
        logit = model.model(seen).logits[0, -1, follows[token]]
        untouched = model.model(fresh).logits[0, -1, follows[token]]
        with ablated(model.model, model.roles["copy_suppression"]):
            without = model.model(seen).logits[0, -1, follows[token]]
    assert without == pytest.approx(10, abs=1)
    assert untouched == pytest.approx(10, abs=1)
    assert logit == pytest.approx(float(without) - 5, abs=0.1)
    ((layer, head),) = model.roles["copy_suppression"]
    assert attentions(model.model, seen)[layer, 0, head, -1, 2] > 0.99


def test_zoo_suppression_works_against_its_induction():
    model = planted.zoo()
    ids = repeats(64)
    whole = copy_logit(model.model, ids)
    with ablated(model.model, model.roles["copy_suppression"]):
        assert copy_logit(model.model, ids) - whole == pytest.approx(5, abs=0.2)
    with ablated(model.model, model.roles["induction"]):
        assert copy_logit(model.model, ids) == pytest.approx(whole, abs=0.5)  # the backup
    with ablated(model.model, model.roles["induction"] + model.roles["backup"]):
        assert copy_logit(model.model, ids) < 1


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_left_padding_changes_nothing(implementation):
    model = planted.zoo(vocab=32, context=128).model
    model.set_attn_implementation(implementation)
    ids = repeats(32)
    padded = torch.cat([torch.full((BATCH, 5), 9), ids], 1)
    mask = (torch.arange(padded.shape[1]) >= 5).long().expand_as(padded)
    with torch.no_grad():
        # Rotary scores depend on offsets alone, so positions may count the padding.
        moved = model(padded, attention_mask=mask).logits[:, 5:]
        assert torch.allclose(moved, model(ids).logits, atol=2e-3)


@pytest.mark.parametrize("name", ["induction", "zoo"])
def test_round_trip_through_save_pretrained(name, tmp_path):
    model = planted.build(name, vocab=32, context=128)
    model.model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is LlamaForCausalLM
    ids = repeats(32)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model.model(ids).logits)


def test_roles_partition_the_heads_and_move_with_the_seed():
    places = set()
    for seed in range(6):
        model = planted.zoo(vocab=16, context=64, seed=seed)
        heads = sorted(head for found in model.roles.values() for head in found)
        assert heads == [(layer, head) for layer in range(4) for head in range(8)]
        places.add(model.roles["induction"][0])
    assert len(places) > 2


def test_same_seed_same_weights_and_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, other = builders.induction(seed=4), builders.induction(seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not one.model.training


def test_residual_basis_is_hidden():
    model = planted.induction().model
    # In a rotated stream no coordinate is zero for all tokens.
    assert model.model.embed_tokens.weight.abs().amax(0).min() > 1e-3


def test_names_are_listed_without_torch():
    code = "import sys, interp.planted as p; assert p.PLANTED; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(callable(getattr(planted, name)) for name in PLANTED)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: planted.build("inductoin"), UnknownName, "induction"),
        (lambda: planted.induction(layers=1), OptionError, "layers=1: needs at least 2"),
        (lambda: planted.induction(kv_heads=3), OptionError, "kv_heads=3: must divide"),
        (lambda: planted.zoo(heads=4), OptionError, "heads=4: needs at least 5"),
        (lambda: planted.noise(vocab=2), OptionError, "vocab=2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(call, error, says):
    with pytest.raises(error, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
