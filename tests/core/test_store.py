import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import pytest
from core.examples import plain, small, texts
from hypothesis import given

from interp.core.errors import DamagedKept, OptionError, StoreError
from interp.core.store import DamagedResult, Key, OtherResults, OtherVersion, Store
from interp.core.table import HeadTable

SETTINGS = {"prompts": "9f", "seed": 0, "dtype": "float32", "null": "shuffled"}


def key(model="tiny", metric="induction", weights="ab12", **settings):
    return Key(model, weights, metric, SETTINGS | settings)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def test_a_run_broken_off_resumes_with_what_is_missing(store):
    wanted = {key(metric=metric): small(metric=metric) for metric in ("a", "b", "c")}
    first, *rest = wanted
    store.write(first, wanted[first])
    again = Store(store.folder)
    assert [k.metric for k in wanted if again.find(k) is None] == ["b", "c"]
    for missing in rest:
        again.write(missing, wanted[missing])
    assert set(again.keys()) == set(wanted)
    assert again.read(wanted) == HeadTable.concat(wanted.values())
    assert again.read([rest[1]]) == wanted[rest[1]]


@pytest.mark.parametrize(
    "other",
    [
        key(metric="induction:k=2"),
        key(weights="ab13"),
        key(seed=1),
        key(prompts="9F"),
        Key("tiny", "ab12", "induction", {}),
    ],
)
def test_any_other_setting_is_another_result(store, other):
    store.write(key(), small())
    assert store.find(other) is None
    assert store.find(Key("tiny", "ab12", "induction", dict(reversed(SETTINGS.items())))) == small()


def test_the_same_model_under_another_name_is_not_computed_again(store):
    store.write(key(), small())
    found = store.find(key("Tiny"))
    assert found == small("Tiny")
    assert {k.model for k in Store(store.folder).paths()} == {"tiny", "Tiny"}
    assert store.find(key("Tiny", weights="ab13")) is None


@given(model=texts, weights=texts, metric=texts, settings=plain)
def test_file_names_are_safe_everywhere(model, weights, metric, settings):
    name = Key(model, weights, metric, {"all": settings}).file_name
    assert name.isascii()
    assert len(name) <= 110
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert name[0] not in "-."


def test_file_names_say_whose_result_it_is():
    name = key("/home/me/models/gpt2-small", "induction:bos=True").file_name
    assert name.startswith("home-me-models-gpt2-small.induction-bos-true.")
    assert len(key("x" * 999, "y" * 999).file_name) < 120


def test_keys_refuse_settings_no_file_could_hold():
    for value in (object(), float("nan")):
        with pytest.raises(OptionError, match="not plain JSON data"):
            key(seed=value)


def test_a_file_is_of_one_model_and_metric(store):
    for wrong in (small("other"), HeadTable.concat([small(), small(metric="x")]), small().top(0)):
        with pytest.raises(OptionError, match="one model and metric, 'tiny' and 'induction'"):
            store.write(key(), wrong)
    assert not store.folder.exists()


def test_no_folder_is_no_results(store):
    assert (store.keys(), len(store.read()), store.find(key())) == ((), 0, None)
    with pytest.raises(StoreError, match="has no 'induction' of 'tiny'; run it first"):
        store.read([key()])


def test_the_index_is_for_people_and_never_read(store):
    path = store.write(key(), small(provenance={"versions": {"interp": "0.1"}}))
    index = json.loads((store.folder / "index.json").read_text())
    assert index["results"] == [
        {
            "file": path.name,
            "model": "tiny",
            "weights": "ab12",
            "metric": "induction",
            "settings": SETTINGS,
            "interp": "0.1",
            "bytes": path.stat().st_size,
        }
    ]
    (store.folder / "index.json").write_text("nonsense")
    (store.folder / "mine.parquet").write_text("not a result")
    assert Store(store.folder).keys() == (key(),)


def damage(path):
    path.write_bytes(path.read_bytes()[:-20])


