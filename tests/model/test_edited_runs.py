"""How edits combine, where they act, what they are called, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import zoo

import interp
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.edits import gate, mean, set_z, zero
from interp.model.pattern_edits import set_pattern, uniform

IDS = torch.tensor([[9, 33, 21, 40, 11, 52], [17, 30, 8, 44, 23, 61]])
RAGGED = Prompts(((9, 33, 21, 40, 11, 52), (17, 30, 8)))
LEFT = Prompts(RAGGED.ids, padding="left")


def changed(model: interp.Model, prompts: Any, positions: Any) -> list[list[int]]:
    """The columns in which an edit of L1H3 acts, for each prompt."""
    edit = set_z("L1H3", torch.tensor(7.0), positions=positions)
    z = model.capture(prompts, ["z"], edits=[edit])["z", 1][:, 3]
    return [(row == 7).all(-1).nonzero().flatten().tolist() for row in z]


@pytest.mark.parametrize(
    ("positions", "want"),
    [
        (0, [[0], [0]]),
        ([1, 2], [[1, 2], [1, 2]]),
        (-1, [[5], [2]]),
        ([4], [[4], []]),
        (slice(1, None), [[1, 2, 3, 4, 5], [1, 2]]),
        (slice(-2, None), [[4, 5], [1, 2]]),
        (slice(None, None, 2), [[0, 2, 4], [0, 2]]),
        (slice(5, 9), [[5], []]),
        (range(2), [[0, 1], [0, 1]]),
    ],
)
@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_positions_count_each_prompts_own_tokens(loaded, name, positions, want):
    model = loaded(name)
    assert changed(model, RAGGED, positions) == want
    shifted = [want[0], [column + 3 for column in want[1]]]
    assert changed(model, LEFT, positions) == shifted


def test_a_position_no_prompt_has_is_refused(loaded):
    for positions in ([6], -7, [0, 9]):
        with pytest.raises(OptionError, match=r"the longest prompt has 6 tokens \(0 to 5\)"):
            loaded("llama").run(RAGGED, edits=[zero("L1H3", positions=positions)])


def test_edits_reach_only_the_stack_that_is_named(loaded):
    model, inputs = loaded("bart"), zoo.FAMILIES["bart"].inputs()
    plain = model.capture(inputs, ["z"])
    for stack in model.stacks:
        cache = model.capture(inputs, ["z"], edits=[zero("L0H2", stack=stack)])
        assert not cache["z", 0, stack][:, 2].any()
        untouched = [s for s in model.stacks if s != stack and s == "encoder"]
        assert all(torch.equal(cache["z", 0, s], plain["z", 0, s]) for s in untouched)
        assert all(cache["z", 0, s][:, 2].any() for s in model.stacks if s != stack)
        assert cache.edits == (f"zero({stack} L0H2)",)
    with pytest.raises(OptionError, match="several stacks; name one of encoder, decoder, cross"):
        model.run(inputs, edits=[zero("L0H2")])
    with pytest.raises(OptionError, match="no stack 'crosss'; bart has encoder, decoder, cross"):
        model.run(inputs, edits=[zero("L0H2", stack="crosss")])


def test_the_outer_edit_acts_first(loaded):
    """Doubling then setting is setting; setting then doubling is twice the value."""
    for name in ("llama", "bloom"):
        model = loaded(name)
        double, put = gate("L1H3", 2.0), set_z("L1H3", torch.tensor(1.0))
        with model.edited(double), model.edited(put):
            inner = model.capture(IDS, ["z"])
        with model.edited(put), model.edited(double):
            outer = model.capture(IDS, ["z"])
        assert (inner["z", 1][:, 3] == 1).all()
        assert (outer["z", 1][:, 3] == 2).all()
        assert outer.edits == ("set(L1H3)", "gate(L1H3; factor=2)")
        together = model.capture(IDS, ["z"], edits=[put, double])
        assert torch.equal(together["z", 1], outer["z", 1])
        with model.edited(put):  # an argument lies inside the block around the call
            argument = model.capture(IDS, ["z"], edits=[double])
        assert torch.equal(argument["z", 1], outer["z", 1])
        assert argument.edits == outer.edits
        assert torch.equal(argument.logits, outer.logits)


@pytest.mark.parametrize("name", ["llama", "bloom", "t5", "vit", "albert"])
def test_block_argument_and_the_callers_own_run_are_one_intervention(loaded, name):
    model, inputs = loaded(name), zoo.FAMILIES[name].inputs()
    stack = model.stacks[-1]
    edits = (zero((1, 0), stack=stack), uniform((0, 4), stack=stack))
    with torch.no_grad():
        argument = model.run(inputs, edits=edits)
        with model.edited(*edits):
            block = model.run(inputs)
            own = zoo.output(model.module(**inputs))
        after = model.run(inputs)
        plain = zoo.output(model.module(**inputs))
    assert torch.equal(block, argument)
    torch.testing.assert_close(own, argument, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(after, plain, atol=1e-6, rtol=1e-6)
    assert (plain - own).abs().max() > 1e-4


def test_names_say_what_where_and_travel(loaded):
    model = loaded("llama")
    reference = model.mean_z(RAGGED)
    edits = {
        "zero(L1H3)": zero("L1H3"),
        "mean-batch(L1H3, L2H0)": mean(["L1H3", (2, 0)], over="batch"),
        "mean-position(L1H3 at 2)": mean("1.3", over="position", positions=2),
        "mean-dataset(L1H3)": mean("L1H3", over="dataset", reference=reference),
        "uniform-attention(decoder L1H3)": uniform("L1H3", stack="decoder"),
        "gate(L1H3; factor=0.5)": gate("L1H3", 0.5),
        "set(L1H3)": set_z("L1H3", torch.zeros(8)),
        "pattern(L1H3)": set_pattern("L1H3", lambda p: p),
    }
    assert {edit.name for edit in edits.values()} == set(edits)
    assert model.active_edits == ()
    with model.edited(*edits.values()):
        assert model.active_edits == tuple(edits)
        assert model.capture(IDS, []).edits == tuple(edits)
    assert model.active_edits == ()
    assert model.capture(IDS, []).edits == ()


def test_an_exception_in_an_edit_restores_everything(loaded):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = loaded("llama")
    plain = model.run(IDS)

    def fail(pattern):
        raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        model.run(IDS, edits=[set_pattern("L1H3", fail)])
    assert model.active_edits == ()
    assert not ALL_ATTENTION_FUNCTIONS._local_mapping
    assert torch.equal(model.run(IDS), plain)


def test_edits_flow_gradients_to_the_values(loaded):
    """Under an edited pattern the loss still depends on the values, and on the factor of a gate."""
    model = loaded("llama")
    value = torch.zeros(8, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.run(IDS, edits=[set_z("L1H3", value)])[0, -1, 5], value)
    assert gradient.abs().max() > 1e-4
    pattern = torch.full((6, 6), 1 / 6).tril().requires_grad_()
    logit = model.run(IDS, edits=[set_pattern("L1H3", pattern)])[0, -1, 5]
    (gradient,) = torch.autograd.grad(logit, pattern)
    assert gradient[-1].abs().min() > 1e-6


def test_what_does_not_fit_is_refused_in_one_line(loaded):
    model = loaded("llama")
    for edit, text in (
        (zero("L1H6"), "llama has no head L1H6; it has 6 heads in layer 1"),
        (zero("L3H0"), r"llama has no head L3H0; it has layers \[0, 1, 2\]"),
        (set_z("L1H3", torch.zeros(9)), r"set at decoder\.1: a value of shape \(9,\) does not"),
        (set_pattern("L1H3", torch.zeros(5, 5)), r"pattern at decoder\.1: a value of shape \(5, 5"),
    ):
        with pytest.raises(OptionError, match=text) as error:
            model.run(IDS, edits=[edit])
        assert "\n" not in str(error.value)
    for make, text in (
        (lambda: zero([]), "an edit without heads"),
        (lambda: zero(["L1H3", (1, 3)]), "named twice"),
        (lambda: zero("head three"), "cannot read 'head three' as a head"),
        (lambda: gate(["L1H3", "L1H4"], torch.ones(3)), "give one per head"),
        (lambda: mean("L1H3", over="dataset"), "needs reference"),
        (lambda: mean("L1H3", reference={}), "takes no reference"),
        (lambda: mean("L1H3", over="median"), "known: batch, position, dataset"),  # type: ignore[arg-type]
    ):
        with pytest.raises(OptionError, match=text):
            make()
    with pytest.raises(OptionError, match=r"has no decoder\.1"):
        model.run(IDS, edits=[mean("L1H3", over="dataset", reference={})])
