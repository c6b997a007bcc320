"""Citation heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="0 for even attention",
    task="none: the cited source is read, not answered",
)
def citation(
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
    segment: int = 8,
):
    """Attend to the source while answering: attention on its segments above their share.

    The context is divided into segments of one size, the last of which can be shorter. Per row that
    writes a token of the answer (which is given), the attention on the segments that hold the
    answer, minus their share of the tokens of all segments times the attention on these; averaged
    over the rows. An ideal head scores 1 minus that share.

    Cost: One forward pass per instance; only the rows of the answer are formed.

    Not for: showing that the answer depends on the source: ablate the heads, or cut their caches.

    Options:
        task: as in `retrieval`, of the families `single_key` and `many_keys` alone; `auto` is the
            task that the model answers best, else `ids`.
        needles: number of different needles; the instances of one form a cluster.
        min_length, max_length, lengths: tokens of the shortest and of the longest prompt, and
            how many lengths from one to the other.
        depths: number of needle positions, from first to last.
        answer: number of tokens of the needle after its key, in `ids` and the families.
        segment: number of tokens of a segment.

    Reference: this project.
    """
    from interp.cache.metrics._sources import on_sources

    def read(seen, site):
        mass = seen.citation[site]
        sizes = mass.new_tensor([end - start for start, end in seen.ends])
        share = sizes[seen.source].sum() / sizes.sum()
        return mass[:, seen.source].sum(-1) - share * mass.sum(-1)

    return on_sources(
        model,
        lab,
        "citation",
        read,
        task=task,
        needles=needles,
        sizes=(min_length, max_length, lengths),
        depths=depths,
        answer=answer,
        segment=segment,
    )
