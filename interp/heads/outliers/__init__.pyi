from .activations import Outliers, layer_outliers
from .channels import Disruption, Massive, disruption, massive, replace_channel
from .entropies import layer_entropies
from .output_sizes import kurtosis, result_inf_norm, result_kurtosis, value_shortfall, written_share
from .sinks import SinkMass, active_dormant_sinks, sink_mass

__all__ = [
    "Disruption",
    "Massive",
    "Outliers",
    "SinkMass",
    "active_dormant_sinks",
    "disruption",
    "kurtosis",
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
