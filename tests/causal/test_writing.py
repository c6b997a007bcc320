"""What a model writes with heads scaled, against transformers' own generate with hooks."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from beside import STORIES, needs
from fixtures.commands import invoked

import interp
from interp.causal import generate_steered
from interp.causal.steering.writing import END, parting
from interp.core.errors import OptionError, PromptError
from interp.core.result_rows import ResultRows

NEW = 12


def by_hooks(
    module: Any,
    projections: dict[int, Any],
    width: int,
    ids: list[int],
    heads: list[tuple[int, int]],
    factor: float,
    **options: Any,
) -> list[int]:
    """Generate with transformers alone, the inputs of output projections scaled by hand."""

    def scaled(layer: int) -> Any:
        def hook(part: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            z = given[0].clone()
            for at, head in heads:
                if at == layer:
                    z[..., head * width : (head + 1) * width] *= factor
            return (z, *given[1:])

        return hook

    with ExitStack() as hooks, torch.no_grad(), torch.random.fork_rng():
        for layer in {layer for layer, _ in heads}:
            handle = projections[layer].register_forward_pre_hook(scaled(layer))
            hooks.callback(handle.remove)
        torch.manual_seed(3)
        given = torch.tensor([ids])
        mask = torch.ones_like(given)
        made = module.generate(
            given, attention_mask=mask, max_new_tokens=NEW, pad_token_id=0, **options
        )
    return made[0, len(ids) :].tolist()


def compared(model: Any, projections: dict[int, Any], width: int, text: str) -> ResultRows:
    """Return the rows on a text, after each of its texts was compared with hooks by hand."""
    ids, heads = model.tokenizer(text)["input_ids"], [(0, 3), (1, 2), (1, 3)]
    names = [f"L{layer}H{head}" for layer, head in heads]
    for temperature, options in (
        (0.0, {"do_sample": False}),
        (0.8, {"do_sample": True, "temperature": 0.8}),
    ):
        found = generate_steered(
            model,
            names,
            text,
            factors=(0, -2.5),
            max_new_tokens=NEW,
            n_random=1,
            seed=3,
            temperature=temperature,
        )
        plain = by_hooks(model.module, projections, width, ids, [], 1, **options)
        for row, factor in enumerate((0, -2.5)):
            changed = by_hooks(model.module, projections, width, ids, heads, factor, **options)
            assert list(found.ids[row]) == plain
            assert list(found.changed_ids[row]) == changed
            pairs = zip(plain, changed, strict=False)
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            assert at is not None
            assert found.score[row] == at
            assert found.position[row] == len(ids) + at
            assert found.token[row] == model.tokenizer.decode([plain[at]])
            assert found.changed_token[row] == model.tokenizer.decode([changed[at]])
            assert found.unchanged[row] == model.tokenizer.decode(plain)
            assert found.changed[row] == model.tokenizer.decode(changed)
    return found


def test_both_texts_are_those_of_transformers_with_hooks(bundled_induction) -> None:
    layers = dict(enumerate(bundled_induction.module.model.layers))
    projections = {at: layer.self_attn.o_proj for at, layer in layers.items()}
    text = "The cat sat on the mat. The cat sat on the"
    found = compared(bundled_induction, projections, bundled_induction.d_head, text)
    again = generate_steered(
        bundled_induction,
        ["L0H3", "L1H2", "L1H3"],
        [text, "a dog"],
        factors=(1,),
        max_new_tokens=6,
        n_random=0,
    )
    assert list(again.prompt) == ["prompt 1", "prompt 2"]
    assert (again.score == 6).all()  # a factor of 1 is the model itself
    assert np.isnan(again.position).all()
    assert np.isnan(again.null).all()
    assert list(again.token) == ["", ""]
    shown = repr(found)
    assert "‖" in shown
    assert "at position" in shown
    assert "1 random set of heads: for" in shown
    assert "The texts are the same, 6 new tokens." in repr(again)


@pytest.mark.slow
@needs(STORIES)
def test_a_real_model_writes_what_transformers_writes_with_hooks() -> None:
    model = interp.load(STORIES)
    blocks = dict(enumerate(model.module.transformer.h))
    projections = {at: block.attn.attention.out_proj for at, block in blocks.items()}
    compared(model, projections, model.d_head, "Once upon a time there was a little girl")


def test_the_mark_stands_where_the_texts_part() -> None:
    row = {
        "prompt": "prompt 1",
        "factor": 2.0,
        "score": 2.0,
        "null": np.nan,
        "position": 9.0,
        "token": " c",
        "changed_token": " x",
        "prompt_text": "start",
        "unchanged": " a b c d",
        "changed": " a b x",
    }
    about = {"model": "m", "options": {"n_random": 0}}
    found = ResultRows(
        "Continuations",
        {k: [v] for k, v in row.items()},
        ("prompt", "factor"),
        about,
        {"steered": ("L0H1",)},
    )
    lines = repr(found).splitlines()
    assert lines[2] == "  The texts are alike for 2 new tokens; at position 9 “ c” becomes “ x”."
    assert lines[3].split() == ["unchanged", "L0H1", "x", "2"]
    assert lines[4].replace(" ", "") == "ab‖cdab‖x"


def test_texts_part_where_one_ends() -> None:
    assert parting([1, 2, 3], [1, 2, 3]) is None
    assert parting([1, 2, 3], [1, 4, 3]) == 1
    assert parting([1, 2], [1, 2, 3]) == parting([1, 2, 3], [1, 2]) == 2
    assert parting([], []) is None
    assert END == "end of the text"


def test_what_cannot_be_written_is_refused(bundled_induction, loaded) -> None:
    for options, says in (
        ({"factors": ()}, "one or more different finite numbers"),
        ({"factors": (0, 0)}, "one or more different finite numbers"),
        ({"max_new_tokens": 0}, "max_new_tokens=0; give at least 1"),
        ({"n_random": -1}, "n_random must be at least 0, not -1"),
        ({"temperature": -1}, "temperature=-1.0; give 0 or a finite number above 0"),
    ):
        with pytest.raises(OptionError, match=says):
            generate_steered(bundled_induction, "L0H1", "a", **options)
    with pytest.raises(OptionError, match="no language-model head to generate"):
        generate_steered(loaded("bert"), "L0H1", [[5, 6, 7]])
    with pytest.raises(PromptError, match="positions"):
        generate_steered(loaded("gpt2"), "L0H1", [[5, 6, 7]], max_new_tokens=10**6)
    ids = generate_steered(loaded("gpt2"), "L0H1", [[5, 6, 7]], max_new_tokens=3, n_random=0)
    assert ids.prompt_text[0] == "5 6 7"  # without a tokenizer the texts are ids
    assert ids.unchanged[0] == " ".join(map(str, ids.ids[0]))


def test_the_command_writes_both_texts_side_by_side(bundled_induction, tmp_path) -> None:
    text = "The cat sat on the mat. The cat sat on the"
    args = [
        "steer",
        "bundled:induction",
        "--text",
        text,
        "--heads",
        "L1H3,L0H3",
        "--generate",
        "9",
        "--random",
        "1",
    ]
    result = invoked([*args, "-o", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    found = generate_steered(
        bundled_induction, ["L1H3", "L0H3"], text, max_new_tokens=9, n_random=1
    )
    assert f"at position {int(found.position[0])} “" in result.stdout
    lines = [line for line in result.stdout.splitlines() if "‖" in line]
    assert len(lines) == 1  # both columns of one line
    assert lines[0].count("‖") == 2
    stored = json.loads(next(tmp_path.rglob("steer.json")).read_text())
    assert found.changed[0] in json.dumps(stored, ensure_ascii=False)
    for wrong, says in (
        (["-n", "5"], "-n does not apply to --text"),
        (["--task", "ioi", "-m", "scale"], "--task, --method does not apply to --text"),
    ):
        refused = invoked([*args, *wrong])
        assert (refused.exit_code, says in refused.stderr) == (2, True), refused.stderr
    refused = invoked(["steer", "bundled:induction", "--heads", "L1H3", "--generate", "9"])
    assert (refused.exit_code, "--generate needs --text" in refused.stderr) == (2, True)
