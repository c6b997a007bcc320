"""Verdicts on features of dictionaries: planted ones hold, others and random claims do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy.optimize import lsq_linear

import interp
from interp.cli.main import main
from interp.cli.mcp.declared import require_names
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.tokens import word_with_space
from interp.dictionaries import save_dictionary
from interp.dictionaries.dictionary import Dictionary, DictionaryMismatch
from interp.profiles.held_back import NOT_SHOWN, ONE_IN, part_documents
from interp.profiles.hypothesis_forms import read_hypothesis, stated_hypothesis
from interp.profiles.reading import TokenReader
from interp.profiles.rows_read import described_sites
from interp.profiles.sampled import text_sample
from interp.profiles.verdict import HOLDS, IN_PART
from interp.report.printed.hypothesis import hypothesis_text

N_FEATURES, N, TOKENS, DEAD = 12, 24, 48, 11
FIRES = 0.06  # of the tokens of the vocabulary, each feature
ACCEPTED = (HOLDS, IN_PART)


@pytest.fixture(scope="module")
def speaker_model() -> interp.Model:
    return interp.load("bundled:stories")


@pytest.fixture(scope="module")
def on_tokens(speaker_model: interp.Model, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dictionary of the embeddings, and the tokens on which each feature fires; the last never.

    A feature that fires has a code of at least its threshold.
    """
    embedding = speaker_model.module.get_input_embeddings().weight.detach().float()
    draw = torch.Generator().manual_seed(1)
    width = embedding.shape[1]
    reads = torch.randn(width, N_FEATURES, generator=draw)
    codes = embedding @ reads
    threshold = codes.quantile(1 - FIRES, 0)
    threshold[DEAD] = 1e6
    written = torch.randn(N_FEATURES, width, generator=draw) * embedding.std()
    zeros = torch.zeros(N_FEATURES), torch.zeros(width)
    about = {"name": speaker_model.name, "hash": speaker_model.content_hash}
    made = Dictionary(
        "jumprelu", reads, written, *zeros, "resid_pre", 0, parts={"threshold": threshold}
    )
    folder = tmp_path_factory.mktemp("dictionary") / "embeddings"
    save_dictionary(Dictionary(**{**made.__dict__, "model": about}), folder)
    return made, folder, (codes > threshold).numpy()


@pytest.fixture
def ask(speaker_model: interp.Model, on_tokens: Any, tmp_path: Path) -> Callable:
    """Judge claims about features, each as the first question of a ledger unless one is given."""

    def asked(claim: Any, feature: int = 0, **options: Any) -> Any:
        folder = f"{on_tokens[1]}:F{feature}"
        given = {"questions": tmp_path / f"{len([*tmp_path.iterdir()])}", "n_documents": N}
        given |= {"max_length": TOKENS} | options
        if isinstance(claim, str):
            return interp.judge(speaker_model, f"{folder}={claim}", **given)
        return interp.judge(speaker_model, claim, head=folder, **given)

    return asked


def numbers(found: Any) -> dict[str, float]:
    return dict(zip(found.number, found.score, strict=True))


def claim_of(on: np.ndarray) -> Callable:
    def fires(tokens: Any) -> Any:
        return on[tokens]

    return fires


@pytest.mark.parametrize("feature", range(3))
def test_a_planted_feature_holds_and_the_token_after_it_does_not(
    ask: Callable, on_tokens: Any, feature: int
) -> None:
    on = on_tokens[2][:, feature]

    def after(tokens: Any) -> Any:
        return np.r_[False, on[tokens][:-1]]

    right, near = ask(claim_of(on), feature), ask(after, feature)
    assert right.facts["verdict"] == HOLDS
    shares = numbers(right)
    assert shares["share of what is left"] > 0.9
    assert shares["activation: fires"] == shares["fires: fires"] == 1
    assert shares["causal share"] > 0.3
    assert abs(shares["other features, median"]) < 0.1
    assert near.facts["verdict"] not in ACCEPTED
    assert {"random_keys", "other_text_with_position"} <= {*near.facts["beaten"]}


def test_random_claims_and_claims_about_other_features_never_hold(
    ask: Callable, on_tokens: Any
) -> None:
    on, draw = on_tokens[2], np.random.default_rng(4)
    for feature in range(4):
        random = draw.random(len(on)) < FIRES
        other = on[:, (feature + 1) % DEAD] & ~on[:, feature]
        for claim in (random, other):
            found = ask(claim_of(claim), feature)
            assert found.facts["verdict"] not in ACCEPTED, numbers(found)


def test_documents_held_back_tell_a_word_of_a_feature(
    ask: Callable, on_tokens: Any, tmp_path: Path
) -> None:
    on = on_tokens[2][:, 0]
    one = {"questions": tmp_path / "one", "n_documents": 100}
    wrong = [ask(claim_of(on_tokens[2][:, 1]), **one).facts["verdict"] for _ in range(4)]
    assert wrong[0] != NOT_SHOWN == wrong[-1]  # the fresh ones are used up
    found = [ask(claim_of(x), **one) for x in (~on, on)]
    assert [x.facts["verdict"] for x in found] == [NOT_SHOWN, HOLDS]
    assert {*numbers(found[-1])} == {"documents held back", "answers left", "positive answers left"}


