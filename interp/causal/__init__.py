"""Causal importance of attention heads: the effect of their removal on a task, with error bars.

    task    prompts and one number per prompt              task.py, measures.py
    game    that number with any set of heads ablated      game/
    scores  one head at a time                             ablation.py
            all heads from one backward pass               gradient.py
            credit shared among redundant heads            shapley_values/
            pairs that are redundant or interdependent     pairs.py
    gates   learned switches on heads and MLPs             gating/
    curves  heads removed one after another, by a ranking  pruning/
    save    a checkpoint without some heads, certificate  checkpoint/
    compare several scores side by side                    comparison/
    texts   effect of heads on each of many texts          influence/

Every estimator evaluates a `Game`: `game.values(gates)` returns the task's number per prompt for
each row of gates (1 = the head is active, 0 = it is replaced), with the same prompts for every row.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
