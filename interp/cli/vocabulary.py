"""Vocabulary of the command line: how each parameter of a public function is spelled and read.

A parameter in `WORDS` is an option, with the same meaning in every command. One in `SETTINGS`, or
with a `Spelling` of its command, is a setting, given as `--set NAME=VALUE` under its own name; its
annotation gives its type. Any other is a parameter of the Python function alone.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from interp.causal.game.interventions import INTERVENTIONS, over_corpus
from interp.causal.task_rows import MEASURES
from interp.cli.name_types import METRIC_NAMES
from interp.cli.settings import Setting
from interp.cli.value_types import HeadList, PromptFile, WrittenText
from interp.core.declaration import split_names
from interp.core.errors import OptionError
from interp.core.prompt_file import read_prompt_file
from interp.core.signature import REQUIRED, UNREAD, Parameter
from interp.profiles.sources import WORDS as NOT_FILES

UNSET = object()
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
ABOVE_0 = click.FloatRange(min=0, min_open=True)
FROM_0, FROM_1, FROM_2 = click.IntRange(0), click.IntRange(1), click.IntRange(2)


@dataclass(frozen=True)
class Spelling:
    """A word of the vocabulary; what is not stated comes from the signature and its docstring.

    Args:
        spelling: the spellings, without `--` in front of a plain name.
        type: click type of the value.
        metavar: placeholder of the value in the help.
        help: one sentence.
        default: default, in place of that of the function.
        multiple: may be given several times.
        read: what makes the argument of the function from the value or values.
    """

    spelling: tuple[str, ...] = ()
    type: Any = None
    metavar: str = ""
    help: str = ""
    default: Any = UNSET
    multiple: bool | None = None
    read: Callable[[Any], Any] | None = None

    def over(self, other: Spelling) -> Spelling:
        """Return the other word with what this one states in its place."""
        empty = Spelling()
        stated = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != getattr(empty, f.name)
        }
        return replace(other, **stated)


class Separated(click.ParamType):
    """Values separated by commas.

    Args:
        each: type of one value.
    """

    def __init__(self, each: click.ParamType) -> None:
        self.each, self.name = each, f"{each.name},..."

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert each value; raises OptionError for a number that is not finite."""
        if not isinstance(value, str):
            return value
        try:
            values = [self.each.convert(x.strip(), param, ctx) for x in value.split(",")]
        except click.BadParameter as error:
            kind = "numbers" if self.each in (click.FLOAT, click.INT) else "values"
            wrong = f"{param.opts[-1]} {value}: give {kind}, separated by commas"
            raise OptionError(wrong) from error
        if any(isinstance(x, float) and not math.isfinite(x) for x in values):
            raise OptionError(f"{param.opts[-1]} {value}: give finite numbers, such as -2,0,1,3")
        return values


class HeadNameList(HeadList):
    """Heads separated by commas, as a list of their names."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the names; raise OptionError for one that is not one of a head."""
        if not isinstance(value, str):
            return value
        return [name.strip() for name in super().convert(value, param, ctx).split(",")]


HEADS = HeadNameList()


def _corpus(given: Sequence[str]) -> Any:
    """Return the files of one corpus, the word for one that is not in files, or None."""
    is_word = len(given) == 1 and given[0] in NOT_FILES
    return given[0] if is_word else [Path(each) for each in given] or None


def _split(texts: Sequence[str]) -> list[str]:
    """Return the names of a repeatable option whose values may hold several."""
    return [name for text in texts for name in split_names(text)]


