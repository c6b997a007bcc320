"""Context that the queries and keys of a head need, measured by computing them from less of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.statistics import RatioBootstrap
from interp.model.calls.call import Call, ComputedCall
from interp.model.content import model_provenance
from interp.model.inputs import takes
from interp.model.model_argument import one_model
from interp.model.precision import on_its_device
from interp.model.segments import special_ids
from interp.profiles.first_look import row_divergence, uniform_rows
from interp.profiles.judgement import DRAWS, PROBABILITIES, cluster_sums, ratio
from interp.profiles.listed_site import FITTED
from interp.profiles.log_linear import Features, Sheet, fit_row_models, log_rows, position_features
from interp.profiles.result import EXPLAINED, head_name
from interp.profiles.rows_read import AttentionRows, described_sites, sink_of
from interp.profiles.run import wanted_heads
from interp.profiles.sampled import text_sample

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.core.protocols import Progress
    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow

SIDES = ("queries", "keys", "both")
SCALES = (1.0, 0.5)  # of the logits of a rung, beside 0, which leaves position alone
TOKENS = 8192  # of the truncated contexts that run at once
ROUNDING = 1e-2  # of the largest entry, by which a masked and a truncated context may differ

Computed = dict["Site", ComputedCall]


@on_its_device
def context_needed(
    model: Any,
    corpus: Any = None,
    *,
    field: str = "text",
    heads: Sequence[str] | None = None,
    widths: Sequence[int] = (1, 4, 16, 64),
    n_documents: int = 24,
    n_queries: int | None = 32,
    max_length: int = 128,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure how much context the queries and keys of heads need.

    Queries, keys, or both are computed again from the token itself, the first token and the w
    tokens before it, at their true positions; the other side, and the rest of the attention, are
    the model's own. A row model of position is fitted on top on half of the documents, so that no
    width is worse there than position alone, and both are judged on the other half.

    Args:
        model: a model, or anything that `interp.load` accepts.
        corpus: see `interp.profile`, as the next one.
        field: field or column of the text, or of token ids.
        heads: heads to measure, such as L5H4; all by default.
        widths: numbers of tokens before a token; 0 for the token itself and the first one.
        n_documents: number of random documents, of which half judge.
        n_queries: number of random queries read of each document; None: all.
        max_length: longest window of a document, in tokens.
        seed: seed of every random choice.
        progress: called with the name of the step, the steps done and their number.

    Returns:
        A row per head, side (queries, keys, both) and width. `score` is the share of the pattern
        that is explained, `null` that of position alone; intervals are over documents.

    Raises:
        PromptError: the corpus cannot be read, or has too few distinct documents.
        OptionError: widths are not distinct whole numbers from 0, or the model cannot read a
            truncated context at its true positions.
        UnknownName: there is no such head.
    """
    loaded = one_model(model)
    widths = _checked(widths)
    sites = described_sites(loaded)
    _require_truncatable(loaded)
    wanted = wanted_heads(loaded, sites, heads)
    size = {"n_documents": n_documents, "n_queries": n_queries, "max_length": max_length}
    sample = text_sample(loaded, sites, corpus, field, None, progress, seed=seed, **size)
    sites = [site for site in sites if any(s is site for s, _ in wanted)]
    chosen = {site: [h for s, h in wanted if s is site] for site in sites}
    pages: list[_Page] = []
    for at, window in enumerate(sample.windows):
        pages += _pages(loaded, window, chosen, widths, check=at == 0)
        if progress is not None:
            progress("contexts", at + 1, len(sample.windows))
    rows, quantiles = [], []
    many = len({site.stack for site in sites}) > 1
    for site, numbers in chosen.items():
        nats = _judged([page for page in pages if page.site is site], widths)
        judged = [w.cluster for w in sample.windows if w.part != FITTED]
        names, at = np.unique(judged, return_inverse=True)
        draws = RatioBootstrap(len(names), draws=DRAWS, seed=seed)
        sums = {key: cluster_sums(x.astype(np.float64), at, len(names)) for key, x in nats.items()}
        for i, head in enumerate(numbers):
            even = sums["uniform"][:, i]
            by_position = ratio(draws, even - sums["position"][:, i], even)
            for side in SIDES:
                for width in widths:
                    share = ratio(draws, even - sums[side, width][:, i], even)
                    quantiles.append(share.quantiles)
                    rows.append(
                        {
                            "stack": site.stack,
                            "layer": site.layer,
                            "head": head,
                            "name": head_name(site.stack, site.layer, head, many),
                            "side": side,
                            "width": width,
                            "score": share.value,
                            "low": share.low,
                            "high": share.high,
                            "null": by_position.value,
                            "n": len(names),
                        }
                    )
    provenance = model_provenance(loaded) | dict(
        sample.facts,
        corpus_hash=sample.hash,
        made_by="interp.profiles.context_needed",
        options={**size, "widths": list(widths)},
    )
    return ResultRows(
        "ContextNeeded",
        rows,
        ("stack", "layer", "head", "side", "width"),
        provenance,
        {"metric": "explained_context", "unit": EXPLAINED, "probabilities": list(PROBABILITIES)},
        why_no_per_prompt="a share is a ratio of sums over documents",
        arrays={"quantiles": np.array(quantiles)},
    )


