"""Differences of two models and of two prompts: planted causes, sums, and nulls."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import interp
from interp.attribution import explain_difference
from interp.bundled.deceive_text import MEN, WOMEN, sentences
from interp.core.errors import OptionError, PromptError

SAID = [s for s in sentences(50_000, 40) if s.right == "she"][:8]


@pytest.fixture(scope="module")
def names_model():
    return interp.load("bundled:deceive")


def swapped(s) -> str:
    return " ".join(MEN[0] if i == s.cause else w for i, w in enumerate(s.words))


def test_the_swapped_name_is_behind_the_difference_of_two_prompts(names_model) -> None:
    pairs = [s.text for s in SAID], [swapped(s) for s in SAID]
    found = explain_difference(
        names_model, pairs[0], "deeplift", "token:she|he", other_prompts=pairs[1], per="token"
    )
    frame = found.to_pandas()
    whole = frame[frame["metric"] == "target"].iloc[0]
    assert whole["score"] > 8
    assert whole["p"] == pytest.approx(2 / 2 ** len(SAID))
    rows = np.nansum(found.per_prompt[:-1], 0)
    np.testing.assert_allclose(rows, found.per_prompt[-1], atol=1e-3)  # deeplift is complete
    assert found.notes["largest |difference - sum of contributions| of a pair (logit)"] < 1e-3
    by_position = explain_difference(
        names_model, pairs[0][:1], "deeplift", "token:she|he", other_prompts=pairs[1][:1]
    )
    rows = by_position.per_prompt[:-1].sum(0)
    np.testing.assert_allclose(rows, found.per_prompt[-1][:1], atol=1e-3)
    by_rules = explain_difference(
        names_model, pairs[0], "attn_lrp", "token:she|he", other_prompts=pairs[1], per="token"
    ).to_pandas()
    by_rules = by_rules[by_rules["metric"] != "target"].set_index("token")["score"].abs()
    names = by_rules.index.isin([*WOMEN, *MEN])
    # the special token and the last one, at which the answer is given, stand for the whole text
    others = ~names & ~by_rules.index.isin(["<s>", *(s.words[-1] for s in SAID)])
    assert by_rules[names].min() > by_rules[others].max()


def test_two_models_differ_in_the_token_whose_embedding_was_changed(names_model) -> None:
    module = copy.deepcopy(names_model.module)
    anna, adam = names_model.tokenizer.convert_tokens_to_ids(["Anna", "Adam"])
    with torch.no_grad():
        module.get_input_embeddings().weight[anna] = module.get_input_embeddings().weight[adam]
    other = interp.load(module, tokenizer=names_model.tokenizer, name="changed")
    texts = [
        "the bird sings and with Anna falls so",
        "the old bird and with Anna sings so",
        "the bird falls by the red garden and with Anna sings so",
    ]
    found = explain_difference(
        names_model, texts, "deeplift", "token:she|he", other_model=other, per="token"
    ).to_pandas()
    best = found[found["metric"] != "target"].set_index("token")["score"].abs().idxmax()
    assert best == "Anna"


def test_equal_models_and_prompts_give_zero_with_p_one(names_model) -> None:
    texts = [s.text for s in SAID[:3]]
    found = explain_difference(
        names_model, texts, "occlusion:how=mean", "token:she|he", other_prompts=texts, per="token"
    )
    assert np.nanmax(np.abs(found.per_prompt)) == 0
    assert (found.to_pandas()["p"] == 1).all()


def test_what_does_not_correspond_is_refused(names_model) -> None:
    one, two = "the bird sings", "the bird"
    for options, error, line in (
        ({}, OptionError, "nothing to compare with"),
        ({"other_prompts": [two]}, OptionError, "have 4 and 3 tokens"),
        ({"other_prompts": [one, two]}, OptionError, "1 prompts and 2 other prompts"),
        ({"other_prompts": [one], "per": "word"}, OptionError, "known: position, token"),
    ):
        with pytest.raises(error, match=line):
            explain_difference(names_model, [one], "deeplift", "she", **options)
    with pytest.raises(OptionError, match=r"different vocabularies.*name what to explain"):
        explain_difference(names_model, [one], other_model="bundled:induction", per="token")
    with pytest.raises(PromptError, match="no prompts given"):
        explain_difference(names_model, [], other_model=names_model)


def test_the_command_prints_the_name_first(run, tmp_path) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text("".join(f"{s.text}\t{swapped(s)}\n" for s in SAID[:4]))
    done = run("attribute", "difference", "bundled:deceive", "--file", file, "-t", "she|he")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith("difference of logit of 'she' minus 'he' at position -1: +")
    assert lines[2].split()[0] in {*WOMEN, *MEN}
    file.write_text("one text\n")
    done = run("attribute", "difference", "bundled:deceive", "--file", file)
    assert done.exit_code == 1
    assert "line 1 does not hold two prompts" in done.output
