"""Claims about heads of a translator of two languages, and about an encoder of generated sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from benchmarks.paper_findings import Finding
from interp.alignment.translation import translation_heads
from interp.bundled.special_tokens import BOS
from interp.core.head import Head
from interp.core.random_state import drawn_with
from interp.core.rank_statistics import spearman
from interp.model.edits import zero
from papers.finding import above, below, claim, exact
from papers.fitting import distinct, fit
from training.forms.language_model import VariantBlock, VariantConfig
from training.train_reorder import Recipe, build_model

SEEDS = (0, 1, 2)
END, CONCEPTS, FIRST = 4, 11, 5  # token of the end; words of each language; the first word
Pairs = list[tuple[list[int], list[int]]]


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
        source = FIRST + CONCEPTS * language + said[order]
        found.append(([*source.tolist(), END], [*(FIRST + 2 * CONCEPTS + said).tolist(), END]))
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


@claim(
    "Multilingual NMT heads",
    "encoder-decoders of 2 + 2 layers of 4 heads, trained for 700 "
    "steps from two artificial languages of different word order into a third",
)
def multilingual() -> list[Finding]:
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
        heads = [
            Head(int(r["layer"]), int(r["head"]), r["stack"]) for r in table.to_dict("records")
        ]
        third = len(heads) // 3
        picks = [np.random.default_rng(i).permutation(len(heads))[:third] for i in range(5)]
        chance = np.mean([loss_without(model, [heads[i] for i in pick]) for pick in picks])
        cost.append(
            float(
                (loss_without(model, heads[:third]) - loss_without(model, []))
                / (chance - loss_without(model, []))
            )
        )
    return [
        above(
            "rank correlation of the heads' importance for the two languages",
            alike,
            "3 seeds, 16 heads of encoder and cross attention",
            0.5,
            "rank correlation",
        ),
        below(
            "rise of the loss without the least important third of heads, as a share of that "
            "without a random third",
            cost,
            "3 seeds, 200 sentences",
            0.1,
            "share",
        ),
    ]


# --- sound ---

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
        sizes: Any = {"hidden_size": 32, "num_attention_heads": 4}
        forms = (
            ("grouped_positions", "both_ways", "both_ways") if progressive else ("both_ways",) * 3
        )
        with drawn_with(seed):
            self.embed = nn.Conv1d(BANDS, 32, 3, 2, 1)
            self.places = nn.Parameter(0.1 * torch.randn(FRAMES, 32))
            self.blocks = nn.ModuleList(
                VariantBlock(VariantConfig(**sizes), i, forms.rule_class(form))
                for i, form in enumerate(forms)
            )
            self.shorter = nn.ModuleList(
                nn.Conv1d(32, 32, 3, 2, 1) for _ in range(2 if progressive else 0)
            )
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


@claim(
    "Efficient conformer",
    "three blocks trained by CTC on generated sound, with "
    "variant:grouped_positions first and fewer positions step by step, or neither",
)
def conformer() -> list[Finding]:
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
    return [
        below(
            "clips with an error, grouped and shortened positions minus neither",
            gap,
            "3 seeds, 300 held-out clips each",
            0.02,
            "share",
        ),
        exact(
            "multiplications with grouped and shortened positions over neither",
            cost,
            "ratio",
            "below",
            0.71,
            "counted over three blocks",
        ),
    ]