_TEXT = "File of prompts, one per line, or .jsonl with the fields prompt and cluster."
WORDS: dict[str, Spelling] = {
    "task": Spelling(
        default="repeats",
        metavar="NAME|FILE",
        help="The task: repeats (loss on the second copy of random tokens), stories:owner (who has "
        "a thing; the default for bundled:stories), another contrast task of "
        "`interp circuit --list` (such as ioi), a .txt file (a prompt per line), a .jsonl file "
        "(prompt, answer, wrong, corrupted, position) or a .py file with task(model).",
    ),
    "measure": Spelling(
        type=click.Choice(MEASURES),
        default=None,
        help="Measure computed from the logits; by default the one that fits the answers in the "
        "task file.",
    ),
    "n": Spelling(
        ("-n",), FROM_1, "N", "Number of prompts; by default all of a file.", default=None
    ),
    "max_length": Spelling(
        type=FROM_2, metavar="N", default=None, help="Maximum tokens per prompt."
    ),
    "kind": Spelling(
        type=click.Choice([*INTERVENTIONS]), help="Replacement for the output of an ablated head."
    ),
    "reference": Spelling(
        type=PromptFile(),
        metavar="FILE",
        default=None,
        help=f"For --kind {over_corpus()}: file of prompts, one per line, over which a head's "
        "output is averaged.",
    ),
    "players": Spelling(
        type=click.Choice(["heads", "kv_groups", "layers"]),
        help="Unit that is ablated together.",
    ),
    "stack": Spelling(help="Stack whose heads are included, such as encoder, decoder or cross."),
    "heads": Spelling(type=HEADS, metavar="L0H1,...", help="Heads to include; all by default."),
    "without": Spelling(
        type=HEADS, metavar="L0H1,...", help="Heads that are ablated in every run."
    ),
    "seed": Spelling(type=click.INT, default=0, help="Seed of prompts and of all sampling."),
    "max_tokens": Spelling(
        type=FROM_1, help="Maximum tokens per forward pass; memory grows with it."
    ),
    "top": Spelling(type=FROM_0, metavar="K"),
    "n_random": Spelling(("--random",), FROM_0, "N"),
    "max_evaluations": Spelling(type=FROM_1),
    "batch_size": Spelling(
        type=FROM_1, help="Number of inputs per forward pass; changes numbers only by rounding."
    ),
    "method": Spelling(("-m", "--method")),
    "methods": Spelling(
        ("-m", "--method"), click.STRING, "NAME[:OPTION=VALUE,...]", multiple=True, read=_split
    ),
    "metrics": Spelling(
        ("-m", "--metric"), METRIC_NAMES, "NAME[:OPTION=VALUE,...]", multiple=True, read=_split
    ),
    "null": Spelling(),
    "tracker": Spelling(),
    "by": Spelling(),
    "by_cluster": Spelling(),
    "models": Spelling(("--model",), click.STRING, multiple=True),
    "paper": Spelling(metavar="TEXT"),
    "null_draws": Spelling(("--random",), FROM_1, "N"),
    "verbose": Spelling(("-v", "--verbose")),
    "jobs": Spelling(("-j", "--jobs"), FROM_1),
    "shard": Spelling(metavar="I/N"),
    "ray": Spelling(metavar="ADDRESS"),
    "dry_run": Spelling(),
    "per": Spelling(),
    "how": Spelling(("--kind",)),
    "engine": Spelling(),
    "site": Spelling(),
    "sites": Spelling(("--site",)),
    "layer": Spelling(type=FROM_0),
    "layers": Spelling(("--layer",)),
    "units": Spelling(),
    "budget": Spelling(metavar="SIZE"),
    "max_loss": Spelling(metavar="NATS"),
    "match": Spelling(),
    "at": Spelling(("--position",), metavar="RULE"),
    "read": Spelling(("--site",)),
    "text": Spelling(type=WrittenText(), metavar="TEXT", help="Text to analyse."),
    "generate": Spelling(type=FROM_1, metavar="N"),
    "texts": Spelling(("--file",), PromptFile(), "FILE", "File with one text per line."),
    "file": Spelling(type=PromptFile(), metavar="FILE"),
    "prompt_file": Spelling(("--file",), PromptFile(), "FILE", _TEXT),
    "prompts": Spelling(
        ("--file",),
        click.Path(path_type=Path),
        "FILE",
        "File of prompts, one per line, which every model reads by its own tokenizer, or .jsonl "
        "with a cluster for each; random tokens repeated twice by default.",
        read=lambda path: None if path is None else read_prompt_file(path),
    ),
    "corpus": Spelling(
        type=click.Path(),
        metavar="FILE",
        multiple=True,
        help="File or folder of documents: text, .jsonl, .json, .parquet, also with .gz or .zst, "
        "or a folder of datasets, repeatable; or `bundled` for short texts that come with the "
        "package, `sampled` for texts that the model writes (./sampled is a file).",
        read=_corpus,
    ),
    "question": Spelling(metavar="TEXT"),
    "answer": Spelling(metavar="TEXT"),
    "answers": Spelling(("--answer",), click.STRING, "TEXT|ID", multiple=True),
    "image": Spelling(type=EXISTING, metavar="FILE"),
    "images": Spelling(
        ("--image",),
        EXISTING,
        "FILE",
        "A picture, read by the model's own processor, one prompt each. Repeatable.",
        multiple=True,
    ),
    "audio": Spelling(
        type=EXISTING,
        metavar="FILE",
        multiple=True,
        help="A .wav file (16 bits, one channel), one prompt each. Repeatable.",
    ),
    "harmful": Spelling(type=PromptFile(), metavar="FILE", default=None),
    "harmless": Spelling(type=PromptFile(), metavar="FILE", default=None),
    "against": Spelling(metavar="NAME"),
    "more": Spelling(("--with",), click.STRING, "MODEL", multiple=True),
    "circuit": Spelling(("--load",), click.Path(path_type=Path, dir_okay=False), "FILE"),
    "routes": Spelling(("--route",), click.STRING, "ROUTE", multiple=True),
    "tune": Spelling(type=PromptFile(), metavar="FILE"),
    "direct": Spelling(type=PromptFile(), metavar="FILE"),
    "load": Spelling(),
    "save": Spelling(metavar="DIR"),
    "keep": Spelling(type=FROM_1, metavar="N"),
    "size": Spelling(("--keep",), FROM_1, "N"),
    "gates": Spelling(type=EXISTING, metavar="FILE"),
    "target": Spelling(("-t", "--target"), click.STRING, "TARGET"),
    "targets": Spelling(
        ("-t", "--target"),
        click.STRING,
        "TARGET",
        "Number to explain, as for `interp attribute`; by default the model's top prediction.",
    ),
    "position": Spelling(
        type=click.INT, help="Output position of the target; negative counts from the end."
    ),
    "positions": Spelling(("--position",), click.STRING, "N", multiple=True),
}


