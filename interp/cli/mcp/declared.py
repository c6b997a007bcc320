"""Tools made from public functions, as commands are: schemas, defaults and help are theirs.

    AgentTool("judge", "interp.profiles.judge:judge", ("hypothesis", "n_documents"), tell=...)

What an agent gives is checked against the schema, and a text that names a file is refused unless
the user named this file when the server was started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from interp.cli.value_types import HeadList
from interp.cli.vocabulary import UNSET, WORDS, Separated, Spelling, plain_help, type_of
from interp.core.documents import parse_json
from interp.core.errors import OptionError
from interp.core.presenter import resolved
from interp.core.signature import REQUIRED, UNREAD, Parameter, read
from interp.core.tokens import visible
from interp.report.explore.requests import require_text

LONGEST_TEXT = 20_000  # characters of one text
MOST_VALUES = 64  # of a list
LARGEST = 1_000_000  # of whole numbers
PROSE = frozenset({"text", "tokens"})
"""Parameters whose texts are read by a tokenizer, and name nothing."""
_FILE = re.compile(r"[/\\~]|\.(?!L\d+H\d+\b)[A-Za-z]|:F\d+\s*(=|$)")  # or a feature's folder
_SAID_OF = re.compile(r"\s*(?:\w+\.)?L\d+H\d+\s*=\s*")
_NAME = {"type": "string", "maxLength": 200}
_TEXT = {"type": "string", "maxLength": LONGEST_TEXT}


@dataclass(frozen=True)
class AgentTool:
    """Declaration of a tool.

    Args:
        name: name of the tool.
        target: the public function as "module:name".
        takes: parameters that an agent gives.
        tell: formats the result, with the arguments of the agent.
        then: what to ask next.
        help: sentences after the description of the function.
        also: functions whose parameters are passed on as keywords, with the names of these.
        options: what is special about a parameter; its type may be a JSON schema.
        fixed: parameters that an agent cannot choose.
        made: makes the value of a parameter from the model and what the agent gave.
        stem: makes the name of the files with the result, if it is written.
    """

    name: str
    target: str
    takes: tuple[str, ...]
    tell: Callable[[Any, Mapping[str, Any]], str]
    then: str
    help: str = ""
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, Spelling] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    stem: Callable[[Any, Mapping[str, Any]], str] | None = None

    def function(self) -> Callable[..., Any]:
        """Return the public function, imported."""
        return resolved(self.target)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters of the function, and of those that it passes on."""
        passed = {k: read(there).parameters[k] for there, names in self.also.items() for k in names}
        return {**read(self.target).parameters, **passed}

    @property
    def description(self) -> str:
        """First paragraph of the function's docstring, what is special, and what comes next."""
        said = read(self.target).doc.partition("\n\n")[0]
        return " ".join(f"{said} {self.help} {self.then}".split())

    def schema(self, models: Sequence[str]) -> dict[str, Any]:
        """Return the JSON schema of what an agent gives."""
        model: dict[str, Any] = {"type": "string", "enum": [*models], "description": "The model."}
        known = self.parameters
        properties = {"model": model | ({"default": models[0]} if len(models) == 1 else {})}
        required = ["model"] if len(models) > 1 else []
        for name in self.takes:
            properties[name] = _property(name, known[name], self.options.get(name, Spelling()))
            default = self.options.get(name, Spelling()).default
            if (known[name].default if default is UNSET else default) is REQUIRED:
                required.append(name)
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def checked(
        self, given: Mapping[str, Any], models: Sequence[str], files: Collection[str]
    ) -> dict[str, Any]:
        """Return what an agent gave, with defaults; OptionError where it does not fit."""
        from jsonschema import Draft202012Validator

        schema = self.schema(models)
        kinds = schema["properties"]
        values = {k: _parsed(k, v, kinds.get(k, {})) for k, v in given.items()}
        for error in Draft202012Validator(schema).iter_errors(values):
            where = ".".join(map(str, error.absolute_path)) or self.name
            said = error.message
            said = said if len(said) <= 200 else f"{said[:80]} ... {said[-100:]}"
            raise OptionError(f"{where}: {said}; {self.name} takes {', '.join(kinds)}")
        require_names(values, files)
        return {k: x["default"] for k, x in kinds.items() if "default" in x} | values


def _parsed(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value; an object may be given as its JSON, and a whole number as 64.0."""
    if isinstance(value, float) and value.is_integer() and schema.get("type") == "integer":
        return int(value)
    if not (isinstance(value, str) and "anyOf" in schema and value.lstrip().startswith("{")):
        return value
    try:
        return parse_json(value)
    except ValueError as error:
        raise OptionError(f"{name} is not valid JSON: {error}; give an object") from error


def require_names(value: Any, files: Collection[str], where: str = "") -> None:
    """Refuse texts that name a file, but one of those that the user named, and half characters."""
    if isinstance(value, Mapping):
        for name, inside in value.items():
            require_text("a name", name)
            require_names(inside, files, str(name))
    elif isinstance(value, list):
        for inside in value:
            require_names(inside, files, where)
    elif isinstance(value, str):
        require_text(where, value)
        asked = _SAID_OF.sub("", value, count=1)
        named = re.sub(r":\w+$", "", asked.strip())
        if where not in PROSE and _FILE.search(asked) and named not in files:
            allowed = f"one of {', '.join(sorted(files))}" if files else "none"
            raise OptionError(
                f"{where} {visible(asked)[:80]!r} names a file, and tools read no file but those"
                f" that the user names with --set rules=FILE at the start ({allowed}); give a name,"
                " or a list of entries inline"
            )


def _property(name: str, parameter: Parameter, special: Spelling) -> dict[str, Any]:
    """Return the schema of one parameter."""
    word = special.over(WORDS.get(name, Spelling()))
    schema = _TEXT if name in PROSE else _schema_of(word.type or type_of(parameter))
    if word.multiple:
        schema = {"type": "array", "items": schema, "maxItems": MOST_VALUES}
    default = parameter.default if special.default is UNSET else special.default
    stated = {} if default in (REQUIRED, UNREAD, None) else {"default": default}
    return schema | stated | {"description": special.help or plain_help(parameter.help)}


def _schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type of the command line."""
    if isinstance(kind, dict):
        return kind
    if isinstance(kind, (HeadList, Separated)):
        each = _NAME if isinstance(kind, HeadList) else _schema_of(kind.each)
        return {"type": "array", "items": each, "minItems": 1, "maxItems": MOST_VALUES}
    if isinstance(kind, click.Choice):
        return {"type": "string", "enum": [*kind.choices]}
    if isinstance(kind, type(click.INT)):
        return {"type": "integer", "minimum": getattr(kind, "min", 0) or 0, "maximum": LARGEST}
    plain = {type(click.BOOL): {"type": "boolean"}, type(click.FLOAT): {"type": "number"}}
    return plain.get(type(kind), _NAME)
