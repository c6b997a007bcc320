"""Static against dynamic attention: whether the ranking of keys depends on the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, PromptError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.rank_statistics import paired_spearman
from interp.core.result_rows import ResultRows
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import torch

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

ROWS = 16
"""Last queries of a prompt that are compared by default."""


def row_agreement(
    scores: Float[np.ndarray, "head query key"], seen: Bool[np.ndarray, "query key"]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return per head Spearman's correlation of two rows, the share with one top key, and its null.

    Averaged over the pairs of queries that see at least three keys in common.
    """
    totals, tops, nulls = [], [], []
    queries = scores.shape[1]
    for i in range(queries):
        for j in range(i):
            both = seen[i] & seen[j]
            if both.sum() < 3:
                continue
            pair = scores[:, [i, j]][:, :, both]
            totals.append(np.nan_to_num(paired_spearman(pair[:, 0], pair[:, 1])))
            tops.append(pair[:, 0].argmax(-1) == pair[:, 1].argmax(-1))
            nulls.append(1 / both.sum())
    if not totals:
        raise OptionError("no two queries see at least three keys in common; give a larger input")
    return np.mean(totals, 0), np.mean(tops, 0), float(np.mean(nulls))


def static_layers(
    layers: Sequence[Float[np.ndarray, "head node node"]],
    adjacency: Any = None,
    *,
    provenance: Mapping[str, Any] | None = None,
) -> ResultRows:
    """Test attention of a graph network: how alike its nodes rank their neighbours.

    Args:
        layers: scores or attention of each layer, `[head, node, neighbour]`. Attention that
            underflows to zero hides the ranking: give scores before the softmax.
        adjacency: True where a node attends to another; all by default.
        provenance: how they were computed.

    Returns:
        As for `static_heads`, with one prompt.

    Raises:
        OptionError: no two nodes have three neighbours in common.

    Reference: Brody et al. 2022, "How Attentive are Graph Attention Networks?": GAT is static.

    Unit: Spearman's correlation.

    Null: 0, independent rankings.

    Not for: attention that underflows to zero, which hides the ranking; give scores.

    Cost: Rank correlations of pairs of rows; no forward pass.
    """
    arrays = [np.asarray(x, dtype=np.float64) for x in layers]
    if not arrays or any(x.ndim != 3 for x in arrays):
        raise OptionError("each layer is an array [head, node, neighbour]; give at least one")
    n = arrays[0].shape[1]
    seen = np.ones((n, n), dtype=bool) if adjacency is None else np.asarray(adjacency, dtype=bool)
    agreement, same, null, where = [], [], np.nan, []
    for at, scores in enumerate(arrays):
        by_head, top, null = row_agreement(scores, seen)
        agreement.append(by_head)
        same.append(top)
        where += [(at, h) for h in range(len(scores))]
    settings = {"made_by": "interp.text.graphs.static_layers"} | {**(provenance or {})}
    scores_by_head, top = (np.concatenate(x)[:, None] for x in (agreement, same))
    return _rows(where, scores_by_head, top.astype(float), np.array([null]), settings)


@takes_model
def static_heads(model: Model, prompts: Any, *, rows: int = ROWS) -> ResultRows:
    """Test heads of a transformer: how alike the last queries of prompts rank the keys before them.

    The keys are those before the compared queries. A head on the first token or on fixed positions
    from the beginning is static; a head at a fixed distance, or one that looks for a token, is not.

    Args:
        model: a model with causal attention over tokens.
        prompts: the prompts.
        rows: last queries of each prompt that are compared.

    Returns:
        One row per head: layer, head, score (Spearman's correlation of the scores of two queries
        over the keys that both see, mean over pairs of queries and over prompts; 1 is static) with
        sem and n, null (0, independent rankings), same_top (share of pairs of queries with the same
        first key) and same_top_null (the same for independent queries, the mean of 1 / keys).
        Array: same_top_per_prompt, `[row, prompt]`. Fact: top_null, `[prompt]`.

    Raises:
        PromptError: a prompt is too short.
        OptionError: the model has no causal attention over tokens, or `rows` is below 2.

    Unit: Spearman's correlation.

    Null: 0, independent rankings.

    Reference: Brody et al. 2022, "How Attentive are Graph Attention Networks?"; for heads of
    transformers: this project.

    Cost: One forward pass.

    Not for: heads whose keys differ between rows for lack of a common history, as with windows.
    """
    from interp.cache.windows import cached_sites

    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    if rows < 2:
        raise OptionError(f"rows={rows}: at least two queries are compared")
    short = [i for i, ids in enumerate(tokenized.ids) if len(ids) < rows + 3]
    if short:
        raise PromptError(
            f"prompt {short[0]} has {len(tokenized.ids[short[0]])} tokens; {rows} queries and "
            f"three keys before them need {rows + 3}"
        )
    sites = cached_sites(model)
    agreement, same, nulls = [], [], []
    for ids in tokenized.ids:
        of_site: dict[Site, tuple[np.ndarray, np.ndarray, float]] = {}

        def visit(site: Site, call: Call, real: torch.Tensor, ids=ids, of_site=of_site) -> None:
            if site not in sites:
                return
            import torch

            at = torch.arange(len(ids) - rows, len(ids), device=call.z.device)
            keys = len(ids) - rows
            scores = call.scores(at)[0, :, :, :keys].double().cpu().numpy()
            seen = call.visible(at)[0].all(0)[:, :keys].cpu().numpy()
            of_site[site] = row_agreement(scores, seen)

        model.read(Prompts((ids,), tokenized.design), visit, last=1)
        agreement.append(np.concatenate([of_site[s][0] for s in sites]))
        same.append(np.concatenate([of_site[s][1] for s in sites]))
        nulls.append(np.mean([of_site[s][2] for s in sites]))
    provenance = result_provenance(model, "interp.text.graphs.static_heads", tokenized, rows=rows)
    where = [(s.layer, h) for s in sites for h in range(s.n_heads)]
    return _rows(
        where, np.array(agreement).T, np.array(same).T.astype(float), np.array(nulls), provenance
    )


def _rows(
    heads: Sequence[tuple[int, int]],
    agreement: Float[np.ndarray, "head prompt"],
    same_top: Float[np.ndarray, "head prompt"],
    top_null: Float[np.ndarray, " prompt"],
    made: Mapping[str, Any],
) -> ResultRows:
    summary = cluster_summary(agreement.T)
    columns = {
        "layer": [layer for layer, _ in heads],
        "head": [head for _, head in heads],
        "metric": "static attention",
        "score": summary.score,
        "sem": summary.sem,
        "null": 0.0,
        "n": agreement.shape[1],
        "unit": "Spearman",
        "same_top": same_top.mean(1),
        "same_top_null": float(top_null.mean()),
    }
    return ResultRows(
        "StaticAttention",
        columns,
        ("layer", "head"),
        made,
        {"top_null": top_null},
        agreement,
        arrays={"same_top_per_prompt": same_top},
    )


def static_attention_summary(found: ResultRows) -> str:
    """Return the heads whose queries agree most on the order of keys."""
    heads, mean = found.columns["head"], found.per_prompt.mean(1)
    each = ", ".join(f"L{found.layer[i]}H{heads[i]} {mean[i]:.2f}" for i in np.argsort(-mean)[:3])
    return f"StaticAttention of {len(found)} heads, most static: {each}"


present("StaticAttention", summary=static_attention_summary)
