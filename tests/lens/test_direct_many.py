"""Direct logits over many prompts against single prompts, planted heads, and the null."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.lens import direct_logit_attribution, direct_logits
from interp.lens.direct_many import _groups

IDS = [[5, 9, 3, 11, 7, 2, 8], [4, 12, 6, 3], [9, 9, 2, 14, 6]]


@pytest.fixture(scope="module")
def repeated():
    model = interp.load("bundled:induction")
    ids = interp.repeats(model, n=10).ids
    return model, [x[:-1] for x in ids], [x[-1] for x in ids]


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "granite"])
def test_rows_are_the_means_of_single_prompts(family: str, loaded) -> None:
    model = loaded(family)
    found = direct_logits(model, IDS, [6, 7, 8], [4, 5, 3], position=-2)
    single = [
        direct_logit_attribution(model, [ids], t, contrast=c, position=-2)
        for ids, t, c in zip(IDS, [6, 7, 8], [4, 5, 3], strict=True)
    ]
    names = list(found.columns["part"])
    for i, one in enumerate(single):
        assert dict(zip(names, found.per_prompt[:, i], strict=True)) == pytest.approx(
            one.parts, abs=1e-6
        )
        assert found.per_prompt[:, i].sum() == pytest.approx(one.value, abs=1e-4)


def test_sources_of_a_head_sum_to_its_part(repeated, loaded) -> None:
    for model, ids, targets in ((loaded("qwen3"), IDS, [6, 7, 8]), repeated):
        whole = direct_logits(model, ids, targets)
        by_source = direct_logits(model, ids, targets, split="source")
        for (layer, head), rows in by_source.to_pandas().groupby(["layer", "head"]):
            at = [k for k, one in enumerate(whole) if one["part"] == f"L{layer}H{head}"]
            np.testing.assert_allclose(
                by_source.per_prompt[rows.index].sum(0), whole.per_prompt[at[0]], atol=1e-5
            )


def test_positions_are_grouped_by_what_their_token_is() -> None:
    ids = [5, 9, 3, 9, 7, 2]
    assert _groups(ids, 5, 9, 7) == {
        "target": [1, 3],
        "contrast": [4],
        "first": [0],
        "self": [5],
        "other": [2],
    }
    assert _groups(ids, 2, 5, None) == {
        "target": [0],
        "contrast": [],
        "first": [],
        "self": [2],
        "other": [1, 3, 4, 5],
    }


def test_the_null_is_of_random_targets_and_contrasts(loaded) -> None:
    model = loaded("gpt2")
    found = direct_logits(model, IDS[:1], 6, 4, n_random=2, seed=3)
    drawn = np.random.default_rng(3).choice(model.d_vocab, (2, 2)).tolist()
    each = [[direct_logit_attribution(model, IDS[:1], t).parts for t in row] for row in drawn]
    for at, one in enumerate(found):
        targets, contrasts = ([x[one["part"]] for x in row] for row in each)
        want = np.mean(targets) - np.mean(contrasts)
        assert found.nulls[at, 0] == pytest.approx(want, abs=1e-6)


def test_induction_heads_write_the_repeated_token_and_random_tokens_get_nothing(repeated) -> None:
    found = direct_logits(*repeated).to_pandas()
    heads = found[found["head"].notna()]
    best = heads.sort_values("score").iloc[-1]
    assert best["layer"] == 1
    assert best["low"] > 1
    assert best["p_holm"] < 0.05
    assert heads["null"].abs().max() < 0.3
    source = direct_logits(*repeated, split="source").top(3).to_pandas()
    assert set(source["source"]) == {"target"}


def test_a_random_target_is_no_more_significant_than_chance(loaded) -> None:
    model, rng = loaded("gpt2"), np.random.default_rng(4)
    ids = [rng.integers(3, 60, 6).tolist() for _ in range(10)]
    found = direct_logits(model, ids, rng.integers(3, 60, 10).tolist(), seed=1).to_pandas()
    assert (found["p_holm"] > 0.05).all()


def test_what_does_not_fit_is_refused(loaded) -> None:
    model = loaded("gpt2")
    for options, error, line in (
        ({"targets": [6, 7]}, OptionError, "2 targets for 3 prompts"),
        ({"targets": 6, "contrasts": 6}, OptionError, "contrast is the target itself"),
        ({"targets": 6, "split": "neuron"}, OptionError, "known: part, source"),
        ({"targets": 6, "n_random": 0}, OptionError, "at least 1"),
        ({"targets": 6, "position": 5}, OptionError, "position 5 is out of range"),
        ({"targets": 100_000}, PromptError, "token id 100000"),
    ):
        with pytest.raises(error, match=line):
            direct_logits(model, IDS, **options)
    with pytest.raises(OptionError, match="has stacks"):
        direct_logits(loaded("t5"), IDS, 6)
    with pytest.raises(UnreadableAttention):
        direct_logits(loaded("bert"), IDS, 6)


def test_the_command_prints_intervals_and_nulls(run, tmp_path) -> None:
    from interp.bundled.deceive_text import sentences

    file = tmp_path / "texts.txt"
    file.write_text("".join(f"{s.text}\t{s.right}|{s.wrong}\n" for s in sentences(60_000, 6)))
    for split, name in (("part", "MLP 0"), ("source", "from ")):
        done = run(
            "attribute",
            "lens",
            "bundled:deceive",
            "--direct",
            file,
            "--per",
            split,
            "--top",
            40,
        )
        assert done.exit_code == 0, done.output
        assert name in done.output
        assert "null " in done.output
    file.write_text("the bird sings\n")
    done = run("attribute", "lens", "bundled:deceive", "--direct", file)
    assert done.exit_code == 2
    assert "line 1 has no target" in done.output
