"""Quantised weights seen by heads: a planted outlier, the null of 16 bits, restoring, bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.heads.between_models import quantised as module
from interp.heads.between_models.quantised import quantised_heads, quantised_model
from interp.model.rounding import pack, rounded_weight
from interp.model.rounding_names import KNOWN

OUTLIER = (1, 0)  # the planted induction head


def with_outliers(size: float) -> Any:
    """Planted induction whose L1H0 has large weights on a direction that its layer never reads.

    The norm's gain of the direction of least use is 0, so that the large weights change nothing.
    """
    model: Any = interp.load("planted:induction")
    streams: list[torch.Tensor] = []
    layer = model.module.model.layers[OUTLIER[0]]
    handle = layer.self_attn.q_proj.register_forward_pre_hook(lambda _, x: streams.append(x[0]))
    model.run(interp.repeats(model, n=4))
    handle.remove()
    unused = int(streams[0].abs().amax((0, 1)).argmin())
    site = model.site(OUTLIER[0])
    rows = slice(OUTLIER[1] * site.d_head, (OUTLIER[1] + 1) * site.d_head)
    with torch.no_grad():
        layer.input_layernorm.weight[unused] = 0
        layer.self_attn.q_proj.weight[rows, unused] = size
    return interp.load(model.module, name="with outliers")


@pytest.fixture(scope="module")
def outliers():
    model = with_outliers(1e5)
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    found = quantised_heads(model, method="int8", k=1, n_random=4)
    after = model.module.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before), "the model is left as it was"
    return found


def test_the_head_with_outliers_comes_first_and_restoring_it_gives_the_loss_back(outliers) -> None:
    frame: Any = outliers.to_pandas()
    first: Any = frame.sort_values("pattern_change", ascending=False).iloc[0]
    assert (first["layer"], first["head"]) == OUTLIER
    assert outliers.top(1).heads()[0] == interp.Head(*OUTLIER)
    assert first["score"] > 0.5 > 2 * frame["score"].drop(first.name).max()
    assert first["role_before"] == "induction head" != first["role_after"]
    assert frame["chosen"].sum() == 1
    assert first["chosen"]
    by = {x["what"]: x for x in outliers.losses}
    lost = by["quantised"]["loss"] - by["full precision"]["loss"]
    back = by["quantised"]["loss"] - by["chosen heads restored"]["loss"]
    assert lost > 1
    assert back > 0.9 * lost
    assert by["random heads restored"]["loss"] > by["chosen heads restored"]["loss"] + 0.3
    shares = [by[x]["share"] for x in ("quantised", "chosen heads restored")]
    shares += [by["attention of their layers restored"]["share"], 1]
    assert shares == sorted(set(shares))
    assert shares[0] == 0
    assert first["gain"] == pytest.approx(back, abs=1e-6)


def test_sixteen_bits_change_nothing_measurable() -> None:
    found = quantised_heads(with_outliers(400.0), method="int16", k=1, n_random=0)
    frame: Any = found.to_pandas()
    assert (frame["score"] < 0.02).all()
    assert (frame["pattern_change"] < 1e-3).all()
    assert (frame["gain"].abs() < 1e-3).all()
    assert (frame["role_before"] == frame["role_after"]).all()
    by = {x["what"]: x["loss"] for x in found.losses}
    assert abs(by["quantised"] - by["full precision"]) < 1e-3
    np.testing.assert_allclose(frame["score"], frame["null"])


def test_heads_are_chosen_on_other_prompts_than_those_that_judge(bundled_induction) -> None:
    """The gains of one half choose, and those of the other are reported."""
    given = interp.repeats(bundled_induction, n=8, max_length=16, seed=5)
    given = replace(given, clusters=tuple("abcaabca"))  # two prompts of a cluster in one half
    order = np.random.default_rng(0).permutation(8)
    one, two = (np.sort(x) for x in np.array_split(order, 2))
    assert not set(one) & set(two)
    found = quantised_heads(bundled_induction, given, k=3, n_random=0)
    assert found.per_prompt.shape == found.gains.shape == (16, 4)
    other, _ = quantised_model(bundled_induction, "int4")
    judged = given.part(two.tolist())
    output, _ = module.output_changes(bundled_induction, other, judged)
    np.testing.assert_allclose(found.per_prompt, output)
    restored = module.Restoring(bundled_induction, other)
    heads = [(s, h) for s in bundled_induction.sites for h in range(s.n_heads)]
    before = module.prompt_losses(other, given)
    gains = []
    for site, h in heads:
        with restored(module.weights_of_head(bundled_induction, site, h)):
            gains.append(before - module.prompt_losses(other, given))
    gains = np.array(gains)
    best = np.argsort(-gains[:, one].mean(1), kind="stable")[:3]
    assert sorted(best) == np.flatnonzero(found.to_pandas()["chosen"]).tolist()
    np.testing.assert_allclose(found.gain, gains[:, two].mean(1), atol=1e-7)
    labels = [given.clusters[i] for i in two]
    wanted = cluster_summary(gains[:, two].T, labels)
    np.testing.assert_allclose(found.gain_sem, wanted.sem, atol=1e-7)
    losses = module.prompt_losses(bundled_induction, judged)
    [whole] = [x for x in found.losses if x["what"] == "full precision"]
    assert whole["n"] == 4
    assert whole["sem"] == pytest.approx(float(cluster_summary(losses[:, None], labels).sem[0]))


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3"])
def test_changes_are_those_of_the_patterns_and_outputs(name, loaded) -> None:
    """Against captured patterns and z of both models, by hand."""
    model: Any = loaded(name)
    other, names = quantised_model(model, "int4")
    ids = tuple(np.random.default_rng(0).integers(3, 15, 12).tolist())
    output, rows = module.output_changes(model, other, interp.Prompts((ids,)))
    site, at = model.sites[1], model.sites[0].n_heads
    kept = [m.capture([ids], ["pattern", "z"]) for m in (model, other)]
    one, two = (x.by_site("pattern")[site.stack, 1][0].double() for x in kept)
    wanted = (one - two).abs().sum(-1).mean(-1) / 2
    np.testing.assert_allclose(rows[at : at + site.n_heads, 0], wanted, atol=1e-6)
    sizes = []
    for m, x in zip((model, other), kept, strict=True):
        z = x.z_by_site()[site.stack, 1][0].double()
        sizes.append(_written(m, site, z))
    moved = (sizes[1] - sizes[0]).flatten(1).norm(dim=1) / sizes[0].flatten(1).norm(dim=1)
    np.testing.assert_allclose(output[at : at + site.n_heads, 0], moved, rtol=1e-4)
    head = model.module.get_output_embeddings().weight
    assert torch.equal(head, other.module.get_output_embeddings().weight)
    assert not any("embed" in x or "lm_head" in x or "wte" in x for x in names)


def _written(model: Any, site: Any, z: torch.Tensor) -> torch.Tensor:
    """Outputs of heads by running the projection on each head's z alone, without its bias."""
    projection: Any = model.module.get_submodule(site.projection)
    found = []
    for h in range(len(z)):
        alone = torch.zeros_like(z)
        alone[h] = z[h]
        flat = alone.permute(1, 0, 2).flatten(1).float()
        found.append(projection(flat) - projection(torch.zeros_like(flat)))
    return torch.stack(found).double().detach()


