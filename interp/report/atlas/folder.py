"""Everything that a results folder holds: scores, ablations, circuits, trees, checks and the rest.

Files are recognised by their content, in the folder and in the folders directly below it. A file
that cannot be read becomes a note for the page.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp import __version__
from interp.core.documents import parse_json, unseal
from interp.core.errors import InterpError, OtherResults, OtherVersion, StoreError
from interp.core.files import RECORD
from interp.core.json_document import stored_document
from interp.core.presenter import class_presented, presented, resolved
from interp.core.prompt_values import SUFFIX as PROMPT_VALUES
from interp.core.store import Store
from interp.core.table import HeadTable
from interp.report.atlas.kept_nulls import KeptNull, read_nulls

if TYPE_CHECKING:
    from interp.causal.pruning.result import PruningCurve
    from interp.circuits.result import Circuit
    from interp.draw.parts import FoundPart
    from interp.heads.between_models.matches import HeadMatches
    from interp.heads.between_models.result import ModelDifferences
    from interp.heads.causal_check.result import Confirmation
    from interp.heads.checkpoints.result import Emergence
    from interp.report.atlas.profiles import TextProfile
    from interp.syntax.result import TreeScores

SUMMARY = "table.parquet"
NAMES = (
    "circuit.json",
    "trees.json",
    "verify.json",
    "safety.json",
    "faithfulness.json",
    "comparison.json",
    "pruning.csv",
    "differences.parquet",
    "matches.parquet",
    "emergence.parquet",
    "emergence.json",
    "cards.json",
    "plan.json",
    "methods.json",
    "sources.json",
    "gates.json",
    "steer.json",
    "shares.json",
    "alignment.json",
    "translation_heads.json",
    "pair.json",
    "decoder_lens.json",
    "word_times.json",
    "time_alignment.json",
    "maps.json",
    "anchors.json",
    "receivers.json",
    "profile.json",
    "profile.parquet",
)
CAUSAL = ("ablate", "shapley", "importance", "prune")  # commands that write a table of heads
MANY = 5  # unreadable files that are named; further ones are counted


@dataclass
class Contents:
    """Contents of one or several folders.

    Args:
        scores: tables of scores, the oldest first.
        causal: tables of ablations and other importances of heads.
        circuits: circuits, each with its evaluation as `interp circuit` wrote it, if there is one.
        safety, attributions, faithfulness, agreements: documents of these commands.
        profiles: what heads do on text.
        parts: caches, learned gates, probes and token importances, ready to be shown.
        nulls: scores of random weights that were kept with the scores.
        notes: sentences on what could not be read, and on results of another version.
        named: the folders and files that were read.
    """

    scores: list[HeadTable] = field(default_factory=list)
    causal: list[HeadTable] = field(default_factory=list)
    checks: list[Confirmation] = field(default_factory=list)
    circuits: list[tuple[Circuit, dict[str, Any]]] = field(default_factory=list)
    curves: list[PruningCurve] = field(default_factory=list)
    trees: list[TreeScores] = field(default_factory=list)
    safety: list[dict[str, Any]] = field(default_factory=list)
    attributions: list[dict[str, Any]] = field(default_factory=list)
    faithfulness: list[dict[str, Any]] = field(default_factory=list)
    agreements: list[dict[str, Any]] = field(default_factory=list)
    differences: list[ModelDifferences] = field(default_factory=list)
    matches: list[HeadMatches] = field(default_factory=list)
    emergence: list[Emergence] = field(default_factory=list)
    profiles: list[TextProfile] = field(default_factory=list)
    parts: list[FoundPart] = field(default_factory=list)
    nulls: list[KeptNull] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)

    @property
    def table(self) -> HeadTable:
        """All scores as one table; models of one name and different weights are told apart."""
        from interp.core.merge import merged

        return by_metric(merged(self.scores)[0])


def read_folder(folder: Path, into: Contents | None = None) -> Contents:
    """Read the results of a folder; what cannot be read is noted."""
    contents = into or Contents()
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder of results; give one that --out wrote")
    failed: list[str] = []
    before = len(contents.notes)
    first = len(contents.scores)
    _read_scores(folder, contents, failed)
    contents.nulls += read_nulls(folder)
    contents.scores[first:] = sorted(
        contents.scores[first:], key=_models
    )  # stable: the oldest first
    for path in _files(folder):
        if path.suffix == ".parquet":
            _guarded(path, folder, failed, lambda path=path: _read_parquet(path, contents))
        else:
            _guarded(path, folder, failed, lambda path=path: _read_json(path, contents))
    shown = failed[:MANY]
    if len(failed) > MANY:
        shown.append(f"{len(failed) - MANY} more files of {folder} could not be read.")
    contents.notes[before:before] = shown
    return contents


def by_metric(table: HeadTable) -> HeadTable:
    """Return the rows with the models in their order and the metrics in that of `METRICS`."""
    from interp.core.merge import in_metric_order
    from interp.core.registry import METRICS

    each = [in_metric_order(table.where(model=model), list(METRICS)) for model in table.models]
    return HeadTable.concat(each)


def _models(table: HeadTable) -> list[list[tuple[int, str]]]:
    """Return the names of a table's models so that numbers in them sort as numbers."""
    return [
        [(int(x), "") if x.isdecimal() else (-1, x) for x in re.split(r"(\d+)", name)]
        for name in table.models
    ]


