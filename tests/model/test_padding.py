"""A batch scores as its prompts alone do, whichever side the padding is on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from together import over
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
)
from zoo import mixers

import interp
from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.model.padding import padding_way

KEY = "metric", "layer", "head"
IDS = ((10, 11, 12, 13, 14, 15, 16, 17, 18), (20, 21, 22, 23, 24))
TEXT = [
    f
    for f in zoo.FAMILIES.values()
    if "refused" not in f.features and f.kind in ("text", "seq2seq")
]
# positions of the encoder are counted by column and cannot be given
COUNTS_COLUMNS = {"bart", "mbart", "marian", "pegasus"}
# numbers that depend on the column: Llama 4 scales queries by it, DeepSeek's indexer ranks padding
SEES_COLUMNS = {"llama4_text": ("left",), "deepseek_v32": ("left", "right")}


@pytest.mark.slow
@over("side", ["right", "left"])
@over("family", TEXT, ids=lambda f: f.name)
def test_padding_changes_no_prompt(loaded, family, side):
    model = loaded(family.name)
    batch = Prompts(IDS, padding=side)
    if side == "left" and family.name in COUNTS_COLUMNS:
        with pytest.raises(PromptError, match="numbers its positions from the first column"):
            model.run(batch)
        return
    if side in SEES_COLUMNS.get(family.name, ()):
        with pytest.raises(PromptError, match="run prompts of one length together"):
            model.run(batch)
        return
    together = model.capture(batch, ["z", "pattern"])
    for row, ids in enumerate(IDS):
        alone = model.capture([ids], ["z", "pattern"])
        place = slice(len(ids)) if side == "right" else slice(len(IDS[0]) - len(ids), None)
        for site in model.sites:
            where = site.layer, site.stack
            z, pattern = together["z", *where][row], together["pattern", *where][row]
            torch.testing.assert_close(z[:, place], alone["z", *where][0], atol=2e-5, rtol=1e-4)
            torch.testing.assert_close(
                pattern[:, place, place], alone["pattern", *where][0], atol=2e-5, rtol=0
            )
            hidden = pattern[:, place].clone()
            hidden[:, :, place] = 0
            assert not hidden.any(), "a token looks at padding"


@pytest.mark.parametrize(("name", "side"), [(n, s) for n, ss in SEES_COLUMNS.items() for s in ss])
def test_prompts_that_cannot_share_a_batch_are_scored_and_averaged_unpadded(loaded, name, side):
    """One batch size or another, every prompt counts as it does alone."""
    model = loaded(name)
    batch = Prompts((*IDS, (30, 31, 32, 33, 30, 31, 32, 33, 30, 31, 32)), padding=side)
    metrics = ["previous_token", "duplicate_token", "entropy"]
    together = interp.score(model, metrics, batch, null="none", batch_size=16)
    alone = [
        interp.score(model, metrics, Prompts((ids,)), null="none").to_pandas() for ids in batch.ids
    ]
    for _, row in together.to_pandas().iterrows():
        same = [t[(t[list(KEY)] == row[list(KEY)]).all(axis=1)]["score"].item() for t in alone]
        counted = [x for x in same if not np.isnan(x)]
        assert len(counted) == row["n"]
        assert not counted or row["score"] == pytest.approx(np.mean(counted), abs=1e-6)
    means = model.mean_z(batch)
    z = [model.capture([ids], ["z"])["z", 0][0] for ids in batch.ids]
    torch.testing.assert_close(means[model.sites[0].stack, 0], torch.cat(z, 1).mean(1))


@pytest.mark.parametrize("name", SEES_COLUMNS)
def test_short_prompts_share_a_batch(loaded, name):
    """Below the length from which columns matter, padding is allowed and changes nothing."""
    model = loaded(name)
    batch = Prompts(((10, 11, 12), (20, 21)), padding="left")
    assert len(list(model.batches(batch, 16))) == 1
    torch.testing.assert_close(model.run(batch)[1, 1:], model.run([[20, 21]])[0], atol=2e-5, rtol=0)


def grows(kind: str, nested: bool = False) -> interp.Model:
    """Rotary frequencies that change for all prompts of a batch when one passes 16 tokens."""
    rope: dict = {"rope_type": kind, "factor": 4.0, "rope_theta": 10000.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
        rope |= {"original_max_position_embeddings": 16}
    shape = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "initializer_range": 1.0,
        "max_position_embeddings": 16 if kind == "dynamic" else 64,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if not nested:
            config = LlamaConfig(rope_parameters=rope, **shape)
            return interp.load(LlamaForCausalLM(config).eval(), name=kind)
        plain = {"rope_type": "default", "rope_theta": 10000.0}
        config = Gemma3TextConfig(
            rope_parameters={"full_attention": rope, "sliding_attention": plain},
            layer_types=["sliding_attention", "full_attention"],
            **shape,
        )
        return interp.load(Gemma3ForCausalLM(config).eval(), name=f"{kind} of one layer")


def drawn(*lengths: int) -> tuple[tuple[int, ...], ...]:
    rng = np.random.default_rng(0)
    return tuple(tuple(rng.integers(5, 60, n).tolist()) for n in lengths)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_frequencies_that_follow_the_longest_prompt_do_not_reach_the_others(kind, nested, side):
    model = grows(kind, nested)
    batch = Prompts(drawn(24, 9, 20, 16, 5), padding=side)
    with pytest.raises(PromptError, match="run prompts of one length together"):
        model.run(batch)
    metrics = ["previous_token", "duplicate_token", "entropy"]
    together = interp.score(model, metrics, batch, null="none", batch_size=16).to_pandas()
    alone = [interp.score(model, metrics, [x], null="none").to_pandas() for x in batch.ids]
    each = np.array([t["score"].to_numpy() for t in alone])
    np.testing.assert_allclose(together["score"], np.nanmean(each, 0), atol=1e-6)
    # up to the positions of training nothing changes, so such prompts share a batch
    short = Prompts(drawn(16, 9), padding=side)
    assert len(list(model.batches(short, 16))) == 1
    place = slice(9) if side == "right" else slice(7, None)
    alone = model.run([short.ids[1]])[0]
    torch.testing.assert_close(model.run(short)[1, place], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_tried_apart_from_visits_and_edits(side):
    """The trial is a forward of its own: no visitor sees it, and no edit changes its outcome."""
    batch, seen = Prompts(IDS, padding=side), []
    model = interp.load(zoo.FAMILIES["gpt2"].build("sdpa"), name="gpt2")
    with (
        model.edited(interp.zero([(0, 0)])),
        model.visited(lambda site, call, real: seen.append(tuple(call.z.shape))),
    ):
        model.run(batch)
    assert len(seen) == len(model.sites)
    assert model.padding.changes(batch) is None


def mamba(bias: float, dtype: torch.dtype = torch.float32) -> Any:
    """A Mamba whose convolution adds a bias, which a state carries on from padding to tokens."""
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=64,
        hidden_size=32,
        state_size=4,
        num_hidden_layers=2,
        intermediate_size=64,
        use_bias=True,
        use_conv_bias=True,
        time_step_rank=4,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = MambaForCausalLM(config).eval()
        with torch.no_grad():
            for name, x in module.named_parameters():
                if name.endswith("bias"):
                    x.copy_(bias * torch.randn_like(x))
    return module.to(dtype)


@pytest.mark.parametrize("bias", [0.0, 0.003, 0.1])
def test_padding_is_tried_at_every_position(bias):
    """What padding leaves in a state fades, so the last position alone would not show it."""
    module = mamba(bias)
    ids, pad = torch.arange(9, 16)[None], torch.zeros(1, 5, dtype=torch.long)
    mask = torch.cat([torch.zeros_like(pad), torch.ones_like(ids)], 1)
    with torch.no_grad():
        padded = module(input_ids=torch.cat([pad, ids], 1), attention_mask=mask).logits[:, 5:]
        off = float((padded - module(input_ids=ids).logits).abs().max())
    assert (padding_way(module, "left") is None) == (bias > 0), off
    assert padding_way(module, "right")


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "bloom", "deepseek_v32"])
def test_a_padded_batch_of_half_precision_keeps_its_numbers(name):
    module = zoo.FAMILIES[name].build(zoo.FAMILIES[name].attentions[-1]).bfloat16()
    for longest in (3,) if name == "deepseek_v32" else (10, 60):
        assert padding_way(module, "left", longest) is not None
        assert padding_way(module, "right", longest)


RAGGED = tuple(
    tuple(torch.randint(5, 60, (n,), generator=torch.Generator().manual_seed(n)).tolist())
    for n in (23, 9, 17, 5)
)


def doge(window: int) -> interp.Model:
    """Attention that keeps the keys of largest weight, whose ties depend on the columns."""
    from transformers import DogeConfig, DogeForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module: Any = DogeForCausalLM(DogeConfig(**mixers.BASE, keep_window_size=window)).eval()
        for name, weight in module.named_parameters():
            weight.data.mul_(4 if weight.dim() > 1 else 1)
            if name.endswith("A"):
                weight.data.normal_()
    return interp.load(module, name="doge")


def every_family(loaded: Any) -> Iterator[interp.Model]:
    yield doge(16)
    for family in TEXT:
        yield loaded(family.name)
    for name in mixers.FAMILIES:
        yield interp.load(mixers.build(name), name=name)


@pytest.mark.slow
@torch.no_grad()
def test_a_ragged_list_is_run_scored_and_continued_as_its_prompts_alone(loaded):
    """In every family: exactly, or refused by name; a score runs those apart that differ."""
    refused = set()  # by the names that the errors begin with
    for model in every_family(loaded):
        for side in ("left", "right"):
            try:
                together = model.run(Prompts(RAGGED, padding=side))
            except PromptError as error:
                refused.add(str(error).split()[0])
                continue
            for row, ids in zip(together, RAGGED, strict=True):
                place = slice(len(ids)) if side == "right" else slice(23 - len(ids), None)
                alone = model.run([ids])[0]
                torch.testing.assert_close(
                    row[place], alone, atol=2e-5 * float(alone.abs().max()), rtol=0
                )
        if model.kind not in ("causal", "encoder-decoder"):
            continue
        try:
            written = model.generate(RAGGED, 5, min_new_tokens=5).ids[:, -5:]
        except PromptError as error:
            refused.add(str(error).split()[0])
            continue
        alone = [model.generate([ids], 5, min_new_tokens=5).ids[0, -5:] for ids in RAGGED]
        assert torch.equal(written, torch.stack(alone)), model.name
    assert refused == {"doge", "deepseek_v32", "llama4_text", "minimax", "rwkv", *COUNTS_COLUMNS}


def test_prompts_are_run_apart_beyond_the_columns_that_a_trial_found_exact():
    """The keys that Doge keeps of a tie depend on the columns, but only beyond its window."""
    model = doge(16)
    with pytest.raises(PromptError, match="when it is padded on the right to 23 tokens"):
        model.run(Prompts(RAGGED, padding="right"))
    assert len(list(model.batches(Prompts(RAGGED[1::2]), 4))) == 1
    together = interp.score(model, "entropy", RAGGED, null="none").to_pandas()["score"]
    alone = [interp.score(model, "entropy", [ids], null="none").to_pandas() for ids in RAGGED]
    np.testing.assert_allclose(together, np.mean([t["score"] for t in alone], 0), atol=1e-6)


def test_a_model_that_writes_otherwise_after_padding_is_refused_by_name():
    model = interp.load(mixers.build("minimax"), name="minimax")
    with pytest.raises(PromptError, match="minimax writes other tokens after a prompt that is"):
        model.generate(RAGGED, 3)
    assert model.generate(RAGGED[:1], 3).ids.shape == (1, 26)
