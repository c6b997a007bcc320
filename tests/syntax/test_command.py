"""`interp study trees`: the numbers of the Python call, kept and continued, one line per error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from syntax.commanded import BANK, FEW, Run, errors
from syntax.small_bert import save_bert

import interp
import interp.syntax.search
from interp.core.errors import CheckError
from interp.core.json_document import stored_document
from interp.core.parquet_file import rows_from_parquet
from interp.core.resources import folder
from interp.syntax.commands.study.trees import passes
from interp.syntax.conllu import read_conllu
from interp.syntax.result import TreeScores
from interp.syntax.search import dependency_trees


@pytest.fixture(scope="module")
def bert_trees(bert_folder: Path) -> TreeScores:
    return dependency_trees(interp.load(bert_folder, name="bert"), BANK.first(24))


def never(*_: object, **__: object) -> None:
    raise AssertionError("searched again")


def test_json_has_the_numbers_of_the_python_call(
    run_trees: Run, bert_folder: Path, bert_trees: TreeScores
) -> None:
    result = run_trees(bert_folder, *FEW, "--json")
    assert result.exit_code == 0
    [told] = stored_document(result.stdout)
    assert told == json.loads(json.dumps(bert_trees.to_dict()))
    assert told["provenance"]["treebank"]["sha256"] == BANK.content_hash


def test_the_printed_table(run_trees: Run, bert_folder: Path, bert_trees: TreeScores) -> None:
    result = run_trees(bert_folder, *FEW, "--top", 2)
    lines = result.stdout.splitlines()
    assert lines[0] == "bert"
    assert lines[1].split()[:2] == ["relation", "head"]
    best = sorted(bert_trees.relations, key=lambda r: (r.n < 10, -r.gain_interval[0]))
    for line, r in zip(lines[2:4], best, strict=False):
        cells = line.split()
        assert cells[:2] == [r.relation, r.head]
        assert cells[3] == f"{100 * r.accuracy:.1f}"
        assert f"{100 * r.baseline:.1f} at {r.offset:+d}" in line
        assert line.endswith(str(r.n))
    assert f"{len(best) - 2} more relations" in lines[4]
    assert "fewer than 10 dependents last" in lines[5]
    chain = next(t for t in bert_trees.trees if t.baseline and t.punct)
    row = next(line for line in lines if line.strip().startswith(f"{chain.method} (baseline)"))
    assert f"{chain.uuas:.3f} [{chain.uuas_interval[0]:.3f}" in row
    assert any("note: heads are chosen on the first half" in line for line in lines)
    none = run_trees(bert_folder, *FEW, "--top", 0, "-q").stdout.splitlines()
    assert none[1].split()[:3] == [str(len(best)), "more", "relations:"]


def test_files_are_written_and_say_the_same(
    run_trees: Run, bert_folder: Path, bert_trees: TreeScores, tmp_path: Path
) -> None:
    result = run_trees(bert_folder, *FEW, "-o", tmp_path / "out")
    assert result.exit_code == 0
    [told] = stored_document((tmp_path / "out" / "trees.json").read_text())
    assert told == json.loads(json.dumps(bert_trees.to_dict()))
    relations = pd.read_csv(tmp_path / "out" / "relations.csv", keep_default_na=False)
    assert relations["accuracy"].tolist() == [r.accuracy for r in bert_trees.relations]
    trees = pd.read_csv(tmp_path / "out" / "trees.csv")
    assert trees["uuas"].tolist() == [t.uuas for t in bert_trees.trees]
    page = (tmp_path / "out" / "trees.html").read_text()
    assert f"interp study trees {bert_folder} -n 24" in page
    assert page.count('class="arcs"') == len(bert_trees.drawn)
    assert "trees.json, relations.csv, trees.csv, trees.html" in result.stderr
    assert errors(result) == []
    assert not list(tmp_path.rglob("*.tmp"))


def test_finished_models_are_kept_and_no_other_option_gets_their_numbers(
    run_trees: Run, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(shutil.copytree(bert_folder, tmp_path / "other"))
    out, file = tmp_path / "out", tmp_path / "bank.conllu"
    shutil.copy(folder("data") / "treebank.conllu", file)
    first = run_trees(bert_folder, *FEW, "--set", "controls=false", "-o", out)
    monkeypatch.setattr(interp.syntax.search, "dependency_trees", never)
    again = run_trees(bert_folder, *FEW, "--set", "controls=false", "-o", out)
    assert again.exit_code == 0
    assert again.stdout == first.stdout
    assert f"bert: stored by an earlier run of interp {interp.__version__}" in again.stderr
    for changed in (
        (bert_folder, "-n", "25", "--set", "controls=false"),
        (bert_folder, *FEW),
        (bert_folder, *FEW, "--set", "controls=false", "--seed", "1"),
        (bert_folder, *FEW, "--set", "controls=false", "--stack", "encoder"),
        (bert_folder, *FEW, "--set", "controls=false", "--dtype", "float64"),
        (bert_folder, *FEW, "--set", "controls=false", "--set", f"train={file}"),
    ):
        result = run_trees(*changed, "-o", out)
        assert "searched again" in errors(result)[0], changed
    assert (
        "searched again" in errors(run_trees(other, *FEW, "--set", "controls=false", "-o", out))[0]
    )


def test_a_treebank_of_the_same_name_with_another_word_is_searched(
    run_trees: Run, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(shutil.copy(folder("data") / "treebank.conllu", tmp_path / "bank.conllu"))
    asked = (bert_folder, *FEW, "--set", "controls=false", "--file", file, "-o", tmp_path / "out")
    run_trees(*asked)
    monkeypatch.setattr(interp.syntax.search, "dependency_trees", never)
    assert run_trees(*asked).exit_code == 0
    text = file.read_text(encoding="utf-8").replace("keeper", "sleeper")
    file.write_text(text, encoding="utf-8")
    assert "searched again" in errors(run_trees(*asked))[0]


def test_other_weights_under_the_same_name_are_searched(
    run_trees: Run, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(bert_folder, tmp_path / "bert"))
    run_trees(copy, *FEW, "--set", "controls=false", "-o", tmp_path / "out")
    shutil.rmtree(copy)
    save_bert(copy, sorted({word for one in BANK for word in one.words}), seed=1)
    monkeypatch.setattr(interp.syntax.search, "dependency_trees", never)
    result = run_trees(copy, *FEW, "--set", "controls=false", "-o", tmp_path / "out")
    assert "searched again" in errors(result)[0]


def test_an_interrupted_run_goes_on_with_the_models_left(
    run_trees: Run, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(shutil.copytree(bert_folder, tmp_path / "other"))
    asked = (bert_folder, other, *FEW, "--set", "controls=false", "-o", tmp_path / "out")
    searched: list[str] = []

    def once(model, *args, **options):
        if searched:
            raise KeyboardInterrupt
        searched.append(model.name)
        return dependency_trees(model, *args, **options)

    monkeypatch.setattr(interp.syntax.search, "dependency_trees", once)
    result = run_trees(*asked)
    assert result.exit_code == 130
    assert errors(result) == ["interrupted; the same command resumes from the finished steps"]
    assert not (tmp_path / "out" / "trees.json").exists()
    searched.clear()
    assert run_trees(*asked).exit_code == 0
    assert searched == ["other"]
    told = json.loads((tmp_path / "out" / "trees.json").read_text())
    assert [one["model"] for one in told] == ["bert", "other"]
    assert told[0]["relations"] == told[1]["relations"]


def rewritten(content: bytes, notes: dict[str, str]) -> bytes:
    """The file of a kept result with other notes, and right checksums."""
    table = pq.read_table(pa.BufferReader(content))
    own = {key.decode(): text.decode() for key, text in table.schema.metadata.items()}
    pq.write_table(table.replace_schema_metadata(own | notes), sink := pa.BufferOutputStream())
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:90] + bytes([content[90] ^ 1]) + content[91:],
        lambda content: rewritten(content, {"interp.key": "{}"}),
        lambda content: rewritten(content, {"interp": "interp steps 2"}),
        lambda content: b"[]",
    ],
    ids=["cut off", "another number", "another key", "another format", "something else"],
)
def test_a_damaged_file_is_set_aside_and_made_again(
    run_trees: Run, bert_folder: Path, tmp_path: Path, damage
) -> None:
    run_trees(bert_folder, *FEW, "--set", "controls=false", "-o", tmp_path)
    [kept] = (tmp_path / "kept").iterdir()
    content = kept.read_bytes()
    kept.write_bytes(damage(content))
    assert kept.read_bytes() != content
    result = run_trees(bert_folder, *FEW, "--set", "controls=false", "-o", tmp_path)
    assert result.exit_code == 0
    [told] = [line for line in result.stderr.splitlines() if "is damaged (" in line]
    assert told.startswith(f"interp: {kept} is damaged (")
    assert told.endswith(f"; it is set aside as {kept.name}.damaged, and computed again")
    assert rows_from_parquet(kept.read_bytes()) == rows_from_parquet(content)


def test_two_commands_leave_the_trees_of_both(
    run_trees: Run, bert_folder: Path, tmp_path: Path
) -> None:
    """Models, also two of one name; of one model with other options the one asked for last."""
    others = [Path(shutil.copytree(bert_folder, tmp_path / at / "bert")) for at in "ab"]
    save_bert(others[1], sorted({word for one in BANK for word in one.words}), seed=1)
    third = Path(shutil.copytree(bert_folder, tmp_path / "third"))
    out, rest = tmp_path / "out", ("--set", "controls=false", "--top", 0, "-o", tmp_path / "out")
    for model in (third, *others):
        run_trees(model, *FEW, *rest)
    told = json.loads((out / "trees.json").read_text())
    assert [one["model"].partition("@")[0] for one in told] == ["bert", "bert", "third"]
    hashes = [one["provenance"]["content_hash"] for one in told]
    assert [one["model"] for one in told][:2] == [f"bert@{h[:8]}" for h in hashes[:2]]
    assert hashes[1] == hashes[2] != hashes[0]
    page = (out / "trees.html").read_text()
    assert page.count("<section") == 3
    assert set(pd.read_csv(out / "relations.csv")["model"]) == {one["model"] for one in told}
    again = run_trees(third, *FEW, *rest, "--seed", 1)
    assert "1 more results of these models, with other settings, are stored in" in again.stderr
    told = json.loads((out / "trees.json").read_text())
    assert (told[0]["model"], told[0]["provenance"]["seed"]) == ("third", 1)
    assert len(told) == 3


def test_heads_chosen_on_one_file_and_reported_on_another(
    run_trees: Run, bert_folder: Path, tmp_path: Path
) -> None:
    text = (folder("data") / "treebank.conllu").read_text(encoding="utf-8")
    blocks = text.strip().split("\n\n")
    for name, part in (("a", blocks[:30]), ("b", blocks[30:50])):
        (tmp_path / f"{name}.conllu").write_text("\n\n".join(part) + "\n\n", encoding="utf-8")
    result = run_trees(
        bert_folder,
        "--file",
        tmp_path / "b.conllu",
        "--set",
        f"train={tmp_path / 'a.conllu'}",
        "--json",
        "--seed",
        "3",
        "--set",
        "controls=false",
    )
    train, test = (read_conllu(tmp_path / f"{name}.conllu") for name in "ab")
    want = dependency_trees(
        interp.load(bert_folder, name="bert"),
        test,
        train=train,
        controls=False,
        seed=3,
    )
    assert stored_document(result.stdout) == [json.loads(json.dumps(want.to_dict()))]


def test_a_decoder_is_read_by_its_text(run_trees: Run) -> None:
    result = run_trees("bundled:induction", "--set", "controls=false", "--json", "-q")
    [told] = json.loads(result.stdout)
    assert any("each word attends only to earlier words" in note for note in told["notes"])
    assert list(told["by_head"]) == ["decoder"]
    assert result.stderr == ""


def test_what_cannot_be_read_is_one_line_before_any_model_is_loaded(
    run_trees: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interp.model.loading.Loading.load", never)
    missing = run_trees("bundled:induction", "--file", tmp_path / "none.conllu")
    assert missing.exit_code == 2
    assert errors(missing) == [
        f"{tmp_path / 'none.conllu'} is not a file; give a treebank in CoNLL-U"
    ]
    bad = tmp_path / "bad.conllu"
    bad.write_text("1\ta\t_\tX\t_\t_\t2\tdep\t_\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t_\t_\n")
    for option in (("--file", bad), ("--set", f"train={bad}")):
        result = run_trees("bundled:induction", *option)
        assert result.exit_code == 1
        assert errors(result) == [
            f"{bad}, line 1: not a tree: the heads of 1 -> 2 -> 1 form a cycle, and no word has "
            "head 0"
        ]
    assert run_trees("--file", tmp_path / "none.conllu").exit_code == 2  # of the usual model
    assert run_trees("bundled:induction", "-n", "1").exit_code == 2
    device = run_trees("bundled:induction", "--device", "abacus")
    assert device.exit_code == 2
    assert errors(device)[0].startswith("device 'abacus' cannot be used")
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "is a file" in errors(run_trees("bundled:induction", "-o", blocked))[0]


def test_sentences_with_errors_can_be_skipped_and_are_counted(
    run_trees: Run, bert_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bank.conllu"
    good = (folder("data") / "treebank.conllu").read_text(encoding="utf-8")
    path.write_text("1\tbad\n\n" + good, encoding="utf-8")
    result = run_trees(
        bert_folder, "--file", path, "--set", "on_error=skip", "--set", "controls=false", *FEW
    )
    assert result.exit_code == 0
    assert f"bank: 1 sentence with errors: skipped; the first: {path}, line 1" in result.stderr
    assert "1 sentence with errors" in result.stdout


def test_a_sentence_beyond_the_context_is_left_out_and_counted(
    run_trees: Run, bert_folder: Path, tmp_path: Path
) -> None:
    rows = ["1\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_"]
    rows += [f"{at}\tsea\tsea\tNOUN\t_\t_\t1\tobj\t_\t_" for at in range(2, 60)]
    path = tmp_path / "bank.conllu"
    good = (folder("data") / "treebank.conllu").read_text(encoding="utf-8")
    path.write_text("\n".join(rows) + "\n\n" + good, encoding="utf-8")
    result = run_trees(bert_folder, "--file", path, "--set", "controls=false", "--json", *FEW)
    [told] = json.loads(result.stdout)
    assert told["counts"]["train_too_long"] == 1
    assert told["counts"]["train_sentences"] == 11


def test_a_model_that_fails_is_told_and_the_others_are_done(
    run_trees: Run, bert_folder: Path
) -> None:
    result = run_trees(
        "planted:induction", bert_folder, *FEW, "--set", "controls=false", "--top", 1
    )
    assert result.exit_code == 1
    told = errors(result)
    assert told[0] == "planted:induction has no tokenizer, but trees need words; load it with one"
    assert told[1] == "1 of 2 models failed: planted:induction"
    assert result.stdout.splitlines()[0] == "bert"


def test_a_model_whose_attention_is_not_its_own_is_refused(
    run_trees: Run, bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failed:
        def require(self) -> None:
            raise CheckError("its patterns are not those it ran with")

    monkeypatch.setattr("interp.model.check.check_model", lambda model: Failed())
    result = run_trees(bert_folder, *FEW)
    assert result.exit_code == 1
    assert errors(result) == ["bert: its patterns are not those it ran with"]


def test_options_may_come_from_a_file(run_trees: Run, bert_folder: Path, tmp_path: Path) -> None:
    asked = f'models = ["{bert_folder}"]\nn = 24\ncontrols = false\n'
    (tmp_path / "trees.toml").write_text(asked)
    told = run_trees("--config", tmp_path / "trees.toml", "--json")
    assert told.stdout == run_trees(bert_folder, *FEW, "--set", "controls=false", "--json").stdout


def test_progress_is_told_over_sentences() -> None:
    told: list[tuple[str, int, int]] = []
    progress = passes(lambda *step: told.append(step), "bert")
    progress("bert", 3, 10)
    progress("bert, random weights", 1, 10)
    assert told == [("sentences", 3, 10), ("sentences, random weights", 1, 10)]


def test_the_default_treebank_is_found_in_a_wheel(
    run_trees: Run, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder("data"), tmp_path / "_repository" / "data")
    text = (folder("data") / "treebank.conllu").read_text(encoding="utf-8")
    short = "\n\n".join(text.split("\n\n")[:20]) + "\n\n"
    (tmp_path / "_repository" / "data" / "treebank.conllu").write_text(short, encoding="utf-8")
    monkeypatch.setattr("interp.core.resources._PACKAGE", tmp_path)
    [told] = json.loads(run_trees(bert_folder, "--set", "controls=false", "--json").stdout)
    assert told["provenance"]["treebank"]["n"] == 20
