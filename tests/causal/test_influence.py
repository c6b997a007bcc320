"""Data scoring against two plain forwards per text, on known mechanisms, and after a kill."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest
import torch
import zoo
from core.kept import rows
from torch.nn import functional as F

import interp
from interp.causal import attention_influence
from interp.causal.game.verify import reuse_of
from interp.causal.influence import score as influence
from interp.causal.influence.result import COLUMNS, TextScores
from interp.core.errors import OptionError, PromptError, StoreError, UnknownName
from interp.core.head import Head
from interp.core.prompts import repeats
from interp.model import edits
from interp.model.locate.probe import probe
from interp.model.pattern_edits import uniform
from interp.planted import build

MASKS = {"uniform-attention": uniform, "zero": edits.zero}
HEADS = ["L0H1", "L1H2", "L1H5"]


@cache
def tiny():
    return probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")


@cache
def bundled():
    return interp.load("bundled:induction")


def id_lists(n=9, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(4, 40, size=k).tolist() for k in rng.integers(3, 12, size=n)]


def naive(model, ids, edit=()):
    """Loss by one plain forward of one text."""
    with torch.no_grad():
        logits = model.run([list(ids)], list(edit))[0, :-1].double()
    return float(F.cross_entropy(logits, torch.tensor(ids[1:])))


@pytest.mark.parametrize("kind", MASKS)
def test_losses_equal_plain_forwards_of_each_text(kind):
    model, texts = tiny(), id_lists()
    found = attention_influence(model, texts, HEADS, kind=kind, n_random=3, max_tokens=25, seed=2)
    rows = list(found)
    assert [set(r) for r in rows] == [set(COLUMNS)] * len(texts)
    for row, ids in zip(rows, texts, strict=True):
        clean, masked = naive(model, ids), naive(model, ids, [MASKS[kind](HEADS)])
        random = [naive(model, ids, [MASKS[kind](s)]) for s in found.settings["random_sets"]]
        null = [(x - clean) / clean for x in random]
        assert row["loss"] == pytest.approx(clean, abs=1e-6)
        assert row["loss_masked"] == pytest.approx(masked, abs=1e-6)
        assert row["difference"] == pytest.approx(masked - clean, abs=1e-6)
        assert row["relative"] == pytest.approx((masked - clean) / clean, abs=1e-6)
        assert row["null_mean"] == pytest.approx(np.mean(null), abs=1e-6)
        assert row["null_sd"] == pytest.approx(np.std(null, ddof=1), abs=1e-6)
        want = (row["relative"] - row["null_mean"]) / row["null_sd"]
        assert row["z"] == pytest.approx(want)
        assert (row["n_tokens"], row["n_scored"], row["cut"]) == (len(ids), len(ids) - 1, "")
    assert max(abs(r["difference"]) for r in rows) > 1e-4


def test_repeated_tokens_need_the_induction_heads_and_shuffled_ones_do_not():
    model = bundled()
    told = repeats(model, n=6, max_length=24, seed=1)
    texts = [*told.ids, *told.shuffled(0, True).ids]
    induction = [f"L1H{h}" for h in range(8)]
    frame = attention_influence(model, texts, induction).to_pandas()
    repeated, shuffled = frame["relative"][:6], frame["relative"][6:]
    assert repeated.min() > 0.5
    assert shuffled.abs().max() < 0.2
    assert frame["null_mean"].isna().all()  # the layer has no other heads to draw from
    writers = attention_influence(model, texts, ["L0H2", "L0H3"]).to_pandas()
    assert writers["relative"][:6].min() > 0.4
    assert writers["null_mean"][:6].abs().max() < 0.1
    assert writers["z"][:6].min() > 3
    assert writers["z"][6:].max() < 3


def test_random_sets_and_the_bystander_do_nothing_in_a_planted_model():
    p = build("bystander")
    model = probe(p.model, "planted:bystander")
    told = repeats(model, n=5, max_length=20)
    (head,), (bystander,) = p.roles["induction"], p.roles["bystander"]
    frame = attention_influence(model, told.ids, [head], n_random=3).to_pandas()
    assert frame["relative"].min() > 0.1
    assert (frame["null_mean"].abs() < 1e-3 * frame["relative"]).all()
    idle = attention_influence(model, told.ids, [bystander], n_random=0).to_pandas()
    assert (idle["relative"].abs() < 1e-3 * frame["relative"]).all()
    assert idle["z"].isna().all()


def test_random_sets_have_as_many_other_heads_in_each_layer():
    sets = attention_influence(tiny(), [[5, 6]], HEADS, n_random=20).settings["random_sets"]
    assert len(sets) == 20
    assert len({tuple(s) for s in sets}) == 20
    for chosen in sets:
        assert [h[:2] for h in chosen] == ["L0", "L1", "L1"]
        assert not set(chosen) & set(HEADS)
    one = attention_influence(tiny(), [[5, 6]], Head(1, 2), n_random=0)
    assert one.settings["heads"] == ["L1H2"]
    most = [f"L0H{h}" for h in range(4)]  # two others are too few for four: of all six then
    crowded = attention_influence(tiny(), [[5, 6]], most, n_random=50).settings["random_sets"]
    assert len(crowded) == math.comb(6, 4) - 1
    assert most not in crowded
    again = attention_influence(tiny(), [[5, 6]], HEADS, n_random=20, seed=1)
    assert again.settings["random_sets"] != sets


def test_texts_that_say_nothing_are_kept_with_the_reason(tmp_path):
    model = bundled()
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\n\n   \nthe end", encoding="utf-8")
    frame = attention_influence(model, path, ["L0H3"], n_random=0).to_pandas()
    assert frame["reason"].tolist() == ["", "empty", "empty", ""]
    assert frame["relative"].isna().tolist() == [False, True, True, False]
    assert frame["id"].tolist() == [1, 2, 3, 4]
    short = attention_influence(model, [[5], [5, 6], []], ["L0H3"], n_random=0).to_pandas()
    assert short["reason"].tolist() == ["one token, so nothing is predicted", "", "empty"]
    assert short["n_tokens"].tolist() == [1, 2, 0]
    odd = attention_influence(model, ["a \ud800 b", "fine words"], ["L0H3"], n_random=0)
    assert odd.to_pandas()["reason"].tolist() == ["no valid Unicode", ""]


def test_json_lines_keep_their_ids(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "the cat", "id": "a7"}\n\n{"text": "a dog ran", "lang": "en"}\n')
    found = attention_influence(bundled(), path, ["L0H3"], n_random=0)
    frame = found.to_pandas()
    assert frame["id"].tolist() == ["a7", 3]
    plain = attention_influence(bundled(), ["the cat", "a dog ran"], ["L0H3"], n_random=0)
    np.testing.assert_array_equal(frame["loss"], plain.to_pandas()["loss"])
    ids = bundled().tokenizer("a dog ran")["input_ids"]
    assert frame["loss"][1] == pytest.approx(naive(bundled(), ids), abs=1e-6)


def test_long_texts_are_cut_and_the_row_says_so():
    model, text = tiny(), id_lists(1)[0] * 4
    limit = 10
    cut = attention_influence(model, [text], HEADS, n_random=0, max_length=limit)
    (row,) = cut
    assert row["cut"] == f"first 10 of {len(text)} tokens"
    assert row["loss"] == pytest.approx(naive(model, text[:limit]), abs=1e-6)
    assert (row["n_tokens"], row["n_scored"]) == (len(text), 9)
    text = text[:21]  # the last window is one token, which nothing predicts
    (row,) = attention_influence(model, [text], HEADS, n_random=0, max_length=limit, long="windows")
    assert row["cut"] == "2 windows of at most 10 tokens"
    windows = [text[:10], text[10:20]]
    assert row["loss"] == pytest.approx(np.mean([naive(model, w) for w in windows]), abs=1e-6)
    text = text[:14]
    (row,) = attention_influence(model, [text], HEADS, n_random=0, max_length=limit, long="windows")
    want = (9 * naive(model, text[:10]) + 3 * naive(model, text[10:])) / 12
    assert row["loss"] == pytest.approx(want, abs=1e-6)
    assert row["n_scored"] == 12
    words = bundled()
    (row,) = attention_influence(words, ["x y " * 300], ["L0H3"], n_random=0)
    assert row["cut"] == f"first 256 of {row['n_tokens']} tokens"
    (row,) = attention_influence(words, ["x y " * 300], ["L0H3"], n_random=0, long="windows")
    ids = words.tokenizer("x y " * 300)["input_ids"]
    bos, rest = ids[0], ids[1:]
    windows = [[bos, *rest[i : i + 255]] for i in range(0, len(rest), 255)]
    losses = [naive(words, w) for w in windows]
    counts = [len(w) - 1 for w in windows]
    assert row["loss"] == pytest.approx(np.average(losses, weights=counts), abs=1e-6)


def test_texts_are_read_as_they_are_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(influence, "_BLOCK", 4)
    out = tmp_path / "scores.jsonl"
    ahead = []

    def texts():
        for i, ids in enumerate(id_lists(22)):
            written = b"".join(rows(tmp_path).values()).count(b"\n")
            ahead.append(i - written)
            yield ids

    told = []
    found = attention_influence(
        tiny(), texts(), HEADS, n_random=0, out=out, progress=lambda *x: told.append(x)
    )
    assert max(ahead) <= 4
    assert [x[1] for x in told] == [4, 8, 12, 16, 20, 22]
    assert len(found) == 22
    assert [r["number"] for r in found] == list(range(22))


def test_an_interrupted_run_gives_the_identical_file(tmp_path, monkeypatch):
    monkeypatch.setattr(influence, "_BLOCK", 4)
    texts, options = id_lists(14), {"n_random": 2, "max_tokens": 30}
    whole = tmp_path / "whole.jsonl"
    attention_influence(tiny(), texts, HEADS, out=whole, **options)
    want = whole.read_bytes()
    assert want.count(b"\n") == 15

    def killed():
        yield from texts[:10]
        raise KeyboardInterrupt

    part = tmp_path / "part.jsonl"
    with pytest.raises(KeyboardInterrupt):
        attention_influence(tiny(), killed(), HEADS, out=part, **options)
    assert not part.exists(), "a file is written whole, or not at all"
    kept = rows(tmp_path)
    assert [kept[name].count(b"\n") for name in sorted(kept)] == [4, 4]
    assert b"".join(kept[name] for name in sorted(kept)) in want
    ran = []
    own = influence._Run.rows
    monkeypatch.setattr(
        influence._Run,
        "rows",
        lambda self, block, cuts: ran.append(len(block)) or own(self, block, cuts),
    )
    attention_influence(tiny(), texts, HEADS, out=part, **options)
    assert part.read_bytes() == want
    assert ran == [4, 2]
    assert not rows(tmp_path), "the steps of a finished run are gone"
    # files that were cut off between or within rows
    header = want.index(b"\n") + 1
    for end in (0, header, header + 30, want.rindex(b"\n", 0, -1) + 1, len(want) - 1):
        part.write_bytes(want[:end])
        attention_influence(tiny(), texts, HEADS, out=part, **options)
        assert part.read_bytes() == want, end
    ran.clear()
    attention_influence(tiny(), texts, HEADS, out=part, **options)
    assert ran == []
    damaged = bytearray(want)
    damaged[want.index(b"\n", header) + 1] = ord("?")  # in the second row
    part.write_bytes(damaged)
    attention_influence(tiny(), texts, HEADS, out=part, **options)
    assert part.read_bytes() == want
    assert sorted(p.name for p in tmp_path.iterdir()) == ["part.jsonl", "whole.jsonl"]
    attention_influence(tiny(), texts[:6], HEADS, out=tmp_path / "six.jsonl", **options)
    attention_influence(tiny(), texts, HEADS, out=tmp_path / "six.jsonl", **options)
    assert (tmp_path / "six.jsonl").read_bytes() == want


def test_another_run_may_not_go_on_in_the_file(tmp_path):
    out, texts = tmp_path / "scores.jsonl", id_lists(5)
    options = {"n_random": 2, "out": out}
    attention_influence(tiny(), texts, HEADS, **options)
    before = out.read_bytes()
    with pytest.raises(OptionError, match=r"made with another heads, random_sets; choose"):
        attention_influence(tiny(), texts, ["L2H0"], **options)
    with pytest.raises(OptionError, match="made with another kind"):
        attention_influence(tiny(), texts, HEADS, kind="zero", **options)
    other = probe(zoo.FAMILIES["llama"].build("sdpa"), "llama")
    with pytest.raises(OptionError, match="content_hash, model"):
        attention_influence(other, texts, HEADS, **options)
    with pytest.raises(OptionError, match=r"a different text at text 3 \(id 3\)"):
        attention_influence(tiny(), [*texts[:3], [9, 9], texts[4]], HEADS, **options)
    with pytest.raises(OptionError, match="more texts than are given"):
        attention_influence(tiny(), texts[:2], HEADS, **options)
    assert out.read_bytes() == before
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes\n")
    with pytest.raises(StoreError, match="does not contain scores of texts"):
        attention_influence(tiny(), texts, HEADS, out=notes)
    assert notes.read_text() == "my notes\n"
    with pytest.raises(StoreError, match="it is a folder"):
        attention_influence(tiny(), texts, HEADS, out=tmp_path)


def test_scores_are_read_back_from_the_file(tmp_path):
    out, texts = tmp_path / "deep" / "scores.jsonl", [*id_lists(4), [7]]
    written = attention_influence(tiny(), texts, HEADS, n_random=2, out=out)
    held = attention_influence(tiny(), texts, HEADS, n_random=2)
    assert written.to_pandas().equals(held.to_pandas())
    again = TextScores.read(out)
    assert again.to_pandas().equals(held.to_pandas())
    assert again.settings == json.loads(json.dumps(dict(held.settings)))
    assert len(again) == len(held) == 5
    best = again.top(2, by="difference")
    assert (
        best.to_pandas()["difference"].tolist() == sorted(held.to_pandas()["difference"][:4])[:1:-1]
    )
    assert "5 texts, 4 scored, without L0H1, L1H2, L1H5" in repr(again)
    with pytest.raises(UnknownName, match="unknown order"):
        again.top(by="reason")
    with pytest.raises(StoreError, match="cannot read"):
        TextScores.read(tmp_path / "none.jsonl")


def test_a_loss_that_is_not_finite_costs_only_its_own_text():
    model, texts = tiny(), id_lists(6)
    reuse_of(model)  # tried on its own tokens before the model is broken
    want = attention_influence(model, texts, HEADS, n_random=0).to_pandas()
    bad = [*texts[:2], [41, 5, 6], *texts[2:]]

    def broken(module, args, output):
        return torch.where((args[0] == 41)[..., None], torch.nan, output)

    handle = model.module.get_input_embeddings().register_forward_hook(broken)
    try:
        got = attention_influence(model, bad, HEADS, n_random=0).to_pandas()
    finally:
        handle.remove()
    assert got["reason"][2] == "the loss is NaN or infinite"
    assert np.isnan(got["relative"][2])
    np.testing.assert_allclose(got.drop(2)["relative"], want["relative"], atol=1e-6)


def test_files_without_texts_and_malformed_lines_are_named(tmp_path):
    def scored(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return attention_influence(bundled(), path, ["L0H3"], n_random=0)

    with pytest.raises(PromptError, match=r"empty\.txt contains no text"):
        scored("empty.txt", b"")
    with pytest.raises(PromptError, match=r"blank\.jsonl contains no text"):
        scored("blank.jsonl", b"\n\n")
    with pytest.raises(PromptError, match=r"a\.jsonl line 2 is not valid JSON"):
        scored("a.jsonl", b'{"text": "a b"}\n{"text": \n')
    with pytest.raises(PromptError, match=r"b\.jsonl line 1 has no text in a field 'text'; its fi"):
        scored("b.jsonl", b'{"content": "a b"}\n')
    with pytest.raises(PromptError, match=r"c\.jsonl line 3 is a str, not an object"):
        scored("c.jsonl", b'{"text": "a b"}\n\n"a b"\n')
    with pytest.raises(PromptError, match=r"d\.txt is not UTF-8 text"):
        scored("d.txt", b"fine\n\xff\xfe\n")
    with pytest.raises(UnknownName, match=r"kind of text file '\.csv'"):
        scored("e.csv", b"a,b\n")
    with pytest.raises(PromptError, match=r"none\.txt cannot be read"):
        attention_influence(bundled(), tmp_path / "none.txt", ["L0H3"])
    assert scored("f.txt", b"\xef\xbb\xbfa b\r\nc d\r\n").to_pandas()["n_tokens"].tolist() == [
        len(bundled().tokenizer(t)["input_ids"]) for t in ("a b", "c d")
    ]


def test_bad_sets_and_options_are_refused():
    model, texts = tiny(), [[5, 6, 7]]
    with pytest.raises(OptionError, match="no head is named"):
        attention_influence(model, texts, [])
    with pytest.raises(OptionError, match="all 18 heads of gpt2 are named"):
        attention_influence(model, texts, model.heads())
    with pytest.raises(OptionError, match="gpt2 has no head L9H0"):
        attention_influence(model, texts, ["L9H0"])
    with pytest.raises(UnknownName, match="kind of masking 'mean-batch'"):
        attention_influence(model, texts, HEADS, kind="mean-batch")
    with pytest.raises(UnknownName, match="unknown value of long 'drop'; known: truncate, windows"):
        attention_influence(model, texts, HEADS, long="drop")
    with pytest.raises(OptionError, match="n_random=1"):
        attention_influence(model, texts, HEADS, n_random=1)
    with pytest.raises(OptionError, match="max_length=1; it must be at least 2"):
        attention_influence(model, texts, HEADS, max_length=1)
    with pytest.raises(OptionError, match="reads at most"):
        attention_influence(model, texts, HEADS, max_length=10**6)
    with pytest.raises(OptionError, match="max_tokens must be at least 1, not 0"):
        attention_influence(model, texts, HEADS, max_tokens=0)
    with pytest.raises(OptionError, match=r"texts must be a pathlib\.Path or a list, and the text"):
        attention_influence(model, "texts.txt", HEADS)
    with pytest.raises(PromptError, match="gpt2 has no tokenizer"):
        attention_influence(model, ["words"], HEADS)
    with pytest.raises(PromptError, match="text 1 holds the token id"):
        attention_influence(model, [[5, 6], [5, 10**6]], HEADS)
    with pytest.raises(PromptError, match="text 0 is a int"):
        attention_influence(model, [5, 6], HEADS)
    encoder = probe(zoo.FAMILIES["bert"].build("sdpa"), "bert")
    with pytest.raises(OptionError, match="bert is encoder"):
        attention_influence(encoder, texts, HEADS)
    with (
        model.edited(edits.zero("L0H0")),
        pytest.raises(OptionError, match="edited already"),
    ):
        attention_influence(model, texts, HEADS)
