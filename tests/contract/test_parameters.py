"""Names of the parameters of public functions: one word for one meaning, held by a list.

A parameter that is in no line of `parameters.txt` is a new word. Use the word that the list has for
its meaning (counts are `n_...`, random draws of a null `n_random`, bootstrap draws `n_boot`, a
longest length `max_length`); add a line only where nothing there says it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "interp"
WORDS = Path(__file__).with_name("parameters.txt")
MOST = 442
"""Names over all folders, methods of public classes included."""
OTHER_WORDS = {
    "longest": "max_length",
    "shortest": "min_length",
    "tell": "progress",
    "ledger": "resume",
    "null_draws": "n_random (interp.score alone has it, beside its --random)",
    "draws": "n_random for a null, n_boot for the bootstrap",
    "choose": "n_heads or n_selection",
    "permutations": "n_permutations",
    "trainings": "n_trainings",
    "restarts": "n_restarts",
    "samples": "n_samples",
    "model_name": "model",
    "path_to": "path",
}


def public() -> Iterator[tuple[Path, ast.FunctionDef | ast.ClassDef]]:
    """Yield every function and class that a stub of the package lists, once."""
    seen = set()
    for stub in sorted(ROOT.rglob("__init__.pyi")):
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ImportFrom):
                continue
            folder = stub.parents[node.level - 1]
            path = folder.joinpath(*(node.module or "").split("."))
            path = path.with_suffix(".py") if path.with_suffix(".py").exists() else path
            path = path / "__init__.py" if path.is_dir() else path
            if not path.exists():
                continue
            names = {alias.name for alias in node.names}
            for found in ast.parse(path.read_text(encoding="utf-8")).body:
                if not isinstance(found, ast.FunctionDef | ast.ClassDef):
                    continue
                if found.name in names and (path, found.name) not in seen:
                    seen.add((path, found.name))
                    yield path, found


@cache
def parameters() -> dict[str, list[str]]:
    """Return every parameter of a public function, or method of a public class, with its users."""
    users = defaultdict(list)
    for _, node in public():
        inside = [node] if isinstance(node, ast.FunctionDef) else node.body
        for function in inside:
            if not isinstance(function, ast.FunctionDef):
                continue
            if function.name.startswith("_") and function.name != "__init__":
                continue
            args = function.args
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
                if arg.arg not in ("self", "cls"):
                    users[arg.arg].append(f"{node.name}.{function.name}")
    return users


def test_every_parameter_is_a_word_of_the_list() -> None:
    known = WORDS.read_text(encoding="utf-8").split()
    assert known == sorted(set(known)), "the list is sorted, each word once"
    users = parameters()
    new = {name: where[:3] for name, where in users.items() if name not in known}
    assert not new, f"no word of {WORDS.name}; take the one that it has for this meaning: {new}"
    gone = [name for name in known if name not in users]
    assert not gone, f"no public function has these any more; take them out of {WORDS.name}: {gone}"


def test_a_meaning_has_one_word() -> None:
    users = parameters()
    wrong = {
        old: (word, users[old][:3])
        for old, word in OTHER_WORDS.items()
        if set(users.get(old, [])) - {"score.score"}
    }
    assert not wrong, f"another word is used for this meaning everywhere else: {wrong}"
    assert len(users) <= MOST
