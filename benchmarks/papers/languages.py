"""Claims on languages and sound: translators, interference, words written while they are heard."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.alignment import made_sentence_pairs
from interp.alignment.translation import translation_heads
from interp.bundled.special_tokens import BOS
from interp.causal import loss
from interp.core.head import Head
from interp.core.random_state import drawn_with
from interp.core.rank_statistics import spearman
from interp.model.edits import zero
from interp.planted import spoken_words
from interp.planted.with_sound import END, FIRST, RATE, START, SpokenWords
from interp.planted.with_sound import WORDS as HEARD
from interp.policies import EDAtt, simultaneous
from papers.finding import Numbers, claim, counted
from papers.fitting import PLAIN, distinct, fit
from papers.hosts import Host
from training import forms
from training.forms import rule_class
from training.forms.language_model import VariantBlock, VariantConfig
from training.train_reorder import Recipe, build_model

SEEDS = (0, 1, 2)
STOP, CONCEPTS, FIRST_WORD = 4, 11, 5  # token of the end; words of each language; the first word
Pairs = list[tuple[list[int], list[int]]]
Place = tuple[int, int]


def sentences(language: int, seed: int, number: int, length: int | None = None) -> Pairs:
    """Return sentences of a language with their translation; the second language is verb-final.

    The first word of the target stands first in language 0 and last in language 1, in which
    neighbours are swapped, too. Words of the three languages differ.
    """
    rng = np.random.default_rng([seed, language, length or 0])
    found: Pairs = []
    for _ in range(number):
        size = length or int(rng.integers(4, 8))
        said = rng.permutation(CONCEPTS)[:size]
        order = np.arange(size)
        if language:
            order = np.r_[np.arange(1, size), 0]
            order[: size - size % 2] = order[: size - size % 2].reshape(-1, 2)[:, ::-1].ravel()
        source = FIRST_WORD + CONCEPTS * language + said[order]
        found.append(
            ([*source.tolist(), STOP], [*(FIRST_WORD + 2 * CONCEPTS + said).tolist(), STOP])
        )
    return found


def batch_of(pairs: Pairs) -> dict[str, Tensor]:
    """Return pairs of one length as the model reads them."""
    target = torch.tensor([pair[1] for pair in pairs])
    begin = torch.full((len(pairs), 1), BOS)
    return {
        "input_ids": torch.tensor([pair[0] for pair in pairs]),
        "labels": target,
        "decoder_input_ids": torch.cat([begin, target[:, :-1]], 1),
    }


@torch.no_grad()
def loss_without(model: interp.Model, heads: list[Head]) -> float:
    """Return the mean loss per word on held-out sentences of both languages, some heads at zero."""
    found = []
    edits = [zero([h for h in heads if h.stack == s], stack=s) for s in {h.stack for h in heads}]
    for language in (0, 1):
        given = batch_of(sentences(language, 999, 100, 6))
        labels = given.pop("labels")
        found.append(float(F.cross_entropy(model.run(given, edits=edits).mT, labels)))
    return float(np.mean(found))


@claim("Multilingual NMT heads")
def multilingual() -> Numbers:
    """Importance of a head: the rise of the loss per word without it, for each language."""
    alike, cost = [], []
    for seed in SEEDS:
        with drawn_with(seed):
            module = build_model(Recipe(heads=4))

        def loss(rng: np.random.Generator, module: Any = module) -> Any:
            draw, size = int(rng.integers(10**6)), int(rng.integers(4, 8))
            both = [p for language in (0, 1) for p in sentences(language, draw, 16, size)]
            return module(**batch_of(both)).loss

        fit(module, loss, steps=700, seed=seed)
        model = interp.load(module, name="two languages")
        found = [
            translation_heads(model, sentences(language, 500 + seed, 60), null=False).to_pandas()
            for language in (0, 1)
        ]
        table = found[0].assign(other=found[1]["score"])
        table = table[table["stack"].isin(["encoder", "cross"])]
        alike.append(float(spearman(np.asarray(table[["score", "other"]], dtype=float).T)[0, 1]))
        table = table.assign(both=table["score"] + table["other"]).sort_values("both")
        rows = table.to_dict("records")
        heads = [Head(int(r["layer"]), int(r["head"]), r["stack"]) for r in rows]
        third = len(heads) // 3
        picks = [np.random.default_rng(i).permutation(len(heads))[:third] for i in range(5)]
        chance = np.mean([loss_without(model, [heads[i] for i in pick]) for pick in picks])
        whole = loss_without(model, [])
        cost.append(float((loss_without(model, heads[:third]) - whole) / (chance - whole)))
    return alike, cost


BANDS, FRAMES, WORDS, SPOKEN = 8, 64, 6, 4


def clips(rng: np.random.Generator, number: int) -> tuple[Tensor, Tensor]:
    """Return clips of 4 words of 8 to 14 noisy frames each, and the words; no word comes twice."""
    shapes = np.random.default_rng(0).normal(0, 1, (WORDS + 1, 2, BANDS))
    shapes[0] = 0
    sound = rng.normal(0, 1.0, (number, FRAMES, BANDS))
    words = 1 + distinct(rng, number, WORDS)[:, :SPOKEN]
    for clip, spoken in zip(sound, words, strict=True):
        at = 0
        for word in spoken:
            long = int(rng.integers(8, 15))
            for half in (0, 1):
                clip[at + half * long // 2 : at + (half + 1) * long // 2] += shapes[word, half]
            at += long + int(rng.integers(0, 3))
    return torch.tensor(sound).float(), torch.tensor(words)


class Encoder(nn.Module):
    """Three blocks over pairs of frames; positions are halved again after each block, or not."""

    def __init__(self, seed: int, progressive: bool):
        super().__init__()
        config = VariantConfig(hidden_size=32, num_attention_heads=4)
        first = "grouped_positions" if progressive else "both_ways"
        with drawn_with(seed):
            self.embed = nn.Conv1d(BANDS, 32, 3, 2, 1)
            self.places = nn.Parameter(0.1 * torch.randn(FRAMES, 32))
            self.blocks = nn.ModuleList(
                VariantBlock(config, i, rule_class(form))
                for i, form in enumerate((first, "both_ways", "both_ways"))
            )
            shorter = (nn.Conv1d(32, 32, 3, 2, 1) for _ in range(2 if progressive else 0))
            self.shorter = nn.ModuleList(shorter)
            self.head = nn.Linear(32, WORDS + 1)

    def forward(self, sound: Tensor) -> tuple[Tensor, int]:
        """Return the log-probabilities of words, and the multiplications of the blocks."""
        x, cost = self.embed(sound.mT).mT, 0
        x = x + self.places[: x.shape[1]]
        for i, block in enumerate(self.blocks):
            length, grouped = x.shape[1], len(self.shorter) and i == 0
            cost += 12 * length * 32**2 + 2 * length**2 * 32 // (2 if grouped else 1)
            x = block(x)
            if i < len(self.shorter):
                x = self.shorter[i](x.mT).mT
                cost += 3 * x.shape[1] * 32**2
        return self.head(x).log_softmax(-1), cost


def ctc(model: Encoder, sound: Tensor, words: Tensor) -> Tensor:
    """Return the loss of the words without their places in the clip."""
    said = model(sound)[0].transpose(0, 1)
    sizes = torch.full((len(words),), len(said)), torch.full((len(words),), SPOKEN)
    return F.ctc_loss(said, words, *sizes)


@torch.no_grad()
def words_wrong(model: Encoder, seed: int) -> float:
    """Return the share of held-out clips whose words are not all right in order."""
    sound, words = clips(np.random.default_rng([seed, 99]), 300)
    wrong = 0
    for said, spoken in zip(model(sound)[0].argmax(-1).tolist(), words.tolist(), strict=True):
        kept = [w for w, before in zip(said, [0, *said], strict=False) if w and w != before]
        wrong += kept != spoken
    return wrong / len(words)


@claim("Efficient conformer")
def conformer() -> Numbers:
    """400 steps of 32 clips; clips with an error, and multiplications of the blocks."""
    gap, cost = [], 0.0
    for seed in SEEDS:
        errors, costs = [], []
        for progressive in (True, False):
            model = Encoder(seed, progressive)
            fit(model, lambda rng, m=model: ctc(m, *clips(rng, 32)), steps=400, seed=seed)
            errors.append(words_wrong(model, seed))
            costs.append(model(torch.zeros(1, FRAMES, BANDS))[1])
        gap.append(errors[0] - errors[1])
        cost = costs[0] / costs[1]
    return gap, cost


def _trained(seed: int) -> interp.Model:
    """Return two layers of four heads that were trained on sentences of both languages."""
    sizes: Any = {"vocab_size": LEXICON + 1, "hidden_size": 32, "max_position_embeddings": 64}
    model = forms.build("plain_softmax", seed=seed, gain=1.0, mlp=False, **sizes)

    def loss(rng: np.random.Generator) -> Tensor:
        ids = _sentences(rng, (rng.random(32) < 0.1).astype(int))
        each = F.cross_entropy(model(ids).logits[:, :-1].mT, ids[:, 1:], reduction="none")
        return each.sum() / ids.numel()

    fit(model, loss, steps=800, seed=seed, rate=3e-3, **PLAIN)
    return interp.load(model)


# Two languages with the same words and their own grammars: in one the next word follows from the
# last one, in the other from the one before it. Nine of ten sentences are of the first. No token
# names the language: with one that does, no head has a negative value, so nothing is to be pruned.
LANGUAGES, LEXICON, LENGTH = 2, 24, 20


def _sentences(rng: np.random.Generator, language: Int[np.ndarray, " row"]) -> Tensor:
    grammar = np.random.default_rng(7)
    follows = np.stack([grammar.permutation(LEXICON) for _ in range(LANGUAGES)])
    words = np.zeros((len(language), LENGTH), int)
    words[:, :2] = rng.integers(LEXICON, size=(len(language), 2))
    for at in range(2, LENGTH):
        before = np.where(language == 0, words[:, at - 1], words[:, at - 2])
        free = rng.random(len(language)) < 0.1
        any_ = rng.integers(LEXICON, size=len(language))
        words[:, at] = np.where(free, any_, follows[language, before])
    return torch.tensor(np.concatenate([np.full((len(words), 1), LEXICON), words], 1))


def _loss(model: interp.Model, ids: Tensor, heads: list[Place]) -> float:
    with torch.no_grad():
        logits = model.run(ids.tolist(), edits=[interp.zero(heads)] if heads else [])
    return float(F.cross_entropy(logits[:, 2:-1].mT, ids[:, 3:]))


@claim("Shapley head values")
def interference() -> Numbers:
    """Prune heads of negative Shapley value for a language; judge on other sentences of it."""
    change, random, number = [], [], 0
    for seed in range(5):
        model = _trained(seed)
        rng = np.random.default_rng(50 + seed)
        for language in range(LANGUAGES):
            first, judged = (_sentences(rng, np.full(48, language)) for _ in range(2))
            task = loss(model, first.tolist(), range(3, LENGTH + 1))
            table = interp.shapley(model, task, method="exact").to_pandas()
            heads = [(int(r["layer"]), int(r["head"])) for _, r in table.iterrows()]
            worst = [h for h, value in zip(heads, table["score"], strict=True) if value < 0]
            number += len(worst)
            draws = [[heads[i] for i in rng.permutation(8)[: len(worst)]] for _ in range(5)]
            whole, pruned, *others = (_loss(model, judged, h) for h in ([], worst, *draws))
            if worst:
                change.append(pruned - whole)
                random.append(pruned - np.mean(others))
    of = f"of 10 models and languages, {number} heads; 48 sentences to judge"
    return counted(change, of), counted(random, of)


@cache
def _hearing() -> tuple[SpokenWords, interp.Model]:
    made = spoken_words()
    return made, interp.load(made.model)


def _heard(sound: np.ndarray, head: Place) -> tuple[list[int], list[float]]:
    """Write words while a recording is heard in chunks of 0.2 s; return them and their delays."""
    made, model = _hearing()
    written: list[int] = []
    late: list[float] = []
    step, extract = RATE // 5, made.processor.feature_extractor
    for heard in range(step, len(sound) + step, step):
        given = extract(sound[:heard], sampling_rate=RATE, return_tensors="pt")
        frames = range(min(heard, len(sound)) // 320)  # a position of the encoder is 20 ms
        policy = EDAtt([interp.Head(*head)], 0.3, 10, frames) if heard < len(sound) else None
        prefix = torch.tensor([[START, *written]])
        if prefix.shape[1] > 8:
            break
        heard_so_far, left = {"input_features": given["input_features"]}, 9 - prefix.shape[1]
        how: Any = {"policy": policy, "decoder_input_ids": prefix, "num_beams": 1}
        out = model.generate(heard_so_far, left, **how)
        for token in out.ids[0, prefix.shape[1] :].tolist():
            if token == END:
                break
            written.append(token)
            late.append(min(heard, len(sound)) / RATE)
    return written, late


def _spoken(head: str) -> tuple[np.ndarray, np.ndarray]:
    """Return per recording the share of words right, and the mean delay over the whole length."""
    made, _ = _hearing()
    right, late = [], []
    for sound, words in made.sounds(12, seed=3):
        written, delays = _heard(sound, getattr(made, head))
        wanted = [FIRST + HEARD.index(word) for word, _ in words]
        hits = sum(a == b for a, b in zip(written, wanted, strict=False))
        right.append(hits / len(wanted))
        late.append(np.mean(delays) * RATE / len(sound) if delays else 1.0)
    return np.array(right), np.array(late)


@claim("Attention as a Guide", kind="translator")
def edatt(host: Host) -> Numbers:
    """Write while the source is read: EDAtt by aligning heads, by others, or k words behind."""
    model, pairs = host.model, made_sentence_pairs(32)
    done = [
        simultaneous(model, pairs, policy, values=[value], heads=heads)
        for policy, value, heads in (
            ("edatt", 0.3, ["L1H0", "L1H1"]),
            ("edatt", 0.3, ["L0H1"]),
            ("wait-k", 4, None),
        )
    ]
    guided, other, wait = (np.asarray(x.per_prompt)[0] for x in done)
    late = [x.arrays["each_lagging"][0] for x in done]
    right, early = _spoken("emits")
    return guided - wait, late[0] - late[2], guided - other, right - _spoken("decoy")[0], early
