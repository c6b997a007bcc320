"""Lookback ratio of a head."""

from interp.heads.declaration import experiment


@experiment(
    unit="ratio",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1/2 for even attention",
    task="none: it compares two parts of a text that the model writes",
)
def lookback_ratio(
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
):
    """Look back to the context while answering: attention per token on it against the answer.

    m_context / (m_context + m_new) at every row that writes a token of the answer (which is given),
    where m is the mean attention per token: on the context after its first token, and on the
    question's last token with the answer so far. Averaged over the rows; 1/2 for even attention.

    Cost: One forward pass per instance; only the rows of the answer are formed.

    Not for: lengths that differ, since the mean over a longer context is smaller; nor for detecting
    wrong answers without a trained probe.

    Options:
        task: as in `retrieval`, of the families `single_key` and `many_keys` alone; `auto` is the
            task that the model answers best, else `ids`.
        needles: number of different needles; the instances of one form a cluster.
        min_length, max_length, lengths: tokens of the shortest and of the longest prompt, and
            how many lengths from one to the other.
        depths: number of needle positions, from first to last.
        answer: number of tokens of the needle after its key, in `ids` and the families.

    Reference: Chuang et al. 2024, "Lookback Lens: Detecting and Mitigating Contextual
    Hallucinations in Large Language Models Using Only Attention Maps" (there the first token counts
    as context).
    """
    from interp.cache.metrics._sources import on_sources

    def read(seen, site):
        return seen.context[site]

    return on_sources(
        model,
        lab,
        "lookback_ratio",
        read,
        task=task,
        needles=needles,
        sizes=(min_length, max_length, lengths),
        depths=depths,
        answer=answer,
        segment=8,
    )
