"""Contract checks of metrics, attribution methods and circuit methods, for those who write them.

    from interp.testing import check_metric

    def test_my_metric():
        check_metric("my_metric")

A check raises `ContractError`, whose sentence says what the contract is and how it is broken.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
