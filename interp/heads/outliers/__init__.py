"""Attention that goes nowhere and numbers that are too large: sinks, no-ops, outliers.

    sinks.py        attention parked on one token, anywhere in a prompt; dormant on one domain only
    written.py      how much heads write, and how unevenly
    channels.py     massive values in queries and keys, and the test of what depends on them
    activations.py  infinity norm, kurtosis and massive activations of whole layers

All take prompts of your own. Scores of heads are also metrics (`interp score -m sink`), measured
there on random tokens.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.heads.outliers.activations import Outliers, layer_outliers
    from interp.heads.outliers.channels import (
        Disruption,
        Massive,
        disruption,
        massive,
        replace_channel,
    )
    from interp.heads.outliers.prompts import random_tokens
    from interp.heads.outliers.sinks import SinkMass, active_dormant, sink_mass
    from interp.heads.outliers.written import (
        kurtosis,
        result_inf_norm,
        result_kurtosis,
        value_shortfall,
        written_share,
    )

_WHERE = {
    "Disruption": "channels",
    "Massive": "channels",
    "Outliers": "activations",
    "SinkMass": "sinks",
    "active_dormant": "sinks",
    "disruption": "channels",
    "kurtosis": "written",
    "layer_outliers": "activations",
    "massive": "channels",
    "random_tokens": "prompts",
    "replace_channel": "channels",
    "result_inf_norm": "written",
    "result_kurtosis": "written",
    "sink_mass": "sinks",
    "value_shortfall": "written",
    "written_share": "written",
}

__all__ = [
    "Disruption",
    "Massive",
    "Outliers",
    "SinkMass",
    "active_dormant",
    "disruption",
    "kurtosis",
    "layer_outliers",
    "massive",
    "random_tokens",
    "replace_channel",
    "result_inf_norm",
    "result_kurtosis",
    "sink_mass",
    "value_shortfall",
    "written_share",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.heads.outliers' has no attribute {name!r}")
    return getattr(import_module(f"interp.heads.outliers.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
