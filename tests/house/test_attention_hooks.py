"""Only edits and gradients hook a forward pass themselves; everything else reads through `Model`.

`Transformer.read` runs prompts once and hands every attention call to a visitor. Code outside
`interp/model/` that opens `visited` by itself is listed here with its reason.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "interp"
ALLOWED = {
    "attribution/evaluation/hiding.py": "edit: a token is hidden from the attention of others",
    "attribution/gradients.py": "gradient: by patterns, or every head's output, kept in the graph",
    "attribution/methods/occlusion.py": "edit: one token's value is set to zero",
    "attribution/rules.py": "gradient: the rules of a backward pass",
    "lens/jacobian.py": "gradient: of the last stream by the output of every head",
    "circuits/why/share_check.py": "edit: one writer's part is removed from a head's input",
    "causal/game/chain.py": "edit: a run with gated heads, which keeps z for the next one",
    "causal/game/replay.py": "edit: heads are gated, in the run and in what is put back",
    "causal/gate_derivatives.py": "gradient: by the gate of every head",
    "causal/gating/gated_task.py": "gradient: by the gates of heads and groups of heads",
    "circuits/methods/_gradients.py": "gradient: by what every head reads and writes",
    "circuits/methods/_seeds.py": "gradient: by the output of every head",
    "circuits/stream_hooks.py": "edit: blocks are run again on changed streams, queries or keys",
    "profiles/claim_effect.py": "edit: a head attends as a hypothesis says",
    "profiles/gradient_look.py": "gradient: by every head's output, kept in the graph",
}
SITES = 17
"""Calls of `visited` in these files, two of them in `replay.py`."""


def hooked() -> list[str]:
    """Files outside `interp/model/` of every call of `visited`, once per call."""
    return [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.rglob("*.py"))
        if not path.is_relative_to(ROOT / "model")
        if "visited" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr == "visited"
    ]


def test_only_edits_and_gradients_hook_a_forward_pass() -> None:
    found = hooked()
    assert set(found) == set(ALLOWED)
    assert len(found) == SITES


def test_no_callers_module_is_asked_for_its_state_dict() -> None:
    """It may write (packed weights); `interp.model.content.saved_tensors` gives the same names."""
    found = {
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.rglob("*.py"))
        if "state_dict" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr == "state_dict"
    }
    # both work on a copy that is about to be saved, of a model whose weights are not packed
    assert found <= {"causal/checkpoint/forms.py", "causal/checkpoint/mlps.py"}
