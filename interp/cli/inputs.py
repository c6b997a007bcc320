"""Inputs that a run makes for a function from options: tasks, prompts, texts, labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.causal.game.interventions import INTERVENTIONS, ON_PAIRS, over_corpus
from interp.causal.task_rows import task_rows
from interp.cli.run import Input, Run
from interp.core.errors import OptionError, PromptError
from interp.core.result_folder import kept_folder

if TYPE_CHECKING:
    from interp.model.model import Model


def is_contrast(task: str) -> bool:
    """Return True if a task is one of `interp circuit`, which makes pairs of prompts."""
    from interp.circuits.tasks.named import TASKS

    return task.replace("-", "_") in TASKS


def require_task(run: Run) -> None:
    """Refuse a task whose name, file or options are wrong, before torch is imported."""
    values = run.values
    name, measure = values["task"], values["measure"]
    if not is_contrast(name):
        task_rows(name, measure)
        return
    for option, value in (("--measure", measure), ("--max-length", values["max_length"])):
        if value is not None:
            raise OptionError(f"{option} does not apply to the task {name}; omit it")


def _task(run: Run) -> Any:
    from interp.causal.task_file import make_task

    values, model = run.values, run.model
    n, seed = values["n"], values["seed"]
    if is_contrast(values["task"]):
        from interp.circuits.tasks import make_contrast

        return make_contrast(model, values["task"], n=n or 32, seed=seed).task
    return make_task(
        model,
        values["task"],
        measure=values["measure"],
        n=n,
        max_length=values["max_length"],
        seed=seed,
    )


def _reference(run: Run) -> Any:
    return reference_prompts(run.values["reference"], run.model).get("reference")


def _require_reference(run: Run) -> None:
    require_reference(run.values["kind"], run.values["reference"])


def _kept(run: Run) -> Path | None:
    return None if run.out is None or not run.declared.in_folder else kept_folder(run.out)


INPUTS = {
    "run": Input(lambda run: run),
    "model": Input(lambda run: run.model),
    "models": Input(lambda run: run.made["models"]),
    "sources": Input(lambda run: run.sources),
    "task": Input(_task, ("task", "measure", "n", "max_length", "seed"), require_task),
    "reference": Input(_reference, ("reference",), _require_reference),
    "progress": Input(lambda run: run.made["progress"]),
    "announce": Input(lambda run: run.announce),
    "resume": Input(_kept),
}
"""Parameters that mean the same in every function."""


def read_labels(name: str) -> Input:
    """Return an input of one label per text, read from the file that an option names."""

    def make(run: Run) -> Any:
        from interp.attribution.evaluation.run import read_texts

        return None if run.values[name] is None else read_texts(run.values[name])

    return Input(make, (name,))


def _contrast(run: Run) -> Any:
    from interp.circuits.tasks import make_contrast
    from interp.circuits.tasks.named import known_task

    values = run.values
    return make_contrast(run.model, known_task(values["task"]), n=values["n"], seed=values["seed"])


def _require_contrast(run: Run) -> None:
    from interp.circuits.tasks.named import known_task

    known_task(run.values["task"])


CONTRAST = Input(_contrast, ("task", "n", "seed"), _require_contrast)
"""Pairs of prompts of a task of `interp circuit`."""


def _traced(run: Run) -> Any:
    from interp.core.prompts import from_file, repeats

    text, file = run.values["text"], run.values.get("file")
    if text is not None:
        return [text]
    if file is not None:
        return from_file(file, run.model)
    n = run.values.get("n", 1)
    run.voice.note(f"no text given: {n} prompts of random tokens repeated twice")
    return repeats(run.model, n=n, seed=run.values["seed"])


def _require_one(run: Run) -> None:
    text, file = run.values["text"], run.values.get("file")
    if text is not None or file is not None:
        asked_texts(text, file)


def traced(*words: str) -> Input:
    """Return an input of prompts: the given texts, or random tokens repeated twice."""
    return Input(_traced, ("text", *words, "seed"), _require_one)


def _asked(run: Run) -> list[str]:
    return asked_texts(run.values["text"], run.values["file"])


def _require_asked(run: Run) -> None:
    if (run.values["text"] is None) == (run.values["file"] is None):
        asked_texts(run.values["text"], run.values["file"])  # raises


ASKED = Input(_asked, ("text", "file"), _require_asked)
"""One text, or those of a file."""


def asked_texts(text: str | None, file: Path | None) -> list[str]:
    """Return the texts to explain."""
    if (text is None) == (file is None):
        raise OptionError("give one --text, or --file with one text per line")
    if text is not None and not text.strip():
        raise OptionError("the text is empty; give at least one word")
    from interp.attribution.evaluation.run import read_texts

    return read_texts([text] if text is not None else file)  # type: ignore[list-item]


def require_tokens(special, text: str) -> None:
    """Raise PromptError unless at least two tokens are not special."""
    n = int((~special).sum())
    if n < 2:
        raise PromptError(
            f"{text!r} has {n} token(s) that are not special, so there is nothing to compare; "
            f"give a longer text"
        )


def require_reference(kind: str, reference: Path | None, of: str = "--kind") -> None:
    """Raise OptionError if the kind of ablation and the reference prompts do not fit."""
    needed = INTERVENTIONS[ON_PAIRS.get(kind, kind)].needs == "corpus"
    if needed and reference is None:
        raise OptionError(
            f"{of} {kind} needs user-supplied prompts; name their file with --reference"
        )
    if not needed and reference is not None:
        raise OptionError(
            f"--reference applies to {of} {over_corpus()} only; omit it for {of} {kind}"
        )
    if reference is not None and not reference.is_file():
        raise OptionError(f"--reference {reference} is not a file; give a text file of prompts")


def reference_prompts(reference: Path | None, model: Model) -> dict[str, Any]:
    """Return the argument `reference` of a game; empty if no file is given."""
    if reference is None:
        return {}
    from interp.core.prompts import from_file

    return {"reference": from_file(reference, model)}
