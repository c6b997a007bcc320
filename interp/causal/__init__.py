"""Which heads matter: what a task loses without them, with error bars, exactly and fast.

    task    prompts and one number per prompt             task.py, measures.py
    game    that number for any set of heads taken out    game.py
    scores  one head at a time                            ablation.py
            all heads from one backward pass              gradient.py
            shared among all who could do the work        shapley_scores.py, banzhaf_scores.py
            pairs that stand in for or need each other    pairs.py
    curves  heads out one after another, by a ranking     pruning.py
    compare several scores side by side                   comparison.py
    texts   how much heads matter for each of many texts  influence.py

A `Game` is what every estimator plays: `game.values(gates)` gives the task's number per prompt for
each row of gates (1 = the head works, 0 = it is replaced), with the same prompts for every row.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
