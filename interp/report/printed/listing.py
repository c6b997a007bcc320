"""Listings of metrics, attribution methods, tasks and circuits; one of the former in full."""

from __future__ import annotations

import re
from pathlib import Path

from interp.core.calibration import chance_of
from interp.core.entry import Entry
from interp.core.registry import ATTRIBUTION_METHODS, CIRCUIT_METHODS, INSTALLED, METRICS
from interp.heads.causal_check.declared_tasks import task_text

# Heads that are shown first; --by selects another order.
LISTED = {"high": "highest first", "low": "lowest first", "both": "both ends of the scale"}
# Query rows that count, of the kinds whose score is a mean over rows.
ROWS = {
    "detector": "the score is the attention on the targets, averaged over the query rows that see a"
    " target; rows without a visible target are left out, so that an ideal head scores 1",
    "statistic": "averaged over all query rows",
}
# Title of each group of metrics.
TITLES = {
    "detectors": "Attention patterns: where heads attend on prompts",
    "weights": "Weights: what heads compute, from the weights alone",
    "geometry": "Geometry: ranks, spectra, similarity and sparsity of heads on prompts",
    "categories": "Categories: attention to parts of speech, code, brackets, topics and entities",
    "cache": "Caches: what the cache of a head must keep, and which heads find a source",
    "cross": "Cross attention: where in the source the rows of the decoder look",
    "segments": "Segments: attention between text, images and registers, on prompts that hold them",
    "experiments": "Experiments: kinds of head that appear on specially made prompts",
    "roles": "Named heads: heads that do a known part of a task, on models that can do it",
    INSTALLED: "Installed packages: metrics that other packages add",
}
# Requirements of a method, in order of cost.
NEEDS = {
    "nothing": "Baselines that use no model data",
    "patterns": "From attention patterns (and values, where stated): no target, no gradient",
    "forward": "From forward passes",
    "gradients": "From gradients of the target",
}


def metric_listing() -> str:
    """Format every metric by group: name, one sentence, options with their defaults."""
    width, lines = max(map(len, METRICS)), []
    for group in (*METRICS.groups, INSTALLED):
        rows = [e for e in METRICS.values() if e.group == group]
        if group == INSTALLED and not rows:
            continue
        lines += ["", f"{TITLES[group]}:"] if lines else [f"{TITLES[group]}:"]
        lines += [f"  {e.name:<{width}}  {e.summary}{e.usage}" for e in rows]
        if METRICS.also.get(group):
            lines.append(f"  and of other groups: {', '.join(METRICS.also[group])}")
    return "\n".join(
        [*lines, "", "`interp list metrics NAME` explains one; give options as NAME:option=value."]
    )


def metric_text(e: Entry) -> str:
    """Format one metric in full: definition, options, unit, range, source and picture."""
    text, _, example = e.doc.partition("\n>>> ")
    call, _, drawn = example.partition("\n")
    text, _, source = text.partition("Reference:")
    text, _, options = text.partition("Options:")
    lines = [f"{e.name} ({e.kind})", "", text.strip(), ""]
    lines.append("Options:" if e.options else "Options: none")
    stated = dict(re.findall(r"^ +(\w+): (.+)$", options, re.MULTILINE))
    for name, (default, kind) in e.options.items():
        lines.append(
            f"  {name}={default}"
            + (f" ({kind})" if kind else "")
            + f"  {stated.get(name, '')}".rstrip()
        )
    if e.kind in ROWS:
        lines.append(f"Rows: {ROWS[e.kind]}")
    lines += [f"Unit: {e.unit or 'none'}", f"Range: {e.range}"]
    lines.append(f"Listed: {LISTED[e.end]}")
    if chance := chance_of(e.name):
        median, low, high = chance
        lines.append(
            f"Chance: heads of small random models score {median:g} (95 % of them {low:g} to"
            f" {high:g}); for your model, see the null of its scores"
        )
    if "task" in e.about:
        lines.append(f"Own task of `interp importance verify`: {task_text(e.about['task'])}")
    lines.append(f"Source: {' '.join(source.split()) or 'this project'}")
    lines.append(f"File: {e.where}")
    if drawn:
        lines += [
            "",
            f"Where an ideal head attends (rows: queries, columns: keys); {call}:",
            drawn.rstrip(),
        ]
    return "\n".join(lines)


def method_listing() -> str:
    """Format every method by requirement: name, one sentence, options with their defaults."""
    width = max(map(len, ATTRIBUTION_METHODS))
    lines: list[str] = []
    for kind, title in NEEDS.items():
        rows = [e for e in ATTRIBUTION_METHODS.values() if e.about["needs"] == kind]
        if not rows:
            continue
        lines += [""] if lines else []
        lines.append(f"{title}:")
        lines += [f"  {e.name:<{width}}  {e.summary}{e.usage}" for e in rows]
    return "\n".join(
        [*lines, "", "`interp list methods NAME` explains one; give options as NAME:option=value."]
    )


def method_text(e: Entry) -> str:
    """Format one method in full: definition, options, unit, needs and source."""
    text, _, _ = e.doc.partition("Reference:")
    lines = [f"{e.name} (attribution)", "", text.strip(), ""]
    lines += [
        f"  {n}={default}" + (f" ({kind})" if kind else "")
        for n, (default, kind) in e.options.items()
    ]
    lines += [
        f"Unit: {e.unit or 'none'}",
        f"Needs: {e.about['needs']}",
        f"Source: {e.source or 'this project'}",
    ]
    return "\n".join([*lines, f"File: {e.where}"])


def first_sentence(folder: Path) -> str:
    """Return the first sentence of a model card, below its title and its YAML."""
    card = folder / "README.md"
    if not card.is_file():
        return ""
    text = card.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text[4:].partition("\n---\n")[2]
    blocks = (" ".join(block.split()) for block in text.split("\n\n"))
    first = next((block for block in blocks if block and not block.startswith("#")), "")
    return first.partition(". ")[0].rstrip(".")


def circuit_listing() -> str:
    """List tasks with roles, metric and templates; methods with levels and options; circuits."""
    return "\n".join([*_tasks(), "", *_methods(), "", *_published()])


def _tasks() -> list[str]:
    from interp.circuits.tasks import TASKS
    from interp.circuits.tasks.wording import template_line

    lines = ["Tasks:"]
    for name, about in TASKS.items():
        lines.append(f"  {name}: {about.summary}")
        lines.append(f"    roles {', '.join(about.roles) or 'none'}; {about.metric}")
        if about.model:
            lines.append(f"    for {about.model}, whose circuit is known")
        lines += [f"    template {i}: {template_line(t)}" for i, t in enumerate(about.templates)]
    return lines


def _methods() -> list[str]:
    lines = ["Methods (options as NAME:OPTION=VALUE,...):"]
    for name, entry in CIRCUIT_METHODS.items():
        levels = " and ".join(entry.about["levels"])
        lines.append(f"  {name} ({levels}): {entry.summary}{entry.usage}")
    return lines


def _published() -> list[str]:
    from interp.circuits.published import published, published_names

    lines = ["Published circuits (--against NAME):"]
    for name in published_names():
        stated = published(name)
        doubt = " (uncertain)" if stated.uncertain else ""
        many = f"{len(stated.heads)} head{'s' if len(stated.heads) > 1 else ''}"
        lines.append(f"  {name}: {stated.task} in {stated.model}, {many}{doubt}")
    return lines
