"""The table beside other packages: ratios within each run, medians, differences, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.beside import difference, page, summary


def row(seconds: float, values: Any) -> dict[str, Any]:
    return {"seconds": seconds, "mib": 10.0, "values": values}


def test_ratios_are_taken_within_each_run() -> None:
    runs = [
        {
            "beside_interp": {"lens": row(ours, [1.0, 4.0])},
            "beside_transformer_lens": {"lens": row(theirs, [1.0, 3.0])},
            "beside_captum": {"lens": {"error": "ValueError: no | lens"}},
        }
        | {name: {} for name in ("beside_nnterp", "beside_interpkit", "beside_inseq")}
        | {"beside_auto_circuit": {}}
        for ours, theirs in ((1.0, 2.0), (10.0, 30.0), (2.0, 8.0))
    ]
    ours, lens, captum = summary(runs)
    assert (ours["seconds"], ours["ratio"]) == (2, 1)
    # the ratio of the medians would be 4
    assert (lens["seconds"], lens["ratio"], lens["ratios"]) == (8, 3, [2, 4])
    assert lens["difference"] == pytest.approx(1 / 4)
    text = page({"runs": 3, "cpu": "x", "versions": "v", "records": [ours, lens, captum]})
    assert "| TransformerLens 4.3.0 | 8.00 | 3.00 (2.00 to 4.00) | 10 | 2e-01 |" in text
    assert "| captum 0.9.0 | failed: ValueError: no \\| lens | | | |" in text


def test_edges_are_compared_by_their_names() -> None:
    assert difference({"a>b": 2.0, "b>c": 1.0}, {"b>c": 0.0, "a>b": 2.0, "x>y": 9.0}) == 0.5
    assert np.isnan(difference([1.0], [1.0, 2.0]))
