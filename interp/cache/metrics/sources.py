"""Heads that attend to the source of an answer: citation, evaluator heads, lookback ratio."""

from interp.heads.declaration import experiment
from interp.heads.needle.instance import SourceOptions


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="0 for even attention",
    task="none: the cited source is read, not answered",
    options=SourceOptions,
)
def citation(model, lab, needle: SourceOptions, *, segment: int = 8):
    """Attend to the source while answering: attention on its segments above their share.

    The context is divided into segments of one size, the last of which can be shorter. Per row that
    writes a token of the answer (which is given), the attention on the segments that hold the
    answer, minus their share of the tokens of all segments times the attention on these; averaged
    over the rows. An ideal head scores 1 minus that share.

    Cost: One forward pass per instance; only the rows of the answer are formed.

    Not for: showing that the answer depends on the source: ablate the heads, or cut their caches.

    Options:
        segment: number of tokens of a segment.

    Reference: this project.
    """
    from interp.cache.metrics._sources import on_sources

    def read(seen, site):
        mass = seen.citation[site]
        sizes = mass.new_tensor([end - start for start, end in seen.ends])
        share = sizes[seen.source].sum() / sizes.sum()
        return mass[:, seen.source].sum(-1) - share * mass.sum(-1)

    return on_sources(model, lab, "citation", read, needle, segment=segment)


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="share of the context that the needle takes",
    task="needles",
    options=SourceOptions,
)
def evaluator_mass(model, lab, needle: SourceOptions, *, last: int = 1):
    """Attend to the evidence before answering: mass of a prompt's last rows on the needle.

    The attention of the last rows of the prompt (question included, nothing generated) on the
    tokens that the answer needs, averaged over these rows. The method takes the layer with the
    largest sum over its heads and the best heads of that layer; see
    `interp.cache.attribute_context`.

    Cost: One forward pass per instance; only the last rows are formed.

    Not for: saying which heads write the answer: these rows come before it.

    Options:
        last: number of last rows of the prompt (the authors: 16, of questions that are as long).

    Reference: Fei et al. 2025, "Efficient Prompt Compression with Evaluator Heads for Long-Context
    Transformer Inference" (arXiv 2501.12959; constants from its supplement, at second hand).
    """
    from interp.cache.metrics._sources import on_sources

    def read(seen, site):
        return seen.evaluator[site][:, seen.source].sum(-1)

    return on_sources(model, lab, "evaluator_mass", read, needle, segment=1, last=last)


@experiment(
    unit="ratio",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1/2 for even attention",
    task="none: it compares two parts of a text that the model writes",
    options=SourceOptions,
)
def lookback_ratio(model, lab, needle: SourceOptions):
    """Look back to the context while answering: attention per token on it against the answer.

    m_context / (m_context + m_new) at every row that writes a token of the answer (which is given),
    where m is the mean attention per token: on the context after its first token, and on the
    question's last token with the answer so far. Averaged over the rows; 1/2 for even attention.

    Cost: One forward pass per instance; only the rows of the answer are formed.

    Not for: lengths that differ, since the mean over a longer context is smaller; nor for detecting
    wrong answers without a trained probe.

    Reference: Chuang et al. 2024, "Lookback Lens: Detecting and Mitigating Contextual
    Hallucinations in Large Language Models Using Only Attention Maps" (there the first token counts
    as context).
    """
    from interp.cache.metrics._sources import on_sources

    def read(seen, site):
        return seen.context[site]

    return on_sources(model, lab, "lookback_ratio", read, needle, segment=8)
