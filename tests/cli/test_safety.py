"""`interp study safety`: what it prints and writes; no heads are reported where nothing refuses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from fixtures.commands import invoked

import interp
from interp.bundled.refusal_text import requests
from interp.safety.overview import study
from interp.safety.removal import ships_scores

FEW = ("-n", 8, "--random", 2)


def test_it_runs_on_its_own_model_without_files(run, tmp_path) -> None:
    result = run("study", "safety", *FEW, "-o", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "bundled:refusal: top 6 heads by projection ablated (L1H3 L1H0 "
    )
    assert "\n  declined: 100% of harmful, 0% of harmless" in result.stdout
    folder = tmp_path / "bundled-refusal"
    told = json.loads((folder / "safety.json").read_text())
    assert told["refused"] == [1.0, 0.0]
    assert told["provenance"]["command"].startswith("interp study safety -n 8")
    assert told["provenance"]["content_hash"]
    heads = pd.read_csv(folder / "heads.csv")
    assert len(heads) == 16 * 6  # projection, SHIPS twice, three forms of Sahara
    curves = pd.read_csv(folder / "curves.csv")
    assert curves["task"].value_counts().to_dict() == {"safety": 7, "harmless": 7}
    assert pd.read_csv(folder / "directions.csv")["chosen"].sum() == 1
    page = (folder / "safety.html").read_text()
    assert "default-src 'none'" in page
    assert "declined: 100% of harmful" in page
    again = run("study", "safety", *FEW, "-o", tmp_path)
    assert again.stdout == result.stdout


@pytest.fixture(scope="module")
def request_files(tmp_path_factory):
    made, folder = requests(4, 24), tmp_path_factory.mktemp("requests")
    bad, fine = folder / "bad.txt", folder / "fine.jsonl"
    bad.write_text("\n".join(r.text for r in made if r.harmful) + "\n")
    fine.write_text("\n".join(json.dumps({"prompt": r.text}) for r in made if not r.harmful) + "\n")
    return bad, fine


def asked_of(bad, fine) -> tuple[object, ...]:
    return ("study", "safety", "bundled:refusal", "--harmful", bad, "--harmless", fine, *FEW)


@pytest.fixture(scope="module")
def printed_study(request_files) -> str:
    """What the command prints of the files alone."""
    return invoked([str(word) for word in asked_of(*request_files)]).stdout


def test_prompts_come_from_files_of_any_kind(run, request_files, printed_study, tmp_path) -> None:
    bad, fine = request_files
    listed = tmp_path / "bad.json"
    listed.write_text(json.dumps([{"instruction": x} for x in bad.read_text().splitlines()]))
    assert run(*asked_of(listed, fine)).stdout == printed_study != ""


def test_a_mean_over_prompts_of_yours_replaces_heads(run, errors, tmp_path) -> None:
    texts = ["please open the door .", "the dog ran ."]
    reference, model = tmp_path / "mine.txt", interp.load("bundled:refusal")
    reference.write_text("\n".join(texts) + "\n")
    given = ("study", "safety", *FEW, "--kind", "mean-dataset")
    assert run(*given, "--reference", reference, "-o", tmp_path).exit_code == 0
    folder = tmp_path / "bundled-refusal"
    made = requests(1, 16)
    sets = [r.text for r in made if r.harmful], [r.text for r in made if not r.harmful]
    want = ships_scores(model, *sets, kind="mean-dataset", reference=texts, null="none").harmful
    heads = pd.read_csv(folder / "heads.csv")
    shown = heads[heads["metric"] == "ships:kind=mean-dataset,task=kl_on_harmful"]["score"]
    np.testing.assert_allclose(shown, want.score, atol=1e-9, rtol=1e-3)
    told = json.loads((folder / "safety.json").read_text())["provenance"]
    assert told["reference"].startswith("lines of mine.txt")
    assert "name their file with --reference" in errors(*given)[1][0]
    assert (
        "applies to --kind mean-dataset only"
        in errors("study", "safety", "--reference", reference)[1][0]
    )


def test_a_template_frames_every_prompt(run, errors, request_files, printed_study) -> None:
    given = asked_of(*request_files)
    framed = run(*given, "--set", "template=please {prompt}")
    assert framed.exit_code == 0
    assert framed.stdout != printed_study
    code, told = errors(*given, "--set", "template=please")
    assert (code, told) == (1, ["bundled:refusal: template 'please' has no {prompt} in it"])
    code, told = errors(*given, "--set", "template=chat")
    assert "has no chat template" in told[0]


def test_what_refuses_is_said_by_text(run, errors, request_files, printed_study) -> None:
    given = asked_of(*request_files)
    assert run(*given, "--set", "refusal_tokens=no").stdout == printed_study
    code, told = errors(*given, "--set", "refusal_tokens=lamp")
    assert code == 1
    assert "harmful prompts that it declines (by its next token)" in told[0]


def test_a_model_that_declines_nothing_gets_no_heads(run, request_files, tmp_path) -> None:
    result = run(
        "study", "safety", "bundled:deceive", *FEW, "--set", "refusal_tokens=river", "-o", tmp_path
    )
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "two are needed" in result.stderr
    assert not list(tmp_path.glob("*/heads.csv"))


def test_what_is_wrong_with_a_command(errors, request_files, tmp_path) -> None:
    bad, fine = request_files
    code, told = errors("study", "safety", "--harmful", bad)
    assert (code, told) == (2, ["--harmful and --harmless must be given together, or neither"])
    code, told = errors(
        "study", "safety", "bundled:induction", "--harmful", bad, "--harmless", fine
    )
    assert "which tokens begin a refusal of bundled:induction" in told[0]
    code, told = errors("study", "safety", "bundled:refusal", "--harmful", bad, "--harmless", bad)
    assert "are the same 12 prompts" in told[0]
    code, told = errors(
        "study", "safety", "bundled:refusal", "--harmful", tmp_path / "x.txt", "--harmless", fine
    )
    assert "is not a file; --harmful expects" in told[0]


def test_a_ranking_that_is_not_known() -> None:
    from interp.core.errors import OptionError

    with pytest.raises(OptionError, match="projection or ships"):
        study("bundled:refusal", [], [], by="best")


def test_a_template_that_nothing_is_framed_by_is_refused(errors) -> None:
    code, [told] = errors("study", "safety", "bundled:refusal", "--set", "template={prompt} please")
    assert code == 2
    assert told.startswith("--set template applies to the prompts of --harmful and --harmless")
