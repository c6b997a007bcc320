"""Profiles of heads on text in the atlas: roles, cards, metrics, opening, folders, size."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from report.profile_sample import entry, example, profile

from interp.cli.main import main
from interp.core.errors import OptionError
from interp.core.table import HeadTable
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import atlas_page

HOSTILE = "</script><img src=x onerror=alert(1)>"


def scores(**made: str) -> HeadTable:
    about = {"content_hash": "a" * 64, "null": "shuffled-tokens", "end": "high"} | made
    x = np.full((2, 4), 0.03)
    x[1, 3] = 0.9
    return HeadTable.from_scores(
        model="hub/base",
        metric="induction",
        score=x,
        provenance=about,
        sem=0.01,
        n=16,
        null=0.03,
        null_sem=0.002,
        null_sd=0.01,
        p=np.where(x > 0.5, 1e-9, 0.5),
        unit="mass",
    )


def test_a_role_is_the_entry_with_the_largest_share_beyond_position() -> None:
    found = profile()
    first, *rest = found.descriptions
    small = entry(1, "same_sentence", "from names to the same sentence", 0.3)
    small |= {"queries": "names", "position": 0.28}
    entries = [small, {**first["entries"][0], "number": 2}]
    changed = dataclasses.replace(found, descriptions=({**first, "entries": entries}, *rest))
    assert build_atlas(changed)["models"][0]["roles"][0] == "rule:previous_token"
    alone = dataclasses.replace(found, descriptions=({**first, "entries": [small]}, *rest))
    [model] = build_atlas(alone)["models"]
    names = {role["id"]: role["name"] for role in model["legend"]}
    assert model["roles"][0] == "rule:same_sentence"
    assert names["rule:same_sentence"] == "the same sentence"  # whatever the kind of query


def test_roles_are_leading_entries_and_the_legend_counts_them() -> None:
    [model] = build_atlas(profile())["models"]
    assert model["roles"] == ["rule:previous_token", "rule:induction", "position", "unclear"] * 2
    legend = {role["id"]: (role["name"], role["count"]) for role in model["legend"]}
    assert legend == {
        "rule:previous_token": ("the token just before", 2),
        "rule:induction": ("the token after an earlier copy", 2),
        "position": ("position alone", 2),
        "unclear": ("not described", 2),
    }


def test_a_card_has_the_sentence_entries_and_four_examples() -> None:
    [model] = build_atlas(profile())["models"]
    found, alone = model["cards"]["L0H0"]["profile"], [0.2, 0.17, 0.23]
    assert found["sentence"].startswith(
        "Of its attention off the sink (90 %), 60 % goes to the token just before"
    )
    assert found["rules"][0] == ("to the token just before", 0.6, 0.58, 0.62, 0.05, 1.5, *alone)
    kinds = [x["kind"] for x in found["examples"]]
    assert kinds == ["strongest", "strongest", "uniform", "surprise"]
    assert found["facts"]["writes"]["raises"] == [[" Tom", 1.5], [" ran", 0.7]]
    assert model["cards"]["L0H3"]["profile"]["rules"] == []


def test_every_metric_of_a_profile_is_a_number_of_the_page() -> None:
    [model] = build_atlas(profile())["models"]
    found = {metric["name"]: metric for metric in model["metrics"]}
    assert {m["group"] for m in found.values()} == {"text"}
    assert found["loss_without"]["score"][1] == pytest.approx(0.012)
    assert found["loss_without"]["score_low"][1] == pytest.approx(0.002)
    assert found["entry:previous_token"]["score"][:2] == [0.6, None]


def test_the_page_opens_with_counts_sentences_and_an_example() -> None:
    atlas = build_atlas(profile())
    said = atlas["models"][0]["profile"]
    assert said["opening"] == ["L0H0", "L0H1", "L0H2", "L0H3"]
    assert said["text"].startswith("The lists describe 4 of 8 heads, 2 in part, 2 not")
    assert said["statements"][0]["text"] == "the token just before, 2 heads: L0H0 60 %, L1H0 60 %"
    page = atlas_page(atlas)
    main_part = page[page.index("<main") : page.index('id="atlas"')]
    first = main_part.index("60 % goes to the token just before")
    assert first < main_part.index('class="text example"') < main_part.index('class="said"')
    assert '<mark class="key q27" title="85 % of the query\'s attention">' in main_part.replace(
        "&#39;", "'"
    )


def test_scores_and_a_profile_of_the_same_weights_are_one_model() -> None:
    [model] = build_atlas(scores(), profile())["models"]
    assert model["roles"][7] == "unclear"  # on the text; its score is evidence below it
    assert {m["group"] for m in model["metrics"]} > {"text"}
    assert "What scores on prompts say" in atlas_page(build_atlas(scores(), profile()))


def test_one_model_on_two_texts_is_shown_twice() -> None:
    names = [m["name"] for m in build_atlas(profile(), profile(corpus="code.jsonl"))["models"]]
    assert names == ["hub/base", "hub/base on code.jsonl"]


def test_a_folder_with_a_profile_is_a_source(tmp_path: Path) -> None:
    found = profile()
    (tmp_path / "hub-base").mkdir()
    found.save(tmp_path / "hub-base" / "profile.json")
    found.save(tmp_path / "hub-base" / "profile.parquet")
    atlas = build_atlas(tmp_path)
    assert [m["name"] for m in atlas["models"]] == ["hub/base"]
    assert atlas["notes"] == []
    (tmp_path / "hub-base" / "profile.json").unlink()
    assert build_atlas(tmp_path)["models"] == atlas["models"]


def test_a_profile_saves_its_page(tmp_path: Path) -> None:
    profile().save(tmp_path / "profile.html")
    page = (tmp_path / "profile.html").read_text(encoding="utf-8")
    assert "What heads do: hub/base on stories.jsonl" in page


def test_markup_in_texts_is_escaped() -> None:
    page = atlas_page(build_atlas(profile(token=HOSTILE, model=HOSTILE, corpus=HOSTILE)))
    assert HOSTILE not in page
    assert "<img" not in page


def test_a_head_takes_few_bytes_and_a_small_budget_leaves_examples_out() -> None:
    few, many = (atlas_page(build_atlas(profile(heads=n))) for n in (4, 132))
    a_head = (len(many) - len(few)) / 256
    assert a_head < 2500
    cut = atlas_page(build_atlas(profile(heads=132)), budget=len(few) + 256 * 1500)
    assert "left out: the examples and tokens of heads whose role is unclear" in cut
    cards = json.loads(re.search(r'id="atlas">(.*?)</script>', cut)[1])["models"][0]["cards"]  # type: ignore[index]
    assert cards["L0H9"]["profile"]["sentence"]
    assert cards["L0H9"]["profile"]["examples"] == []
    assert len(cards["L0H0"]["profile"]["examples"]) == 4


def test_the_command_profiles_a_model_on_a_corpus(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(1, 20, (8, 24)).tolist()
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps({"text": [0, *x]}) for x in ids))
    out = tmp_path / "atlas.html"
    asked = ["atlas", "planted:induction", "-m", "induction", "--corpus", str(tmp_path / "c.jsonl")]
    asked += ["--set", "n_documents=8", "--set", f"resume={tmp_path / 'kept'}", "-o", str(out)]
    run = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    assert "What its heads do on c.jsonl" in out.read_text(encoding="utf-8")
    assert (tmp_path / "kept" / "planted-induction" / "profile.json").is_file()
    assert [*(tmp_path / "kept").rglob("*.profile.*.parquet")]  # for another run of the atlas
    alone = CliRunner().invoke(main, ["atlas", str(tmp_path / "kept"), "--corpus", "x"])
    assert alone.exit_code
    assert "--corpus needs a MODEL" in alone.output + alone.stderr


def test_a_whole_profile_leaves_no_steps_behind(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(1, 20, (8, 24)).tolist()
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps({"text": [0, *x]}) for x in ids))
    asked = ["profile", "planted:induction", "--corpus", str(tmp_path / "c.jsonl")]
    asked += ["-o", str(tmp_path / "out")]
    for more in (["--set", "effects=false"], []):  # the second run goes on from the first
        run = CliRunner().invoke(main, [*asked, *more], catch_exceptions=False)
        assert run.exit_code == 0, run.output
        kept = [*(tmp_path / "out" / "kept").rglob("*.profile.*.parquet")]
        assert bool(kept) == bool(more)
    assert (tmp_path / "out" / "planted-induction" / "profile.json").is_file()


def test_the_table_of_heads_has_their_sentences() -> None:
    page = atlas_page(build_atlas(profile()))
    table = page[page.index("that have a role</summary>") :]
    assert "Of its attention off the sink (90 %), 60 % goes to the token just before" in table


def test_an_entry_with_examples_shows_its_strongest() -> None:
    found = profile()
    first, *rest = found.descriptions
    entries = [{**first["entries"][0], "examples": [example("L0H0", "entry")]}]
    changed = dataclasses.replace(found, descriptions=({**first, "entries": entries}, *rest))
    [model] = build_atlas(changed)["models"]
    [[phrase, one]] = model["cards"]["L0H0"]["profile"]["by_entry"]
    assert phrase == "to the token just before"
    assert one["tokens"][one["query"]] == " home"
    assert model["cards"]["L0H1"]["profile"]["by_entry"] == []


def test_a_model_that_cannot_be_profiled_is_noted_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interp.profiles import run

    def profiled(model, corpus, **options):
        if model.name == "planted:induction":
            raise OptionError("it reads no text")
        return profile(model=model.name)

    monkeypatch.setattr(run, "profile", profiled)
    out = tmp_path / "atlas.html"
    asked = ["--corpus", str(tmp_path), "-m", "induction"]
    asked += ["--set", f"resume={tmp_path / 'kept'}", "-o", str(out)]
    both = ["atlas", "planted:induction", "bundled:induction", *asked]
    done = CliRunner().invoke(main, both, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    page = out.read_text(encoding="utf-8")
    assert "planted:induction: not profiled: it reads no text" in page
    assert "What its heads do on stories.jsonl" in page
    alone = CliRunner().invoke(main, ["atlas", "planted:induction", *asked, "--overwrite"])
    assert alone.exit_code
    assert "it reads no text" in alone.stderr
