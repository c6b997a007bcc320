"""Claims on interference of languages, and on translation before its source ends."""

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
from papers.finding import Finding, above, below, claim
from papers.fitting import step_down
from papers.hosts import Host
from training import forms

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
        ids, counts = rows(rng)
        each = F.cross_entropy(model(ids).logits[:, :-1].mT, ids[:, 1:], reduction="none")
        step_down(
            adam,
            (each * counts[:, 1:]).sum() / counts.sum(),
            3e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / 800),
        )
    return interp.load(model.eval())


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
        below(
            "loss of a language without its negative heads minus with them",
            change,
            rows_,
            unit="nats per token",
        ),
        below(
            "loss of a language without its negative heads minus without random heads",
            random,
            rows_,
            unit="nats per token",
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


@claim("Attention as a Guide", kind="translator")
def edatt(host: Host) -> list[Finding]:
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
    text, sound = "32 made sentence pairs", "12 recordings, heard in chunks of 0.2 s"
    return [
        above("tokens right with EDAtt minus 4 words behind", guided - wait, text, unit="share"),
        below(
            "lagging of EDAtt minus 4 words behind", late[0] - late[2], text, unit="source words"
        ),
        above(
            "tokens right with aligning heads minus another head",
            guided - other,
            text,
            unit="share",
        ),
        above(
            "words right of streamed sound with the head that aligns minus the decoy",
            right - _spoken("decoy")[0],
            sound,
            unit="share",
        ),
        below("mean delay of a word over the length of the recording", early, sound, 0.9, "share"),
    ]
