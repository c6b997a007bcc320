"""Heads without which the next token after a harmful prompt changes."""

from interp.heads.declaration import Trials, experiment


@experiment(unit="nats", requires=("tokens",), chance="value of random weights", end="high")
def ships(
    model,
    lab,
    *,
    task: str = "marker",
    n: int = 16,
    longest: int = 16,
    uniform: bool = False,
    contrast: bool = False,
):
    """KL of the next token after harmful prompts when the head is taken out (SHIPS).

    A head that the model needs for everything scores high, too: `contrast` takes off the same on
    harmless prompts.

    Cost: One forward pass per head and prompt above the head's layer.

    Not for: use without harmless prompts: a head that everything needs scores highest. Use
    `contrast`.

    Options:
        task: `marker` for random tokens with and without the marker that the model's config states
            (any token where it states none: then there is nothing to refuse), or a JSONL file with
            `prompt` and `harmful` (true or false) per line.
        n, longest: prompts of each kind and tokens of each, of `marker`.
        uniform: even attention in place of the head's own (the authors' undifferentiated
            attention) rather than zero in place of what it writes.
        contrast: less the mean over harmless prompts.

    Reference: Zhou et al. 2025, "On the Role of Attention Heads in Large Language Model Safety"
    (arXiv 2410.13708).
    """
    from interp.safety.marker import sets_of
    from interp.safety.projection import as_trials
    from interp.safety.removal import trials

    sets = sets_of(model, task, n=n, longest=longest, seed=lab.seed)
    found = trials(model, sets, "uniform-attention" if uniform else "zero", both=contrast)
    lab.tell("ships", 1, 1)
    if not contrast:
        return Trials(found["harmful"], notes=sets.about())
    pairs = {site: (x, found["harmless"][site]) for site, x in found["harmful"].items()}
    return Trials(as_trials(pairs), notes=sets.about())