def test_damaged_files_are_all_named_and_the_rest_stays(store):
    good = store.write(key(metric="good"), small(metric="good"))
    bad = [store.write(key(metric=metric), small(metric=metric)) for metric in ("bad", "worse")]
    for path in bad:
        damage(path)
    fresh = Store(store.folder)
    with pytest.raises(DamagedResult, match=rf"{bad[0].name}, {bad[1].name}; run the command"):
        fresh.read()
    fresh.write(key(metric="new"), small(metric="new"))
    assert "damaged" in (store.folder / "index.json").read_text()
    with pytest.warns(
        DamagedKept, match="it is set aside as .*damaged, and computed again"
    ) as told:
        fresh.set_damaged_aside()
    assert len(told) == 2
    assert Store(store.folder).read() == HeadTable.concat(
        [small(metric="good"), small(metric="new")]
    )
    assert good.exists()
    assert all(path.with_name(path.name + ".damaged").exists() for path in bad)


@pytest.mark.parametrize("where", ["end", "middle", "another's name"])
def test_a_damaged_result_is_set_aside_and_may_be_written_again(store, where):
    path = store.write(key(), small(scores=[[0.1, 0.2], [0.3, 0.4]]))
    content = bytearray(path.read_bytes())
    if where == "end":
        path.write_bytes(content[:-20])
    elif where == "middle":
        content[60:70] = bytes(10)
        path.write_bytes(content)
    else:
        path.write_bytes(store.write(key(seed=1), small()).read_bytes())
    for number in ("", "-2"):
        if number:
            damage(store.write(key(), small()))
        with pytest.warns(DamagedKept, match=path.name):
            assert Store(store.folder).find(key()) is None
        assert path.with_name(f"{path.name}.damaged{number}").exists()
        assert store.find(key()) is None
    store.write(key(), small())
    assert Store(store.folder).find(key()) == small()


def test_of_two_settings_of_one_metric_the_one_asked_for_last_is_shown(store):
    for seed in (0, 1):
        store.write(key(seed=seed), small(provenance={"seed": seed}))
    with pytest.raises(StoreError, match=r"induction of tiny .* in seed; name other keys"):
        store.read([key(seed=0), key(seed=1)])
    with pytest.warns(OtherResults, match="shown with its latest settings, .* in seed"):
        assert store.read().provenance["tiny", "induction"] == {"seed": 1}
    store.find(key(seed=0))
    with pytest.warns(OtherResults):
        assert store.read().provenance["tiny", "induction"] == {"seed": 0}


def test_two_models_of_one_name_keep_both_their_results(store):
    for weights in ("ab12", "cd34"):
        made = {"content_hash": weights}
        store.write(key(weights=weights), small(sem=0.5, provenance=made))
    store.write(key("other"), small("other"))
    with pytest.warns(OtherResults, match="2 models .* called tiny; they are shown as tiny@ab12, "):
        assert store.read().models == ("tiny@ab12", "tiny@cd34", "other")
    with pytest.warns(OtherResults):
        found = store.read(lead=small("other"))
    assert found.models == ("other", "tiny@ab12", "tiny@cd34")


def test_results_of_another_version_are_kept_and_reported(store):
    store.write(key(), small(provenance={"versions": {"interp": "0.0.9"}}))
    store.write(key("b"), small("b", provenance={"versions": {"interp": "0.1.0"}}))
    new = Store(store.folder, version="0.1.0")
    assert new.find(key()) is not None
    with pytest.warns(OtherVersion, match=r"1 results .* made by interp 0\.0\.9, this is 0\.1\.0"):
        assert len(new.read()) == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new.read([key("b")])


