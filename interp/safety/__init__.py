"""Safety: the refusal direction of a model, and the heads behind refusal.

    prompts     harmful and harmless sets, from files or made of ids    prompts.py, marker.py
    direction   the difference of the sets' means, and its effect       direction.py, selection.py
    heads       projection of each head's output on it                  projection.py
                change of the next token by ablating each head          removal.py
                rotation of the prompts' main axis by ablating heads    subspace.py
    curves      cumulative ablation of the top heads, and the damage    curves.py
    spread      concentration of a score across heads                   concentration.py
    study       all of these: `study(model, harmful, harmless)`         overview.py

These scores do not measure harm: they separate two sets of prompts. A score on harmful prompts
alone mixes the effect on safety with the effect on everything else, so each is compared with the
same score on harmless prompts.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
