"""The atlas document, built from tables of scores, from results folders, and from models."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError
from interp.core.merge import distinguished, merged, renamed
from interp.core.shell_line import shell_line
from interp.core.table import HeadTable
from interp.draw.parts import FoundPart, anchor
from interp.heads.roles.decide import roles
from interp.heads.roles.result import HeadRole, HeadRoles
from interp.heads.roles.statements import NAMED
from interp.profiles.changes import compare_profiles
from interp.profiles.headvis_read import is_headvis, read_headvis
from interp.profiles.result import Profile
from interp.report.atlas.between_models import (
    comparison_of,
    difference_part,
    emergence_part,
    match_part,
    matched,
    profile_comparison,
    sides,
    untested_comparison,
)
from interp.report.atlas.cards import card_of, nearest_heads
from interp.report.atlas.document import Atlas, Comparison, Model, Nearest, Part
from interp.report.atlas.folder import Contents, by_metric, read_folder
from interp.report.atlas.kept_nulls import add_draws, read_shared_nulls
from interp.report.atlas.mechanisms import agreement_part, check_parts, circuit_part, pruning_part
from interp.report.atlas.profiles import TextProfile, add_profile, profile_name, profile_table
from interp.report.atlas.scores import model_of
from interp.report.atlas.texts_and_trees import (
    attribution_parts,
    faithfulness_part,
    safety_part,
    syntax_evidence,
    tree_part,
)

if TYPE_CHECKING:
    import os

    from interp.model.model import Model as LoadedModel

VERSION = 1
MANY = 4  # models of which every pair is compared
PAGES = ("comparison", "match", "faithfulness")  # parts that are not about one model's heads


def build_atlas(
    *sources: HeadTable | Profile | str | os.PathLike,
    models: Sequence[LoadedModel] = (),
    title: str = "Attention heads",
    command: str | None = None,
    notes: Sequence[str] = (),
) -> Atlas:
    """Return the atlas document of tables of scores, profiles and results folders.

    Args:
        *sources: tables of scores, files of them (.parquet, .csv, .json), profiles of heads on
            text, folders that `interp` commands wrote to, and HeadVis trees.
        models: loaded models, found in the results by their weights. They add to each card of their
            heads the strongest examples, the tokens that the head writes, and nearest patterns.
        title: title of the page.
        command: the command line that made the page.
        notes: sentences to show on the page.

    Raises:
        StoreError: a file cannot be read, or a folder does not exist.
        OptionError: there is nothing to show: no results at all.
    """
    contents = contents_of(sources)
    contents.notes += notes
    atlas = atlas_of(contents, title=title, command=command)
    for model in models:
        from interp.report.atlas.from_model import add_model

        add_model(atlas, model)
    return atlas


def contents_of(sources: Iterable[HeadTable | Profile | str | os.PathLike]) -> Contents:
    """Return what tables, profiles, files of tables and results folders hold together."""
    contents = Contents()
    parts: list[tuple[str, range]] = []
    for source in sources:
        first = len(contents.scores)
        if isinstance(source, HeadTable):
            add_table(source, contents)
        elif isinstance(source, Profile):
            contents.profiles.append(source)
        elif (path := Path(source).expanduser()).is_file():
            add_table(HeadTable.load(path), contents)
        elif is_headvis(path):
            contents.profiles.append(read_headvis(path))
        else:
            read_folder(path, contents)
        if not isinstance(source, (HeadTable, Profile)):
            contents.named.append(str(source))
            parts.append((str(source), range(first, len(contents.scores))))
    name_by_source(contents, parts)
    if parts:  # a table in memory is shown as it is
        contents.nulls += read_shared_nulls({m for table in contents.scores for m in table.metrics})
    return contents


def add_table(table: HeadTable, found: Contents) -> None:
    """Add a table of heads: its scores, and its ablations and other importances."""
    from interp.causal.comparison.questions import METHODS

    causal = [name for name in table.metrics if name.partition(":")[0] in METHODS]
    scores = [name for name in table.metrics if name not in causal]
    if scores:
        found.scores.append(table.where(metric=scores) if causal else table)
    if causal:
        found.causal.append(table.where(metric=causal) if scores else table)


def atlas_of(
    found: Contents,
    *,
    title: str = "Attention heads",
    command: str | None = None,
    named: int = NAMED,
) -> Atlas:
    """Return the atlas document of the contents of folders."""
    names, scores, causal, on_text, notes = _distinguished(found)
    assigned = _roles(found, scores, causal, names)
    ids: set[str] = set()
    models: dict[str, Model] = {}
    for name in dict.fromkeys([*scores, *causal, *on_text]):
        model_roles = None if name not in scores else assigned.of(name)
        tables = scores.get(name), causal.get(name)
        table = profile_table(on_text[name], name) if name in on_text else None
        models[name] = model_of(name, anchor(name, ids), *tables, model_roles, named, table)
        if ":" in name:  # such as bundled:induction; the path of a folder is not known here
            line = ("--heads", "HEAD", "--text", "The keys are on the table")
            models[name]["view"] = shell_line("view", name, *line)
        if name in scores:
            add_draws(models[name], scores[name], found.nulls)
    pages, by_model = _placed(_parts(found), models, names)
    if not models and not pages:
        where = ", ".join(found.named) or "the table"
        read = f" {' '.join(notes)}" if notes else ""
        raise OptionError(
            f"there are no results in {where}; give a folder that a command wrote with --out, such "
            f"as `interp score MODEL --out results`.{read}"
        )
    near = _near(found, models)
    for name, model in models.items():
        head_roles = assigned.of(name).assigned if name in scores else ()
        _add_cards(model, head_roles, by_model[name], near)
        if name in on_text:
            add_profile(model, on_text[name], named)
    return {
        "version": VERSION,
        "title": title,
        "models": list(models.values()),
        "comparisons": [*_on_text(on_text, models), *_comparisons(found, models)],
        "pages": pages,
        "command": command,
        "notes": list(dict.fromkeys(notes)),
    }


def _placed(
    parts: Sequence[FoundPart], models: Mapping[str, Model], names: Mapping[tuple[str, str], str]
) -> tuple[list[Part], dict[str, list[FoundPart]]]:
    """Give every part an id and its place: with its model, or among the pages."""
    pages: list[Part] = []
    by_model: dict[str, list[FoundPart]] = {name: [] for name in models}
    taken: set[str] = set()
    for one in parts:
        one.part["id"] = anchor(f"{one.part['kind']}-{one.part['title']}"[:60], taken)
        name = names.get((one.model, one.weights), names.get((one.model, ""), one.model))
        shared = one.part["kind"] in PAGES
        if name in models and not shared:
            one.note_query_heads(models[name])
            models[name]["results"].append(one.part)
            by_model[name].append(one)
            continue
        if one.model and one.model not in one.part["title"] and name not in models and not shared:
            one.part["title"] = f"{one.part['title']}, {one.model}"
        pages.append(one.part)
    return pages, by_model


def _near(found: Contents, models: Mapping[str, Model]) -> dict[tuple[str, str], list[Nearest]]:
    """Return the nearest heads of each head: by its matches in another model, and by its scores."""
    near = nearest_heads(models)
    for match in found.matches:
        first, second, pairs = matched(match)
        if first not in models:
            continue
        other = models[second]["id"] if second in models else second
        for label, one in pairs.items():
            if first != second or label != one["label"]:
                here = near.setdefault((models[first]["id"], label), [])
                here.insert(0, {**one, "model": other})
    return near


def _add_cards(
    model: Model,
    own: Sequence[HeadRole],
    parts: Sequence[FoundPart],
    near: Mapping[tuple[str, str], Sequence[Nearest]],
) -> None:
    """Add a card for every head of which more than scores is known."""
    by_place = {(x.stack, x.layer, x.head): x for x in own}
    names = [stack["name"] for stack in model["stacks"]]
    for at, place in enumerate(model["heads"]):
        role = by_place.get((names[place["stack"]], place["layer"], place["head"]))
        card = card_of(model, at, role, parts, near.get((model["id"], place["label"]), ()))
        if card:
            model["cards"][place["label"]] = card


def _distinguished(
    found: Contents,
) -> tuple[
    dict[tuple[str, str], str],
    dict[str, HeadTable],
    dict[str, HeadTable],
    dict[str, TextProfile],
    list[str],
]:
    """Give models of one name and different weights different names, and merge their tables."""
    on_text = [profile_table(one, profile_name(one)) for one in found.profiles]
    every = [*found.scores, *found.causal, *on_text]
    parts, notes = distinguished(every)
    names: dict[tuple[str, str], str] = {}
    for before, after in zip(every, parts, strict=True):
        for (old, _), (new, metric) in zip(before.provenance, after.provenance, strict=True):
            weights = str(after.provenance[new, metric].get("content_hash") or "")
            names[old, weights] = new
            names.setdefault((old, ""), new)
    tables = []
    n, last = len(found.scores), len(every) - len(on_text)
    for some in (parts[:n], parts[n:last]):
        table, more = merged(some)
        notes += more
        table = by_metric(table)
        tables.append({name: table.where(model=name) for name in table.models})
    profiles: dict[str, TextProfile] = {}
    for table, one in zip(parts[last:], found.profiles, strict=True):
        [name] = table.models
        if name in profiles:  # the same heads on another text
            name = _free(f"{name} on {one.provenance.get('corpus', 'other text')}", profiles)
        profiles[name] = one
    return names, tables[0], tables[1], profiles, [*found.notes, *(f"{x}." for x in notes)]


def _free(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} ({number})", number + 1
    return candidate


def _roles(
    found: Contents,
    scores: Mapping[str, HeadTable],
    causal: Mapping[str, HeadTable],
    names: Mapping[tuple[str, str], str],
) -> HeadRoles:
    """Decide the roles of all models, with their checks, ablations and dependency relations."""
    if not scores:
        return HeadRoles((), {})
    evidence: dict[Any, list] = {}
    for trees in found.trees:
        weights = str(trees.provenance.get("content_hash") or "")
        name = names.get((trees.model, weights))
        if name is not None:
            for key, more in syntax_evidence(trees, name).items():
                evidence.setdefault(key, []).extend(more)
    checks = [*found.checks, *causal.values()]
    return roles(HeadTable.concat(scores.values()), checks, evidence=evidence)


def _parts(found: Contents) -> list[FoundPart]:
    """Return the parts of all results, in the order in which the page shows them."""
    parts = [circuit_part(circuit, evaluation) for circuit, evaluation in found.circuits]
    parts += [part for checks in found.checks for part in check_parts(checks)]
    parts += [pruning_part(curve) for curve in found.curves]
    parts += [agreement_part(one) for one in found.agreements]
    parts += [tree_part(one) for one in found.trees]
    parts += [safety_part(one) for one in found.safety]
    parts += [part for one in found.attributions for part in attribution_parts(one)]
    parts += [faithfulness_part(one) for one in found.faithfulness]
    parts += [difference_part(one) for one in found.differences]
    parts += [match_part(one) for one in found.matches]
    parts += [emergence_part(one) for one in found.emergence]
    return parts + found.parts


def _on_text(profiles: Mapping[str, TextProfile], models: Mapping[str, Model]) -> list[Comparison]:
    """Return what changed between two profiles of models with heads in common."""
    some = {
        name: one
        for name, one in profiles.items()
        if isinstance(one, Profile) and one.behaviours is not None
    }
    out: list[Comparison] = []
    for at, first in enumerate(some):
        for second in [*some][at + 1 :]:
            if len(some) <= MANY and models[first]["stacks"] == models[second]["stacks"]:
                comparison = compare_profiles(some[first], some[second])
                out.append(profile_comparison(comparison, models[first], models[second]))
    return out


def _comparisons(found: Contents, models: Mapping[str, Model]) -> list[Comparison]:
    """Return stored differences of models, and untested ones of models of one shape."""
    out: list[Comparison] = []
    done: set[frozenset[str]] = set()
    for one in found.differences:
        pair = sides(str(one.provenance.get("model", "")), list(models))
        if pair is not None:
            a, b = models[pair[0]], models[pair[1]]
            out.append(comparison_of(one, a, b, f"{a['id']}..{b['id']}"))
            done.add(frozenset(pair))
    order = list(models)
    for at, first in enumerate(order):
        for second in order[at + 1 :]:
            if frozenset((first, second)) in done or len(order) > MANY:
                continue
            a, b = models[first], models[second]
            if "profile" in a and "profile" in b:
                continue  # what they do on text is compared, with tests
            comparison = untested_comparison(a, b, f"{a['id']}..{b['id']}")
            out += [] if comparison is None else [comparison]
    return out


def name_by_source(found: Contents, sources: Sequence[tuple[str, range]]) -> None:
    """Add the source to the name of each model whose scores differ between sources, with a note."""
    first: dict[tuple[str, str, str], tuple[str, HeadTable]] = {}
    twice: dict[tuple[str, str], None] = {}
    for source, tables in sources:
        for at in tables:
            table = found.scores[at]
            for (model, metric), about in table.provenance.items():
                weights = str(about.get("content_hash") or "")
                rows = table.where(model=model, metric=metric)
                before, other = first.setdefault((model, weights, metric), (source, rows))
                if before != source and other != rows:
                    twice[model, weights] = None
    if not twice:
        return
    for source, tables in sources:
        for at in tables:
            table = found.scores[at]
            models = {
                (model, str(about.get("content_hash") or ""))
                for (model, _), about in table.provenance.items()
            }
            names = {model: f"{model} ({source})" for model, weights in models & twice.keys()}
            found.scores[at] = renamed(table, names) if names else table
    which = ", ".join(dict.fromkeys(model for model, _ in twice))
    found.notes.append(f"{which}: scored with different settings, so each name includes its source")
