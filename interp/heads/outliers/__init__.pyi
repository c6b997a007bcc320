from .activations import (
    layer_outliers,
    result_inf_norm,
    result_kurtosis,
    value_shortfall,
    written_share,
)
from .channels import disruption, massive, replace_channel
from .entropies import layer_entropies
from .sinks import active_dormant_sinks, sink_mass

__all__ = [
    "active_dormant_sinks",
    "disruption",
    "layer_entropies",
    "layer_outliers",
    "massive",
    "replace_channel",
    "result_inf_norm",
    "result_kurtosis",
    "sink_mass",
    "value_shortfall",
    "written_share",
]
