"""Profiles from the front door: settings, heads, resumed runs, files, printed forms, commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from profiles.planted_rows import documents

import interp
from interp.cli.main import main
from interp.core.errors import OptionError, UnknownName
from interp.profiles import Profile, run
from interp.profiles.rules import KeyRule
from interp.report.printed import printed
from interp.report.printed.profile import head_text

ROWS = [*documents(12, 24, seed=0).ids]


@pytest.fixture(scope="module")
def profiled_model() -> interp.Model:
    return interp.load("planted:induction")


@pytest.fixture(scope="module")
def profiled(profiled_model: interp.Model) -> Profile:
    return interp.profile(profiled_model, ROWS, n_queries=8)


def test_a_run_is_equal_to_itself_and_another_seed_is_another_run(
    profiled_model: interp.Model, profiled: Profile
) -> None:
    assert interp.profile(profiled_model, ROWS, n_queries=8).equals(profiled)
    assert not interp.profile(profiled_model, ROWS, n_queries=8, seed=1).equals(profiled)


def test_a_stopped_run_goes_on_and_gives_the_same_profile(
    profiled_model: interp.Model, profiled: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    first, second = run.first_look, run.second_look

    def counted(which, function):
        def call(*args, **options):
            made.append(which)
            if len(made) in (3, 9, 20):
                raise KeyboardInterrupt
            return function(*args, **options)

        return call

    monkeypatch.setattr(run, "first_look", counted("first", first))
    monkeypatch.setattr(run, "second_look", counted("second", second))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            interp.profile(profiled_model, ROWS, n_queries=8, resume=tmp_path)
    assert interp.profile(profiled_model, ROWS, n_queries=8, resume=tmp_path).equals(profiled)
    made.clear()
    assert interp.profile(profiled_model, ROWS, n_queries=8, resume=tmp_path).equals(profiled)
    assert made == []


@pytest.mark.slow
def test_a_changed_corpus_is_another_run(profiled_model: interp.Model, tmp_path: Path) -> None:
    one = interp.profile(profiled_model, ROWS, n_queries=8, resume=tmp_path)
    other = interp.profile(profiled_model, [*ROWS[1:], ROWS[0][::-1]], n_queries=8, resume=tmp_path)
    assert not one.equals(other)
    assert other.equals(interp.profile(profiled_model, [*ROWS[1:], ROWS[0][::-1]], n_queries=8))


def test_chosen_heads_have_the_numbers_of_a_whole_profile(
    profiled_model: interp.Model, profiled: Profile
) -> None:
    part = interp.profile(profiled_model, ROWS, n_queries=8, heads=["L1H0"])
    assert [row["name"] for row in part.descriptions] == ["L1H0"]
    one, whole = part.description("L1H0"), profiled.description("L1H0")
    # a head that is named is ablated on all documents, one that is chosen on half of them
    said = [about["sentence"].partition("Without it")[0] for about in (one, whole)]
    assert said[0] == said[1]
    mine = profiled.to_pandas().query("layer == 1 and head == 0")
    exact = "loss_without$|loss_without:|ablation_divergence$|causal_"
    scores = [
        frame[~frame["metric"].str.contains(exact)].set_index("metric")["score"]
        for frame in (part.to_pandas(), mine)
    ]
    assert len(scores[0]) > 20
    assert scores[0].to_dict() == pytest.approx(scores[1].to_dict(), abs=1e-4, nan_ok=True)


def test_what_is_not_there_is_refused_by_name(
    profiled_model: interp.Model, profiled: Profile
) -> None:
    with pytest.raises(UnknownName, match="L9H0"):
        interp.profile(profiled_model, ROWS, heads=["L9H0"])
    with pytest.raises(UnknownName, match="inductoin"):
        interp.profile(profiled_model, ROWS, rules=["inductoin"])
    with pytest.raises(UnknownName, match="L9H0"):
        profiled.description("L9H0")
    with pytest.raises(UnknownName, match="strange"):
        profiled.examples_of("L0H0", "strange")


def test_rules_that_read_text_need_a_tokenizer(profiled_model: interp.Model) -> None:
    with pytest.raises(OptionError, match="sentence_first read the text"):
        interp.profile(profiled_model, ROWS, rules=["sentence_first"])
    assert "sentence_first" not in interp.profile(profiled_model, ROWS).provenance["rules"]


def test_a_statistic_is_not_a_rule(profiled_model: interp.Model) -> None:
    with pytest.raises(OptionError, match="entropy is not a rule"):
        interp.profile(profiled_model, ROWS, rules=["entropy"])


def test_two_rules_of_one_name_are_refused(profiled_model: interp.Model) -> None:
    with pytest.raises(OptionError, match="named twice: induction"):
        interp.profile(profiled_model, ROWS, rules=["induction", "induction"])


def test_rules_that_tell_no_keys_apart_are_named(profiled_model: interp.Model) -> None:
    def everywhere(query, key):
        return key <= query

    def nowhere(query, key):
        return key > query

    def again(query, key):
        return key == query - 1

    rules = ["previous_token", everywhere, nowhere, again]
    profiled = interp.profile(profiled_model, ROWS, rules=rules)
    assert profiled.provenance["rules_without_use"] == ["everywhere", "nowhere", "again"]


def test_the_first_token_is_named(profiled: Profile) -> None:
    assert profiled.provenance["first_token"] in ("special", "text")
    assert profiled.provenance["packing"] == "one document per sequence"


def test_a_rule_of_ones_own_is_an_object() -> None:
    rule = KeyRule("even", "to even places", lambda q, k, t: (k % 2 == 0) & (k < q), True, False)
    profiled = interp.profile("planted:induction", ROWS, rules=[rule, "induction"])
    assert profiled.provenance["rules"] == ["even", "induction"]


def test_a_profile_is_saved_and_read_again(profiled: Profile, tmp_path: Path) -> None:
    for name in ("profile.json", "profile.parquet"):
        profiled.save(tmp_path / name)
        assert Profile.load(tmp_path / name).equals(profiled)


def test_the_printed_form_has_layers_and_sentences(profiled: Profile) -> None:
    text = printed([profiled], "", "", top=0)
    assert "described (.5 of the pattern" in text
    assert "offset  position      list     rules    tokens" in text
    assert all(row["sentence"][:30] in " ".join(text.split()) for row in profiled.descriptions)
    assert "further heads" in printed([profiled], "", "", top=1)


def test_one_screen_on_a_head_marks_query_and_keys(profiled: Profile) -> None:
    text = head_text(profiled, "L1H0")
    assert "control: the list on another document" in text
    assert ">" in text
    assert "[" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_the_commands_write_a_profile_and_show_a_head_from_it(tmp_path: Path) -> None:
    corpus = tmp_path / "rows.json"
    corpus.write_text(str([list(row) for row in ROWS]))
    out = tmp_path / "out"
    done = CliRunner().invoke(
        main,
        [
            "profile",
            "planted:induction",
            "--corpus",
            str(corpus),
            "-o",
            str(out),
            "--set",
            "rules=induction,previous_token",
            "--set",
            "n_queries=8",
            "-q",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "described (.5 of the pattern or more)" in done.output
    shown = CliRunner().invoke(main, ["head", "planted:induction", "L1H0", "--load", str(out)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("L1H0 of planted:induction on rows.json")
    missing = CliRunner().invoke(main, ["head", "planted:noise", "L0H0", "--load", str(out)])
    assert missing.exit_code != 0
    assert "holds no profile of planted:noise" in missing.output
    both = CliRunner().invoke(
        main,
        ["head", "planted:noise", "L0H0", "--load", str(out), "--corpus", str(corpus)],
    )
    assert both.exit_code != 0
    assert "not both" in both.output


def test_one_head_is_profiled_without_a_folder(tmp_path: Path) -> None:
    corpus = tmp_path / "rows.json"
    corpus.write_text(str([list(row) for row in ROWS]))
    command = ["head", "planted:induction", "L1H0", "--corpus", str(corpus)]
    done = CliRunner().invoke(main, [*command, "-q"])
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) <= 20, done.output
    said = [
        "on unseen documents",
        "Without it the text is",
        "Its queries need",
        "Next: its pattern",
    ]
    places = [done.output.index(one) for one in said]
    assert places == sorted(places)
    whole = CliRunner().invoke(main, [*command, "--verbose"])
    assert whole.exit_code == 0, whole.output
    assert "measured by ablation" in whole.output
    assert "what it writes" in whole.output
    assert "tokens before" in whole.output


def test_right_to_left_and_byte_pieces_are_read_and_shown() -> None:
    """Letters of several tokens, and scripts from right to left, in documents and on the screen."""
    words = ["\u0627\u0644\u0628\u064a\u062a", "\u05d1\u05d9\u05ea", "\U0001f642", "house"]
    rng = np.random.default_rng(0)
    plain = [
        f"{word} was" for word in ("house", "boat", "tree", "river", "road", "dog", "sea", "sun")
    ]
    texts = [" ".join([*rng.permutation(plain), words[n % 4], str(n)]) + "." for n in range(12)]
    profiled = interp.profile("bundled:induction", texts, n_queries=6, rules=["duplicate_token"])
    text = head_text(profiled, "L0H0")
    assert "on unseen documents" in text
    assert "\u202e" not in text
