"""Key-value caches of heads: what each must keep, the measured loss of a cut, and plans.

    from interp import cache

    cache.retrieval_methods(model).agreement()      # published methods side by side
    cache.cache_cards(model, texts).budget          # tokens that each head's cache needs
    plan = cache.cache_plan(model, texts, budget="40%")
    plan.export("patterns", "duo")

The command is `interp cache`. Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, declared=("metrics",))
