"""Key-value caches of heads: what each must keep, the measured loss of a cut, and plans.

    from interp.heads import kv_cache

    kv_cache.retrieval_methods(model).agreement()      # published methods side by side
    kv_cache.cache_cards(model, texts).budgets()       # tokens that each head's cache needs
    plan = kv_cache.cache_plan(model, texts, budget="40%")
    plan.export("patterns", "duo")

The command is `interp cache`. Importing this package does not load torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
