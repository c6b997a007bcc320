"""Contract checks of metrics, attribution methods and circuit methods, for those who write them.

    from interp.testing import check_metric

    def test_my_metric():
        check_metric("my_metric")

A check raises `ContractError`, whose sentence says what the contract is and how it is broken.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
