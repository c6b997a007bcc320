"""Attribution: the contribution of each input token to a number that the model computes.

    target    the explained number                       target.py
    example   one input, its tokens, and the target      example.py
    method    a declared function                        folders `interp.attribution.methods` and
                                                         `interp.attribution.token_importance`
    result    one score per input token                  result.py

`attribute(model, text, "attn_lrp")` gives an `Attribution`.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, declared=("methods", "token_importance"))