def test_weights_are_rounded_by_rows_of_outputs_also_where_inputs_come_first(loaded) -> None:
    model = loaded("gpt2")
    other, names = quantised_model(model, "int4")
    name = next(x for x in names if x.endswith("c_attn.weight"))
    one, two = (m.module.get_parameter(name) for m in (model, other))
    assert one.shape[1] == 3 * one.shape[0], "GPT-2 keeps inputs first"
    for column in (0, 7):
        assert len(two[:, column].unique()) <= 16 < len(two.unique())
        assert two[:, column].max().item() == pytest.approx(one[:, column].max().item())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_all_heads_restored_are_the_attention_in_full_precision(name, loaded) -> None:
    model: Any = loaded(name)
    other, names = quantised_model(model, "int4")
    restored = module.Restoring(model, other)
    before = {n: other.module.get_parameter(n).clone() for n in names}
    with restored(module.layer_places(model, model.sites)):
        both = {n: [m.module.get_parameter(n) for m in (model, other)] for n in names}
        same = {n for n, pair in both.items() if torch.equal(*pair)}
    assert same == {n for n in names if "attn" in n and "mlp" not in n}
    assert all(torch.equal(before[n], other.module.get_parameter(n)) for n in names)
    site = model.sites[0]
    with restored(module.weights_of_head(model, site, 0)):
        kept = [
            m.capture([(3, 4, 5, 6)], ["z"]).z_by_site()[site.stack, 0][0] for m in (model, other)
        ]
    torch.testing.assert_close(kept[0][0], kept[1][0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(kept[0][-1], kept[1][-1], atol=1e-4)


def test_heads_with_equal_rows_are_told_apart(planted_bystander) -> None:
    """L1H0 and L1H2 have the same queries; each is restored by its own block of rows."""
    site = planted_bystander.site(1)
    for head in range(site.n_heads):
        places = module.weights_of_head(planted_bystander, site, head)
        assert [name.rpartition(".")[0].rpartition(".")[2] for name, _, _ in places] == [
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
        ]
        wanted = torch.arange(site.d_head) + head * site.d_head
        assert torch.equal(places[0][2].sort().values, wanted)
        kv = torch.arange(site.d_head) + site.kv_head(head) * site.d_head
        assert torch.equal(places[1][2].sort().values, kv)


def test_rounding_by_hand() -> None:
    row = torch.tensor([[0.0, 1.0, 7.4, 15.0], [-1.0, -1.0, -1.0, -1.0]])
    assert rounded_weight(row, "int4").tolist() == [[0, 1, 7, 15], [-1, -1, -1, -1]]
    x = torch.randn(5, 33, generator=torch.Generator().manual_seed(0))
    ways = ("int4", "fp8", "int8", "int16")
    errors = [float((rounded_weight(x, m) - x).abs().mean()) for m in ways]
    assert errors == sorted(errors, reverse=True)
    step = (x.amax(1) - x.amin(1)) / 255
    assert ((rounded_weight(x, "int8") - x).abs().amax(1) <= step / 2 + 1e-6).all()
    for bits in (4, 8):
        packed = pack(x, bits)
        torch.testing.assert_close(packed.restored(), rounded_weight(x, f"int{bits}"))
        assert packed.codes.shape == (5, 17 if bits == 4 else 33)
    eights = torch.tensor([[448.0, 16.5, 0.1]])  # e4m3 has three bits after the point
    found = rounded_weight(eights, "fp8")
    torch.testing.assert_close(found, torch.tensor([[448.0, 16.0, 0.1016]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", [x for x in KNOWN if ":" in x])
def test_packages_quantise_as_closely_as_their_bits(method) -> None:
    pytest.importorskip(method.partition(":")[0], reason="an extra: interp[quantise]")
    x = torch.randn(32, 128, generator=torch.Generator().manual_seed(0))
    error = float((rounded_weight(x, method) - x).norm() / x.norm())
    bits = method.partition(":")[2]
    low, high = {"int8": (1e-3, 0.015), "fp8": (0.01, 0.04)}.get(bits, (0.05, 0.15))
    assert low < error < high


def test_bad_input(bundled_induction, loaded) -> None:
    few = interp.repeats(bundled_induction, n=3)
    with pytest.raises(PromptError, match="at least 4"):
        quantised_heads(bundled_induction, few)
    with pytest.raises(UnknownName, match="way of quantising"):
        quantised_heads(bundled_induction, method="int5")
    with pytest.raises(OptionError, match="give 1 to 16 heads"):
        quantised_heads(bundled_induction, k=17)
    with pytest.raises(OptionError, match="does not predict the next token"):
        quantised_heads(loaded("bert"))
