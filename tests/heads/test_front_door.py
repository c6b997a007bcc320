"""Every way of naming models and metrics: lists, names, objects, plain functions and lambdas."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path

import numpy as np
import pytest
import zoo

import interp
from interp.core.errors import LoadError, OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.heads.declaration import Analysis, detector, statistic

PROMPTS = [[5, 9, 7, 5, 9, 7, 5], [4, 4, 6, 8]]


@pytest.fixture(scope="module")
def tiny_llama() -> interp.Model:
    return interp.load(zoo.FAMILIES["llama"].build("sdpa"), name="tiny")


def scored(model, metrics, prompts=PROMPTS, **options) -> HeadTable:
    return interp.score(model, metrics, prompts, **({"null": "none"} | options))


def rows(table: HeadTable):
    """Scores by place, without the names of model and metric."""
    frame = table.to_pandas()
    return frame[["stack", "layer", "head", "score", "sem", "n"]]


# --- models ---------------------------------------------------------------------------------------


def test_a_list_of_models_is_one_table_with_the_rows_of_each(tiny_llama) -> None:
    other = interp.load(zoo.FAMILIES["gpt2"].build("sdpa"), name="other")
    both = scored([tiny_llama, other], ["induction", "entropy"])
    assert both.models == ("tiny", "other")
    each = HeadTable.concat([scored(m, ["induction", "entropy"]) for m in (tiny_llama, other)])
    assert both == each
    assert scored((m for m in (tiny_llama, other)), "entropy").models == ("tiny", "other")


def test_every_model_of_a_list_reads_prompts_that_can_be_read_once(tiny_llama) -> None:
    other = interp.load(zoo.FAMILIES["gpt2"].build("sdpa"), name="other")
    both = scored([tiny_llama, other], "entropy", (ids for ids in PROMPTS))
    assert both.to_pandas()["n"].tolist() == [2] * len(both)


def test_default_metrics_are_those_of_each_model(tiny_llama) -> None:
    vision = interp.load(zoo.FAMILIES["vit"].build("sdpa"), name="vision")
    both = interp.score([tiny_llama, vision], null="none")
    metrics = {name: set(both.where(model=name).metrics) for name in both.models}
    assert "induction" in metrics["tiny"]
    assert "induction" not in metrics["vision"]
    assert "entropy" in metrics["vision"]


@pytest.mark.parametrize("give", [str, Path])
def test_a_folder_a_name_and_an_object_are_loaded_for_the_caller(tmp_path, give) -> None:
    module = zoo.FAMILIES["llama"].build("sdpa")
    module.save_pretrained(tmp_path / "folder")
    want = scored(interp.load(module, name="folder"), "entropy")
    found = scored(give(tmp_path / "folder"), "entropy")
    assert found.models == ("folder",)
    assert rows(found).equals(rows(want))
    assert rows(scored(module, "entropy")).equals(rows(want))
    assert scored("planted:sink", "entropy").models == ("planted:sink",)


def test_folders_of_one_name_are_called_by_their_paths(tmp_path) -> None:
    folders = [tmp_path / which / "model" for which in "ab"]
    for folder in folders:
        zoo.FAMILIES["llama"].build("sdpa").save_pretrained(folder)
    assert scored(folders, "entropy").models == tuple(map(str, folders))


def test_what_is_no_model_is_told_in_one_line_before_any_is_scored(tiny_llama) -> None:
    def never(*_):
        raise AssertionError("scored")

    for wrong, told in (
        (None, "NoneType is not a model; give what interp.load returns"),
        ([tiny_llama, 3], "int is not a model"),
        ({"a": tiny_llama}, "dict is not a model"),
        ([], "the list of models is empty"),
        ([tiny_llama, tiny_llama], "two of the models are called tiny"),
        (["planted:sink", "planted:sink"], "two of the models are called planted:sink"),
    ):
        with pytest.raises(OptionError, match=told):
            scored(wrong, "entropy", progress=never)
    with pytest.raises(LoadError):
        scored("no/such-folder-or-model", "entropy")


def test_other_calls_load_what_is_named_too() -> None:
    """Not only `score`: whoever has no model yet gets one, or one line."""
    from interp import attribution
    from interp.heads import patterns

    name = "planted:induction"
    ids = [0, 40, 41, 42, 40]
    assert interp.model.check_model(name).model == name
    assert patterns.view(name, ids).provenance["model_id"] == name
    assert patterns.long_view(name, ids, heaviest=0).provenance["model_id"] == name
    found = attribution.attribute(name, ids, "gradient_norm")
    assert found.provenance["model_id"] == name
    for call in (
        interp.model.check_model,
        lambda x: patterns.view(x, ids),
        lambda x: patterns.long_view(x, ids),
        lambda x: attribution.attribute(x, ids, "gradient_norm"),
    ):
        for wrong in (3, [name]):
            with pytest.raises(OptionError, match=r"is not a model; give what interp\.load"):
                call(wrong)


# --- metrics --------------------------------------------------------------------------------------


def previous(query, key):
    return key == query - 1


def copied(query, key, tokens):
    """Attend to earlier copies of the current token."""
    return (key < query) & (tokens[key] == tokens[query])


def test_a_function_and_a_lambda_are_detectors(tiny_llama) -> None:
    want = rows(scored(tiny_llama, "previous_token"))
    found = scored(tiny_llama, previous)
    assert found.metrics == ("previous",)
    assert rows(found).equals(want)
    found = scored(tiny_llama, lambda query, key: key == query - 1)
    assert rows(found).equals(want)
    assert found.metrics[0].startswith("lambda_")
    two = scored(tiny_llama, [copied, lambda q, k, t: (k < q) & (t[k] == t[q]), "duplicate_token"])
    first, second, third = (rows(two.where(metric=m)).reset_index(drop=True) for m in two.metrics)
    assert first.equals(second)
    assert first.equals(third)


def test_functions_of_tokens_get_the_null_of_tokens(tiny_llama) -> None:
    kinds = [
        p["null"] for p in scored(tiny_llama, [previous, copied], null="auto").provenance.values()
    ]
    assert kinds == ["random-init", "shuffled-tokens"]


@pytest.mark.parametrize("engine", ["stored", "streamed", "fused"])
def test_every_engine_runs_a_lambda(tiny_llama, engine) -> None:
    found = scored(tiny_llama, lambda query, key: key == query - 1, engine=engine)
    want = scored(tiny_llama, "previous_token")
    np.testing.assert_allclose(rows(found)["score"], rows(want)["score"], atol=1e-6)


def test_a_lambda_may_have_options_and_a_name(tiny_llama) -> None:
    back = detector(lambda query, key, *, back=1: key == query - back, name="back")
    assert scored(tiny_llama, [back, back.bind(back=2)]).metrics == ("back", "back:back=2")
    assert inspect.unwrap(interp.detector) is inspect.unwrap(detector)
    with pytest.raises(OptionError, match="cannot be the name of a metric"):
        detector(previous, name="a:b=c")


WIDTH = 1


def _within(query, key):
    return abs(query - key) <= WIDTH


def test_lambdas_have_one_name_exactly_where_they_compute_the_same(monkeypatch) -> None:
    def made(width, table=(1, 2)):
        return detector(lambda query, key: (key >= query - width) & (key <= table[0]))

    names = [
        made(1).name,
        made(2).name,  # another value closed over
        made(1, np.arange(3)).name,
        made(1, np.arange(4)).name,
        detector(lambda query, key: key >= query - 1).name,
        detector(lambda query, key: key <= query - 1).name,
        detector(lambda query, key, *, width=1: key >= query - width).name,
        detector(lambda query, key, *, width=2: key >= query - width).name,
        detector(lambda query, key: _within(query, key) & (key > 0)).name,
        detector(functools.partial(lambda width, query, key: key == query - width, 1)).name,
        detector(functools.partial(lambda width, query, key: key == query - width, 2)).name,
    ]
    assert len(set(names)) == len(names), names
    assert made(1).name == names[0]
    before = names[8]
    monkeypatch.setitem(globals(), "WIDTH", 5)  # in a function that the lambda calls
    assert detector(lambda query, key: _within(query, key) & (key > 0)).name != before


def test_results_of_two_functions_of_one_name_are_not_joined(tiny_llama) -> None:
    def make(back):
        def mine(query, key):
            return key == query - back

        return mine

    one, two, again = (
        scored(tiny_llama, make(1)),
        scored(tiny_llama, make(2)),
        scored(tiny_llama, make(1)),
    )
    assert one.metrics == two.metrics == ("mine",)
    assert one == again
    with pytest.raises(OptionError, match="two tables of 'mine' on 'tiny' differ in made_by"):
        HeadTable.concat([one, two])


def test_a_lambda_in_a_loop_scores_what_its_name_says(tiny_llama) -> None:
    def at(n):
        return lambda query, key: key == query - n

    table = HeadTable.concat([scored(tiny_llama, at(n)) for n in (0, 1, 2)])
    assert len(set(table.metrics)) == 3
    want = rows(scored(tiny_llama, "current_token"))
    assert rows(table.where(metric=table.metrics[0])).equals(want)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda key, query: key == query, "in this order"),
        (lambda query: query, r"this one takes \(query\)"),
        (lambda *places: places, "this one takes"),
        (lambda query, tokens, key: key, "in this order"),
        (lambda query, key, width=3: key, r"write options after a star, \(query, key, \*, width"),
        (3, "metrics must be a text .* and the number 3 was given"),
        (int, "is not a metric"),
        ([previous, None], r"a list of 2 \(NoneType, function\) was given"),
    ],
)
def test_what_is_no_metric_is_told_in_one_line(tiny_llama, wrong, told) -> None:
    with pytest.raises(OptionError, match=told) as error:
        scored(tiny_llama, wrong)
    assert "\n" not in str(error.value)


def test_scripts_modules_and_cells_declare_under_any_file_name() -> None:
    """A function made by exec has the file and module names that a notebook's cell gives it."""
    cell = compile(
        "from interp.heads.declaration import detector\n"
        "@detector\ndef mine(query, key):\n    return key == query\n",
        "/somewhere/ipykernel_7/123456.py",
        "exec",
    )
    names: dict = {"__name__": "__main__"}
    exec(cell, names)
    assert isinstance(names["mine"], Analysis)
    assert names["mine"].name == "mine"
    assert names["mine"].doc == ""


