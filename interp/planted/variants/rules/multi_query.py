"""Multi-query (Shazeer 2019, arXiv:1911.02150): all heads share one key and one value."""

from __future__ import annotations

from torch import nn

from interp.planted.variants.rule import Rule, RuleShape


class MultiQueryRule(Rule):
    """Heads differ in their queries and their output matrices only."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.key, self.value = (nn.Linear(shape.d_model, shape.d_head, bias=False) for _ in "kv")