_SETTINGS = """
all_but_one alter architecture bank browser check classes clusters controls corrupt cost
counts cues dictionary each effects equal factors faithful features field format k kernels
labels language lorsa machine maps masks max_gb max_mb mlp mlps n_documents n_features
n_queries n_selection name nodes null_cache on_error only other_weights pair pairs picture policy
port rate refusal_tokens repair resize resume revisions rounds rows rules same_templates sever show
sources_of steps temperature template threshold tiles train window within
"""
SETTINGS = frozenset(_SETTINGS.split())
"""Parameters that a command line offers by `--set`; any other is given in Python only."""

_PLAIN: dict[str, click.ParamType] = {
    "int": click.INT,
    "float": click.FLOAT,
    "str": click.STRING,
    "Path": click.Path(path_type=Path),
    "bool": click.BOOL,
}


_METAVARS = {click.IntRange: "N", click.FloatRange: "X", type(click.INT): "N"}


def type_of(parameter: Parameter) -> click.ParamType | None:
    """Return the click type of an annotation; None for one that a command line cannot give."""
    return _type(parameter.annotation, parameter)


def _type(node: ast.AST | None, parameter: Parameter) -> click.ParamType | None:
    if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "None":  # X | None
        return _type(node.left, parameter)
    if isinstance(node, ast.Subscript):
        outer, inner = ast.unparse(node.value), node.slice
        if outer == "Literal":
            values = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return click.Choice([str(ast.literal_eval(v)) for v in values])
        first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
        each = _type(first, parameter) if outer in ("Sequence", "tuple", "list") else None
        return None if each is None else Separated(each)
    if isinstance(node, ast.Name):
        if node.id in _PLAIN:
            return _PLAIN[node.id]
        definition = parameter.source.find(node.id)
        if definition is not None and isinstance(definition[1], ast.expr):
            return _type(definition[1], replace(parameter, source=definition[0]))
    return None


def option_for(name: str, parameter: Parameter | None, special: Spelling) -> click.Option | None:
    """Make the option or setting of a parameter; None for one that a command line cannot give."""
    word = special.over(WORDS.get(name, Spelling()))
    kind = word.type or (parameter and type_of(parameter))
    offered = name in WORDS or name in SETTINGS or special != Spelling()
    if not offered or (kind is None and parameter is not None and word == Spelling()):
        return None
    default = word.default
    if default is UNSET:
        default = parameter.default if parameter is not None else None
    about = word.help or plain_help(parameter.help if parameter is not None else "")
    required = default is REQUIRED
    default = None if default in (REQUIRED, UNREAD) else default
    setting = name not in WORDS and not word.spelling
    if kind is click.BOOL and not setting:
        return click.Option([name, *_spelled(name, word)], is_flag=True, help=about)
    if word.multiple and isinstance(default, str):
        default = (default,)
    if isinstance(kind, Separated) and isinstance(default, (tuple, list)):
        default = ",".join(map(str, default)) or None
    read = word.read
    # click takes a default of None for a value, which a required option then has
    default_option: dict[str, Any] = {} if required else {"default": default}
    options: dict[str, Any] = {
        "type": kind,
        "callback": read and (lambda ctx, param, value: read(value)),
        **default_option,
        "required": required,
        "help": about,
        "multiple": word.multiple,
        "show_default": default not in (None, "", False, True),
        "metavar": word.metavar or _METAVARS.get(type(kind)),
    }
    if setting:
        return Setting(name, **options)
    return click.Option([name, *_spelled(name, word)], **options)


def argument_for(name: str, parameter: Parameter, special: Spelling) -> click.Argument:
    """Make the argument of a parameter."""
    several = special.multiple
    required = parameter.default is REQUIRED
    default_option: dict[str, Any] = {} if required or several else {"default": parameter.default}
    return click.Argument(
        [name],
        type=special.type or type_of(parameter),
        required=required,
        nargs=-1 if several else 1,
        metavar=special.metavar or None,
        **default_option,
    )


def _spelled(name: str, word: Spelling) -> tuple[str, ...]:
    return word.spelling or (f"--{name.replace('_', '-')}",)


def plain_help(text: str) -> str:
    """Return the description of a parameter in the words of the command line."""
    text = re.sub(r"[;,.]? ?[Ss]ee `[^`]*`[^.;]*(?=[.;]|$)", "", text)
    text = re.sub(
        r"`?(\w+)=[\"']([\w-]+)[\"']`?", lambda m: f"--{m[1].replace('_', '-')} {m[2]}", text
    )
    text = re.sub(r"`(interp )?([^`]*)`", lambda m: m[0] if m[1] else m[2], text).strip()
    if not re.match(r"[\w-]+:", text):  # a choice and what it means
        text = text[:1].upper() + text[1:]
    return text if text.endswith(".") or not text else f"{text}."
