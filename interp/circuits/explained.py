"""Activity of a circuit's nodes on its first pair: where they look, why, and what they write."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from interp.core.errors import InterpError
from interp.core.prompts import Prompts
from interp.core.ties import ordered_by
from interp.core.tokens import separate_words, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from interp.circuits.contrast import ContrastTask
    from interp.circuits.result import Circuit
    from interp.model.model import Model

MOST = 40  # nodes of a circuit without a set
LONGEST = 256  # tokens of a pair whose patterns are read
TOKENS = 5  # raised by an output, and lowered
WRITERS = 5  # on each side of a score, and of what a head writes, beside those of the circuit
PAIRS = 40  # of a writer at the query and one at the key, of each score


def explained_nodes(model: Model, found: Circuit, task: ContrastTask) -> dict[str, dict[str, Any]]:
    """Describe the nodes of a circuit's set, or its first ones, on the first pair of prompts."""
    names = list(found.ranking[:MOST] if found.chosen is None else found.chosen.nodes)
    example = found.made.get("example") or {}
    at, named = example.get("attends", {}), sorted({*example.get("positions", {}).values()})
    heads = {x: (int(at[x][0]), int(at[x][1])) for x in names if x in at}
    out: dict[str, dict[str, Any]] = defaultdict(dict)
    ids = task.clean.ids[0]
    why_not = ""
    if list(words(model, ids)) != example.get("clean"):
        why_not = "the circuit was found on other pairs, and its first pair is not the first here"
    elif len(ids) > LONGEST:
        why_not = f"the first pair has {len(ids)} tokens, more than {LONGEST}"
    parts = {
        "row": lambda: _rows(model, ids, heads),
        "why": lambda: _shares(model, ids, heads, names),
        "value": lambda: _values(model, ids, heads, names),
        "writes": lambda: _written(model, ids, task.corrupted.ids[0], names, heads, named),
    }
    for part, make in parts.items():
        if why_not:
            out[""][part] = why_not
            continue
        try:
            for name, value in make().items():
                out[name][part] = value
        except InterpError as error:  # of another architecture: the page says why it has none
            out[""][part] = str(error)
    return dict(out)


def _rows(
    model: Model, ids: Sequence[int], heads: Mapping[str, tuple[int, int]]
) -> dict[str, list[float]]:
    """Return the attention of each head from its query, over the keys up to it."""
    if not heads:
        return {}
    cache, rows = model.capture([list(ids)], ("pattern",), to="cpu"), {}
    for (stack, layer), pattern in cache.by_site("pattern").items():
        for head, weights in enumerate(pattern[0].float()):
            name = f"L{layer}H{head}"
            if stack == "decoder" and name in heads:
                query = heads[name][0]
                rows[name] = [round(x, 3) for x in weights[query, : query + 1].tolist()]
    return rows


def _shares(
    model: Model, ids: Sequence[int], heads: Mapping[str, tuple[int, int]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Split the score of each head's strongest attention over the writers of query and key."""
    from interp.circuits.why.qk_shares import qk_shares

    together: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, place in heads.items():
        together[place].append(name)
    by_head: dict[str, dict[str, Any]] = {}
    for place, some in together.items():
        shares = qk_shares(model, some, [list(ids)], at=[place], null="none")
        for name in some:
            of_head = shares.of(name)
            parts = _rounded(of_head.relative[:, 0])
            met = list(zip(of_head.query_writers, of_head.key_writers, parts, strict=True))
            met = ordered_by([part for part in met if part[2]], lambda part: abs(part[2]))
            by_head[name] = {"score": round(float(of_head.relative.sum()), 3), "pairs": met[:PAIRS]}
            for side in ("query", "key"):
                frame = of_head.side(side)
                parts = dict(zip(frame["writer"], frame["relative"].tolist(), strict=True))
                by_head[name][side] = _first(parts, names)
    return by_head


def _values(
    model: Model, ids: Sequence[int], heads: Mapping[str, tuple[int, int]], names: Sequence[str]
) -> dict[str, list[tuple[str, float]]]:
    """Split what each head writes, along its own direction, over the writers that it carries."""
    from interp.circuits.why.batches import asked_heads, decomposed
    from interp.circuits.why.loadings import loadings_of
    from interp.circuits.why.stream_parts import StreamParts

    by_head: dict[str, list[tuple[str, float]]] = {}
    for _, run in decomposed(model, Prompts.of([list(ids)], model)):
        stream = StreamParts(run)
        for site, head in asked_heads(model, list(heads)) if heads else ():
            name = f"L{site.layer}H{head}"
            query = heads[name][0]
            whole = run.written[:, query, run.index[name]].double()
            size = float((whole**2).sum())
            if size:
                writers, parts, _ = loadings_of(stream, site, head, query, whole / size)
                of_writers = dict(zip(writers, parts[0].sum(0).tolist(), strict=True))
                by_head[name] = _first(of_writers, names)
    return by_head


def _first(parts: Mapping[str, float], names: Sequence[str]) -> list[tuple[str, float]]:
    """Return the largest parts first, those of the circuit's nodes in any case."""
    order = ordered_by(list(parts), lambda name: abs(parts[name]))
    kept = [name for i, name in enumerate(order) if i < WRITERS or name in set(names)]
    return [(name, round(float(parts[name]), 3) + 0.0) for name in kept]  # not -0


def _written(
    model: Model,
    ids: Sequence[int],
    other: Sequence[int],
    names: Sequence[str],
    heads: Mapping[str, tuple[int, int]],
    named: Sequence[int],
) -> dict[str, dict[str, Any]]:
    """Return the tokens that the change of each node's output raises and lowers."""
    from interp.circuits.node_outputs import paired_outputs
    from interp.circuits.residual_graph import ResidualGraph
    from interp.model.locate.weights import embeddings

    graph = ResidualGraph.of(model)
    clean, corrupted = paired_outputs(graph, [list(ids)], [list(other)])
    change = -graph.changes_alone(corrupted.out, clean.out)[0].float().cpu()
    unembedding = embeddings(model).W_U.float().cpu()
    changes, places = {}, list(named) or [len(ids) - 1]
    for name in names:
        if name not in graph.index:
            continue
        mine = change[:, graph.index[name]]
        at = heads[name][0] if name in heads else places[int(mine[places].norm(dim=-1).argmax())]
        if not bool(mine[at].any()):
            continue
        logits = mine[at] @ unembedding
        up, down = (x.topk(min(TOKENS, len(logits))).indices.tolist() for x in (logits, -logits))
        changes[name] = {
            "at": at,
            **{
                side: list(zip(separate_words(model, some), _rounded(logits[some]), strict=True))
                for side, some in (("up", up), ("down", down))
            },
        }
    return changes


def _rounded(values: Any) -> list[float]:
    return [round(float(x), 3) for x in values]
