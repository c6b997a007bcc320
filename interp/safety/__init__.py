"""Which heads a model declines with: the refusal direction, and scores of heads around it.

    prompts     harmful and harmless sets, from files or made of ids    prompts.py, marker.py
    direction   the difference of the sets' means, and what it does     direction.py, selection.py
    heads       what each writes along it, in one forward               projection.py
                what the next token loses without each                  removal.py
                how far the prompts' main axis turns without each       subspace.py
    curves      the top heads out one after another, and the damage     curves.py
    spread      over how many heads a score is spread                   concentration.py
    all of it   `study(model, harmful, harmless)`                       overview.py

None of these scores knows what harm is: they say what tells two sets of prompts apart. A score on
harmful prompts alone mixes what a head does for safety with what it does for everything, so each
comes with the same on harmless prompts.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
