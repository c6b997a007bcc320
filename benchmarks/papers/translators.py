"""Claims about attention of a target to its source, in small recurrent translators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.bundled.reorder_text import WORDS, reorder_pairs
from interp.bundled.special_tokens import BOS
from papers.finding import SEEDS, Numbers, claim, over_seeds
from papers.fitting import distinct, fit
from training import forms

PLACE = {word: i for i, word in enumerate(WORDS)}
SIZES = {"vocab_size": len(WORDS), "hidden_size": 32}
Batch = dict[str, Tensor]


def translator(form: str, seed: int, **sizes: Any) -> Any:
    """Return an untrained translator whose target reads its source by this form."""
    return forms.build(form, seed=seed, gain=1.0, **(SIZES | sizes))


def batch_of(source: Tensor, given: Tensor, labels: Tensor) -> Batch:
    """Return the inputs and the labels of a translator."""
    return {"input_ids": source, "decoder_input_ids": given, "labels": labels}


def batches(seed: int, number: int, *, shown: bool, size: int = 32) -> list[Batch]:
    """Return batches of sentences of one length; the word of the order is shown or not."""
    by_length: dict[int, list[Any]] = {}
    found: list[Batch] = []
    for pair in reorder_pairs(seed, number * size + 1000):
        of_length = by_length.setdefault(len(pair.target), [])
        of_length.append(pair)
        if len(of_length) == size and len(found) < number:
            source = [[PLACE[w] for w in p.source[0 if shown else 1 :]] for p in of_length]
            target = torch.tensor([[PLACE[w] for w in p.target] for p in of_length])
            begin = torch.full((size, 1), BOS)
            given = torch.cat([begin, target[:, :-1]], 1)
            found.append(batch_of(torch.tensor(source), given, target))
            by_length[len(pair.target)] = []
    return found


@torch.no_grad()
def held_out_loss(model: Any, tested: list[Batch]) -> float:
    """Return the mean loss of the words of a target, in nats."""
    return float(np.mean([float(model(**batch).loss) for batch in tested]))


def trained(model: Any, seed: int, steps: int = 500) -> Any:
    """Train a translator on sentences whose order is shown."""
    made = iter(batches(seed, steps, shown=True))
    fit(model, lambda rng: model(**next(made)).loss, steps=steps, seed=seed)
    return model


@claim("Effective Approaches to Attention-based")
def luong() -> Numbers:
    """500 steps of 32 sentences; losses per word on sentences that were not trained on."""
    over_none: dict[str, list[float]] = {"source": [], "source_window": []}
    for seed in SEEDS:
        tested = batches(1000 + seed, 20, shown=True)
        none = translator("source", seed)
        nn.init.zeros_(none.attention.out.weight)
        none.attention.requires_grad_(False)
        without = held_out_loss(trained(none, seed), tested)
        for form, gains in over_none.items():
            gains.append(held_out_loss(trained(translator(form, seed), seed), tested) - without)
    return tuple(over_none.values())


class Aligned(nn.Module):
    """A translator whose word i is said from one source word, and a guess of which one.

    The guess (the variational distribution) also sees the word to be said.
    """

    def __init__(self, seed: int):
        super().__init__()
        self.model = translator("source_draw", seed, num_attention_heads=1)
        self.guess = nn.Linear(2 * SIZES["hidden_size"], SIZES["hidden_size"], bias=False)

    def parts(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return logs of: p(j), p(word | j), the guess q(j), and p(word | mean of all words)."""
        seen: dict[str, Tensor] = {}
        attention, joined = self.model.attention, self.model.joined
        handles = [
            attention.projected.register_forward_hook(lambda m, a, out: seen.update(given=out)),
            joined.register_forward_hook(lambda m, a, out: seen.update(state=out)),
        ]
        attention.eval()  # the mean of draws
        soft = self.model(**batch).logits
        for handle in handles:
            handle.remove()
        given: Any = seen["given"]
        prior = attention.rule.rows(given, given.every)[:, 0]
        read = attention.out(given.v[:, 0])  # [sentence, source word, width]
        every = torch.tanh(read[:, None] + seen["state"][:, :, None])
        said = self.model.head(every).log_softmax(-1)
        labels = batch["labels"]
        picked = said.gather(-1, labels[:, :, None, None].expand(*said.shape[:3], 1))[..., 0]
        asked = self.guess(torch.cat([given.x, self.model.embed(labels)], -1))
        guess = (asked @ given.k[:, 0].mT * asked.shape[-1] ** -0.5).log_softmax(-1)
        of_mean = -F.cross_entropy(soft.mT, labels, reduction="none")
        return prior.clamp_min(1e-30).log(), picked, guess, of_mean


def soft_loss(parts: tuple[Tensor, ...]) -> Tensor:
    """Return the loss of the mean of all source words: soft attention."""
    return -parts[3].mean()


def exact_loss(parts: tuple[Tensor, ...]) -> Tensor:
    """Return the loss with the source word summed out."""
    return -(parts[0] + parts[1]).logsumexp(-1).mean()


