"""The tuned lens: a planted affine layer, trained models, held-out errors, refusals."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.lens import logit_lens, tuned_lens
from interp.lens.tuned import _kl, _streams, _trained, translated

RNG = np.random.default_rng(0)
IDS = [[int(x) for x in RNG.integers(3, 60, 12)] for _ in range(60)]


@pytest.fixture(scope="module")
def shifted():
    """GPT-2 whose last layer adds one constant vector, and nothing else."""
    module = copy.deepcopy(zoo.FAMILIES["gpt2"].build("eager"))
    block = module.transformer.h[-1]
    with torch.no_grad():
        for part in (block.attn.c_proj, block.mlp.c_proj):
            part.weight.zero_()
            part.bias.zero_()
        draw = torch.Generator().manual_seed(1)
        block.mlp.c_proj.bias.copy_(3 * torch.randn(block.mlp.c_proj.bias.shape, generator=draw))
        module.transformer.wte.weight.mul_(8)
    return interp.load(module, name="shifted")


@pytest.fixture(scope="module")
def shifted_lens(shifted) -> ResultRows:
    return tuned_lens(shifted, IDS, steps=300)


def test_an_affine_last_layer_is_undone_and_the_deepest_is_the_models_own(
    shifted, shifted_lens
) -> None:
    frame = shifted_lens.to_pandas().set_index(["metric", "depth"])
    before, last = list(shifted_lens.depths)[-2:]
    plain, tuned = (frame.loc[(name, before), "score"] for name in ("logit lens", "tuned lens"))
    assert plain > 3
    assert tuned < 0.06 * plain
    assert frame.loc[("gain", before), "low"] > 0.5 * plain
    assert frame.loc[("tuned lens", last), "score"] == pytest.approx(0, abs=1e-6)
    assert (shifted_lens.matrices[-1] == 0).all()
    assert (shifted_lens.biases[-1] == 0).all()
    through = logit_lens(shifted, IDS[:1], k=3, target=7, tuned=shifted_lens)
    with torch.no_grad():
        logits = shifted.run(IDS[:1])[0]
    np.testing.assert_allclose(through.target_logits[-1], logits[:, 7].numpy(), atol=1e-4)
    plain = logit_lens(shifted, IDS[:1], k=3, target=7)
    agree = [(x.top_ids[-2, :, 0] == x.top_ids[-1, :, 0]).mean() for x in (through, plain)]
    assert agree[0] > agree[1]


def test_errors_are_of_texts_that_training_has_not_seen(shifted, shifted_lens) -> None:
    """By hand: the KL of one held-out text through the stored translator."""
    judged = shifted_lens.notes["held-out texts"]
    assert judged == 18  # 0.3 of 60
    assert judged + shifted_lens.notes["training texts"] == len(IDS)
    assert shifted_lens.per_prompt.shape[1] == judged
    order = [sorted(map(str, range(60)))[i] for i in np.random.default_rng(0).permutation(60)]
    at = min(int(i) for i in order[:judged])  # the first held-out text
    cache = shifted.capture([IDS[at]], ["resid_pre"])
    with torch.no_grad():
        x = translated(shifted_lens, 0, cache["resid_pre", 0][0])
        read = shifted.module.lm_head(shifted.module.transformer.ln_f(x)).log_softmax(-1)
        true = shifted.run([IDS[at]])[0].log_softmax(-1)
    row = [r["metric"] == "tuned lens" and r["depth"] == "embedding" for r in shifted_lens]
    want = float((true.exp() * (true - read)).sum(-1).mean())
    assert shifted_lens.per_prompt[row.index(True), 0] == pytest.approx(want, abs=1e-5)
    train = [int(i) for i in order[judged + 8 :]]  # a fifth of the others decides when to stop
    with torch.no_grad():
        common = torch.cat([shifted.run([IDS[i]])[0].softmax(-1) for i in train]).mean(0).log()
    want = float((true.exp() * (true - common)).sum(-1).mean())
    assert shifted_lens.nulls[row.index(True), 0] == pytest.approx(want, abs=1e-5)


def test_training_ends_before_other_texts_are_read_worse(shifted) -> None:
    streams, final, end, _ = _streams(shifted, Prompts.of(IDS[:2], shifted))
    x, last = ([one[at] for one in streams] for at in (0, -1))
    weight, bias = _trained(x, last, final, end, [0], [1], 60, 0.0)
    kept = _kl(final[1], end, x[1] + x[1] @ weight + bias)
    assert kept <= _kl(final[1], end, x[1])


def test_texts_that_stop_the_training_are_neither_trained_on_nor_judged(
    shifted, monkeypatch
) -> None:
    asked = []

    def trained(
        x: list, last: list, final: list, end: Any, train: list, stop: list, *rest: Any
    ) -> tuple:
        asked.append((train, stop))
        return torch.zeros(x[0].shape[1], x[0].shape[1]), torch.zeros(x[0].shape[1])

    monkeypatch.setattr(sys.modules["interp.lens.tuned"], "_trained", trained)
    found = tuned_lens(shifted, IDS[:10], steps=1)
    for train, stop in asked:
        assert (len(train), len(stop)) == (6, 1)
        assert not set(train) & set(stop)
        assert len(train) + len(stop) + found.notes["held-out texts"] == 10


def test_a_penalty_keeps_the_matrix_small(shifted) -> None:
    streams, final, end, _ = _streams(shifted, Prompts.of(IDS[:1], shifted))
    x, last = [streams[0][0]], [streams[0][-1]]
    free, small = (_trained(x, last, final, end, [0], [0], 60, l2)[0].norm() for l2 in (0.0, 30.0))
    assert small < 0.2 * free


def test_a_lens_that_nothing_can_improve_stays_the_identity(shifted) -> None:
    module = copy.deepcopy(shifted.module)
    with torch.no_grad():
        module.transformer.h[-1].mlp.c_proj.bias.zero_()
    found = tuned_lens(interp.load(module, name="same"), IDS[:6], steps=60)
    assert np.abs(found.matrices[-2]).max() < 1e-6
    assert found.per_prompt[-3:].max() < 1e-6


def test_wrong_arguments(shifted, shifted_lens, loaded) -> None:
    for options, line in (
        ({"held_out": 1.0}, "share between 0 and 1"),
        ({"steps": 0}, "at least"),
        ({"clusters": ["a"] * 60}, "1 clusters of texts"),
        ({"clusters": ["a"]}, "1 cluster labels for 60 texts"),
    ):
        with pytest.raises(OptionError, match=line):
            tuned_lens(shifted, IDS, **options)
    with pytest.raises(OptionError, match="at least 4 texts, not 3"):
        tuned_lens(shifted, IDS[:3])
    with pytest.raises(OptionError, match="trained on shifted"):
        logit_lens(loaded("gpt2"), IDS[:1], tuned=shifted_lens)


def test_the_command_tunes_and_reads(run, tmp_path) -> None:
    from interp.bundled.deceive_text import sentences

    file, out = tmp_path / "texts.txt", tmp_path / "lens.json"
    file.write_text("".join(s.text + "\n" for s in sentences(60_000, 12)))
    text = sentences(60_001, 1)[0].text
    done = run(
        "attribute",
        "lens",
        "bundled:deceive",
        "--text",
        text,
        "--tune",
        file,
        "-t",
        "she",
        "-o",
        out,
    )
    assert done.exit_code == 0, done.output
    assert "held-out texts" in done.output
    assert "300 steps of Adam per depth; training to convergence was 4 to 9 % lower" in done.output
    assert "tuned lens after" in done.output
    assert "she: rank" in done.output
    assert out.exists()
    done = run("attribute", "lens", "bundled:deceive")
    assert done.exit_code == 2
    assert "give --text" in done.output


def test_progress_is_told_by_depth(shifted) -> None:
    told: list[tuple[str, int, int]] = []
    found = tuned_lens(shifted, IDS, steps=2, progress=lambda *one: told.append(one))
    depths = len(found.to_pandas()["depth"].unique())
    assert told == [("tuned lens", at, depths) for at in range(depths + 1)]
