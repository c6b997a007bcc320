"""Measured loss of a cut cache."""

from interp.heads.declaration import experiment


@experiment(
    unit="nats per token",
    requires=("tokens", "causal"),
    end="high",
    task="none: it is an intervention and measures a loss itself",
)
def cache_loss(
    model,
    lab,
    *,
    task: str = "repeats",
    n: int = 8,
    max_length: int = 24,
    copies: int = 2,
    sink: int = 1,
    recent: int = 4,
):
    """Lose when the cache is cut: increase of the loss with only a sink and a window kept.

    The model runs with the cache of one key-value head cut to the first and the last tokens, at
    their true positions, and the mean loss per token of random tokens repeated twice is compared
    with that of the uncut model. Query heads of a group share the score. For texts of your own, a
    search over windows and a plan for the whole model: `interp cache`.

    Cost: One forward pass of all prompts per key-value head.

    Not for: adding up heads: two heads that can replace each other both lose nothing alone.

    Options:
        task: `repeats`, or a family of retrieval tasks (`single_key`, `many_keys`, `many_values`,
            `variable_tracking`, `common_words`: see `interp.heads.needle.families`).
        n: number of prompts; those of one period form a cluster. Of a retrieval task, of needles.
        max_length: longest period of the repeated tokens; of a retrieval task, tokens of a prompt.
        copies: number of copies in a prompt of repeated tokens.
        sink: first tokens that the cut cache keeps.
        recent: last tokens that it keeps, the current one included.

    Reference: this project; sink and window as in Xiao et al. 2023, "Efficient Streaming Language
    Models with Attention Sinks", whose positions shift inside the cache and here do not.
    """
    import torch

    from interp.cache.losses import CutLosses, require_longer
    from interp.cache.windows import Window, cached_sites, kv_heads
    from interp.core.prompts import Prompts, repeats
    from interp.heads.needle import family_instances
    from interp.heads.trials import Trials

    scored = None
    if task == "repeats":
        prompts = repeats(model, n=n, max_length=max_length, copies=copies, seed=lab.seed)
    else:
        instances = family_instances(
            model, task, needles=n, lengths=[max_length], depths=[0.5], seed=lab.seed
        )
        # of an answer at once, one of its tokens; the first is as good as any other
        wanted = [x.answer[:1] if x.at_once else x.answer for x in instances]
        ids = tuple(x.prompt + end for x, end in zip(instances, wanted, strict=True))
        prompts, scored = Prompts(ids, f"retrieval task {task}"), len(wanted[0])
    window, heads = Window(sink, recent), kv_heads(model)
    require_longer(prompts, window)
    losses = CutLosses(model, prompts, scored=scored)
    rows = losses.each([{head: window} for head in heads], "cache_loss", lab.progress)
    increases = dict(zip(heads, torch.from_numpy(rows), strict=True))
    values = {}
    for site in cached_sites(model):
        each = [increases[h] for h in heads if (h.stack, h.layer) == (site.stack, site.layer)]
        values[site] = torch.stack(each, 1).repeat_interleave(site.n_heads // site.n_kv_heads, 1)
    notes = {"uncut loss": float(losses.full.mean()), "prompts": prompts.design}
    return Trials(values, notes=notes, clusters=prompts.clusters)