def drawn_loss(parts: tuple[Tensor, ...], guessed: bool) -> Tensor:
    """Return a bound of the loss by one draw per word, of the prior (hard attention) or the guess.

    Gradients of the draw are those of its score, minus the soft model's value as a baseline.
    """
    prior, said, guess, of_mean = parts
    log_q = guess if guessed else prior
    drawn = torch.distributions.Categorical(logits=log_q.detach()).sample()[..., None]
    value, chance = (t.gather(-1, drawn)[..., 0] for t in (said, log_q))
    gain = (value - of_mean).detach()
    apart = (log_q.exp() * (log_q - prior)).sum(-1) if guessed else 0.0
    return -(value + gain * chance + 0.1 * of_mean - apart).mean()  # the baseline learns, too


@claim("Latent Alignment")
def latent() -> Numbers:
    """300 steps of 32 sentences; the loss of the latent models sums the source word out."""
    kinds = {
        "soft": soft_loss,
        "exact": exact_loss,
        "hard": lambda p: drawn_loss(p, False),
        "variational": lambda p: drawn_loss(p, True),
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for seed in SEEDS:
        tested = batches(1000 + seed, 20, shown=False)
        for kind, loss in kinds.items():
            aligned, made = Aligned(seed), iter(batches(seed, 300, shown=False))

            def lost(rng: Any, a: Any = aligned, m: Any = made, f: Any = loss) -> Tensor:
                return f(a.parts(next(m)))

            fit(aligned, lost, steps=300, seed=seed)
            judged = soft_loss if kind == "soft" else exact_loss
            with torch.no_grad():
                found[kind].append(float(np.mean([judged(aligned.parts(b)) for b in tested])))
    soft, exact, hard, variational = map(np.array, found.values())
    return exact - soft, variational - soft, variational - hard


COPY, REVERSE, FIRST = 1, 2, 4


def copied(rng: np.random.Generator, length: int, rows: int = 32) -> Batch:
    """Return sequences to copy or to reverse, as the first token of the target says."""
    source = rng.integers(FIRST, len(WORDS), (rows, length))
    back = rng.random(rows) < 0.5
    target = np.where(back[:, None], source[:, ::-1], source)
    begin = np.where(back, REVERSE, COPY)[:, None]
    given = np.concatenate([begin, target[:, :-1]], 1)
    return batch_of(*map(torch.from_numpy, (source, given, target)))


def right_at_twice(form: str, seed: int) -> float:
    """Train on 3 to 8 tokens; return the share of tokens right on 16."""
    model = translator(form, seed)

    def loss(rng: np.random.Generator) -> Tensor:
        return model(**copied(rng, int(rng.integers(3, 9)))).loss

    fit(model, loss, steps=600, seed=seed)
    tested = copied(np.random.default_rng(1000 + seed), 16, 500)
    with torch.no_grad():
        said = model(**tested).logits.argmax(-1)
    return float((said == tested["labels"]).float().mean())


@claim("Monotonic Location Attention")
def location() -> Numbers:
    """600 steps of 32 sequences; the share of tokens right on sequences of twice the length."""
    by_location, by_content = over_seeds(right_at_twice, "source_location", "source")
    return by_location - by_content


def to_sort(rng: np.random.Generator, length: int, rows: int = 32) -> Batch:
    """Return distinct numbers, those already named, and the places of the next smallest ones."""
    source = FIRST + distinct(rng, rows, len(WORDS) - FIRST)[:, :length]
    order = source.argsort(1)
    target = np.take_along_axis(source, order, 1)
    given = np.concatenate([np.full((rows, 1), BOS), target[:, :-1]], 1)
    return batch_of(*map(torch.from_numpy, (source, given, order)))


def pointed(model: interp.Model, batch: Batch) -> Tensor:
    """Return the weights with which each target position points to the source's places."""
    given = {name: batch[name] for name in ("input_ids", "decoder_input_ids")}
    return model.capture(given, ["map"])["map", 0, "cross"][:, 0]


@claim("Pointer Networks")
def pointer() -> Numbers:
    """400 steps of 32 sequences; share of places right on 8 numbers and on 12."""
    gain: dict[int, list[float]] = {8: [], 12: []}
    for seed in SEEDS:
        points, names = (translator("source_concat", seed, num_attention_heads=1) for _ in "ab")
        seen: list[Any] = []
        points.attention.projected.register_forward_hook(lambda m, a, out, s=seen: s.append(out))

        def of_pointing(rng: np.random.Generator, model: Any = points, seen: Any = seen) -> Tensor:
            batch = to_sort(rng, int(rng.integers(4, 9)))
            model(**batch)
            rows = model.attention.rule.rows(seen[-1], seen[-1].every)[:, 0]
            seen.clear()
            return F.nll_loss(rows.clamp_min(1e-30).log().mT, batch["labels"])

        def of_names(rng: np.random.Generator, model: Any = names) -> Tensor:
            return model(**to_sort(rng, int(rng.integers(4, 9)))).loss

        fit(points, of_pointing, steps=400, seed=seed)
        fit(names, of_names, steps=400, seed=seed)
        loaded = interp.load(points, name="pointer")
        for length, found in gain.items():
            tested = to_sort(np.random.default_rng(1000 + seed), length, 300)
            with torch.no_grad():
                answers = (pointed(loaded, tested), names(**tested).logits)
            right = [float((a.argmax(-1) == tested["labels"]).double().mean()) for a in answers]
            found.append(right[0] - right[1])
    return tuple(gain.values())
