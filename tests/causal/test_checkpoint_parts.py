"""Checkpoints without MLPs, repaired ones, and their certificates."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import zoo
from safetensors.torch import load_file

import interp
from interp.causal import learn_gates, prune_in_rounds, repair_pruned, repeats_task, save_pruned
from interp.causal.checkpoint.certificate import Judged
from interp.causal.checkpoint.mlps import mlp_means, removed_mlps, without_output
from interp.causal.checkpoint.verify import verify_certificate
from interp.causal.gating.learn import halves
from interp.causal.gating.units import selected
from interp.core.errors import OptionError
from interp.model.locate.probe import probe
from interp.planted import build


def tiny(name="llama"):
    one = zoo.FAMILIES[name]
    return probe(one.build(one.attentions[-1]), name)


def test_compact_and_smaller_files_lack_the_matrices_of_the_mlps(tmp_path):
    model = tiny()
    width, d = 64, model.d_model
    each = 3 * d * (width - 1)  # gate, up and down keep one hidden unit of zeros
    out = save_pruned(model, [], tmp_path / "one", form="compact", mlps=["L1MLP"])
    size = out.certificate["size"]
    assert size["before"]["parameters"] - size["after"]["parameters"] == each
    stored = load_file(tmp_path / "one/model.safetensors")
    assert stored["model.layers.1.mlp.down_proj.weight"].shape == (d, 1)
    assert stored["model.layers.0.mlp.down_proj.weight"].shape == (d, width)
    assert out.certificate["removed_mlps"] == ["L1MLP"]
    assert "without 0 of 18 heads and without L1MLP" in repr(out)
    every = ["L0MLP", "L1MLP", "L2MLP"]
    out = save_pruned(model, [], tmp_path / "all", form="smaller", mlps=every)
    assert json.loads((tmp_path / "all/config.json").read_text())["intermediate_size"] == 1
    size = out.certificate["size"]
    assert size["before"]["parameters"] - size["after"]["parameters"] == 3 * each
    with pytest.raises(OptionError, match="cannot express the width"):
        save_pruned(model, [], tmp_path / "two", form="smaller", mlps=["L1MLP"])
    assert save_pruned(model, [], tmp_path / "two", mlps=["L1MLP"]).form == "zeroed"


@pytest.mark.parametrize(
    ("name", "form", "folded"),
    [("gpt2", "zeroed", True), ("llama", "compact", True), ("llama", "zeroed", False)],
)
def test_the_mean_of_an_mlp_is_folded_where_there_is_a_bias(tmp_path, name, form, folded):
    model = tiny(name)
    prompts = interp.repeats(model, n=3, max_length=7)
    out = save_pruned(
        model, [], tmp_path / "out", form=form, mlps=["L1MLP"], kind="mean", reference=prompts
    )
    parts = removed_mlps(model, ["L1MLP"])
    means = mlp_means(model, parts, prompts)
    by_hand = []  # the same mean, token by token
    owner = model.module.get_submodule(parts[0].output)
    handle = owner.register_forward_hook(lambda m, a, x: by_hand.append(x.flatten(0, -2)))
    for ids in prompts.ids:
        model.run({"input_ids": torch.tensor([ids])})
    handle.remove()
    assert torch.cat(by_hand).double().mean(0).tolist() == pytest.approx(
        means["L1MLP"].tolist(), abs=1e-6
    )
    told = out.certificate["mlp_means"]
    assert told == "folded" if folded else told.startswith("not folded: the MLPs of Llama")
    again = interp.load(tmp_path / "out", trust_remote_code=form == "compact")
    with without_output(model.module, parts, means if folded else None):
        wanted = model.run(prompts)
    assert float((again.run(prompts) - wanted).detach().abs().max()) < 1e-4


def test_gates_that_close_mlps_are_saved_and_verified(tmp_path, bundled_induction):
    model = bundled_induction
    task = repeats_task(model, n=6, max_length=8)
    gates = learn_gates(model, task, mlps="with", n_restarts=1, steps=30, n_random=5)
    closed = gates.score.copy()
    closed[:] = 0.9
    for label in ("L0H1", "L1H3", "L1MLP"):
        closed[gates.labels.index(label)] = 0.1
    object.__setattr__(gates, "gate", closed[None])
    made = save_pruned(
        model,
        gates,
        tmp_path / "out",
        tasks=[Judged.of(task, 0)],
        n_random=5,
        source="bundled:induction",
    )
    assert made.certificate["removed"] == ["L0H1", "L1H3"]
    assert made.certificate["removed_mlps"] == ["L1MLP"]
    assert made.form == "zeroed"
    found = verify_certificate(tmp_path / "out", tasks=[task])
    assert found.holds
    assert not any(x.startswith(("tasks", "removed")) for x in found.not_checked)
    with pytest.raises(OptionError, match="omit mlps"):
        save_pruned(model, gates, tmp_path / "new", mlps=["L0MLP"])


def test_mlps_that_do_not_exist_are_refused(tmp_path):
    model = tiny()
    for mlps, text in ((["L9MLP"], "does not exist"), (["L0MLP", "L0MLP"], "named twice")):
        with pytest.raises(OptionError, match=text):
            save_pruned(model, [], tmp_path / "out", mlps=mlps)
    with pytest.raises(OptionError, match="name at least one"):
        save_pruned(model, [], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_repair_recovers_held_out_prompts_and_leaves_the_original(tmp_path, bundled_induction):
    model = bundled_induction
    before = model.content_hash
    task = repeats_task(model, n=24, max_length=10)
    fit = selected(task, halves(task, 0)[0])
    heads = ["L0H0", "L0H1", "L0H4", "L1H0", "L1H1", "L1H5"]
    found = repair_pruned(model, heads, fit.prompts, steps=25, rate=1e-3)
    assert model.content_hash == before != found.model.content_hash
    assert found.about["last_loss"] < found.about["first_loss"]
    made = save_pruned(
        model,
        found,
        tmp_path / "out",
        tasks=[Judged.of(task, 0)],
        n_random=5,
        source="bundled:induction",
    )
    [told] = made.certificate["tasks"]
    assert told["after"]["value"] < told["unrepaired"]["value"] - 0.2  # nats, held out
    assert "without repair" in repr(made)
    assert "random removals of as many heads in every layer, without repair:" in repr(made)
    checked = verify_certificate(tmp_path / "out", tasks=[task])
    assert checked.holds
    named = {x.partition(": ")[0] for x in checked.not_checked}
    assert {"repair", "removed", "removed_mlps", "logits.difference"} <= named
    # the removed heads write nothing in the written model
    again = interp.load(tmp_path / "out")
    for site in again.sites:
        gone = [h for h in range(8) if f"L{site.layer}H{h}" in heads]
        weight = again.module.get_submodule(site.projection).weight
        columns = weight.unflatten(1, (8, site.d_v))[:, gone]
        assert not columns.any()


def test_a_bystander_needs_no_repair():
    planted = build("bystander")
    model = probe(planted.model, "planted:bystander")
    task = repeats_task(model, n=4, max_length=8)
    working = {head for role in ("induction", "previous_token") for head in planted.roles[role]}
    other = next(
        f"L{s.layer}H{h}"
        for s in model.sites
        for h in range(s.n_heads)
        if (s.layer, h) not in working
    )
    found = repair_pruned(model, [other], task.prompts, steps=2, rate=1e-6)
    assert abs(found.about["first_loss"]) < 1e-3


def test_rounds_remove_the_asked_number_of_heads(bundled_induction):
    task = repeats_task(bundled_induction, n=4, max_length=8)
    found = prune_in_rounds(bundled_induction, task, "ablation", 11, rounds=2, repair_steps=2)
    assert sum(map(len, found.removed.values())) == 5
    assert found.about["rounds"] == 2
    again = prune_in_rounds(bundled_induction, task, "ablation", 11, rounds=2, repair_steps=2)
    assert again.removed == found.removed
    assert again.model.content_hash == found.model.content_hash


def test_a_repair_that_diverges_is_stopped_and_nothing_is_lost(tmp_path, bundled_induction):
    model = bundled_induction
    before = model.content_hash
    prompts = interp.repeats(model, n=4, max_length=8)
    with pytest.raises(OptionError, match="diverges at step") as raised:
        repair_pruned(model, ["L0H1"], prompts, steps=20, rate=10.0)
    assert "\n" not in str(raised.value)
    assert "lower rate" in str(raised.value)
    assert model.content_hash == before
    with pytest.raises(OptionError, match="diverges"):
        prune_in_rounds(model, repeats_task(model, n=4, max_length=8), "ablation", 8, rate=10.0)
    assert list(tmp_path.iterdir()) == []


def test_bad_options_of_a_repair_are_refused(tmp_path, bundled_induction):
    model = bundled_induction
    prompts = interp.repeats(model, n=2, max_length=6)
    task = repeats_task(model, n=2, max_length=6)
    for given in ({"steps": 0}, {"steps": 3, "rate": float("nan")}, {"steps": 3, "rate": 0.0}):
        with pytest.raises(OptionError, match="must be positive"):
            repair_pruned(model, ["L0H1"], prompts, **given)
    with pytest.raises(OptionError, match="causal language model"):
        repair_pruned(tiny("bert"), ["L0H1"], [[5, 6, 7]], steps=1)
    for keep, rounds in ((0, 1), (16, 1), (15, 2), (8, 0)):
        with pytest.raises(OptionError, match="keep and remove at least 1"):
            prune_in_rounds(model, task, "ablation", keep, rounds=rounds)
    found = repair_pruned(model, ["L0H1"], prompts, steps=1)
    with pytest.raises(OptionError, match="kind='zero'"):
        save_pruned(model, found, tmp_path / "out", kind="mean", reference=prompts)
    with pytest.raises(OptionError, match="omit mlps"):
        save_pruned(model, found, tmp_path / "out", mlps=["L0MLP"])
    assert np.isfinite(found.about["last_loss"])