def _checked(widths: Sequence[int]) -> tuple[int, ...]:
    given = tuple(widths)
    if not given or any(type(w) is not int or w < 0 for w in given) or len({*given}) < len(given):
        raise OptionError(
            f"widths={list(given)!r} are numbers of tokens before a token; give distinct whole "
            "numbers from 0, such as (1, 4, 16, 64)"
        )
    return tuple(sorted(given))


def why_no_context(model: Model) -> str:
    """Return why queries and keys cannot be computed from a truncated context; "" if they can."""
    others = sorted({site.kind for site in model.sites if site.kind != "softmax"})
    if model.kind != "causal":
        return f"a model of kind {model.kind} does not only read the tokens before a token"
    if others:
        return f"the state of layers without softmax ({', '.join(others)}) skips no token"
    if "position_ids" not in takes(model.module):
        return "it takes no position_ids, so that a truncated context has other positions"
    return ""


def _require_truncatable(model: Model) -> None:
    """Refuse models whose queries and keys cannot be computed from a truncated context."""
    if why := why_no_context(model):
        raise OptionError(
            f"the context that heads of {model.name} need cannot be measured: {why}; give a causal "
            "language model that takes position_ids"
        )


@dataclass(eq=False)
class _Page:
    """Rows of the chosen heads of one attention on one window, with the logits of every rung."""

    site: Site
    rows: AttentionRows
    logits: Mapping[tuple[str, int], Float[Tensor, "head row pos"]]
    features: Features
    fits: bool


def _pages(
    model: Model,
    window: TextWindow,
    chosen: Mapping[Site, Sequence[int]],
    widths: Sequence[int],
    check: bool,
) -> list[_Page]:
    """Return the pages of one window, one per attention."""
    ids = torch.tensor(window.ids)
    whole = _calls(model, chosen, ids[None], torch.arange(len(ids))[None])
    for site, call in whole.items():
        _require_own_terms(model, site, call)
    if check:
        _require_equal(model, chosen, ids, min(widths[0], max(len(ids) - 3, 0)))
    truncated = {w: _truncated(model, ids, w, whole) for w in widths}
    sink = sink_of(window, special_ids(model))
    queries = torch.as_tensor(window.queries)
    features = Features.of(position_features(window.queries, len(ids)))
    pages = []
    for site, call in whole.items():
        heads = torch.tensor(chosen[site])
        read = AttentionRows.read(call, queries, sink)
        rows = AttentionRows(read.mass[heads], read.visible, read.weight[heads], read.sink[heads])
        logits = {}
        for width in widths:
            q, k = truncated[width][site]
            for side, new in zip(SIDES, ({"q": q}, {"k": k}, {"q": q, "k": k}), strict=True):
                scores = replace(call, **new).scores(queries.to(call.q.device))[0].float().cpu()
                scores = scores[heads].masked_fill(~rows.visible, 0)
                top = scores.sum(-1, keepdim=True) / rows.visible.sum(-1).clamp_min(1)[:, None]
                logits[side, width] = (scores - top).masked_fill(~rows.visible, 0)
        pages.append(_Page(site, rows, logits, features, window.part == FITTED))
    return pages


def _calls(
    model: Model, sites: Mapping[Site, Any], ids: Tensor, positions: Tensor, seen: Any = None
) -> Computed:
    """Run tokens at given positions and return the attention calls."""
    calls: Computed = {}

    def take(site: Site, call: Call, real: Tensor) -> None:
        if site not in sites:
            return
        model.require_finite(call, site)
        known = call if isinstance(call, ComputedCall) else getattr(call, "derived", None)
        if known is None:
            raise OptionError(
                f"the scores of {site.name} of {model.name} do not follow from its queries and "
                "keys, so the context that they need cannot be measured; choose another layer"
            )
        calls[site] = known

    # a mask is given, since without one jumps of the positions are read as ends of documents
    seen = torch.ones_like(ids) if seen is None else seen
    inputs = {"input_ids": ids, "position_ids": positions, "attention_mask": seen}
    given: dict[str, Any] = {name: x.to(model.device) for name, x in inputs.items()}
    if "use_cache" in takes(model.module):
        given["use_cache"] = False
    model.read(given, take, last=1, streamed=True)
    return calls


def _kept(n: int, at: int, width: int) -> list[int]:
    """Return the first position and those from `width` before a position up to it."""
    assert at < n
    return sorted({0, *range(max(0, at - width), at + 1)})


