"""Policies: what decides, from attention or from chosen heads, how a model goes on writing.

    from interp import policies

    model.generate(prompts, 20, policy=policies.decore(["L5H1", "L6H9"]))
    policies.simultaneous(model, pairs, "edatt", heads=["cross L1H2"])

Each published method is a class, or a function that makes a policy. A policy of your own is a
function of a `Step`; see `interp.model.policy`. Edits that act inside a step need no policy:
`interp.model.reweight`, or the redistribution of attention from visual sinks in
`interp.vision.language`.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
