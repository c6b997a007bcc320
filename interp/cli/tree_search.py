"""Run of `interp study trees` over models: search or reuse stored results, print, write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.each import each_model
from interp.cli.loading import Loading, source_labels
from interp.cli.minimal_pairs import as_dict, checked_pairs
from interp.cli.minimal_pairs import minimal_pairs_text as pairs_text
from interp.cli.progress import Voice
from interp.cli.written import as_given
from interp.core.errors import StoreError
from interp.core.protocols import Progress
from interp.report.printed.syntax import trees_text
from interp.syntax.stored_searches import KeptTrees, key_of

if TYPE_CHECKING:
    from interp.syntax.attention import WordReading
    from interp.syntax.pairs import MinimalPair, PairCheck
    from interp.syntax.result import TreeScores
    from interp.syntax.treebank import Treebank

OF_READING = ("to", "attending", "by")
SAFE = "run the same command again to resume"
TREES, RELATIONS, WHOLE, PAGE = "trees.csv", "relations.csv", "trees.json", "trees.html"


@dataclass
class TreeSearch:
    """State of one `interp study trees`: its request, and the results so far."""

    treebank: Treebank
    train: Treebank | None
    loading: Loading
    voice: Voice
    out: Path | None
    as_json: bool
    top: int
    options: dict[str, Any]
    pairs: Sequence[MinimalPair] | None = None
    heads: str | None = None  # heads ablated for the pairs, as they were written
    found: list[TreeScores] = field(default_factory=list)
    checks: dict[str, PairCheck | str] = field(default_factory=dict)
    kept: int = 0

    @classmethod
    def prepare(
        cls, treebank: Path, train: Path | None, *, n: int | None, on_error: Any, out: Path | None,
        pairs: Path | None, **rest: Any,
    ) -> TreeSearch:  # fmt: skip
        """Read the files and check the folder, before any model is loaded.

        Raises:
            TreebankError: a treebank cannot be used.
            StoreError: the pairs cannot be read, or the output folder cannot be written.
        """
        from interp.syntax.conllu import read_conllu
        from interp.syntax.pairs import read_pairs

        banks = []
        for path in (treebank, train):
            bank = None if path is None else read_conllu(path, on_error=on_error)
            banks.append(bank if bank is None or n is None else bank.first(n))
        if out is not None:
            from interp.core.store import Store

            Store(out).prepare()
        given = None if pairs is None else read_pairs(pairs, n=n)
        search = cls(banks[0], banks[1], out=out, pairs=given, **rest)
        for bank in filter(None, banks):
            for note in bank.notes:
                search.voice.note(f"{bank.name}: {note}")
        return search

    def run(self, sources: Sequence[str]) -> int:
        """Search every model, print and write; return the exit code."""
        code = 0
        try:
            failed = each_model(source_labels(sources), self.voice, self._model)
            code = int(bool(failed))
            if failed and len(sources) > 1:
                self.voice.error(
                    f"{len(failed)} of {len(sources)} models failed: {', '.join(failed)}"
                )
        except KeyboardInterrupt:
            code = 130
            kept = SAFE if self.out is not None else "with --out the run could resume"
            self.voice.error(f"interrupted; {kept}")
        except StoreError as error:
            code = 1
            self.voice.error(str(error), error)
        if self.as_json:
            told = _told(self.found, self.checks)
            click.echo(json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False))
        if self.out is not None and self.found and code in (0, 1):
            self._write(self.out, KeptTrees(self.out / "kept").newest())
        return code

    def _model(self, source: str, name: str) -> None:
        with self.voice.bars(name) as progress:
            progress("loading", 0, 1)
            model = self.loading.load(source, name)
            progress("loading", 1, 1)
            store = None if self.out is None else KeptTrees(self.out / "kept")
            key = key_of(model, self._settings())
            there = None if store is None else store.find(key)
            if there is None:
                from interp.model.check import check_model
                from interp.syntax.search import dependency_trees

                check_model(model).require()
                found = dependency_trees(
                    model, self.treebank, train=self.train, reading=self._reading(),
                    progress=_passes(progress, name), **self._of_search(),
                )  # fmt: skip
                if store is not None:
                    store.keep(key, found)
            else:
                found, version = there
                self.voice.note(f"{name}: stored by an earlier run of interp {version}")
        self.found.append(found)
        if not self.as_json:
            click.echo(trees_text(found, self.top))
        if self.pairs is not None:
            with self.voice.bars(name) as progress:
                seed = self.options["seed"]
                checked = checked_pairs(model, found, self.pairs, self.heads, seed, progress)
            self.checks[name] = checked
            if not self.as_json:
                click.echo(pairs_text(checked))

    def _reading(self) -> WordReading:
        from interp.syntax.attention import WordReading

        return WordReading(**{name: self.options[name] for name in OF_READING})

    def _of_search(self) -> dict[str, Any]:
        return {k: v for k, v in self.options.items() if k not in OF_READING}

    def _settings(self) -> dict[str, Any]:
        banks = {"treebank": self.treebank, "train": self.train}
        told: dict[str, Any] = {
            name: None if bank is None else [bank.name, bank.content_hash, len(bank)]
            for name, bank in banks.items()
        }
        return told | self.options

    def _write(self, folder: Path, kept: Sequence[TreeScores]) -> None:
        """Write the requested results, then those of the other models in the folder."""
        import pandas as pd

        from interp.core.files import write_atomically
        from interp.report.trees import trees_page

        mine = {_weights(one) for one in self.found}
        found = [*self.found, *(one for one in kept if _weights(one) not in mine)]
        apart = _named_apart(found)
        checks = {
            new.model: self.checks[one.model]
            for one, new in zip(self.found, apart, strict=False)
            if one.model in self.checks
        }
        found, told = apart, _told(apart, checks)
        contents = {
            WHOLE: json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
            RELATIONS: _csv(pd.concat([one.wide() for one in found])),
            TREES: _csv(pd.concat([one.trees_to_pandas() for one in found])),
            PAGE: trees_page(
                found,
                command=as_given(),
                beside=[WHOLE, RELATIONS, TREES],
                pairs=checks,
            ),
        }
        for name, content in contents.items():
            write_atomically(folder / name, content.encode())
        self.voice.note(f"{folder}: {', '.join(contents)}")
        hidden = len(KeptTrees(folder / "kept").paths()) - len(found)
        if hidden > 0:
            self.voice.note(
                f"{hidden} more results of these models, with other settings, are stored in "
                f"{folder / 'kept'}; each model is shown with its latest settings"
            )


def _told(
    found: Sequence[TreeScores], checks: Mapping[str, PairCheck | str]
) -> list[dict[str, Any]]:
    """Return results with their minimal-pair checks, as plain data."""
    return [
        one.to_dict() | ({"pairs": as_dict(checks[one.model])} if one.model in checks else {})
        for one in found
    ]


def _weights(one: TreeScores) -> tuple[str, str]:
    return one.model, str(one.provenance.get("content_hash"))


def _named_apart(found: Sequence[TreeScores]) -> list[TreeScores]:
    """Give distinct names to models with the same name but other weights."""
    names = [model for model, _ in dict.fromkeys(map(_weights, found))]
    return [
        replace(one, model=f"{one.model}@{_weights(one)[1][:8]}")
        if names.count(one.model) > 1
        else one
        for one in found
    ]


def _passes(progress: Progress, model: str) -> Progress:
    """Return progress over sentences, separate from the bar of metrics."""

    def told(what: str, done: int, total: int) -> None:
        progress("sentences" + what.removeprefix(model), done, total)

    return told


def _csv(frame: Any) -> str:
    return frame.to_csv(index=False, lineterminator="\n")
