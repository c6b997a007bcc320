"""The only module that imports lm-evaluation-harness: it runs a loaded model on its tasks."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interp.causal.harness.file_tasks import file_task
from interp.core.errors import OptionError, PromptError
from interp.core.installed import package_error
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from interp.model.edits import Edit
    from interp.model.model import Model

OFFLINE = (
    "needs data that is not on this machine; give a task file (.jsonl or .txt), a .yaml of the "
    "harness with local data, or run once with the network"
)


def require_harness() -> Any:
    """Import lm-evaluation-harness."""
    try:
        import lm_eval.evaluator  # pyright: ignore[reportMissingImports]
        import lm_eval.models.huggingface  # pyright: ignore[reportMissingImports]
        import lm_eval.tasks  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        purpose, install = "a task of lm-evaluation-harness", "pip install 'interp[harness]'"
        raise package_error(error, purpose, "lm_eval", install) from error
    return lm_eval


class HarnessRun:
    """A model with tasks of the harness, which it runs under edits.

    Args:
        model: the model; its tokenizer is copied, because the harness changes it.
        tasks: names of the harness, and files: .yaml of the harness, or those of `file_task`.
        n_shot: examples in front of each document; by default those of each task.
        n: first documents of each task; by default all.
        batch_size: documents per forward pass.
        seed: seed of the examples in front.

    Raises:
        OptionError: the harness is not installed, a task is not known, or it needs the network.
        PromptError: the model has no tokenizer or writes no text.
    """

    def __init__(
        self,
        model: Model,
        tasks: Sequence[str],
        *,
        n_shot: int | None = None,
        n: int | None = None,
        batch_size: int = 1,
        seed: int = 0,
    ) -> None:
        package = require_harness()
        if not tasks:
            raise OptionError("name at least one task of lm-evaluation-harness, or a task file")
        if model.tokenizer is None or model.kind not in ("causal", "encoder-decoder"):
            raise PromptError(
                f"{model.name} ({model.kind}) has no tokenizer or writes no text; the harness "
                "needs both"
            )
        self.package, self.model, self.n = package, model, n
        backend: Any = "causal" if model.kind == "causal" else "seq2seq"
        with _quiet(), inference(model.module):
            self.lm = package.models.huggingface.HFLM(
                pretrained=model.module,
                tokenizer=copy.deepcopy(model.tokenizer),
                backend=backend,
                batch_size=batch_size,
                device=str(model.device),
            )
            self.tasks = self._loaded(tasks, n_shot, seed)

    def _loaded(self, tasks: Sequence[str], n_shot: int | None, seed: int) -> Any:
        files = all(Path(name).suffix in (".jsonl", ".txt", ".yaml", ".yml") for name in tasks)
        # listing the tasks of the harness reads thousands of files
        manager = self.package.tasks.TaskManager(include_defaults=not files)
        known = {*manager.all_tasks, *manager.all_groups, *manager.all_tags}
        given: list[Any] = []
        for name in tasks:
            path = Path(name)
            if path.suffix in (".jsonl", ".txt"):
                given.append(file_task(path))
            elif name in known or (path.suffix in (".yaml", ".yml") and path.is_file()):
                given.append(name)
            else:
                close = [k for k in sorted(known) if name in k][:5]
                raise OptionError(
                    f"lm-evaluation-harness has no task {name!r}"
                    + (f"; similar: {', '.join(close)}" if close else "")
                    + "; `lm-eval ls tasks` lists all"
                )
        try:
            loaded = manager.load(given)
        except (OSError, ValueError) as error:  # ConnectionError is an OSError
            reason = str(error).strip().partition("\n")[0]
            raise OptionError(f"{', '.join(tasks)} {OFFLINE} ({reason})") from error
        for task in loaded["tasks"].values():
            if n_shot is not None:
                task.set_config(key="num_fewshot", value=n_shot)
            elif task.get_config("num_fewshot") is None:
                task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=seed)
        return loaded

    def results(self, edits: Sequence[Edit] = ()) -> dict[str, Any]:
        """Return the harness's results and samples of every task, of the model under edits."""
        with _quiet(), inference(self.model.module), self.model.edited(*edits), torch.no_grad():
            return self.package.evaluator.evaluate(
                lm=self.lm,
                task_dict=self.tasks,
                limit=self.n,
                bootstrap_iters=0,
                log_samples=True,
                verbosity="ERROR",
            )

    def encoded(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Return the ids of a request as the harness reads it."""
        if context:
            return self.lm._encode_pair(context, continuation)
        ids = self.lm.tok_encode(continuation)
        return (
            ([self.lm.prefix_token_id], ids)
            if ids[:1] != [self.lm.prefix_token_id]
            else (ids[:1], ids[1:])
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the harness's bars and notes off the terminal, and its level of logging as it was."""
    names = ("lm_eval", "lm-eval")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