def test_tokens_on_which_a_feature_is_silent_never_count_for_it(
    ask: Callable, on_tokens: Any
) -> None:
    found = ask(claim_of(~on_tokens[2][:, 1]), 1)
    assert found.facts["verdict"] not in ACCEPTED
    assert numbers(found)["share of what is left"] < 0.01


def test_shares_and_losses_are_those_of_plain_hooks_and_least_squares(
    speaker_model: interp.Model, ask: Callable, on_tokens: Any
) -> None:
    """The same documents, with a hook on the embeddings and `scipy.optimize.lsq_linear`."""
    made, _, on = on_tokens
    claim = on[:, 0] & (np.arange(len(on)) % 3 > 0)
    found = ask(claim_of(claim))
    shares = numbers(found)
    read = (N + N // 2) * ONE_IN // (ONE_IN - 1)
    size = {"n_documents": read, "n_queries": 16, "max_length": TOKENS, "seed": 0}
    sample = text_sample(
        speaker_model, described_sites(speaker_model), None, "text", None, None, read, **size
    )
    free, _ = part_documents(sample.windows, (), hold=True)
    windows = [window.ids for window in free]
    reads, bar = made.W_enc[:, 0].double().numpy(), made.parts["threshold"][0].item()
    embedding = speaker_model.module.get_input_embeddings()

    def codes_of(ids: Any) -> np.ndarray:
        pre = embedding.weight.detach().double().numpy()[list(ids)][1:] @ reads
        return pre * (pre > bar)

    def columns(ids: Any) -> np.ndarray:
        bins = [int(np.log2(1 + at)) for at in range(1, len(ids))]
        position = np.eye(6)[bins]
        return np.hstack([position, claim[list(ids)][1:, None]])

    fits, fresh = windows[: N // 2], windows[N // 2 : N // 2 + N]
    assert found.facts["fresh_left"] == len(windows) - N - N // 2
    stacked, truth = np.vstack([*map(columns, fits)]), np.concatenate([*map(codes_of, fits)])
    both, alone = (lsq_linear(x, truth, (0, np.inf)).x for x in (stacked, stacked[:, :6]))
    ratios, errors = [], []
    for ids in fresh:
        x, y = columns(ids), codes_of(ids)
        if not (y.any() or x[:, 6].any()):
            continue
        errors.append([((y - x @ both) ** 2).sum(), ((y - x[:, :6] @ alone) ** 2).sum()])
        errors[-1].append(((y - truth.mean()) ** 2).sum())
        ratios.append(max(0.0, 1 - errors[-1][0] / errors[-1][1]))
    judged, position, even = np.sum(errors, 0)
    assert len(ratios) == found.n[0]
    assert shares["share of what is left"] == pytest.approx(np.mean(ratios), abs=1e-5)
    assert shares["with_position"] == pytest.approx(1 - judged / even, abs=1e-5)
    assert shares["position"] == pytest.approx(1 - position / even, abs=1e-5)

    def loss(ids: Any, code: np.ndarray) -> float:
        added = torch.from_numpy(np.r_[0, code - codes_of(ids)])[:, None] * made.W_dec[0].double()
        hook = embedding.register_forward_hook(lambda *x: x[2] + added.to(x[2])[None])
        try:
            with torch.no_grad():
                logits = speaker_model.module(torch.tensor([ids])).logits[0, :-1].double()
        finally:
            hook.remove()
        return float(
            torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])) * logits.shape[0]
        )

    few = fresh[:16]
    own, without, mean, described = (
        sum(loss(ids, code(ids)) for ids in few)
        for code in (
            codes_of,
            lambda ids: np.zeros(len(ids) - 1),
            lambda ids: np.full(len(ids) - 1, truth.mean()),
            lambda ids: columns(ids) @ both,
        )
    )
    n = sum(len(ids) - 1 for ids in few)
    assert shares["loss without the feature"] == pytest.approx((without - own) / n, abs=1e-4)
    assert shares["loss with its mean code everywhere"] == pytest.approx((mean - own) / n, abs=1e-4)
    assert shares["causal share"] == pytest.approx((mean - described) / (mean - own), abs=1e-3)


def test_the_ledger_counts_features_among_all_questions(
    ask: Callable, speaker_model: interp.Model, on_tokens: Any, tmp_path: Path
) -> None:
    books = tmp_path / "one"
    interp.judge(
        speaker_model, "L1H3=open_quote", n_documents=8, questions=books, max_length=TOKENS
    )
    found = ask(claim_of(on_tokens[2][:, 0]), questions=books)
    assert found.facts["question"] == 2
    assert found.facts["questions"][1]["asked"].startswith(
        f"{on_tokens[1]}:F0=fires (weights sha256"
    )
    assert found.facts["questions"][1]["documents"] == N