# What the machine can refuse.


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (errno.ENOSPC, "no space left for .*parquet; free some, then run again"),
        (errno.EDQUOT, "no space left"),
        (errno.EROFS, "may not write .*; choose a folder you may write to"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_what_was_there(store, monkeypatch, call, code, why):
    store.write(key(metric="done"), small(metric="done"))
    store.write(key(), small())
    before = names(store.folder)

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        for target, table in [(key(), small(sem=0.5)), (key(seed=1), small())]:
            with pytest.raises(StoreError, match=why):
                store.write(target, table)
    assert names(store.folder) == before
    assert Store(store.folder).read([key()]) == small()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_ctrl_c_in_a_write_leaves_what_was_there(store, monkeypatch, call):
    store.write(key(), small())
    before = names(store.folder)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.write(key(seed=1), small())
    assert names(store.folder) == before


def test_a_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"may not mount a small disk: {done.stderr.strip()}")
    try:
        store, written = Store(disk), []
        with pytest.raises(StoreError, match="no space left for"):  # noqa: PT012
            for seed in range(50):
                store.write(key(seed=seed), small(provenance={"seed": seed}))
                written.append(key(seed=seed))
        assert written
        assert not [name for name in names(disk) if name.endswith(".tmp")]
        for seed, done_key in enumerate(written):
            assert Store(disk).read([done_key]) == small(provenance={"seed": seed})
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def locked(tmp_path):
    """A folder that this process may not write to, also when it runs as root."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o755)


def test_a_folder_that_may_not_be_written(locked):
    for store in (Store(locked), Store(locked / "deeper" / "results")):
        for attempt in (store.prepare, lambda store=store: store.write(key(), small())):
            with pytest.raises(
                StoreError, match=r"may not write .*; choose a folder you may write"
            ):
                attempt()


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "taken").write_text("mine")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "results"):
        with pytest.raises(StoreError, match="is a file"):
            Store(folder).prepare()
        with pytest.raises(StoreError, match="is a file"):
            Store(folder).write(key(), small())
        with pytest.raises(StoreError, match="is a file"):
            Store(folder).find(key())
    assert (tmp_path / "taken").read_text() == "mine"


def test_prepare_makes_the_folder_and_leaves_nothing_in_it(store):
    store.prepare()
    assert names(store.folder) == []


def test_a_killed_process_leaves_only_whole_results(store):
    """Kill without warning while a process writes, and read what it left."""
    code = f"""
        import itertools
        from core.examples import small
        from interp.core.store import Key, Store
        store = Store({str(store.folder)!r})
        for seed in itertools.count():
            key = Key("tiny", "", "induction", {{"seed": seed}})
            store.write(key, small(provenance={{"seed": seed}}))
            print(seed, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    lines = [process.stdout.readline() for _ in range(5)]
    time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    finished = [*lines, *process.stdout]
    process.wait()
    process.stdout.close()
    keys = Store(store.folder).keys()
    seen = {found.settings["seed"] for found in keys}
    assert seen >= set(range(len(finished)))
    for seed in seen:
        table = Store(store.folder).read([Key("tiny", "", "induction", {"seed": seed})])
        assert table.provenance["tiny", "induction"] == {"seed": seed}


def test_temporary_files_of_the_dead_go_and_those_of_the_living_stay(store):
    store.write(key(), small())
    old, new = store.folder / ".a.1-1.tmp", store.folder / ".b.1-2.tmp"
    for path, hours in ((old, 25), (new, 23)):  # a day
        path.write_text("")
        os.utime(path, (time.time() - 3600 * hours,) * 2)
    Store(store.folder).write(key(seed=1), small())
    assert not old.exists()
    assert new.exists()


def write_many(folder, who):
    store = Store(folder)
    for seed in range(8):
        store.write(key(seed=seed), small(provenance={"seed": seed}))  # both write these
        store.write(key(who, seed=seed), small(who, provenance={"seed": seed}))


@pytest.mark.slow
def test_two_processes_write_one_folder_at_once(store):
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=write_many, args=(store.folder, who)) for who in ("a", "b")]
    for process in both:
        process.start()
    for process in both:
        process.join(300)
    assert [process.exitcode for process in both] == [0, 0]
    found = Store(store.folder)
    keys = found.keys()
    assert len(keys) == 24
    for each in keys:
        assert found.read([each]) == small(each.model, provenance={"seed": each.settings["seed"]})
    assert len([name for name in names(store.folder) if name.endswith(".parquet")]) == 24
    assert not [name for name in names(store.folder) if name.endswith(".tmp")]
    assert json.loads((store.folder / "index.json").read_text())["results"]
