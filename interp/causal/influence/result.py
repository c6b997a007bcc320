"""Scores of texts, in memory or in a file of JSON lines, with their run store."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

from interp.causal.influence.texts import Text
from interp.core.documents import parse_json, seal, unseal
from interp.core.errors import OptionError, StoreError
from interp.core.files import write_atomically
from interp.core.presenter import present
from interp.core.result import Result
from interp.core.store import Store

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "interp TextScores 1"
COLUMNS = (
    "number",
    "id",
    "sha256",
    "n_tokens",
    "n_scored",
    "cut",
    "loss",
    "loss_masked",
    "difference",
    "relative",
    "null_mean",
    "null_sd",
    "z",
    "reason",
)
_NUMBERS = COLUMNS[6:13]


@dataclass(frozen=True, eq=False)
class TextScores(Result):
    """Effect of masking a set of heads on the loss of each text; one row per text, in order.

    Columns: `number` counts texts from 0; `id` is the name given by the source; `sha256` is the
    beginning of the text's digest; `n_tokens` is the number of tokens, `n_scored` that of predicted
    tokens; `cut` describes how a text longer than the context was cut. `loss` and `loss_masked` are
    nats per predicted token; `difference` = loss_masked - loss; `relative` = difference / loss, the
    score of AttentionInfluence, comparable only between texts of one domain and similar length.
    `null_mean` and `null_sd` are mean and standard deviation of `relative` over random sets of as
    many heads of the same layers, and `z` = (relative - null_mean) / null_sd. A text without a
    score has NaN and a `reason`.

    Args:
        settings: model, heads, options and random sets, shared by all rows.
        source: the rows, or the file that contains them.
        made: additional provenance.
    """

    settings: Mapping[str, Any]
    source: Path | Sequence[dict[str, Any]]
    made: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "every row is one text, so there are no values per prompt"
    _units = ("number", "id")
    _same_as = MappingProxyType({"score": "relative", "null": "null_mean"})
    _by = "relative"

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Settings of the run, versions, and the model."""
        return dict(self.settings) | dict(self.made)

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "attention_influence", "unit": "share of the loss"}

    def _take(self, rows: Sequence[int]) -> TextScores:
        every = list(self)
        part = TextScores(self.settings, [every[row] for row in rows], self.made)
        object.__setattr__(part, "_asked", self._asked)
        return part

    def _stored(self) -> TextScores:
        return self if not isinstance(self.source, Path) else self._take(range(len(self)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if isinstance(self.source, Path):
            with _opened(self.source) as lines:
                _settings(self.source, lines.readline())
                for line in lines:
                    yield _row(self.source, line)
        else:
            yield from self.source

    @classmethod
    def read(cls, path: str | os.PathLike) -> TextScores:
        """Read the scores that a run wrote to `path`; rows are loaded on demand.

        Raises:
            StoreError: the file does not exist, or has another format.
        """
        with _opened(Path(path)) as lines:
            head = lines.readline()
            settings = _settings(Path(path), head)
            return cls(settings, Path(path), parse_json(head).get("made", {}))

    def __len__(self) -> int:
        if isinstance(self.source, Path):
            with _opened(self.source) as lines:
                return sum(1 for _ in lines) - 1
        return len(self.source)

    def _rows(self) -> pd.DataFrame:
        """Return all rows, without common columns that do not apply."""
        import pandas as pd

        return pd.DataFrame(list(self), columns=list(COLUMNS))

    def __repr__(self) -> str:
        n, scored, total = 0, 0, 0.0
        for row in self:
            n += 1
            if not math.isnan(row["relative"]):
                scored += 1
                total += row["relative"]
        heads = ", ".join(self.settings["heads"])
        mean = f"; mean relative difference {total / scored:.3g}" if scored else ""
        return f"TextScores({n} texts, {scored} scored, without {heads}{mean})"


class TextRows:
    """Rows by block of texts: in memory, or in a run store beside the output file.

    The file is written at once, after the last text is scored. Blocks that it already contains,
    from a run over fewer texts, are not scored again.

    Raises:
        OptionError: the file contains scores made with other settings.
        StoreError: the file has another format, or cannot be written.
    """

    def __init__(
        self, path: Path | None, settings: Mapping[str, Any], made: Mapping[str, Any]
    ) -> None:
        self.path, self.settings, self.made = path, settings, made
        self.kept: list[dict[str, Any]] = []
        self._names: list[str] = []  # number of blocks in the store, which follow those in the file
        self._before: BinaryIO | None = None
        self._end = 0  # number of bytes used of the file
        if path is None:
            return
        self._header = (
            json.dumps(seal({"format": _FORMAT, "settings": settings, "made": made})) + "\n"
        )
        if path.is_dir():
            raise StoreError(f"cannot write {path}: it is a folder; choose another file name")
        if path.exists():
            with _opened(path) as lines:
                first = lines.readline()
            if first:  # otherwise the file is empty
                self._refuse_others(path, _settings(path, first))
                self._end = len(first)
        values = {**settings, "file": path.name}
        self._steps = Store(path.parent).steps("influence", settings["content_hash"], values)

    def __enter__(self) -> TextRows:
        if self.path is not None and self._end:
            self._before = _opened(self.path)
            self._before.seek(self._end)
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._before is not None:
            self._before.close()
            self._before = None

    def _refuse_others(self, path: Path, found: Mapping[str, Any]) -> None:
        settings = self.settings
        differ = [k for k in sorted({*found, *settings}) if found.get(k) != settings.get(k)]
        if differ:
            raise OptionError(
                f"{path} contains scores made with another {', '.join(differ)}; choose another "
                f"file, or the options it was made with"
            )

    def hold(self, block: Sequence[Text]) -> bool:
        """Return True if these texts, which follow the previous ones, all have rows.

        The file is not used from its first incomplete block on: texts of one block share batches,
        and are run together again to give the same numbers.
        """
        if self.path is None:
            return False
        if self._before is not None and self._holds(block, self._before):
            self._end = self._before.tell()
            return True
        self._close()
        self._names.append(_name(block))
        return bool(self._steps.find(self._names[-1:]))

    def _holds(self, block: Sequence[Text], lines: BinaryIO) -> bool:
        for text in block:
            line = lines.readline()
            try:
                sha256 = unseal(parse_json(line))["sha256"] if line.endswith(b"\n") else None
            except (ValueError, KeyError, TypeError):  # damaged: scored again
                sha256 = None
            if sha256 is None:
                return False
            if sha256 != text.sha256:
                raise OptionError(
                    f"{self.path} contains the score of a different text at text {text.number} "
                    f"(id {text.id!r}); score other texts into another file"
                )
        return True

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Store the rows of one block; they are on disk when this returns."""
        if self.path is None:
            self.kept += rows
        else:
            self._steps.add({self._names[-1]: b"".join(map(as_line, rows))})

    def scores(self) -> TextScores:
        """Return all rows, and write them to the file, once every text is scored."""
        if self.path is None:
            return TextScores(self.settings, self.kept, self.made)
        if self._before is not None and self._before.read(1):
            raise OptionError(
                f"{self.path} contains the scores of more texts than are given; "
                "score other texts into another file"
            )
        if self._before is None:
            write_atomically(self.path, self._whole(self.path))
        self._steps.finish(keep=False)
        return TextScores(self.settings, self.path, self.made)

    def _whole(self, path: Path) -> Iterator[bytes]:
        """Yield the first lines of the file unchanged, then the blocks of the store."""
        if not self._end:
            yield self._header.encode()
        else:
            with _opened(path) as lines:
                while lines.tell() < self._end:
                    yield lines.readline()
        for name in self._names:
            yield self._steps.find([name])[name]


def _name(block: Sequence[Text]) -> str:
    texts = " ".join(text.sha256 for text in block)
    return f"{block[0].number} {hashlib.sha256(texts.encode()).hexdigest()}"


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _settings(path: Path, line: bytes) -> dict[str, Any]:
    try:
        head = unseal(parse_json(line))
        if head["format"] != _FORMAT:
            raise ValueError(f"its 'format' is not '{_FORMAT}'")
        return dict(head["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} does not contain scores of texts ({error}); choose another file"
        ) from error


def _row(path: Path, line: bytes) -> dict[str, Any]:
    try:
        row = unseal(parse_json(line))
        return row | {k: math.nan if row[k] is None else float(row[k]) for k in _NUMBERS}
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} has a damaged row; score the texts again to repair it") from error


def as_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as one line of JSON, with NaN as null."""
    plain = {k: None if isinstance(x, float) and math.isnan(x) else x for k, x in row.items()}
    return json.dumps(seal(plain), allow_nan=False).encode() + b"\n"


def in_blocks(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    """Split the texts into blocks of `size`, in order."""
    block: list[Text] = []
    for text in texts:
        block.append(text)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


present(TextScores, text="interp.report.printed.texts:influence_text", rows="wide", json_lines=True)
