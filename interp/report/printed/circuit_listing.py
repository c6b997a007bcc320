"""Text of `interp circuit --list`: tasks, methods and published circuits; imports no torch."""

from __future__ import annotations

from interp.core.registry import CIRCUIT_METHODS


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
