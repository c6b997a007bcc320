"""Heads that carry refusal: by the shift when one is removed, and by what each writes."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="nats",
    requires=("tokens",),
    chance="value of random weights",
    end="high",
    task="refusal",
)
def ships(
    model,
    lab,
    *,
    task: str = "marker",
    n: int = 16,
    max_length: int = 16,
    uniform: bool = False,
    contrast: bool = False,
):
    """KL of the next token after harmful prompts when the head is ablated (SHIPS).

    A head that the model needs for everything scores high too: `contrast` subtracts the same score
    on harmless prompts.

    Cost: One forward pass per head and prompt above the head's layer.

    Not for: use without harmless prompts: a head that everything needs scores highest. Use
    `contrast`.

    Options:
        task: `marker` for random tokens with and without the marker that the model's config states
            (another token where it states none, so that nothing is refused), or a JSONL file with
            `prompt` and `harmful` (true or false) per line.
        n, max_length: number of prompts of each kind and of tokens of each, for `marker`.
        uniform: uniform attention in place of the head's pattern (the authors' undifferentiated
            attention), in place of a zero output.
        contrast: subtract the mean over harmless prompts.

    Reference: Zhou et al. 2025, "On the Role of Attention Heads in Large Language Model Safety"
    (arXiv 2410.13708).
    """
    from interp.safety.marker import sets_of
    from interp.safety.projection import as_trials
    from interp.safety.removal import trials

    sets = sets_of(model, task, n=n, max_length=max_length, seed=lab.seed)
    divergences = trials(model, sets, "uniform-attention" if uniform else "zero", both=contrast)
    lab.progress("ships", 1, 1)
    if not contrast:
        return Trials(divergences["harmful"], notes=sets.about())
    pairs = {site: (x, divergences["harmless"][site]) for site, x in divergences["harmful"].items()}
    return Trials(as_trials(pairs), notes=sets.about())


@experiment(
    unit="share of the direction",
    requires=("tokens",),
    chance="0, since each half of the prompts is projected on the other half's direction",
    task="refusal",
)
def refusal_projection(
    model,
    lab,
    *,
    task: str = "marker",
    n: int = 16,
    max_length: int = 16,
    layer: int = -1,
):
    """Project the head's output on the direction from harmless to harmful prompts (RDSHA).

    The head's result at the last token is projected on the difference of the two means of the
    stream before a layer, harmful minus harmless, and divided by its squared length: the share of
    the difference that the head writes. One forward pass per prompt serves all heads; effects
    through later layers are not included.

    Cost: One forward pass per prompt for all heads.

    Not for: showing that a head causes refusal: what it does through later heads is not included. A
    model that declines nothing has no such direction.

    Options:
        task: `marker` for random tokens with and without the marker that the model's config states
            (another token where it states none, so that nothing is refused), or a JSONL file with
            `prompt` and `harmful` (true or false) per line.
        n, max_length: number of prompts of each kind and of tokens of each, for `marker`.
        layer: layer of the direction; -1 for the last one below 0.8 of the layers.

    Reference: Huang et al. 2025 (arXiv 2508.19697).
    """
    from interp.safety.marker import sets_of
    from interp.safety.projection import as_trials, crossed

    sets = sets_of(model, task, n=n, max_length=max_length, seed=lab.seed)
    projections = crossed(model, sets, layer=None if layer < 0 else layer, seed=lab.seed)
    lab.progress("refusal_projection", 1, 1)
    return Trials(as_trials(projections), notes=sets.about())
