"""Cards of models that come with the package: what is known of their heads, and how well."""

from __future__ import annotations

from typing import Any

from interp.core.shell_line import shell_line


def model_card(source: str) -> str:
    """Format the card of a model, such as `trained:names` or `compiled:hist+sort`."""
    from interp import bundled
    from interp.core.errors import UnknownName
    from interp.planted import KINDS, check_known

    kind, _, name = source.partition(":")
    if kind == "bundled":
        return (bundled.path(name) / "README.md").read_text(encoding="utf-8").rstrip("\n")
    if kind not in KINDS:
        kinds = [f"{kind}:NAME" for kind in ("bundled", *KINDS)]
        raise UnknownName("kind of model", source, kinds)
    check_known(kind, name)
    return "\n".join({"compiled": _compiled, "trained": _trained, "planted": _planted}[kind](name))


def _planted(name: str) -> list[str]:
    from interp import planted

    built = planted.build(name)
    roles = {role: heads for role, heads in built.roles.items() if role != "noise"}
    lines = [f"planted:{name}: {planted.PLANTED[name]}", "Heads, by construction:"]
    lines += [f"  {role}: {' '.join(f'L{a}H{b}' for a, b in at)}" for role, at in roles.items()]
    return [*lines, *_tasks("planted", name)]


def _compiled(name: str) -> list[str]:
    from interp.planted.programs import PROGRAMS, joined

    program = joined(name)
    config: Any = program.module.config
    lines = [
        f"compiled:{name}: {config.num_hidden_layers} layers of {config.num_attention_heads} heads,"
        f" prompts of at most {program.longest} words after token {program.bos}"
    ]
    for part in program.parts.values():
        entry = PROGRAMS[part.name]
        heads = " ".join(sorted(node for node in part.nodes if node[0] == "L")) or "none"
        mlps = " ".join(sorted(node for node in part.nodes if node[0] == "m")) or "none"
        lines += [
            f"{part.name}: {entry.summary}",
            f"  words {' '.join(map(str, entry.words))}; heads {heads}; MLPs {mlps};"
            f" {len(part.edges)} edges carry information",
            f"  outputs {part.columns[0]} to {part.columns[-1]}: {' '.join(map(str, part.outputs))}"
            if part.outputs
            else f"  output {part.columns[0]}: a number",
        ]
    tokens = [f"{i} {' '.join(map(str, words))}" for i, words in enumerate(program.tokens)]
    lines.append("Tokens: " + ", ".join(tokens[:16]) + (", ..." if len(tokens) > 16 else ""))
    return lines + [
        line for part in program.parts for line in _tasks("compiled", part, f"compiled:{name}")
    ]


def _trained(name: str) -> list[str]:
    from interp.planted.trained import TRAINED, trained_card
    from interp.planted.trained.cases import CASES

    case, stated = CASES[name], trained_card(name)
    effects = stated["effects_outside"]
    lines = [f"trained:{name}: {TRAINED[name]}", "Nodes of the circuit:"]
    lines += [f"  {variable}: {node}" for variable, node in case.nodes.items()]
    lines += [f"  {a} -> {b}" for task in case.ends for a, b in case.circuit(task)[1]]
    looks = ", ".join(f"{node} where {case.nodes[v]} does" for v, node in case.decoys.items())
    lines += [
        f"Heads outside it that look where its heads do: {looks}",
        f"Share of right answers over {stated['n']} pairs of new prompts:",
        *(f"  {what}: {share:.4f}" for what, share in stated["agreement"].items()),
        "Largest share of answers that a node outside the circuit changes, by what replaces it:",
        *(
            f"  {kind}: {max(each[kind] for each in effects.values()):.4f}"
            for kind in ("resampled", "mean", "zero")
        ),
        "Tokens: " + ", ".join(f"{i} {token}" for i, token in enumerate(case.tokens)),
        f"Trained for {stated['steps']} steps from seed {stated['seed']}"
        f" ({stated['seconds']:.0f} s): python -m training.train_known {name}",
    ]
    return [*lines, *_tasks("trained", name)]


def _tasks(kind: str, name: str, model: str = "") -> list[str]:
    """Return the commands that find the circuits of the tasks of a model."""
    from interp.circuits.tasks import TASKS

    asked = [task for task in TASKS if TASKS[task].model == f"{kind}:{name}"]
    return [shell_line("circuit", model or f"{kind}:{name}", "--task", task) for task in asked]
