"""Expert choice (Piekos et al. 2025, MoSA, arXiv:2505.00315): a head takes a quarter of the tokens.

M_ij = r_i softmax_j(s_ij) over chosen i and j, r = sigmoid(w . x); other rows are zero. The choice
is over the whole prompt, so it sees later positions.
"""

from __future__ import annotations

from torch import nn

from interp.planted.variants.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    SeenBlock,
    Stream,
    among_largest,
)


class ExpertChoiceRule(Rule):
    """Each head has its own few tokens, as queries and as keys."""

    row_sum = "at most 1"
    causal = False
    share = 4  # one of so many tokens

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.router = nn.Linear(shape.d_model, shape.n_heads)

    def prepare(self, x: Stream) -> Projected:
        """Add the routing weights, and which tokens are chosen."""
        given = super().prepare(x)
        route = self.router(x).sigmoid().transpose(1, 2)
        chosen = among_largest(route, max(1, x.shape[1] // self.share))
        given.more |= {"route": route, "chosen": chosen}
        return given

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep chosen keys of chosen rows."""
        chosen = given.more["chosen"]
        return chosen[:, :, rows, None] & chosen[:, :, None]

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight the rows of chosen tokens by their route."""
        keys = given.more["chosen"][:, :, None]
        found = self.weights(self.scores(given, rows), keys.expand(-1, -1, len(rows), -1))
        return found * (given.more["route"] * given.more["chosen"])[:, :, rows, None]
