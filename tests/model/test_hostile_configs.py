"""Configs of strangers: numbers that are not finite, code of the hub, and deep documents."""

from __future__ import annotations

import json
import shutil

import pytest
from together import over

import interp
from interp import bundled
from interp.core.errors import LoadError, NonFiniteError

CASES = {
    '{"rms_norm_eps": Infinity}': (NonFiniteError, "rms_norm_eps = inf"),
    '{"layer_norm_eps": NaN}': (NonFiniteError, "layer_norm_eps = nan"),
    '{"deep": {"a": [{"scale": -Infinity}]}}': (NonFiniteError, "deep.a.scale = -inf"),
    '{"_attn_implementation": "kernels-community/flash-attn"}': (LoadError, "--trust-remote-code"),
    '{"attn_implementation": "someone/kernel@main:attn"}': (LoadError, "--trust-remote-code"),
    '{"eps": 1e999}': (LoadError, "too large"),
}


@over("change", [*CASES])
def test_a_config_that_misleads_is_refused(change: str, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("model")
    source = bundled.path("induction")
    for path in source.glob("*.*"):
        shutil.copy(path, folder)
    config = (folder / "config.json").read_text().rstrip().removesuffix("}")
    (folder / "config.json").write_text(f"{config}, {change[1:-1]}}}")
    error, told = CASES[change]
    with pytest.raises(error) as caught:
        interp.load(str(folder))
    assert told in str(caught.value)


def test_an_upper_limit_may_be_infinite_and_depth_may_not(tmp_path) -> None:
    for path in bundled.path("induction").glob("*.*"):
        shutil.copy(path, tmp_path)
    whole = json.loads((tmp_path / "config.json").read_text())
    limited = whole | {"time_step_limit": [0.0, float("inf")]}
    (tmp_path / "config.json").write_text(json.dumps(limited))
    assert interp.load(str(tmp_path)).sites
    (tmp_path / "config.json").write_text('{"a":' * 200_000)
    with pytest.raises(LoadError, match="nested deeper"):
        interp.load(str(tmp_path))