def holds_results(folder: Path) -> bool:
    """Tell whether a folder, or one directly below it, has a file with the name of a result."""
    try:
        below = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
        return (
            bool(Store(folder).result_files())
            or any((place / name).is_file() for place in (folder, *below) for name in NAMES)
            or any(p.suffix == ".parquet" for p in folder.iterdir())
        )
    except OSError as error:
        raise StoreError(f"{folder} cannot be listed: {error}") from error


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that may hold results, in the order of their names."""
    try:
        inside = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
        below = [p for p in inside if p.is_dir() and p.name not in ("kept", "nulls", "ledger")]
        every = [p for p in inside if p.is_file()]
        for one in below:
            every += sorted(p for p in one.iterdir() if p.is_file() and not p.name.startswith("."))
    except OSError as error:
        raise StoreError(f"{folder} cannot be listed: {error}") from error
    result_names = {path.name for path in Store(folder).result_files()}
    for path in every:
        if path.name.endswith((PROMPT_VALUES, RECORD)):
            continue  # values per prompt of a score beside it; how the rows of a CSV were made
        if path.suffix == ".json" or (path.suffix == ".parquet" and path.name not in result_names):
            yield path


def _guarded(path: Path, folder: Path, failed: list[str], read: Callable[[], None]) -> None:
    """Read one file; note what is wrong with it, and warnings on its version."""
    try:
        read()
    except (InterpError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        name = path.relative_to(folder)
        failed.append(f"{name} could not be read: {_short(error)}")


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _read_scores(folder: Path, found: Contents, failed: list[str]) -> None:
    """Read the scores of `interp score`, the oldest first, or their table if only that is there."""
    store = Store(folder)
    paths = store.result_files()
    versions: dict[str, int] = {}
    read = 0

    def one(path: Path) -> None:
        version = store.notes_of(path).get("version", "")
        table = HeadTable.from_parquet(path)
        if version not in ("", __version__):
            versions[version] = versions.get(version, 0) + 1
        found.scores.append(table)

    for path in sorted(paths, key=_written):
        before = len(found.scores)
        _guarded(path, folder, failed, lambda path=path: one(path))
        read += len(found.scores) - before
    for version, count in versions.items():
        found.notes.append(
            f"{count} score{'s' * (count != 1)} in {folder} "
            f"{'were' if count != 1 else 'was'} made by interp {version}; this is {__version__}."
        )
    if not read:
        tables = [folder / SUMMARY, folder / "table.csv"]
        table = next((path for path in tables if path.is_file()), None)
        if table is not None:
            _guarded(table, folder, failed, lambda: found.scores.append(HeadTable.load(table)))


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted since it was listed; reading it says so
        return 0.0


def _read_parquet(path: Path, found: Contents) -> None:
    """Read a table of a causal command, or a result of a comparison, by the name of its file."""
    if path.stem in CAUSAL:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", (OtherVersion, OtherResults))
            found.causal.append(HeadTable.from_parquet(path))
    elif path.stem == "differences":
        from interp.heads.between_models.result import ModelDifferences

        found.differences.append(ModelDifferences.load(path))
    elif path.stem == "matches":
        from interp.heads.between_models.matches import HeadMatches

        found.matches.append(HeadMatches.load(path))
    elif path.stem == "emergence":
        from interp.heads.checkpoints.result import Emergence

        found.emergence.append(Emergence.load(path))
    elif path.stem == "profile":
        _profile({}, path, found)
    elif path.name != SUMMARY:
        _add_categories(HeadTable.from_parquet(path), found)


def _add_categories(table: HeadTable, found: Contents) -> None:
    """Add scores of `interp texts categories` and `interp study vision`, which no store holds."""
    made_by = {str(about.get("made_by")) for about in table.provenance.values()}
    on_images = all(name.startswith("interp.vision.") for name in made_by)
    if made_by == {"interp.syntax.category_scores"} or on_images:
        found.scores.append(table)


def _read_json(path: Path, found: Contents) -> None:
    """Read a JSON file by what it holds; files of other programs are left alone."""
    document = parse_json(path.read_text(encoding="utf-8"))
    for form, read in _FORMS:
        if form(document):
            read(unseal(document), path, found)
            return


def _named(name: str) -> Callable[[Any], bool]:
    """Return a test for a document whose `format` begins with a name."""
    return lambda x: isinstance(x, dict) and str(x.get("format", "")).startswith(name)


def _keyed(*keys: str) -> Callable[[Any], bool]:
    """Return a test for a document with these keys."""
    return lambda x: isinstance(x, dict) and set(keys) <= set(x)


def _list_of(form: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list) and bool(x) and all(map(form, x))


def _circuit(document: Any, path: Path, found: Contents) -> None:
    from interp.circuits.result import Circuit

    evaluation: dict[str, Any] = {}
    beside = path.with_name("evaluation.json")
    if path.name == "circuit.json" and beside.is_file():
        evaluation = stored_document(beside.read_bytes())
    found.circuits.append((Circuit.from_dict(document), evaluation))


def _curve(_: Any, path: Path, found: Contents) -> None:
    from interp.causal.pruning.result import PruningCurve

    found.curves.append(PruningCurve.read(path))


def _trees(document: Any, _: Path, found: Contents) -> None:
    from interp.syntax.result import TreeScores

    found.trees += [TreeScores.from_dict(one) for one in document]


def _checks(document: Any, _: Path, found: Contents) -> None:
    from interp.heads.causal_check.result import confirmation_of

    found.checks += [confirmation_of(one) for one in document]


def _result_of(name: str) -> Callable[[Any], bool]:
    """Return a test for a result of this type that `Result.save` wrote."""
    return lambda x: _named("interp Result")(x) and x.get("type") == name


def _curves_of_scores(_: Any, path: Path, found: Contents) -> None:
    from interp.heads.checkpoints.result import Emergence

    if not path.with_suffix(".parquet").is_file():  # the same curves, which are read already
        found.emergence.append(Emergence.load(path))


def _profile(_: Any, path: Path, found: Contents) -> None:
    from interp.profiles.result import Profile

    if path.suffix == ".parquet" and path.with_suffix(".json").is_file():
        return  # the same profile
    found.profiles.append(Profile.load(path))


def _table(_: Any, path: Path, found: Contents) -> None:
    if not path.with_suffix(".parquet").is_file():
        _add_categories(HeadTable.load(path), found)


def _result(document: Any, path: Path, found: Contents) -> None:
    name = str(document.get("type"))
    there = presented(name)
    if there is not None and "part" in there.forms:
        found.parts.append(resolved(there.forms["part"])(class_presented(name).load(path)))


def _tokens(document: Any, path: Path, found: Contents) -> None:
    from interp.report.atlas.texts_and_trees import token_part

    found.parts.append(token_part(document))
    found.faithfulness.append(dict(document) | {"file": path.name})


def _kept(name: str) -> Callable[[Any, Path, Contents], None]:
    """Return a reader that keeps the document as it is, with the name of its file."""

    def read(document: Mapping[str, Any], path: Path, found: Contents) -> None:
        getattr(found, name).append(dict(document) | {"file": path.name})

    return read


_FORMS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Path, Contents], None]], ...] = (
    (_named("interp circuit"), _circuit),
    (_named("interp PruningCurve"), _curve),
    (_list_of(_named("interp dependency trees")), _trees),
    (_result_of("Emergence"), _curves_of_scores),
    (_named("interp Comparison"), _kept("agreements")),
    (_list_of(_keyed("checks", "provenance")), _checks),
    (_keyed("heads", "directions", "curves", "sahara"), _kept("safety")),
    (_keyed("attributions"), _kept("attributions")),
    (_keyed("tokens", "summary", "differences", "limits", "texts"), _tokens),
    (_keyed("summary", "differences", "limits", "texts"), _kept("faithfulness")),
    (_keyed("format", "provenance", "rows"), _table),
    (_result_of("Profile"), _profile),
    (_named("interp Result"), _result),
)
