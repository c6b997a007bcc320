"""Heads that write along the refusal direction."""

from interp.heads.declaration import Trials, experiment


@experiment(
    unit="residual stream",
    requires=("tokens",),
    chance="0, since each half of the prompts is projected on the other half's direction",
)
def refusal_projection(
    model,
    lab,
    *,
    task: str = "marker",
    n: int = 16,
    longest: int = 16,
    layer: int = -1,
    share: bool = False,
):
    """Writes along the direction that tells harmful prompts from harmless ones (RDSHA).

    Projection of the head's result at the last token on the difference of the two means of the
    stream before a layer, harmful less harmless. One forward per prompt serves all heads; what a
    head does by way of later layers is not in it.

    Cost: One forward pass per prompt for all heads.

    Not for: showing that a head causes refusal: what it does through later heads is not included. A
    model that declines nothing has no such direction.

    Options:
        task: `marker` for random tokens with and without the marker that the model's config states
            (any token where it states none: then there is nothing to refuse), or a JSONL file with
            `prompt` and `harmful` (true or false) per line.
        n, longest: prompts of each kind and tokens of each, of `marker`.
        layer: where the direction is taken; -1 for the last one below 0.8 of the layers.
        share: in parts of the direction's length.

    Reference: Huang et al. 2025 (arXiv 2508.19697).
    """
    from interp.safety.marker import sets_of
    from interp.safety.projection import as_trials, crossed

    sets = sets_of(model, task, n=n, longest=longest, seed=lab.seed)
    found = crossed(model, sets, layer=None if layer < 0 else layer, share=share, seed=lab.seed)
    lab.tell("refusal_projection", 1, 1)
    return Trials(as_trials(found), notes=sets.about())
