"""Claims on long prompts and on sinks: what heads point at, and which parts are read."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads.experiments.item_position import by_slot
from interp.heads.geometry.parallel_entropy import entropies, in_other_piece
from interp.heads.outliers import replace_channel
from interp.heads.trials import Lab
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from interp.model.pattern_edits import calibrate
from interp.probes import chunk_features, lookback_features
from interp.probes.context import ContextItem
from interp.text.chains.chain import Chain
from interp.text.context import passage_order
from papers.beside import SOFTMAX
from papers.evicting import KINDS, every_head, hiding, loss, ranked
from papers.finding import Numbers, Ranks, claim, counted, on_decoders
from papers.hosts import Asked, Host
from training import alike, forms


@on_decoders("Unveiling and Harnessing Hidden Attention Sinks")
def calibrated(host: Host) -> Numbers:
    """Move attention off sinks in heads where that lowers the loss of other rows."""
    model = host.model
    for kind in KINDS:
        chosen_on, judged_on = (host.rows(kind, 48, judged) for judged in (False, True))
        plain = loss(model, *chosen_on).mean()
        heads = [
            head
            for head in every_head(model)
            if loss(model, *chosen_on, calibrate([head])).mean() < plain
        ]
        edits = [calibrate(heads)] if heads else []
        yield loss(model, *judged_on) - loss(model, *judged_on, *edits)


@claim("When Attention Sink Emerges")
def emergence() -> Numbers:
    """Attention on the first token of held-out text, of trained softmax against the others."""
    rows = alike.asked_rows(SOFTMAX, "text").given.tolist()

    def first(model: interp.Model) -> float:
        return float(interp.score(model, "first_token", rows, null="none").to_pandas().score.mean())

    def untrained_model(form: str, seed: int) -> interp.Model:
        return interp.load(forms.build(form, seed=seed, gain=1.0, **alike.SIZES))

    softmax, sigmoid, untrained = (
        np.array([first(model(form, seed)) for seed in alike.SEEDS])
        for model, form in (
            (alike.loaded, SOFTMAX),
            (alike.loaded, "sigmoid"),
            (untrained_model, SOFTMAX),
        )
    )
    return softmax - untrained, softmax - sigmoid


@on_decoders("Attention Entropy is a Key Factor")
def in_pieces(host: Host) -> Numbers:
    """Encode five sixths of a text in 4 pieces: entropy of the queries after it, and their loss."""
    rows, queries, model = host.texts(96), host.length // 6, host.model
    given = Prompts.of(rows, model)

    def entropy(pieces: int, shared: int = 0) -> np.ndarray:
        found = entropies(model, given, pieces, queries, shared)
        return torch.stack([x.mean(1) for x in found.values()]).mean(0).numpy()

    def apart(shared: int) -> Edit:
        def keep(call: Call, site: Site) -> Tensor:
            return ~in_other_piece(call.z.shape[2], 4, queries, shared)[None, None]

        return hiding(model, keep)

    rise, without_sink = entropy(4) - entropy(1), entropy(4) - entropy(4, shared=4)
    whole, bare, shared = (
        loss(model, rows, queries, *edits) for edits in ((), (apart(0),), (apart(4),))
    )
    return rise, Ranks(rise, bare - whole), without_sink, bare - shared


@on_decoders("Massive Values in Self-Attention")
def massive(host: Host) -> Numbers:
    """Set the largest channel of queries and keys to its mean, or the smallest: copies and text."""
    rises, model = {}, host.model
    for kind in KINDS:
        given = host.rows(kind, 96)
        rises[kind] = [
            loss(model, *given, replace_channel(every_head(model), which=which))
            - loss(model, *given)
            for which in ("largest", "smallest")
        ]
    there, here = (a - b for a, b in (rises["text"], rises["copies"]))
    return here, here - there


@on_decoders("Limitations of Normalization")
def limits(host: Host) -> Numbers:
    """Distance and separability of 2 and of 32 top keys of texts, mean over heads."""
    for metric in ("selection_distance", "selection_share"):
        metrics = [METRICS.parse(f"{metric}:number={number}") for number in (2, 32)]
        found = [interp.score(host.model, m, host.texts(48), null="none") for m in metrics]
        few, many = (np.asarray(x.per_prompt).mean(0) for x in found)
        yield few - many


NUMBER = 128  # prompts


def _probe() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))


def _answered(host: Host, prompts: list[Asked], contexts: list[list[int]]) -> np.ndarray:
    """Return the loss of each answer if only some tokens of the context are read."""
    pairs = zip(prompts, contexts, strict=True)
    return np.concatenate([loss(host.model, [x.with_context(kept)], 4) for x, kept in pairs])


def _whole(host: Host, prompts: list[Asked]) -> np.ndarray:
    return loss(host.model, [x.ids for x in prompts], 4)


@on_decoders("Efficient Prompt Compression with Evaluator Heads")
def evaluator_heads(host: Host) -> Numbers:
    """Keep the quarter of the tokens that four evaluator heads point at, all heads, or chance."""
    every = ranked(host.model, "evaluator_mass")
    judged = host.asked(NUMBER, 0)

    def by(heads: list[tuple[int, int]]) -> list[list[int]]:
        kept = []
        for x in judged:
            asking = slice(x.question, x.answer)
            cache = host.model.capture([x.ids[: x.answer]], ["pattern"], rows=asking)
            rows: Any = sum(cache["pattern", layer][0, h].mean(0) for layer, h in heads)
            pooled = F.avg_pool1d(rows[None, None, 1 : x.question], 7, 1, 3)[0, 0]
            kept.append(sorted((pooled.topk(x.question // 4).indices + 1).tolist()))
        return kept

    rng = np.random.default_rng(0)
    random = [
        sorted(rng.choice(np.arange(1, x.question), x.question // 4, replace=False)) for x in judged
    ]
    ours, mixed, theirs = (_answered(host, judged, k) for k in (by(every[:4]), by(every), random))
    return theirs - ours, mixed - ours, ours - _whole(host, judged)


@on_decoders("Lookback Lens")
def lookback(host: Host) -> Numbers:
    """Sample answers, probe lookback ratios for wrong ones, and let the probe choose among 8."""
    samples = 8
    prompts = host.asked(96, 0, passages=20)
    torch.manual_seed(0)
    items, right = [], []
    for x in prompts:
        given = torch.tensor([x.ids[: x.answer]] * samples)
        how: Any = {"do_sample": True, "top_k": 0, "temperature": 1.5}  # at 1 few answers are wrong
        out = host.model.module.generate(given, max_new_tokens=4, **how)
        for ids in out.tolist():
            items.append(ContextItem(tuple(ids), x.question, ((x.answer, len(ids)),)))
            right.append(ids[x.answer :] == x.ids[x.answer :])
    features, label = lookback_features(host.model, items)[0].x, np.array(right)
    half = samples * len(prompts) // 2
    probe = _probe().fit(features[:half], label[:half])
    score = probe.predict_proba(features[half:])[:, 1].reshape(-1, samples)
    label = label[half:].reshape(-1, samples)
    mixed = label.any(1) & ~label.all(1)
    auc = [roc_auc_score(y, s) for y, s in zip(label[mixed], score[mixed], strict=True)]
    guided = label[np.arange(len(label)), score.argmax(1)] - label.mean(1)
    return counted(auc, "held-out prompts with both"), guided


@on_decoders("Knowing When to Stop")
def cutoff(host: Host) -> Numbers:
    """Read passages one by one after the question, and stop when a probe of heads says enough."""
    parts = 12

    def streamed(number: int, seed: int) -> tuple[list[Asked], np.ndarray, np.ndarray]:
        prompts = host.asked(number, seed)
        rows = [[x.ids[0], *x.ids[x.question : x.answer], *x.ids[1 : x.question]] for x in prompts]
        asking, length = prompts[0].answer - prompts[0].question, len(rows[0])
        read = length * np.arange(1, parts + 1) // parts - asking  # last position, plus 1
        return prompts, chunk_features(host.model, rows, parts)[0].x, read

    trained, x, read = streamed(NUMBER, 1)
    known = [end >= t.passages[t.wanted][1] for t in trained for end in read]
    probe = _probe().fit(x, known)
    judged, x, _ = streamed(NUMBER, 0)
    enough = probe.predict_proba(x)[:, 1].reshape(-1, parts) > 0.5
    stop = read[np.where(enough.any(1), enough.argmax(1), parts - 1)]
    blind = np.random.default_rng(0).permutation(stop)  # as many tokens, whatever the prompt
    cut, other = (
        _answered(host, judged, [list(range(1, end)) for end in ends]) for ends in (stop, blind)
    )
    return 1 - stop / read[-1], cut - _whole(host, judged), other - cut


@on_decoders("Attention Basin")
def basin(host: Host) -> Numbers:
    """Attention on the first and last of 6 items against the middle; the order that uses it."""
    shares = by_slot(host.model, Lab(0, lambda *_: None), items=6, size=10, orders=96, question=3)
    place = torch.stack([x.mean(1) for x in shares.values()]).mean(0).numpy()  # [order, place]
    place = place.reshape(-1, 6, 6).mean(1)  # each item stood at each place once
    ends = place[:, [0, -1]].mean(1) - place[:, 1:-1].mean(1)
    chains = []
    for x in host.asked(48, 0, passages=6):
        cuts = slice(x.question), slice(x.question, x.answer), slice(x.answer, None)
        body, question, answer = (tuple(x.ids[cut]) for cut in cuts)
        spans = tuple(x.passages)
        chains.append(Chain(body, spans, ("",) * 6, question, answer, sources=(x.wanted,)))
    odds = passage_order(host.model, chains).per_prompt  # preferred, least preferred, random
    assert odds is not None
    return ends, odds[0] - odds[1]


BASES = (10_000.0, 12_000.0, 14_500.0, 17_500.0, 21_000.0)


def _with_base(host: Host, base: float) -> interp.Model:
    """Return the model with another base of its rotary embedding; the first is its own."""
    module = deepcopy(host.model.module)
    rotary = module.model.rotary_emb
    size = 2 * len(rotary.inv_freq)
    rotary.inv_freq = base ** -(torch.arange(0, size, 2).float() / size)
    return interp.load(module, name=f"base {base:g}")


@on_decoders("Fortify the Shortest Stave")
def buckets(host: Host) -> Numbers:
    """Mix the predictions of five rotary bases by their confidence; loss and accuracy."""
    prompts = host.asked(NUMBER, 0, passages=20)
    ids = torch.tensor([x.ids for x in prompts])
    at = slice(prompts[0].answer - 1, -1)
    with torch.no_grad():
        p = torch.stack([_with_base(host, b).run(ids.tolist())[:, at].softmax(-1) for b in BASES])
    confidence = p.amax(-1, keepdim=True)
    mixed = (p * confidence).sum(0) / confidence.sum(0)
    wanted = ids[:, prompts[0].answer :, None]
    own, ours = (-x.gather(-1, wanted)[..., 0].log().mean(1).numpy() for x in (p[0], mixed))
    right = [(x.argmax(-1) == wanted[..., 0]).float().mean(1).numpy() for x in (p[0], mixed)]
    return own - ours, right[1] - right[0]
