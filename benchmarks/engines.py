"""Activations of interp and of interp-engine on the same weights, over the families of the tests.

    python benchmarks/engines.py

Every tiny causal model of `tests/zoo` is held by interp-engine's eager backend and read twice: by
`Model.capture`, and by interp-engine's own `capture` under the translated names. The table gives
the largest difference over layers, heads and positions of two prompts, as a share of the largest
value (of patterns: absolute), or why there is none. As a null, patterns are compared with those of
the next layer. Writes benchmarks/engines.md and .json; takes about a minute of one core.
"""

from __future__ import annotations

import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import interp
from interp.core.errors import InterpError
from interp.model.activation_names import HEAD_NAMES, OTHER_NAMES, name_elsewhere
from interp.model.calls.sites import softmax_sites
from interp.model.sources.packages import wrapped

HERE = Path(__file__).parent
SOURCE = "interp-engine"
NAMES = [name for name, others in OTHER_NAMES.items() if SOURCE in others]
IDS = [[9, 33, 21, 40, 33, 21, 21, 17, 9, 33], [33, 9, 17, 21, 21, 33, 40, 21, 33, 9]]
MASKED = -1e4  # below it, a score is that of a masked pair, for which tools write different numbers
CLOSE = 1e-6
REASONS = {  # tests/model/test_source_interp_engine.py holds them to numbers
    ("granite", "attn_out"): "interp gives what is added to the stream, which Granite scales; "
    "interp-engine the output of the module, before the scale",
    ("granite", "mlp_out"): "as attn_out",
    ("deepseek_v32", "scores"): "to read scores interp-engine runs the model under an attention "
    "function of its own, for which this family leaves out the mask of its indexer: the logits of "
    "that run differ too",
}


class Missing(Exception):
    """Activation that one of the two does not have, with the reason."""


def theirs(held: Any, name: str, layer: int, like: Tensor) -> Tensor:
    """Return an activation by interp-engine's own capture, in the layout of interp.

    Raises:
        Missing: interp-engine refuses it, or has it per other heads.
    """
    from interp_engine import capture
    from interp_engine.arch import ModuleNotFound

    norms = bool(held.arch.quirks.sandwich_norms)
    point = name_elsewhere(name, SOURCE, layer, output_norm=norms)
    try:
        found = capture(held, torch.tensor(IDS), [point])[point]
    except (ValueError, ModuleNotFound) as error:
        raise Missing(str(error).partition(":")[0].partition("(")[0].strip()) from error
    if name in ("z", "v"):  # [batch, pos, head * width]
        found = found.unflatten(-1, (-1, like.shape[-1])).transpose(1, 2)
    if found.shape != like.shape:
        raise Missing(f"of shape {tuple(found.shape)}, of interp {tuple(like.shape)}")
    return found


def difference(model: interp.Model, held: Any, name: str, shift: int = 0) -> float:
    """Return the largest difference of an activation over the layers.

    Args:
        model: the model, as interp reads it.
        held: the same, held by interp-engine.
        name: the activation, as interp names it.
        shift: compare with interp-engine's layer so many places later, for a null.

    Raises:
        Missing: one of the two does not have it in some layer.
    """
    worst = 0.0
    # what heads compute is compared where there is a softmax; the stream is there in every layer
    sites = softmax_sites(model.sites) if name in HEAD_NAMES else model.sites
    for site, after in zip(sites, sites[shift:], strict=False):
        try:
            own = model.capture(IDS, [name], layers=site.layer)[name, site.layer].double()
        except InterpError as error:
            raise Missing(f"interp: {str(error).partition(':')[0]}") from error
        other = theirs(held, name, after.layer, own).double()
        seen = own > MASKED if name == "scores" else torch.ones_like(own, dtype=torch.bool)
        largest = 1.0 if name == "pattern" else float(own[seen].abs().max())
        worst = max(worst, float((own - other)[seen].abs().max()) / largest)
    return worst


def logits_difference(model: interp.Model, held: Any) -> float:
    """Return the largest difference of logits between `Model.run` and a plain call."""
    with torch.no_grad():
        plain = held.hf_model(torch.tensor(IDS)).logits
    return float((model.run(IDS) - plain).abs().max() / plain.abs().max())


