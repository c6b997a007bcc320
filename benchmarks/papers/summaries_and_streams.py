"""Claims on summaries, interference of languages, and translation before its source ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

import interp
from interp.alignment import made_sentence_pairs
from interp.causal import loss
from interp.planted import spoken_words
from interp.planted.with_sound import END, FIRST, RATE, START, SpokenWords
from interp.planted.with_sound import WORDS as HEARD
from interp.policies import EDAtt, simultaneous
from papers.finding import Finding, claim, mean
from training import forms

SEEDS = (0, 1, 2)
Rows = Callable[[np.random.Generator], tuple[Tensor, Tensor]]
Place = tuple[int, int]


def _train(seed: int, rows: Rows, *, width: int, vocabulary: int, mlp: bool) -> interp.Model:
    """Train two layers of four heads on rows with weights of the tokens; return the model."""
    model = forms.build(
        "plain_softmax",
        seed=seed,
        gain=1.0,
        vocab_size=vocabulary,
        hidden_size=width,
        mlp=mlp,
        max_position_embeddings=64,
    )
    rng, adam = np.random.default_rng(seed), torch.optim.Adam(model.parameters())
    for step in range(800):
        for group in adam.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / 800)
        ids, counts = rows(rng)
        each = F.cross_entropy(model(ids).logits[:, :-1].mT, ids[:, 1:], reduction="none")
        adam.zero_grad()
        ((each * counts[:, 1:]).sum() / counts.sum()).backward()
        adam.step()
    return interp.load(model.eval())


# A document is eight sentences "subject verb object ." of which three begin with a mark; its
# summary names subject and object of these, in their order.
BEGIN, STOP, MARK, SUM, NAMES, VERBS, WORDS = 0, 1, 2, 3, 4, 24, 32
SENTENCES, MARKED = 8, 3


def _documents(rng: np.random.Generator, number: int) -> tuple[Tensor, Tensor]:
    """Return documents with their summaries, and which tokens are of summaries."""
    found = []
    for _ in range(number):
        names = NAMES + rng.permutation(20)[: 2 * SENTENCES].reshape(-1, 2)
        verbs = rng.integers(VERBS, WORDS, SENTENCES)
        marked = np.sort(rng.permutation(SENTENCES)[:MARKED])
        ids = [BEGIN]
        for i, ((subject, object_), verb) in enumerate(zip(names, verbs, strict=True)):
            ids += [MARK] * (i in marked) + [subject, verb, object_, STOP]
        found.append([*map(int, [*ids, SUM, *names[marked].flatten()])])
    ids = torch.tensor(found)
    return ids, (torch.arange(ids.shape[1]) >= ids.shape[1] - 2 * MARKED).float().expand(ids.shape)


def _focus(pattern: Tensor, kinds: Tensor, first: int) -> float:
    """Return the largest mean weight of a head's rows of the summary on an offset or a kind."""
    rows = torch.arange(first, pattern.shape[-1])
    places = [float(pattern[:, rows, rows - far].mean()) for far in range(6)]
    own = [float((pattern[:, rows] * (kinds == k)[:, None]).sum(-1).mean()) for k in range(6)]
    return max(*places, *own)


@claim("Attention heads in abstractive summarisation", "decoders trained to summarise, 3 seeds")
def summaries() -> list[Finding]:
    """Find heads for places and kinds of words; ablate each, on generated extractive summaries."""
    right, special, costs = [], [], []
    for seed in SEEDS:

        def rows(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
            ids, summary = _documents(rng, 32)
            return ids, summary + 0.1  # the document is predicted, too, with less weight

        model = _train(seed, rows, width=64, vocabulary=WORDS, mlp=True)
        ids, _ = _documents(np.random.default_rng(100 + seed), 48)
        first = ids.shape[1] - 2 * MARKED
        with torch.no_grad():
            made = model.capture(ids.tolist(), ["pattern"])
            said = model.run(ids.tolist())[:, first - 1 : -1].argmax(-1)
        right.append(float((said == ids[:, first:]).float().mean()))
        kinds = torch.where(ids < NAMES, ids, torch.where(ids < VERBS, NAMES, NAMES + 1))
        focus = {
            (layer, head): _focus(made["pattern", layer][:, head], kinds, first - 1)
            for layer in range(2)
            for head in range(4)
        }
        special.append(max(focus.values()))
        task = loss(model, ids.tolist(), range(first, ids.shape[1]))
        table = interp.causal.leave_one_out(model, task, null="none").to_pandas()
        cost = {(int(r["layer"]), int(r["head"])): float(r["score"]) for _, r in table.iterrows()}
        costs.append(max(cost[h] for h in sorted(focus, key=lambda h: -focus[h])[:3]))
    rows_ = "3 trainings, 48 documents each"
    return [
        mean("share of names of the summary that are right", right, "share", "above", 0.5, rows_),
        mean(
            "largest share of a head's attention on one offset or kind of word",
            special,
            "share",
            "above",
            0.5,
            rows_,
        ),
        mean(
            "largest change of the loss without one of the three most specialised heads",
            costs,
            "nats",
            "below",
            0.1,
            rows_,
        ),
    ]


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


@claim("Shapley head values", "models of two artificial languages, 9 : 1, trained, 5 seeds")
def interference() -> list[Finding]:
    """Prune heads of negative Shapley value for a language; judge on other sentences of it."""
    change, random, number = [], [], 0

    def rows(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        ids = _sentences(rng, (rng.random(32) < 0.1).astype(int))
        return ids, torch.ones(ids.shape)

    for seed in range(5):
        model = _train(seed, rows, width=32, vocabulary=LEXICON + 1, mlp=False)
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
    rows_ = f"{len(change)} of 10 models and languages, {number} heads; 48 sentences to judge"
    return [
        mean(
            "loss of a language without its negative heads minus with them",
            change,
            "nats per token",
            "below",
            0,
            rows_,
        ),
        mean(
            "loss of a language without its negative heads minus without random heads",
            random,
            "nats per token",
            "below",
            0,
            rows_,
        ),
    ]


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
        out = model.generate(
            {"input_features": given["input_features"]},
            9 - prefix.shape[1],
            policy=policy,
            decoder_input_ids=prefix,
            num_beams=1,
        )
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


@claim("Attention as a Guide", "bundled:reorder on text; planted spoken_words on streamed sound")
def edatt() -> list[Finding]:
    """Write while the source is read: EDAtt by aligning heads, by others, or k words behind."""
    model, pairs = interp.load("bundled:reorder"), made_sentence_pairs(32)
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
    text, sound = "32 made sentence pairs", "12 recordings, heard in chunks of 0.2 s"
    return [
        mean(
            "tokens right with EDAtt minus 4 words behind", guided - wait, "share", "above", 0, text
        ),
        mean(
            "lagging of EDAtt minus 4 words behind",
            late[0] - late[2],
            "source words",
            "below",
            0,
            text,
        ),
        mean(
            "tokens right with aligning heads minus another head",
            guided - other,
            "share",
            "above",
            0,
            text,
        ),
        mean(
            "words right of streamed sound with the head that aligns minus the decoy",
            right - _spoken("decoy")[0],
            "share",
            "above",
            0,
            sound,
        ),
        mean(
            "mean delay of a word over the length of the recording",
            early,
            "share",
            "below",
            0.9,
            sound,
        ),
    ]