def _truncated(
    model: Model, ids: Tensor, width: int, whole: Computed
) -> dict[Site, tuple[Tensor, Tensor]]:
    """Return queries and keys of all positions from truncated contexts.

    A position whose context is all there is keeps the model's own.
    """
    every = {site: (call.q.clone(), call.k.clone()) for site, call in whole.items()}
    contexts = [(at, _kept(len(ids), at, width)) for at in range(width + 2, len(ids))]
    step = max(TOKENS // (width + 2), 1)
    for start in range(0, len(contexts), step):
        part = contexts[start : start + step]
        places = torch.tensor([kept for _, kept in part])
        ends = torch.tensor([at for at, _ in part])
        for site, call in _calls(model, whole, ids[places], places).items():
            for mine, new in zip(every[site], (call.q, call.k), strict=True):
                mine[0][:, ends.to(mine.device)] = new[:, :, -1].transpose(0, 1)
    return every


def _require_own_terms(model: Model, site: Site, call: ComputedCall) -> None:
    """Refuse a bias on scores, which counts tokens, and keys hidden by distance."""
    n = call.q.shape[2]
    if call.bias is not None or not bool(call.visible()[0].any(0).tril().sum() == n * (n + 1) // 2):
        raise OptionError(
            f"{site.name} of {model.name} adds a bias to its scores, or hides keys by distance on "
            f"{n} tokens, so a truncated context is not read as the whole one; give a smaller "
            "max_length, or another model"
        )


def _require_equal(model: Model, sites: Mapping[Site, Any], ids: Tensor, width: int) -> None:
    """Check that a truncated context gives what the whole one gives with the rest masked.

    This holds where attention alone moves information between positions, by `position_ids`.
    """
    n = len(ids)
    places = torch.tensor(_kept(n, n - 1, width))
    seen = torch.zeros(1, n, dtype=torch.long)
    seen[0, places] = 1
    masked = _calls(model, sites, ids[None], torch.arange(n)[None], seen)
    short = _calls(model, sites, ids[places][None], places[None])
    for site, call in short.items():
        for name in ("q", "k"):
            a, b = (getattr(x, name)[0, :, -1].float() for x in (call, masked[site]))
            if float((a - b).abs().max()) > ROUNDING * float(b.abs().max()):
                raise OptionError(
                    f"{model.name} does not read a truncated context as the whole one with the "
                    f"other tokens masked ({site.name}): its positions do not follow position_ids, "
                    "or it mixes tokens beside attention; give another model"
                )


def _judged(pages: Sequence[_Page], widths: Sequence[int]) -> dict[Any, np.ndarray]:
    """Fit every rung on the pages of the fit, and return its nats on each of the others."""
    fits = [page for page in pages if page.fits]
    rest = [page for page in pages if not page.fits]
    alone = _fitted(fits, [None] * len(fits))
    least = _nats(fits, alone, [None] * len(fits)).sum(0)
    by_position = _nats(rest, alone, [None] * len(rest))
    even = [row_divergence(x.rows, uniform_rows(x.rows.visible)).sum(1) for x in rest]
    nats: dict[Any, np.ndarray] = {
        "uniform": torch.stack(even).numpy(),
        "position": by_position.numpy(),
    }
    for side in SIDES:
        for width in widths:
            best, left = least.clone(), by_position.clone()
            for scale in SCALES:
                bases = [scale * page.logits[side, width] for page in fits]
                fit = _fitted(fits, bases)
                cost = _nats(fits, fit, bases).sum(0)
                better = cost < best
                others = _nats(rest, fit, [scale * page.logits[side, width] for page in rest])
                left, best = torch.where(better, others, left), torch.where(better, cost, best)
            nats[side, width] = left.numpy()
    return nats


def _fitted(
    pages: Sequence[_Page], bases: Sequence[Float[Tensor, "head row pos"] | None]
) -> Float[Tensor, "head feature"]:
    """Fit position on top of the logits of a rung."""
    observed = sum(page.features.mass(page.rows.mass) @ page.features.table.T for page in pages)
    weight = sum(page.rows.weight.sum(1) for page in pages)
    assert isinstance(observed, torch.Tensor)
    assert isinstance(weight, torch.Tensor)

    def sheets(heads: Tensor) -> Any:
        for page, base in zip(pages, bases, strict=True):
            given = None if base is None else base[heads]
            yield Sheet(page.features, page.rows.visible, page.rows.weight[heads], given)

    return fit_row_models(sheets, observed, weight).parameters


def _nats(
    pages: Sequence[_Page],
    parameters: Float[Tensor, "head feature"],
    bases: Sequence[Float[Tensor, "head row pos"] | None],
) -> Float[Tensor, "page head"]:
    """Return the KL divergence of the rows of every page from those of a fit."""
    nats = []
    for page, base in zip(pages, bases, strict=True):
        logits = page.features.logits(parameters)
        logits = logits if base is None else logits + base
        nats.append(row_divergence(page.rows, log_rows(logits, page.rows.visible)).sum(1))
    return torch.stack(nats)


present(
    "ContextNeeded",
    first_line="interp.report.printed.context:context_line",
    text="interp.report.printed.context:context_text",
)