def measured(family: Any) -> dict[str, Any]:
    """Return the row of a family: a number or a reason for each activation."""
    held = wrapped(SOURCE, family.build("eager"), None)
    model = interp.load(held, name=family.name)
    row: dict[str, Any] = {"logits": logits_difference(model, held)}
    for name in NAMES:
        try:
            row[name] = difference(model, held, name)
        except Missing as error:
            row[name] = str(error)
    if len(softmax_sites(model.sites)) > 1:
        row["null"] = difference(model, held, "pattern", shift=1)
    return row


def page(about: dict[str, str], rows: dict[str, dict[str, Any]], refused: dict[str, str]) -> str:
    """Return the Markdown page of the rows."""
    columns = ["logits", *NAMES, "null"]
    numbers = [x for row in rows.values() for k, x in row.items() if k != "null" and not text(x)]
    reasons = [
        f"- `{family}`, {name}: {row[name]}."
        for family, row in rows.items()
        for name in NAMES
        if text(row[name])
    ]
    far = [
        f"- `{family}`, {name} ({row[name]:.0e}): {REASONS.get((family, name), 'not explained')}."
        for family, row in rows.items()
        for name in columns[:-1]
        if not text(row[name]) and row[name] > CLOSE
    ]
    kept_out: dict[str, list[str]] = {}
    for family, reason in refused.items():
        kept_out.setdefault(reason.partition(" (")[2].rpartition(");")[0] or reason, []).append(
            family
        )
    nulls = [row["null"] for row in rows.values() if "null" in row]
    patterns = [row["pattern"] for row in rows.values() if not text(row["pattern"])]
    lines = [
        "# The same activations through interp and interp-engine",
        "",
        f"Tiny random models of {len(rows)} families, each held by interp-engine {about[SOURCE]} "
        f"(eager, CPU, float32; torch {about['torch']}, transformers {about['transformers']}), two "
        f"prompts of {len(IDS[0])} tokens. Made by `python benchmarks/engines.py`. Each number is "
        "the largest difference over layers, heads and positions, as a share of the activation's "
        "largest value; of patterns it is absolute. The last column is a null: patterns compared "
        "with those of the next layer.",
        "",
        f"Of {len(numbers)} comparisons {sum(x <= CLOSE for x in numbers)} agree to {CLOSE:.0e}. "
        f"Patterns of {len(patterns)} families differ by at most {max(patterns):.0e}; the smallest "
        f"null is {min(nulls):.2f}.",
        "",
        f"| family | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for family, row in rows.items():
        cells = [
            "-" if text(x) else f"{x:.0e}" if x else "0" for x in (row.get(c, "") for c in columns)
        ]
        lines.append(f"| {family} | {' | '.join(cells)} |")
    lines += [
        "",
        f"## Above {CLOSE:.0e}",
        "",
        *(far or ["Nowhere."]),
        "",
        "## Where one of them has none",
        "",
        *reasons,
        "",
        "## Not held by interp-engine",
        "",
        *(f"- {', '.join(names)}: {reason}" for reason, names in kept_out.items()),
        "",
    ]
    return "\n".join(lines)


def text(x: Any) -> bool:
    """Return True for a reason in place of a number."""
    return isinstance(x, str)


def main() -> None:
    sys.path.insert(0, str(HERE.parent / "tests"))  # the tiny models of every architecture
    import zoo

    warnings.simplefilter("ignore")
    rows, refused = {}, {}
    for family in zoo.FAMILIES.values():
        if family.kind != "text" or "eager" not in family.attentions:
            continue
        try:
            rows[family.name] = measured(family)
        except InterpError as error:
            refused[family.name] = str(error)
    about = {package: version(package) for package in (SOURCE, "torch", "transformers")}
    kept = {"about": about, "rows": rows, "refused": refused}
    (HERE / "engines.json").write_text(json.dumps(kept, indent=1) + "\n")
    (HERE / "engines.md").write_text(page(about, rows, refused))


if __name__ == "__main__":
    main()
