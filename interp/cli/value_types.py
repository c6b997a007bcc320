"""Parameter types of values that can be refused before torch is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from interp.core.errors import LoadError, OptionError, StoreError
from interp.core.head import Head
from interp.core.prompt_file import prompt_text

# Device types of torch; a package that adds one declares itself as a backend.
_DEVICES = (
    *("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "maia", "xla", "ve", "vulkan", "fpga", "ipu"),
    *("opengl", "opencl", "ideep", "hip", "mkldnn", "lazy", "meta", "privateuseone"),
)


class DeviceName(click.ParamType):
    """Parameter type of a device, such as cuda:1; whether it is there is for torch to say."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Refuse a name that torch cannot know."""
        kind, colon, number = value.partition(":")
        if not re.fullmatch(r"[a-z]+", kind) or (colon and not number.isdecimal()):
            raise OptionError(
                f"device {value!r} cannot be used: it is not a device type and a number, such as "
                "cpu, cuda or cuda:1"
            )
        if kind not in _DEVICES and not entry_points(group="torch.backends"):
            raise OptionError(
                f"device {value!r} cannot be used: torch has no such device; known: cpu, cuda, "
                "mps, xpu and others"
            )
        return value


class PromptFile(click.ParamType):
    """Parameter type of an option that takes a file of prompts or texts, in UTF-8."""

    name = "path"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """Refuse a file that is missing, empty or not text; raises OptionError or PromptError."""
        path = Path(value)
        if not path.is_file():
            raise OptionError(f"{path} is not a file; {param.opts[-1]} expects a text file")
        prompt_text(path)
        return path


class OutFolder(click.ParamType):
    """Parameter type of a folder for results, which may not exist yet."""

    name = "path"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """Refuse a path at which, or above which, there is a file; raises StoreError."""
        path = Path(value)
        for place in (path, *path.parents):
            if place.exists():
                if not place.is_dir():
                    raise StoreError(
                        f"cannot write to {path}: {place} is a file, not a folder; choose another "
                        "folder"
                    )
                break
        return path


class ImportName(click.ParamType):
    """Parameter type of a module, or of a file that holds one."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Refuse a file that does not exist; raises LoadError."""
        path = Path(value).expanduser()
        if path.suffix == ".py" and not path.is_file():
            raise LoadError(f"--import {value}: there is no such file")
        return value


class HeadList(click.ParamType):
    """Heads separated by commas, such as `L1H0,L1H3`; read before a model is loaded."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the text; raise OptionError if a name is not one of a head."""
        for each in value.split(","):
            Head.parse(each.strip())
        return value


class TokenName(click.ParamType):
    """A token as text, or its id as a number."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> str | int:
        """Read a number as an id."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value


DEVICE = DeviceName()
TOKEN = TokenName()
OUT_FOLDER = OutFolder()
IMPORT = ImportName()
HEADS = HeadList()


class ItemFile(click.ParamType):
    """Parameter type of a file of items, read before any model is loaded.

    Args:
        read: reads the file at a path; raises PromptError with the line that is wrong.
    """

    name = "path"

    def __init__(self, read: Callable[[str], list[Any]]) -> None:
        self._read = read

    def convert(self, value: Any, param: Any, ctx: Any) -> list[Any]:
        """Read the items."""
        return value if isinstance(value, list) else self._read(value)


class WrittenText(click.ParamType):
    """A text as it is written on the command line, and not the name of a file."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the text; raise OptionError for the name of a file that is there."""
        if Path(value).suffix and os.path.isfile(value):  # False for what can be no name
            takes = any("--file" in each.opts for each in ctx.command.params)
            other = "; give it with --file" * takes
            raise OptionError(
                f"{param.opts[-1]} {value}: this is the name of a file, not a text{other}"
            )
        return value
