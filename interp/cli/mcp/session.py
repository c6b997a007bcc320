"""Models, corpus and folder that the user named, and the answers of tools on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.cli.mcp.declared import AgentTool
from interp.cli.mcp.resources import ResultFiles
from interp.core.result_folder import kept_folder, model_folder
from interp.core.signature import read
from interp.core.tokens import visible
from interp.model.loading import source_labels

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.loading import Loading
    from interp.model.model import Model

LONGEST_ANSWER = 4_000  # characters
LEDGERS = "ledgers"  # folder of the ledgers, where `interp judge` has it too
FORMATS = ("html", "json")


class AgentSession:
    """What the user named when the server was started; nothing else is loaded or read.

    Args:
        sources: the models.
        loading: how they are loaded, each when it is first asked for.
        out: folder in which everything is written.
        corpus: documents of profiles and verdicts.
        field: field of their text.
        rules: files that a hypothesis may name.
        debug: print the traceback of an unexpected error.
    """

    def __init__(
        self,
        sources: Sequence[str],
        loading: Loading,
        out: Path,
        *,
        corpus: Any = None,
        field: str = "text",
        rules: Sequence[str] = (),
        debug: bool = False,
    ) -> None:
        self.sources = {name: source for source, name in source_labels(sources).items()}
        self.results, self.debug = ResultFiles(out), debug
        self._loading, self._out, self._rules = loading, out, frozenset(rules)
        self._given = {"corpus": corpus, "field": field}
        self._models: dict[str, Model] = {}

    @property
    def models(self) -> list[str]:
        """Names of the models."""
        return [*self.sources]

    def answer(self, tool: AgentTool, given: Mapping[str, Any], progress: Progress) -> str:
        """Call a tool and return what is said of its result, within `LONGEST_ANSWER` characters."""
        values = tool.checked(given, self.models, self._rules)
        name = values.pop("model")
        model = self._model(name, progress)
        function = read(tool.target).parameters
        arguments = {
            "questions": self._out / LEDGERS,
            "resume": kept_folder(self._out),
            "progress": progress,
            **self._given,
        }
        passed = {k: v for k, v in arguments.items() if k in function}
        made = {k: tool.made[k](model, v) if k in tool.made else v for k, v in values.items()}
        found = tool.function()(model, **passed, **tool.fixed, **made)
        ends = [tool.then]
        if tool.stem is not None:
            stem = model_folder(Path(), tool.stem(found, values)).name
            paths = [model_folder(self._out, name) / f"{stem}.{end}" for end in FORMATS]
            for path in paths:
                found.save(path)
            ends.insert(0, f"Written: {', '.join(map(self.results.address, paths))}")
        return _within(visible(tool.tell(found, values)).rstrip(), "\n".join(ends))

    def _model(self, name: str, progress: Progress) -> Model:
        if name not in self._models:
            loaded = self._loading.checked(self.sources[name], name, progress)
            self._models[name] = loaded
        return self._models[name]


def _within(text: str, end: str) -> str:
    """Return a text and its end, with as many lines of the text as there is room for."""
    cut = "\n[cut here; ask for fewer heads or metrics to see the rest]\n"
    room = LONGEST_ANSWER - len(end) - 1
    if len(text) > room:
        text = text[: room - len(cut)].rpartition("\n")[0] + cut.rstrip()
    return f"{text}\n{end}"
