from .attribution_method import check_attribution_method
from .circuit_method import check_circuit_method
from .contract import ContractError
from .metric import check_metric

__all__ = ["ContractError", "check_attribution_method", "check_circuit_method", "check_metric"]
