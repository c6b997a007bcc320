"""Causal tracing: a fact that an MLP holds, the published procedure by hand, and bad input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from interp import planted
from interp.circuits.causal_traces import trace_rows
from interp.circuits.causal_tracing import causal_tracing
from interp.circuits.facts import Fact, place_facts, read_facts, told_facts
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.result_rows import ResultRows

RELATION, SUBJECTS = 40, range(1, 9)  # tokens; the attribute of subject s is token 20 + s


@pytest.fixture(scope="module")
def knowing() -> interp.Model:
    """A model whose first MLP writes the attribute of a subject, which layer 1 then copies.

    The previous-token head of layer 0 tells the subject which token came before it; at the end,
    the induction head of layer 1 looks for the relation's first place and copies what follows.
    """
    built = planted.build("induction", layers=2, heads=4, kv_heads=2, vocab=48, context=64)
    token, one = built.subspaces["token"], built.subspaces["constant"][0]
    mlp: Any = built.model.model.layers[0].mlp
    with torch.no_grad():
        for j, subject in enumerate(SUBJECTS):
            mlp.gate_proj.weight[j] = 20 * (token[subject] - 0.5 * one)
            mlp.up_proj.weight[j] = one
            mlp.down_proj.weight[:, j] = 0.3 * token[20 + subject]
    return interp.load(built.model, name="knowing")


def told(seed: int = 0, n: int = 4) -> list[Fact]:
    draw = np.random.default_rng(seed)
    found = []
    for subject in draw.permutation(SUBJECTS)[:n]:
        before, after = draw.integers(30, 40, 2), draw.integers(30, 40, draw.integers(1, 4))
        ids = (0, *before, RELATION, subject, *after, RELATION)
        found.append(Fact(tuple(map(int, ids)), (4, 5), int(20 + subject)))
    return found


def shares(found) -> Any:
    return found.wide().set_index(["layer", "place"])["share"]


def test_the_mlp_at_the_subject_and_the_head_at_the_end_hold_the_planted_fact(knowing) -> None:
    facts = told()
    options = {"noise": 12.0, "n_samples": 8, "window": 1}
    mlp = causal_tracing(knowing, facts, "mlp", **options)
    assert (mlp.clean > 0.99).all()
    assert (mlp.corrupted < 0.5).all()
    share = shares(mlp)
    assert share[0, "last subject"] > 0.3
    others = share.drop((0, "last subject"))
    assert others.abs().max() < 1e-3
    assert list(mlp.top(1).wide()[["layer", "place"]].iloc[0]) == [0, "last subject"]
    attention = causal_tracing(knowing, facts, "attention", **options)
    share = shares(attention)
    assert share[1, "last"] == pytest.approx(1, abs=0.02)
    assert share.drop((1, "last")).abs().max() < 0.15
    stream = causal_tracing(knowing, facts, "stream", **options)
    share = shares(stream)
    assert share[0, "last subject"] == pytest.approx(1, abs=0.02)
    # noise of the subject that the next token has read as its previous token competes
    assert share[1, "last subject"] > 0.7
    assert share[0, "before subject"] == share[1, "before subject"] == 0  # attention is causal
    assert abs(share[1, "last"]) < 0.02
    for found in (mlp, attention, stream):  # activations of other noise bring nothing back
        frame = found.to_pandas()
        assert frame["null"].abs().max() < 0.35 * found.total_effect.mean()
        assert (frame["low"] <= frame["score"] + 1e-12).all()
        assert (frame["n"] == len(facts)).sum() >= len(frame) - 2  # one fact has nothing further
        assert found.skipped == 0


def test_severed_mlps_let_no_fact_pass_below_them(knowing) -> None:
    """With its MLPs severed, what enters layer 0 at the subject is not enough: the MLP has it."""
    options = {"noise": 12.0, "n_samples": 6, "null": False}
    whole = shares(causal_tracing(knowing, told(), **options))
    cut = causal_tracing(knowing, told(), sever="mlp", **options)
    assert whole[0, "last subject"] == pytest.approx(1, abs=0.02)
    assert shares(cut)[0, "last subject"] < 0.3
    assert shares(cut)[1, "last subject"] > 0.7
    assert np.isnan(cut.to_pandas()["null"]).all()
    heads = shares(causal_tracing(knowing, told(), sever="attention", **options))
    assert heads[0, "last subject"] > 0.6  # without the relation that precedes it, written there


def test_noise_on_the_relation_is_undone_at_the_end(knowing) -> None:
    found = causal_tracing(
        knowing, told(), "attention", corrupt="relation", noise=12.0, n_samples=6, window=1
    )
    share = shares(found)
    assert share[1, "last"] > 0.5  # the head's output is whole, but noise stays in the stream
    assert share.drop((1, "last")).abs().max() < 0.2


@pytest.fixture(scope="module")
def shallow_gpt2() -> Any:
    torch.manual_seed(2)
    config = GPT2Config(
        vocab_size=40,
        n_positions=16,
        n_embd=24,
        n_layer=4,
        n_head=3,
        initializer_range=0.35,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize(
    ("what", "window", "sever"), [("mlp", 3, ""), ("attention", 2, ""), ("stream", 1, "mlp")]
)
def test_effects_are_those_of_the_procedure_written_out(shallow_gpt2, what, window, sever) -> None:
    """Plain hooks on modules: noise on the embeddings, one position and window at a time."""
    module, samples = shallow_gpt2, 3
    model = interp.load(module, name="shallow")
    ids, subject = (38, 37, 27, 38, 34, 1), (1, 3)
    found = causal_tracing(
        model,
        [Fact(ids, subject)],
        what,
        per="position",
        window=window,
        sever=sever,
        noise=2.0,
        n_samples=samples,
        seed=5,
    )
    size = found.provenance["options"]["noise_size"]
    drawn = torch.randn(samples, 2, 24, generator=torch.Generator().manual_seed(5 * 100_003))
    blocks = module.transformer.h
    part = {"mlp": lambda b: b.mlp, "attention": lambda b: b.attn}

    def run(copies: int, noisy: bool, patches: dict, seen: dict) -> torch.Tensor:
        handles = []

        def embed(_: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
            out = out.clone()
            if noisy:
                out[:, 1:3] += drawn * size
            return out

        def changed(key: Any, x: torch.Tensor) -> torch.Tensor:
            seen[key] = x.clone()
            if key in patches:
                position, value = patches[key]
                x = x.clone()
                x[:, position] = value[:, position]
            return x

        def output(key: Any):
            def hook(_: Any, args: Any, out: Any) -> Any:
                if isinstance(out, tuple):
                    return (changed(key, out[0]), *out[1:])
                return changed(key, out)

            return hook

        def entering(key: Any):
            return lambda _, args: (changed(key, args[0]), *args[1:])

        handles.append(module.transformer.drop.register_forward_hook(embed))
        for i, block in enumerate(blocks):
            handles.append(block.register_forward_pre_hook(entering(("stream", i))))
            for name, of in part.items():
                handles.append(of(block).register_forward_hook(output((name, i))))
        with torch.no_grad():
            logits = module(torch.tensor([ids] * copies)).logits[:, -1]
        for handle in handles:
            handle.remove()
        return logits.softmax(-1)

    clean: dict = {}
    noisy: dict = {}
    best = int(run(1, False, {}, clean).argmax())
    base = run(samples, True, {}, noisy)[:, best]
    assert size == pytest.approx(2.0 * float(clean["stream", 0][0, 1:3].double().std()))
    for row, layer, place in zip(range(len(found)), found.layer, found.place, strict=True):
        some = range(max(0, layer - window // 2), min(4, layer - (-window // 2)))
        after = range(layer, 4) if sever else ()
        held = {(sever, i): (int(place), noisy[sever, i]) for i in after}
        other = {(what, i): (int(place), noisy[what, i].roll(1, 0)) for i in some} | held
        want = run(samples, True, other, {})[:, best] - base
        assert found.other[row, 0] == pytest.approx(float(want.mean()), abs=2e-6)
        patches = {(what, i): (int(place), clean[what, i]) for i in some} | held
        want = run(samples, True, patches, {})[:, best] - base
        assert found.per_prompt[row, 0] == pytest.approx(float(want.mean()), abs=2e-6)
        error = float(want.std()) / samples**0.5
        assert found.noise_error[row, 0] == pytest.approx(error, abs=2e-6)
    assert np.abs(found.per_prompt).max() > 0.01
    assert np.abs(found.other).max() > 1e-3
    assert found.forwards == pytest.approx(2 * 4 * 5 + 1 + 1 / samples)  # not before the noise


def test_shares_are_of_the_effect_on_the_facts_that_have_the_place() -> None:
    gain = np.array([[0.2, np.nan, 0.4], [0.1, 0.3, 0.2]])
    found = trace_rows(
        [(0, "middle subject"), (0, "last")],
        gain,
        None,
        np.zeros((2, 3)),
        np.array([0.8, 0.9, 1.0]),
        np.array([0.4, 0.0, 0.2]),
        {"site": "mlp", "corrupt": "subject"},
        {},
    )
    share = found.wide().set_index("place")["share"]
    assert share["middle subject"] == pytest.approx(0.3 / np.mean([0.4, 0.8]))
    assert share["last"] == pytest.approx(0.2 / np.mean([0.4, 0.9, 0.8]))


def test_facts_of_texts_and_files(worded_gpt2, tmp_path) -> None:
    rows = [
        {
            "prompt": "The capital of France is",
            "subject": "France",
            "attribute": "Paris",
            "relation_id": "P36",
        }
    ]
    (tmp_path / "facts.json").write_text(json.dumps(rows))
    [fact] = read_facts(tmp_path / "facts.json")
    [placed] = place_facts(worded_gpt2, [fact])
    assert placed.subject == range(3, 4)
    assert worded_gpt2.tokenizer.decode([placed.answer]) == " Paris"
    assert placed.places["last subject"] == (3,)
    assert placed.places["last"] == (4,)
    assert placed.corrupted("relation", None) == (0, 1, 2, 4)
    [long] = place_facts(worded_gpt2, [Fact(tuple(range(2, 12)), (2, 6))])
    assert {name: len(at) for name, at in long.places.items()} == {
        "before subject": 2,
        "first subject": 1,
        "middle subject": 2,
        "last subject": 1,
        "first after": 1,
        "further": 2,
        "last": 1,
    }


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "is not JSON"),
        ("[1]", "list found; expected an object"),
        ('{"prompt": "a b"}', "'subject' is missing"),
        ('{"prompt": 3, "subject": "a"}', "'prompt' is neither a text nor"),
        ('{"prompt": [1, 2], "subject": "a"}', "'subject' must be two positions"),
        ('{"prompt": "a b", "subject": [0, 1]}', "'subject' is not a text"),
        ('{"prompt": "a b", "subject": "a", "answer": 1.5}', "'answer' is neither"),
    ],
)
def test_files_that_hold_no_facts(tmp_path, row, says) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text(row + "\n")
    with pytest.raises(PromptError, match=says) as raised:
        read_facts(path)
    assert "\n" not in str(raised.value)


def test_what_cannot_be_traced_is_said(knowing, worded_gpt2) -> None:
    facts = told()
    for wrong, error, says in (
        ({"what": "heads"}, UnknownName, "heads"),
        ({"corrupt": "object"}, UnknownName, "object"),
        ({"sever": "mlp", "what": "mlp"}, OptionError, "modules are severed while the stream"),
        ({"window": 3}, OptionError, "a window has 1 to 2 layers"),
        ({"n_samples": 1}, OptionError, "at least 2 noise draws"),
        ({"noise": -1.0}, OptionError, "of a size above 0"),
        ({"noise": 1e-6, "n_samples": 2}, OptionError, "there is nothing to restore; give more"),
        ({"per": "position"}, OptionError, "whose positions do not correspond"),
    ):
        with pytest.raises(error, match=says):
            causal_tracing(knowing, facts, **wrong)
    wrong = [Fact(fact.prompt, fact.subject, 3) for fact in facts]
    with pytest.raises(OptionError, match="predicts another token than the answer after each of"):
        causal_tracing(knowing, wrong)
    half = causal_tracing(knowing, [*facts, *wrong], noise=12.0, n_samples=2, null=False)
    assert half.skipped == len(wrong)
    with pytest.raises(OptionError, match="there are no facts"):
        causal_tracing(knowing, [])
    with pytest.raises(PromptError, match=r"positions 9 to 12 of a prompt of 2 tokens"):
        place_facts(knowing, [Fact((0, 1), (9, 12))])
    with pytest.raises(PromptError, match="2 times; it must be there exactly once"):
        place_facts(worded_gpt2, [Fact("France and France", "France")])
    with pytest.raises(PromptError, match="has no tokenizer; give the prompt as token ids"):
        place_facts(knowing, [Fact("France and Italy", "Italy")])


def test_the_command_prints_a_map_and_writes_it(run, tmp_path, bundled_induction) -> None:
    file = tmp_path / "facts.jsonl"
    rows = []
    for ids in interp.repeats(bundled_induction, n=3, max_length=6).ids:
        first = len(ids) // 2
        rows.append({"prompt": ids[:-1], "subject": [first, first + 1], "answer": ids[-1]})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = run(
        "circuit",
        "trace",
        "bundled:induction",
        "--file",
        file,
        "--site",
        "attention",
        "--set",
        "window=1",
        "-o",
        tmp_path / "out",
        "-q",
    )
    told = getattr(out, "stdout", out)
    assert "attention restored, 3 facts; noise on the subject lowers" in told
    assert "activations of other noise" in told
    [written] = (tmp_path / "out").rglob("trace_attention.json")
    best = ResultRows.load(written).top(1).wide().iloc[0]
    assert (best["layer"], best["place"]) == (1, "last")


def test_a_run_starts_at_the_restored_layer_and_computes_one_logit_row(knowing) -> None:
    facts, samples = told(n=2), 3
    options: dict[str, Any] = {"noise": 12.0, "n_samples": samples, "window": 1}
    causal_tracing(knowing, facts, **options)  # what may be reused is tested once per model
    rows: dict[str, int] = {"lower": 0, "upper": 0, "logits": 0}
    layers = knowing.module.model.layers
    parts = {"lower": layers[0].mlp, "upper": layers[1].mlp, "logits": knowing.module.lm_head}

    def count(name: str) -> Any:
        def hook(_: Any, args: tuple, output: torch.Tensor) -> None:
            rows[name] += output.shape[:-1].numel() if name == "logits" else len(output)

        return hook

    handles = [part.register_forward_hook(count(name)) for name, part in parts.items()]
    try:
        causal_tracing(knowing, facts, **options)
    finally:
        for handle in handles:
            handle.remove()
    once = len(facts) * (1 + samples)
    each = sum(len(fact.prompt) - 4 for fact in facts) * samples * 2  # from the subject on; null
    assert rows == {
        "lower": once + each,
        "upper": once + 2 * each,
        "logits": once + 2 * each,
    }


def test_a_story_holds_who_got_a_thing_where_it_says_so() -> None:
    model = interp.load("bundled:stories")
    facts = told_facts(model, "stories:owner", "receiver", n=8)
    for fact in facts:
        names = [model.tokenizer.decode(token).strip() for token in fact.prompt]
        [_, last] = [at for at, name in enumerate(names) if name == fact.answer.strip()]
        assert fact.subject == (last, last + 1), "nobody names the receiver after the gift"
    traced = causal_tracing(model, facts, "stream", n_samples=2)
    assert traced.clean.mean() > 0.7
    assert traced.corrupted.mean() < 0.2
    at = shares(traced)
    assert at[1, "last subject"] > 0.8
    assert max(at[1, place] for place in ("before subject", "further", "last")) < 0.1