def test_forms_of_a_claim_name_the_tokens_that_they_say(
    speaker_model: interp.Model, on_tokens: Any, tmp_path: Path
) -> None:
    reader, subject = TokenReader(speaker_model), f"{on_tokens[1]}:F2"
    ids = speaker_model.tokenizer(
        'Karin met Felix. "She likes him," he said to Karin, and he left.'
    ).input_ids
    text = reader.read(ids)

    def named(given: str) -> np.ndarray:
        return read_hypothesis(f"{subject}={given}", speaker_model).tokens(text, True)

    np.testing.assert_array_equal(named("pronouns")[:, 0], text.kinds["pronoun"])
    np.testing.assert_array_equal(named("before pronouns")[:-1, 0], text.kinds["pronoun"][1:])
    again = [any(ids[j] == one for j in range(i)) for i, one in enumerate(ids)]
    np.testing.assert_array_equal(named("duplicate_token")[:, 0], again)
    path = tmp_path / "list.toml"
    path.write_text(
        'entries = [{tokens = ["he", "Karin"], share = 0.4}, {keys = "duplicate_token"},'
        ' {tokens = ["him"], queries = "names"}]'
    )
    words = np.array([word_with_space(speaker_model, i).strip() for i in ids])
    first = np.isin(words, ["he", "Karin"])
    rows = [first, np.array(again) & ~first, np.zeros(len(ids), bool)]
    np.testing.assert_array_equal(named(str(path)), np.stack(rows, 1))
    code = tmp_path / "rules.py"
    code.write_text(
        "def same(tokens):\n    return tokens == tokens[0]\n\n\n"
        "def last(query, key, tokens):\n    return (key == query - 1) & (tokens[key] == 5)\n\n\n"
        f"def seen(query, key, tokens):\n    return tokens[key] == {ids[5]}\n"
    )
    np.testing.assert_array_equal(named(f"{code}:same")[:, 0], np.array(ids) == ids[0])
    shifted = np.r_[False, np.array(ids)[:-1] == 5]
    np.testing.assert_array_equal(named(f"{code}:last")[:, 0], shifted)
    seen = np.logical_or.accumulate(np.array(ids) == ids[5])  # not before the token is read
    np.testing.assert_array_equal(named(f"{code}:seen")[:, 0], seen)


def test_claims_that_cannot_be_judged_are_refused(
    ask: Callable, speaker_model: interp.Model, on_tokens: Any, tmp_path: Path
) -> None:
    subject = f"{on_tokens[1]}:F0"
    with pytest.raises(OptionError, match=r"judged at all tokens; leave out the kind"):
        stated_hypothesis(f"{subject}=names from pronouns")
    with pytest.raises(OptionError, match="nowhere is no folder of a dictionary"):
        stated_hypothesis("nowhere:F0=names")
    with pytest.raises(UnknownName, match="names of people"):
        stated_hypothesis(f"{subject}=names of people")
    with pytest.raises(UnknownName, match="pronuns"):
        stated_hypothesis(f"{subject}=pronuns")
    with pytest.raises(OptionError, match="names every token of 36 documents"):
        ask("previous")
    with pytest.raises(OptionError, match="names no token of 36 documents"):
        ask(lambda tokens: tokens < 0)
    with pytest.raises(OptionError, match="F11 does not fire on any of 36 documents"):
        ask("pronouns", DEAD)
    with pytest.raises(OptionError, match="give some of 0 to 11"):
        ask("pronouns", 12)
    with pytest.raises(OptionError, match="changes with the tokens after it"):
        ask(lambda tokens: np.r_[tokens[1:] > 1000, False])
    with pytest.raises(OptionError, match="expected True or False for each"):
        ask(lambda tokens: tokens)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError):
        interp.judge(speaker_model, f"{tmp_path / 'empty'}:F0=names", questions=tmp_path / "books")
    with pytest.raises(DictionaryMismatch):
        interp.judge("bundled:induction", f"{subject}=duplicate_token", questions=tmp_path / "b")
    assert not [*tmp_path.rglob("*.jsonl")]
    with pytest.raises(OptionError, match="names a file"):
        require_names("dictionary:F0=names", ())


def test_the_command_prints_the_verdict_on_a_feature(
    on_tokens: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "verdict.html"
    monkeypatch.chdir(tmp_path)
    given = ["judge", "bundled:stories", f"{on_tokens[1]}:F0=pronouns", "-o", str(page)]
    done = CliRunner().invoke(main, [*given, "--set", "n_documents=24", "--max-length", "48"])
    assert done.exit_code == 0, done.output
    for text in (
        "of the squared error that position leaves in the codes",
        "median of other features, same claim",
        "    pronouns: ",
        "without the feature +",
        "tokens on which the feature has a larger code than is predicted",
    ):
        assert text in done.output
    assert "Question 1 of the ledger" in page.read_text()


def test_text_of_a_verdict_states_a_claimed_share(ask: Callable, on_tokens: Any) -> None:
    words = [{"tokens": ["he", "she"], "share": 0.25}]
    text = hypothesis_text([ask(words)])
    assert "tokens he she: " in text
    assert "(claimed 0.25)" in text
