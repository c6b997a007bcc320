"""Compiled programs: layers that write nothing on most inputs are read like all others."""

from __future__ import annotations

import pytest

import interp

pytest.importorskip("tracr", reason="tracr-pypi is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:jax"),
]

NAMES = ("frac_prevs", "reverse", "sort", "hist", "pair_balance")


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_is_attention_and_then_an_mlp(name):
    from tracr.compiler import compiling, lib
    from tracr.rasp import rasp

    from interp.planted.compiled import compiled

    program, words, longest = {
        "frac_prevs": (lib.make_frac_prevs(rasp.tokens == "x"), {"x", "a", "b"}, 6),
        "reverse": (lib.make_reverse(rasp.tokens), {1, 2, 3, 4}, 5),
        "sort": (lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=5, min_key=1), {1, 2, 3}, 5),
        "hist": (lib.make_hist(), {"a", "b", "c"}, 5),
        "pair_balance": (lib.make_pair_balance(rasp.tokens, "(", ")"), {"(", ")"}, 6),
    }[name]
    made = compiling.compile_rasp_to_model(program, words, longest, compiler_bos="BOS")
    model = interp.load(compiled(made, output=program.label, name=name).module, name=name)
    for i, site in enumerate(model.sites):
        assert {n: (w.module, w.side, w.scale) for n, w in site.streams.items()} == {
            "resid_pre": (f"layers.{i}", "in", 1.0),
            "attn_out": (f"layers.{i}.attn.linear", "out", 1.0),
            "resid_mid": (f"layers.{i}.mlp.linear_1", "in", 1.0),
            "mlp_out": (f"layers.{i}.mlp.linear_2", "out", 1.0),
            "resid_post": (f"layers.{i}", "out", 1.0),
        }
