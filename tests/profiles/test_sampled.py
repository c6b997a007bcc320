"""Texts that a model writes itself, when it is described on them, and what is said of the text."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beside import FOLDER, STORIES, needs
from click.testing import CliRunner

import interp
from interp.cli.main import main
from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.profiles import Profile
from interp.profiles import sampled as sampling
from interp.profiles.corpus import DocumentCorpus, sample_corpus
from interp.profiles.predictions import Prediction
from interp.profiles.sampled import text_sample, write_texts
from interp.profiles.text_loss import mean_loss, table_loss

SIZE = {"n_documents": 12, "n_queries": 4, "max_length": 32}
FEW: dict[str, Any] = {**SIZE, "rules": ["induction"], "heads": ["L1H0"], "effects": False}
STORY_FILE = FOLDER / "data" / "stories" / "tinystories_1000.json"


@pytest.fixture(scope="module")
def writer() -> interp.Model:
    return interp.load("bundled:induction")


def sample(model: interp.Model, source: Any = None, **options: Any) -> Any:
    options = {"seed": 0, **SIZE, **options}
    return text_sample(model, model.sites, source, "text", None, None, **options)


def test_tokens_are_drawn_from_the_distribution_of_the_model(writer: interp.Model) -> None:
    """Whatever the settings of generation are; the first texts do not depend on the number."""
    shares = writer.run(Prompts(((0,),)))[0, -1].double().softmax(-1).detach().numpy()
    before, state = copy.deepcopy(writer.module.generation_config), torch.get_rng_state()
    plain = write_texts(writer, 640, {"max_length": 2, "seed": 0})
    assert torch.equal(torch.get_rng_state(), state)
    firsts = [text[1] for text in plain if len(text) > 1]
    counts = np.bincount(firsts, minlength=len(shares))
    error = np.sqrt(640 * shares * (1 - shares))
    assert (np.abs(counts - 640 * shares) < 5 * error + 1).all()
    settings: Any = writer.module.generation_config
    settings.update(do_sample=True, top_p=0.1, temperature=0.3, repetition_penalty=9.0, num_beams=2)
    try:
        assert write_texts(writer, 5, {"max_length": 2, "seed": 0}) == plain[:5]
    finally:
        writer.module.generation_config = before
    assert write_texts(writer, 5, {"max_length": 2, "seed": 1}) != plain[:5]


def test_a_model_that_the_bundled_texts_do_not_suit_writes_its_own(
    writer: interp.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = interp.profile(writer, **FEW, resume=tmp_path / "kept")
    about = found.provenance["text"]
    assert found.provenance["corpus"] == "texts sampled from the model"
    assert len(found.texts) == found.provenance["documents_read"] == 12
    assert "and a table of token frequencies has" in about["sampled"]["why"]
    assert about["loss"] < 2
    assert about["table_loss"] > 4
    assert all(text[0] == 0 and len(text) <= 32 for text in found.texts)  # <s>, as before texts
    for suffix in ("json", "parquet"):
        found.save(tmp_path / f"a.{suffix}")
        assert Profile.load(tmp_path / f"a.{suffix}").equals(found)
    again = interp.profile(writer, [*found.texts], **FEW)
    assert again.provenance["corpus_hash"] == found.provenance["corpus_hash"]
    assert again.to_pandas().equals(found.to_pandas())
    monkeypatch.setattr(sampling, "write_texts", lambda *_: pytest.fail("the texts are kept"))
    assert interp.profile(writer, **FEW, resume=tmp_path / "kept").equals(found)


@pytest.fixture(scope="module")
def suited() -> interp.Model:
    """A model that was trained on the bundled texts for a few seconds."""
    model = interp.load("bundled:one-layer")
    module: Any = copy.deepcopy(model.module).float().train()
    texts = [model.tokenizer(x.text)["input_ids"][:128] for x in DocumentCorpus()]
    rows = torch.tensor([ids for ids in texts if len(ids) == 128])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        optimizer = torch.optim.Adam(module.parameters(), 3e-3)
        for _ in range(40):
            ids = rows[torch.randperm(len(rows))[:16]]
            module(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return interp.load(module.eval(), tokenizer=model.tokenizer)


def test_a_model_that_the_bundled_texts_suit_is_described_on_them(
    suited: interp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = sample(suited, n_documents=62).facts
    assert facts["corpus"] == "corpus.jsonl"
    assert facts["text"]["bundled"]
    assert not facts["text"]["foreign"]
    assert facts["text"]["loss"] < facts["text"]["table_loss"]
    monkeypatch.setattr(sampling, "FAR", -100.0)
    monkeypatch.setattr(sampling, "TIMES", 0.0)
    why = sample(suited, n_documents=62).facts["text"]["sampled"]["why"]
    assert "on their first 64 tokens, and" in why
    monkeypatch.setattr(sampling, "write_texts", lambda *_: [[0] * 20] * 32)  # always one text
    alike = sample(suited, n_documents=62).facts
    assert alike["corpus"] == "corpus.jsonl"
    assert alike["text"]["foreign"].endswith("are too short or too alike")


def test_losses_are_those_of_the_tokens_and_of_a_table_of_the_other_half(
    writer: interp.Model,
) -> None:
    rows = sample_corpus(DocumentCorpus(), writer, n_documents=10, max_length=40)
    loss, error, n = mean_loss(writer, Prediction(), rows.windows)
    ratios, sums, table = [], [], []
    for window in rows.windows:
        log_p = writer.run(Prompts((window.ids,)))[0].detach().double().log_softmax(-1)
        nats = [-float(log_p[at, token]) for at, token in enumerate(window.ids[1:])]
        seen = [x for other in rows.windows if other.part != window.part for x in other.ids[1:]]
        kinds = len(set(seen))
        for token in window.ids[1:]:
            share = (seen.count(token) + kinds / 256) / (len(seen) + kinds)
            table.append(-math.log(share))
        sums.append((sum(nats), len(nats)))
    total = sum(x for x, _ in sums) / sum(k for _, k in sums)
    ratios = np.array([x - total * k for x, k in sums]) / np.mean([k for _, k in sums])
    assert n == sum(k for _, k in sums)
    assert loss == pytest.approx(total, abs=1e-5)
    assert error == pytest.approx(ratios.std(ddof=1) / math.sqrt(len(sums)), rel=0.02)
    assert table_loss(writer, Prediction(), rows) == pytest.approx(np.mean(table))


def test_who_cannot_write_texts_says_so(writer: interp.Model) -> None:
    with pytest.raises(OptionError, match=r"has no tokenizer, so it cannot write its corpus"):
        interp.profile("planted:induction", "sampled", **FEW)
    with pytest.raises(PromptError, match="unknown to the tokenizer of bundled:refusal"):
        interp.profile("bundled:refusal", **FEW)


def test_the_screen_says_what_the_text_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [
        f"{a} met {b} by the mill and bought {n} boats for {n + 7} coins."
        for n, (a, b) in enumerate([("Ann", "Bo"), ("Cy", "Di"), ("Ed", "Flo"), ("Gus", "Hal")] * 3)
    ]
    (tmp_path / "sampled").mkdir()
    for at, text in enumerate(texts):
        (tmp_path / "sampled" / f"{at}.txt").write_text(text)

    def first_lines(*corpus: str) -> str:
        few = ["effects=false", "rules=induction", "n_documents=12", "n_queries=4"]
        line = [
            "profile",
            "bundled:induction",
            *corpus,
            "--heads",
            "L1H0",
            *(x for y in few for x in ("--set", y)),
        ]
        done = CliRunner().invoke(main, line, catch_exceptions=False)
        return " ".join(done.output.partition("\n\n")[0].split())

    written = first_lines("--corpus", "sampled")
    assert "bundled:induction on texts sampled from the model: 12 of 12 documents" in written
    assert "The model wrote these texts itself (temperature 1, seed 0). Real texts" in written
    given = first_lines("--corpus", "./sampled")
    assert "bundled:induction on sampled: 12 of 12 documents" in given
    assert "nats per next token (standard error over 12 documents" in given
    foreign = first_lines("--corpus", "bundled")
    assert "Warning: this text is foreign to the model (6." in foreign
    assert "These short texts come with the package. Real texts of the kind" in foreign


@pytest.mark.slow
@needs(STORIES)
@needs(STORY_FILE)
def test_texts_of_a_story_model_are_nearer_to_stories_than_the_bundled_ones() -> None:
    """Sink mass, attention on the previous token and entropy, mean difference over heads."""
    model = interp.load(str(STORIES))
    stories = parse_json(STORY_FILE.read_text())[:64]
    found = {
        name: sample(model, source, n_documents=64, max_length=256)
        for name, source in {"own": None, "stories": stories, "bundled": "bundled"}.items()
    }
    text = {name: one.facts["text"] for name, one in found.items()}
    assert text["own"]["sampled"]["why"].startswith("7.")
    assert 2.1 < text["own"]["loss"] < 2.7
    assert text["bundled"]["foreign"]
    assert not text["stories"]["foreign"]
    measured = {}
    for name, one in found.items():
        total, n = torch.zeros(3, len(model.heads())), 0
        for ids in (window.ids[:100] for window in one.windows if len(window.ids) >= 100):
            cache = model.capture(Prompts((ids,)), ["pattern"])
            p = torch.cat([cache["pattern", layer][0] for layer in range(model.n_layers)])
            rows = torch.stack([p[..., 0], -(p.clamp(min=1e-9).log() * p).sum(-1)]).sum(-1)
            total += torch.cat([rows, p.diagonal(-1, 1, 2).sum(-1)[None]])
            n += len(ids)
        measured[name] = total / n
    own, bundled = (
        (measured[name] - measured["stories"]).abs().mean(1) for name in ("own", "bundled")
    )
    assert (own < 0.75 * bundled).all(), (own, bundled)


@needs(FOLDER / "models" / "stories260k")
def test_loss_far_above_that_of_own_texts_is_foreign_though_below_a_table() -> None:
    model = interp.load(str(FOLDER / "models" / "stories260k"))
    about = sample(model).facts["text"]["sampled"]
    assert "on their first 64 tokens, and 1." in about["why"] or "first 32" in about["why"]
