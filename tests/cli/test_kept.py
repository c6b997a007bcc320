"""What a command keeps is served to the same command, and to no other, whatever was changed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from model.test_identity import a_token, one_weight, rotary_base
from together import over

from interp import bundled
from interp.causal.game.game import Game
from interp.circuits.stored_steps import Kept

COMMANDS: dict[str, tuple[str, ...]] = {
    "score": ("score", "{model}", "-m", "{own}", "--file", "{texts}", "-q"),
    "ablate": ("importance", "ablate", "{model}", "--null", "none", "--task", "{task}", "-q"),
    "shapley": (
        "importance",
        "shapley",
        "{model}",
        "--method",
        "permutations",
        "--max-evaluations",
        "31",
        "--task",
        "{task}",
        "-q",
    ),
    "importance": ("importance", "{model}", "-m", "ablation", "--task", "{task}", "-q"),
    "prune": (
        "prune",
        "{model}",
        "--method",
        "ablation",
        "--random",
        "2",
        "--set",
        "counts=2",
        "--task",
        "{task}",
        "-q",
    ),
    "verify": (
        "importance",
        "verify",
        "{model}",
        "-m",
        "{own}",
        "--top",
        "1",
        "--random",
        "2",
        "--task",
        "{task}",
        "-q",
    ),
    "circuit": (
        "circuit",
        "{model}",
        "--task",
        "induction",
        "-n",
        "14",
        "--random",
        "2",
        "--method",
        "gim_patching",
        "-q",
    ),
    "trees": (
        "study",
        "trees",
        "{model}",
        "--file",
        "{trees}",
        "-n",
        "24",
        "--set",
        "controls=false",
        "--top",
        "0",
        "-q",
    ),
    "influence": (
        "texts",
        "influence",
        "{model}",
        "--file",
        "{texts}",
        "--heads",
        "L0H1",
        "--random",
        "2",
        "-q",
    ),
}
OWN = '''from interp.heads.declaration import detector


@detector
def own(query, key):
    """Attends to the token before."""
    return key == query - 1
'''
FIRST = [1, *[5, 9, 4] * 4]  # the model goes on with what repeats
TASK = """from interp.causal.text_tasks import next_token_task


def task(model):
    return next_token_task(model, {prompts})
"""


class Place:
    """A folder with a model, a metric, a task, texts and a treebank of one's own."""

    def __init__(self, folder: Path):
        self.folder, self.out = folder, folder / "out"
        self.model = Path(shutil.copytree(bundled.path("induction"), folder / "model"))
        self.own, self.task = folder / "own.py", folder / "task.py"
        self.texts, self.trees = folder / "texts.txt", folder / "bank.conllu"
        self.imported = folder / f"imported_{folder.name}.py"
        self.own.write_text(OWN)
        self.task.write_text(TASK.format(prompts=[FIRST, [1, *[7, 3, 8] * 4]]))
        self.texts.write_text("a dog saw the cat .\nthe cat saw a dog .\n")
        from interp.core.resources import folder as data

        shutil.copy(data("data") / "treebank.conllu", self.trees)

    def asked(self, command: str) -> list[str]:
        out = self.out / "rows.jsonl" if command == "influence" else self.out
        return [*(a.format(**vars(self)) for a in COMMANDS[command]), "-o", str(out)]

    def kept(self) -> dict[str, int]:
        """Files of kept results and their sizes, which grow with what is computed."""
        own = [p for p in self.out.rglob("*") if p.suffix == ".jsonl" or p.parent.name == "kept"]
        own += list(self.out.glob("*.*.*.parquet"))
        return {str(p.relative_to(self.out)): p.stat().st_size for p in own}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def another_import(place: Place) -> tuple[str, ...]:
    place.imported.write_text("x = 1\n")
    return ("--import", str(place.imported))


def another_metric(place: Place) -> None:
    place.own.write_text(OWN.replace("query - 1", "query - 2"))


def another_prompt(place: Place) -> None:
    place.task.write_text(TASK.format(prompts=[FIRST, [1, *[6, 3, 8] * 4]]))
    place.texts.write_text(place.texts.read_text().replace("saw a dog", "saw a cat"))
    text = place.trees.read_text(encoding="utf-8")
    place.trees.write_text(text.replace("keeper", "sleeper"), encoding="utf-8")


