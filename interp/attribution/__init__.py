"""Which input tokens a number of the model comes from.

    target    the number that is explained               target.py
    example   one input, its tokens, and the target      example.py
    method    one declared function per file             the room `interp.attribution.methods`
    result    a score per input token                    result.py

`attribute(model, text, "attn_lrp")` gives an `Attribution`.
"""

from interp.core.face import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, declared=("methods",))
