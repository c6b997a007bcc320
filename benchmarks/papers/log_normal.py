"""A claim on linear attention with the spread of softmax attention."""

from __future__ import annotations

from papers.beside import losses
from papers.finding import Finding, above, below, claim


@claim(
    "Linear Log-Normal Attention",
    "log normal, linear, random features and plain softmax attention trained alike for 600 steps, "
    "3 seeds",
)
def log_normal() -> list[Finding]:
    """Loss on recall of pairs, copies and text against two other linear forms and softmax."""
    found = []
    for kind in ("recall", "copies", "text"):
        own, linear, random, softmax = (
            losses(form, [kind], 32)
            for form in ("log_normal", "linear", "random_features", "plain_softmax")
        )
        found += [
            above(
                f"{kind}: loss of linear attention (elu + 1) minus log-normal",
                linear - own,
                "3 seeds, 32 rows",
            ),
            above(
                f"{kind}: loss of random features minus log-normal",
                random - own,
                "3 seeds, 32 rows",
            ),
            below(
                f"{kind}: loss of log-normal minus softmax attention",
                own - softmax,
                "3 seeds, 32 rows",
                0.1,
            ),
        ]
    return found
