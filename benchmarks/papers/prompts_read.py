"""Claims on long prompts: which parts of a context heads point at, and reading only those."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import interp
from interp.heads.experiments.item_position import by_slot
from interp.heads.trials import Lab
from interp.probes import chunk_features, lookback_features
from interp.probes.context import ContextItem
from interp.text.chains.chain import Chain
from interp.text.context import passage_order
from papers.evicting import loss, ranked
from papers.finding import Finding, above, below, on_decoders
from papers.hosts import Asked, Host

NUMBER = 128  # prompts
PROMPTS = f"{NUMBER} prompts of passages of 10 random tokens, of which one is begun again"


def _probe() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))


def _answered(host: Host, prompts: list[Asked], contexts: list[list[int]]) -> np.ndarray:
    """Return the loss of each answer if only some tokens of the context are read."""
    return np.concatenate(
        [
            loss(host.model, [x.with_context(kept)], len(x.ids) - x.answer)
            for x, kept in zip(prompts, contexts, strict=True)
        ]
    )


def _whole(host: Host, prompts: list[Asked]) -> np.ndarray:
    return loss(host.model, [x.ids for x in prompts], 4)


@on_decoders("Efficient Prompt Compression with Evaluator Heads")
def evaluator_heads(host: Host) -> list[Finding]:
    """Keep the quarter of the tokens that four evaluator heads point at, all heads, or chance."""
    every = ranked(host.model, "evaluator_mass")
    judged = host.asked(NUMBER, 0)

    def by(heads: list[tuple[int, int]]) -> list[list[int]]:
        kept = []
        for x in judged:
            cache = host.model.capture(
                [x.ids[: x.answer]], ["pattern"], rows=slice(x.question, x.answer)
            )
            rows = sum(cache["pattern", layer][0, h].mean(0) for layer, h in heads)
            pooled = torch.nn.functional.avg_pool1d(rows[None, None, 1 : x.question], 7, 1, 3)[0, 0]  # type: ignore[index]
            kept.append(sorted((pooled.topk(x.question // 4).indices + 1).tolist()))
        return kept

    rng = np.random.default_rng(0)
    random = [
        sorted(rng.choice(np.arange(1, x.question), x.question // 4, replace=False)) for x in judged
    ]
    ours, mixed, theirs = (_answered(host, judged, k) for k in (by(every[:4]), by(every), random))
    rise, each = ours - _whole(host, judged), f"{PROMPTS}; a quarter of the tokens is read"
    return [
        above("loss of the answer, random tokens minus evaluator heads'", theirs - ours, each),
        above("loss of the answer, all heads' tokens minus evaluator heads'", mixed - ours, each),
        below("loss of the answer, evaluator heads' tokens minus the whole", rise, each, 0.1),
    ]


@on_decoders("Lookback Lens")
def lookback(host: Host) -> list[Finding]:
    """Sample answers, probe lookback ratios for wrong ones, and let the probe choose among 8."""
    samples = 8
    prompts = host.asked(96, 0, passages=20)
    torch.manual_seed(0)
    items, right = [], []
    for x in prompts:
        given = torch.tensor([x.ids[: x.answer]] * samples)
        out = host.model.module.generate(
            given, max_new_tokens=4, do_sample=True, top_k=0, temperature=1.5
        )  # at 1 few answers are wrong
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
    both, each = f"{mixed.sum()} held-out prompts with both", "48 held-out prompts, 8 answers each"
    what = "share of right answers, chosen by the probe minus sampled"
    return [
        above("AUC of right against wrong answers to the same prompt", auc, both, 0.5, "AUC"),
        above(what, guided, each, unit="share"),
    ]


@on_decoders("Knowing When to Stop")
def cutoff(host: Host) -> list[Finding]:
    """Read passages one by one after the question, and stop when a probe of heads says enough."""
    parts = 12

    def streamed(number: int, seed: int) -> tuple[list[Asked], np.ndarray, np.ndarray]:
        prompts = host.asked(number, seed)
        rows = [[x.ids[0], *x.ids[x.question : x.answer], *x.ids[1 : x.question]] for x in prompts]
        asking, length = prompts[0].answer - prompts[0].question, len(rows[0])
        read = length * np.arange(1, parts + 1) // parts - asking  # last position, plus 1
        return prompts, chunk_features(host.model, rows, parts)[0].x, read

    trained, x, read = streamed(NUMBER, 1)
    probe = _probe().fit(
        x, [read[i] >= t.passages[t.wanted][1] for t in trained for i in range(parts)]
    )
    judged, x, _ = streamed(NUMBER, 0)
    enough = probe.predict_proba(x)[:, 1].reshape(-1, parts) > 0.5
    stop = read[np.where(enough.any(1), enough.argmax(1), parts - 1)]
    blind = np.random.default_rng(0).permutation(stop)  # as many tokens, whatever the prompt
    cut, other = (
        _answered(host, judged, [list(range(1, end)) for end in ends]) for ends in (stop, blind)
    )
    unread, rise = 1 - stop / read[-1], cut - _whole(host, judged)
    what = "loss of the answer, the same cuts shuffled minus by the probe"
    return [
        above("share of the context that is not read", unread, PROMPTS, 0.2, "share"),
        below("loss of the answer, cut context minus whole", rise, PROMPTS, 0.1),
        above(what, other - cut, PROMPTS),
    ]


@on_decoders("Attention Basin")
def basin(host: Host) -> list[Finding]:
    """Attention on the first and last of 6 items against the middle; the order that uses it."""
    shares = by_slot(host.model, Lab(0, lambda *_: None), items=6, size=10, orders=96, question=3)
    place = torch.stack([x.mean(1) for x in shares.values()]).mean(0).numpy()  # [order, place]
    place = place.reshape(-1, 6, 6).mean(1)  # each item stood at each place once
    ends = place[:, [0, -1]].mean(1) - place[:, 1:-1].mean(1)
    chains = []
    for x in host.asked(48, 0, passages=6):
        spans = tuple(x.passages)
        chains.append(
            Chain(
                tuple(x.ids[: x.question]),
                spans,
                ("",) * 6,
                tuple(x.ids[x.question : x.answer]),
                tuple(x.ids[x.answer :]),
                sources=(x.wanted,),
            )
        )
    odds = passage_order(host.model, chains).per_prompt  # preferred, least preferred, random
    assert odds is not None
    items = "16 sets of 6 items, each item at each place, mean over all heads"
    what = "share of attention on the first and last item minus on the others"
    gain = "log odds of the answer, its passage at the preferred place minus at the least"
    return [
        above(what, ends, items, unit="share"),
        above(gain, odds[0] - odds[1], "48 prompts of 6 passages"),
    ]


BASES = (10_000.0, 12_000.0, 14_500.0, 17_500.0, 21_000.0)


def _with_base(host: Host, base: float) -> interp.Model:
    """Return the model with another base of its rotary embedding; the first is its own."""
    module = deepcopy(host.model.module)
    rotary = module.model.rotary_emb
    size = 2 * len(rotary.inv_freq)
    rotary.inv_freq = base ** -(torch.arange(0, size, 2).float() / size)
    return interp.load(module, name=f"base {base:g}")


@on_decoders("Fortify the Shortest Stave")
def buckets(host: Host) -> list[Finding]:
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
    gain = right[1] - right[0]
    return [
        above("loss of the answer, one base minus five", own - ours, PROMPTS),
        above("share of right tokens, five bases minus one", gain, PROMPTS, unit="share"),
    ]
