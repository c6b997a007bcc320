"""Evaluator heads of prompt compression."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="share of the context that the needle takes",
    task="needles",
)
def evaluator_mass(
    model,
    lab,
    *,
    task: str = "auto",
    needles: int = 8,
    min_length: int = 32,
    max_length: int = 48,
    lengths: int = 2,
    depths: int = 3,
    answer: int = 4,
    last: int = 1,
):
    """Attend to the evidence before answering: mass of a prompt's last rows on the needle.

    The attention of the last rows of the prompt (question included, nothing generated) on the
    tokens that the answer needs, averaged over these rows. The method takes the layer with the
    largest sum over its heads and the best heads of that layer; see
    `interp.cache.attribute_context`.

    Cost: One forward pass per instance; only the last rows are formed.

    Not for: saying which heads write the answer: these rows come before it.

    Options:
        task: as in `retrieval`, of the families `single_key` and `many_keys` alone; `auto` is the
            task that the model answers best, else `ids`.
        needles: number of different needles; the instances of one form a cluster.
        min_length, max_length, lengths: tokens of the shortest and of the longest prompt, and
            how many lengths from one to the other.
        depths: number of needle positions, from first to last.
        answer: number of tokens of the needle after its key, in `ids` and the families.
        last: number of last rows of the prompt (the authors: 16, of questions that are as long).

    Reference: Fei et al. 2025, "Efficient Prompt Compression with Evaluator Heads for Long-Context
    Transformer Inference" (arXiv 2501.12959; constants from its supplement, at second hand).
    """
    from interp.cache.metrics._sources import on_sources

    def read(seen, site):
        return seen.evaluator[site][:, seen.source].sum(-1)

    return on_sources(
        model,
        lab,
        "evaluator_mass",
        read,
        task=task,
        needles=needles,
        sizes=(min_length, max_length, lengths),
        depths=depths,
        answer=answer,
        segment=1,
        last=last,
    )
