"""The tables and the plot of benchmarks/shapley.py."""

from __future__ import annotations

import math

COLOURS = ("#8a8a8a", "#1f5fa8", "#b8860b", "#7b4fa3", "#3f8f5f", "#c05a2e", "#b01050")
WIDTH, HEIGHT, LEFT, TOP = 430, 300, 52, 34
LOWEST, HIGHEST = -5.0, 0.5  # powers of ten of the error


def report(found: dict) -> str:
    """Markdown."""
    about = found["about"]
    lines = [
        "# Shapley values: estimators against exact games, chains against full forwards",
        "",
        f"torch {about['torch']}, {about['machine']}, one thread. Written by "
        "`python benchmarks/shapley.py`; plot in shapley.svg.",
        "",
        "## Error against evaluations",
        "",
        "Normalised squared error of the 16 heads of `bundled:induction`, median of "
        f"{about['runs']} runs; the exact values come from all 65,536 coalitions. Evaluations do "
        "not count the two coalitions of everybody and nobody; a permutation takes 15 of the "
        "16 heads' steps, so budgets are used as far as whole permutations go.",
    ]
    for game in found.get("games", ()):
        errors = game["errors"]
        budgets = list(next(iter(errors.values())))
        lines += [
            "",
            f"### Heads replaced by: {game['kind']}",
            "",
            f"v(all) - v(none) = {game['v_all_minus_v_none']:.3f} nats/token; the exact values "
            f"miss it by {abs(game['efficiency_gap']):.0e}.",
            "",
            "| estimator | " + " | ".join(budgets) + " |",
            "|---" * (1 + len(budgets)) + "|",
        ]
        for name, row in errors.items():
            lines.append(f"| {name} | " + " | ".join(f"{row[b]:.2g}" for b in budgets) + " |")
        lines += ["", "| fixed cost | forward passes | error | Spearman with exact |"]
        lines += ["|---|---|---|---|"]
        for name, x in game["fixed"].items():
            lines.append(
                f"| {name} | {x['evaluations']} | {x['error']:.3f} | {x['spearman']:.2f} |"
            )
        for name, x in game["fixed"].items():
            if "residual" in x:
                lines += [
                    "",
                    f"The sum of {name} misses v(all) - v(none) by {x['residual']:.2f} nats/token.",
                ]
        lines += ["", saved(errors)]
    if "chains" in found:
        lines += [
            "",
            "## Chains of coalitions at the GPT-2-small shape",
            "",
            "12 layers x 12 heads, random weights, float32. Players leave in a random order, the "
            "same number from each layer; full forwards of the same coalitions are timed in turn "
            "with the chain, processor time of one thread. The task reads two logits of the last "
            "token; a third of a full forward makes the logits of all tokens.",
            "",
            "| batch x tokens | full forward, chain | steps timed | full forwards' time over "
            "the chain's | bitwise equal | largest difference | largest effect |",
            "|---|---|---|---|---|---|---|",
        ]
        for x in found["chains"]:
            lines.append(
                f"| {x['batch']} x {x['length']} | {x['compared']} | {x['steps']} | "
                f"{x['ratio']:.2f} | {'yes' if x['bitwise_equal'] else 'no'} | "
                f"{x['largest_difference']:.0e} | {x['largest_effect']:.0e} |"
            )
    return "\n".join(lines).rstrip() + "\n"


def saved(errors: dict) -> str:
    """How many evaluations antithetic permutations need for our surrogate's error."""
    ours, theirs = (
        {int(b): e for b, e in errors[name].items()}
        for name in ("Gaussian process surrogate (ours)", "antithetic permutations")
    )
    # their error falls as one over the evaluations, fitted to all budgets
    scale = math.exp(sum(math.log(e * b) for b, e in theirs.items()) / len(theirs))
    parts = [f"{scale / e / b:.1f} times at {b}" for b, e in ours.items()]
    return (
        "Evaluations of antithetic permutations (error = "
        f"{scale:.1f} / evaluations, fitted) over the surrogate's at its error: "
        + ", ".join(parts)
        + "."
    )


def draw(found: dict) -> str:
    """Error against evaluations, both on logarithmic axes, one panel per game."""
    games = found.get("games", [])
    width = len(games) * (WIDTH + LEFT + 20)
    names = list(games[0]["errors"]) if games else []
    height = TOP + HEIGHT + 50 + 18 * (len(names) + 2)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, game in enumerate(games):
        out += _panel(game, LEFT + number * (WIDTH + LEFT + 20))
    fixed = list(games[0]["fixed"]) if games else []
    for i, name in enumerate([*names, *fixed]):
        y = TOP + HEIGHT + 56 + 18 * i
        colour = COLOURS[i] if i < len(names) else "#000000"
        dash = "" if i < len(names) else f' stroke-dasharray="{_dash(i - len(names))}"'
        out.append(
            f'<line x1="{LEFT}" x2="{LEFT + 26}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="2"{dash}/><text x="{LEFT + 34}" y="{y + 4}">{_text(name)}</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(game: dict, left: float) -> list[str]:
    def x(budget: float) -> float:
        return left + WIDTH * (math.log2(budget) - 5.7) / (10.3 - 5.7)

    def y(error: float) -> float:
        power = min(max(math.log10(error), LOWEST), HIGHEST)
        return TOP + HEIGHT * (HIGHEST - power) / (HIGHEST - LOWEST)

    out = [
        f'<text x="{left}" y="18" font-weight="bold">normalised squared error, '
        f"heads replaced by: {game['kind']}</text>",
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#444"/>',
        f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">'
        "evaluations</text>",
    ]
    for power in range(int(LOWEST), int(HIGHEST) + 1):
        at = y(10.0**power)
        out.append(
            f'<line x1="{left}" x2="{left + WIDTH}" y1="{at:.1f}" y2="{at:.1f}" '
            f'stroke="#ddd"/><text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">'
            f"{10.0**power:g}</text>"
        )
    for budget in next(iter(game["errors"].values())):
        out.append(
            f'<text x="{x(int(budget)):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">'
            f"{budget}</text>"
        )
    for i, found in enumerate(game["fixed"].values()):
        out.append(
            f'<line x1="{left}" x2="{left + WIDTH}" y1="{y(found["error"]):.1f}" '
            f'y2="{y(found["error"]):.1f}" stroke="#000" stroke-dasharray="{_dash(i)}"/>'
        )
    for colour, row in zip(COLOURS, game["errors"].values(), strict=False):
        points = [(x(int(b)), y(e)) for b, e in row.items()]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
    return out


def _dash(i: int) -> str:
    return ("7 4", "2 3", "8 3 2 3")[i % 3]


def _text(name: str) -> str:
    return name.replace("&", "&amp;").replace("<", "&lt;")
