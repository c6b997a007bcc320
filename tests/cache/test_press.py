"""Plans as presses of kvpress, which needs an environment of its own (transformers below 5.3).

There interp does not load models, so a plan comes from its file.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import interp
from interp.cache import CachePlan
from interp.cache.windows import KVHead, Window
from interp.core.errors import OptionError

HERE = importlib.util.find_spec("kvpress") is not None
WINDOWS = (Window(2, 4), None, Window(2, 4), Window(1, 7))


def plan_of(windows: tuple[Window | None, ...]) -> CachePlan:
    heads = tuple(KVHead("decoder", i // 2, i % 2) for i in range(4))
    few = np.zeros(2)
    made = {"model_id": "tiny", "content_hash": "0"}
    return CachePlan(heads, windows, (8,) * 4, (40,) * 4, (0.0,) * 4, 40, 0.1, 0.95, few, few, made)


def masked(module, query, key, value, attention_mask, scaling=None, **_: Any) -> Any:
    """Attention of one query to what the plan keeps, or of many to all before them."""
    total, rows = key.shape[2], query.shape[2]
    at, query_at = torch.arange(total), torch.arange(total - rows, total)[:, None]
    outs = []
    for h in range(query.shape[1]):
        kv = h * key.shape[1] // query.shape[1]
        window, kept = WINDOWS[2 * module.layer_idx + kv], at <= query_at
        if window is not None and rows == 1:
            kept = kept & ((at < window.sink) | (query_at - at < window.recent))
        scores = query[:, h] @ key[:, kv].transpose(1, 2) * scaling
        outs.append(scores.masked_fill(~kept, -1e30).softmax(-1) @ value[:, kv])
    return torch.stack(outs, 2), None


@pytest.mark.skipif(not HERE, reason="kvpress is not installed: it needs transformers below 5.3")
def test_kvpress_loads_the_press_and_hides_what_the_plan_does_not_keep(tmp_path) -> None:
    import kvpress  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
        "intermediate_size": 32,
        "vocab_size": 40,
        "initializer_range": 0.3,
        "attn_implementation": "sdpa",
    }
    module = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    plain = copy.deepcopy(module)
    plan_of(WINDOWS).save(tmp_path / "plan.json")
    press = CachePlan.load(tmp_path / "plan.json").press()
    assert isinstance(press, kvpress.BasePress)
    ids = torch.randint(0, 40, (1, 24))

    def next_logits(model: LlamaForCausalLM) -> torch.Tensor:
        cache = DynamicCache()
        model(ids[:, :-1], past_key_values=cache)
        return model(ids[:, -1:], past_key_values=cache).logits

    with torch.no_grad():
        full = next_logits(plain)
        ALL_ATTENTION_FUNCTIONS["masked"] = masked
        plain.config._attn_implementation = "masked"
        wanted = next_logits(plain)
        with press(module):
            found = next_logits(module)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)
    assert not torch.allclose(found, full, atol=1e-3)


@pytest.mark.skipif(HERE, reason="kvpress is installed")
def test_without_kvpress_one_line_says_what_to_install() -> None:
    with pytest.raises(OptionError, match="pip install kvpress"):
        plan_of(WINDOWS).press()


def test_a_kvpress_that_does_not_fit_is_not_called_missing(tmp_path, monkeypatch) -> None:
    """Of every optional package: its own error is shown, not the command that installs it."""
    (tmp_path / "kvpress.py").write_text("from transformers import no_such_class\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kvpress", raising=False)
    with pytest.raises(OptionError, match=r"is installed and cannot be imported .*no_such_class"):
        plan_of(WINDOWS).press()


def test_every_optional_import_tells_missing_from_broken() -> None:
    """What is raised for an `ImportError` is made by `package_error`, which tells the two apart."""
    handlers = [
        (path.name, node)
        for path in Path(interp.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and isinstance(node.type, ast.Name)
        and node.type.id in ("ImportError", "ModuleNotFoundError")
    ]
    raised = [
        (name, ast.unparse(inner.exc))
        for name, node in handlers
        for inner in ast.walk(node)
        if isinstance(inner, ast.Raise) and inner.exc is not None
    ]
    assert len(raised) > 9
    assert not [x for x in raised if not re.match(r"_?package_error\(|no_pillow\(", x[1])]