def test_files_of_the_package_keep_their_rule() -> None:
    def other_name(query, key):
        return key == query

    other_name.__module__ = "interp.heads.detectors.some_name"
    with pytest.raises(TypeError, match="it has no docstring"):
        statistic(unit="")(other_name)


# --- files ----------------------------------------------------------------------------------------

FILES = {
    "declared": "@detector\ndef {name}(query, key):\n    return key == query - 1\n",
    "undecorated": "def {name}(query, key):\n    return key == query - 1\n",
    "a lambda": "{name} = lambda query, key: key == query - 1\n",
    "a declared lambda": "{name} = detector(lambda query, key: key == query - 1, name='{name}')\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_file_declares_in_any_of_these_ways(tiny_llama, tmp_path, text) -> None:
    path = tmp_path / "back_one.py"
    path.write_text("from interp import detector\n\n\n" + text.format(name="back_one"))
    found = scored(tiny_llama, str(path))
    assert found.metrics == ("back_one",)
    assert rows(found).equals(rows(scored(tiny_llama, "previous_token")))


def test_a_file_may_have_a_name_of_its_own(tmp_path) -> None:
    path = tmp_path / "my-detector.py"
    one = "@detector\ndef back(query, key):\n    return key == query - 1\n"
    path.write_text(
        "from interp import detector\nfrom interp.heads.detectors import entropy\n" + one
    )
    assert METRICS.parse(str(path)).label == "back"
    path.write_text(path.read_text() + one.replace("back", "other"))
    with pytest.raises(OptionError, match=r"my-detector.py declares back, other: give one"):
        METRICS.parse(str(path))
    path.write_text("x = 1\n")
    with pytest.raises(OptionError, match="declares no metric: decorate a function with @detector"):
        METRICS.parse(str(path))


def test_texts_are_read_by_each_models_own_tokenizer(tiny_llama) -> None:
    with pytest.raises(PromptError, match="has no tokenizer"):
        scored([tiny_llama], "entropy", ["a text"])
    assert scored([tiny_llama], "entropy", Prompts(((1, 2, 3),))).to_pandas()["n"].max() == 1