CHANGES: dict[str, Callable[[Place], tuple[str, ...] | None]] = {
    "one weight": lambda place: one_weight(place.model),
    "rope_theta": lambda place: rotary_base(place.model),
    "two tokens": lambda place: a_token(place.model),
    "an imported file": another_import,
    "the metric's file": another_metric,
    "a prompt": another_prompt,
    "seed": lambda place: ("--seed", "1"),
    "dtype": lambda place: ("--dtype", "float64"),
    "attention": lambda place: ("--attention", "eager"),
}
OF_THE_MODEL = {"rope_theta", "two tokens", "dtype", "attention"}  # beside one weight
UNTOUCHED = {  # what a command does not read
    "the metric's file": {*COMMANDS} - {"score", "verify"},
    "a prompt": {"circuit"},  # makes its own
}


@pytest.fixture
def work(monkeypatch) -> list[str]:
    """Grows with every piece of work that kept results save."""
    from interp.heads.sweep import scored_models as batch

    done: list[str] = []

    def counted(owner: object, name: str) -> None:
        own = getattr(owner, name)

        def call(*args, **kwargs):
            done.append(name)
            return own(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    import interp.syntax.search
    from interp.causal.influence.score import _Run

    counted(Game, "evaluate")
    counted(Kept, "add")
    counted(_Run, "rows")
    counted(batch, "check_model")
    counted(interp.syntax.search, "dependency_trees")
    return done


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_command_is_served_what_is_kept(run, place, work, command) -> None:
    first = run(*place.asked(command))
    assert first.exit_code == 0, first.stderr
    assert work
    kept, made = place.kept(), len(work)
    again = run(*place.asked(command))
    assert again.exit_code == 0, again.stderr
    assert again.stdout == first.stdout
    assert place.kept() == kept
    # a game tries at its start, each time anew, whether its task depends on heads at all
    assert set(work[made:]) <= {"evaluate"}
    assert len(work) - made < made


def test_a_command_reads_the_weights_once(run, place, monkeypatch) -> None:
    from interp.model import content
    from interp.model import transformer as model_file

    hashed, read = [], []
    whole, tensors = content.content_hash, content._tensors

    def counted(module):
        read.append(module)
        return tensors(module)

    monkeypatch.setattr(model_file, "content_hash", lambda m: hashed.append(m) or whole(m))
    monkeypatch.setattr(content, "_tensors", counted)
    command = ("score", place.model, "-m", "detectors,ov_norm", "--null", "none", "-o", place.out)
    assert run(*command).exit_code == 0
    assert (len(hashed), len(read)) == (1, 2)  # one sha256, and the one checksum it is known by
    assert not content._held


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_changed_is_computed_again(run, tmp_path, command) -> None:
    place, before = Place(tmp_path / command), tmp_path / "before"
    assert run(*place.asked(command)).exit_code == 0
    shutil.copytree(place.folder, before)

    # what identifies a model is one value in every command (tests/model/test_identity.py)
    whats = [what for what in CHANGES if command == "score" or what not in OF_THE_MODEL]

    @over("what", [what for what in whats if command not in UNTOUCHED.get(what, ())])
    def check(what: str) -> None:
        shutil.rmtree(place.folder)
        shutil.copytree(before, place.folder)
        more: tuple[str, ...] = ()
        if what == "an imported file":
            shutil.rmtree(place.out)
            more = another_import(place)
            assert run(*place.asked(command), *more).exit_code == 0
        kept = place.kept()
        if what == "an imported file":
            place.imported.write_text("x = 2\n")
            sys.modules.pop(place.imported.stem)  # as in another process
        else:
            more = CHANGES[what](place) or ()
        result = run(*place.asked(command), *more)
        if command == "influence":  # its rows are in the caller's own file
            assert result.exit_code == 2, result.stderr
            assert "another" in result.stderr
            assert place.kept() == kept
            return
        assert result.exit_code == 0, result.stderr
        after = place.kept()
        if (command, what) == ("verify", "the metric's file"):  # other heads in the same games
            assert after.keys() == kept.keys()
            assert after != kept
        else:
            assert after.items() > kept.items(), "something else was kept beside"

    check()


@pytest.mark.parametrize("command", ["score", "shapley", "trees"])
def test_another_base_of_the_rotary_embedding_gives_other_numbers(run, place, command) -> None:
    """As the issue reports it: config.json is edited in place, and the same command run again."""
    first = run(*place.asked(command)).stdout, json.dumps(sorted(place.kept()))
    rotary_base(place.model)
    second = run(*place.asked(command)).stdout, json.dumps(sorted(place.kept()))
    assert first[1] != second[1]
    assert first[0] != second[0] or command == "trees"
    shutil.rmtree(place.out)
    assert run(*place.asked(command)).stdout == second[0]
