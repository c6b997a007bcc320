"""Table of families: which attention is read, with which error, and which is refused.

    python benchmarks/families.py            # all parts; resumes where it was interrupted
    python benchmarks/families.py variants   # one part: known, mixers, variants or automatic
    python benchmarks/families.py --again    # measures everything anew

Families are found, not listed: the tiny models of the tests (`tests/zoo`), every file of
`training/forms/rules`, and every text class of transformers that small sizes configure.
For each, families.json holds what happened: read with the largest errors on 16 tokens, or refused
with the reason. families.md is written from it. A part takes one to four minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the tiny models of every architecture

import families_automatic  # noqa: E402
import zoo  # noqa: E402
import zoo.mixers  # noqa: E402
from rounded import as_json  # noqa: E402

import interp  # noqa: E402
from interp.core.errors import InterpError  # noqa: E402
from interp.model.calls.call import Call, precise  # noqa: E402
from interp.model.calls.map_call import MapCall  # noqa: E402
from interp.model.calls.sites import Site  # noqa: E402
from training import forms  # noqa: E402

LENGTH, SECONDS = 16, 90  # tokens (block-sparse code needs 15); the longest of one family
IDS = torch.randint(8, 60, (2, LENGTH), generator=torch.Generator().manual_seed(3))
REASON = 100  # characters of a reason in the table; families.json holds more
Made = tuple[nn.Module, Mapping[str, Tensor]]
SAFE = (bool, int, float, str, type(None), tuple)


def known() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Families of `tests/zoo`."""
    for name, family in zoo.FAMILIES.items():
        attention = "sdpa" if "sdpa" in family.attentions else "eager"
        yield name, lambda f=family, a=attention: (f.build(a), f.inputs(length=LENGTH))


def mixers() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Families whose heads are not one softmax."""
    for name in zoo.mixers.FAMILIES:
        yield name, lambda n=name: (zoo.mixers.build(n), {"input_ids": IDS})


def of_variants() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Attention variants of the literature."""
    for name in forms.variant_names("text"):
        yield name, lambda n=name: (forms.build(n), {"input_ids": IDS})


def automatic() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Other text classes of transformers, with small sizes."""
    taken = {f.model_class for f in zoo.FAMILIES.values()}
    taken |= {c for c, *_ in zoo.mixers.FAMILIES.values()}
    yield from families_automatic.families(taken, IDS)


PARTS: dict[str, Callable[[], Iterator[tuple[str, Callable[[], Made]]]]] = {
    "known": known,
    "mixers": mixers,
    "variants": of_variants,
    "automatic": automatic,
}


def attributes(module: nn.Module) -> dict[str, Any]:
    """Plain attributes of all modules and of the config: what loading must not change."""
    found = {"config": module.config.to_dict()}  # type: ignore[union-attr]
    for name, part in module.named_modules():
        plain = {k: v for k, v in vars(part).items() if isinstance(v, SAFE)}
        found[name] = {
            k: v for k, v in plain.items() if k not in ("training", "_is_hf_initialized")
        }
    return found


@torch.no_grad()
def measure(make: Callable[[], Made]) -> dict[str, Any]:
    """Load one family; return what was read, with its errors, or the reason of the refusal."""
    try:
        module, inputs = make()
        module.eval()
        start = attributes(module)
        own = zoo.output(module(**inputs))
    except Exception as error:
        # transformers raises anything for sizes that do not fit one another
        return {"outcome": "not configured", "reason": f"{type(error).__name__}: {error}"[:200]}
    finally:
        torch.manual_seed(0)
    before, begun = attributes(module), time.perf_counter()
    found_own = sorted(k for k, v in before.items() if v != start.get(k))
    found: dict[str, Any] = {"class": type(module).__name__, "changed_by_itself": found_own}
    try:
        model = interp.load(module, name="family")
    except InterpError as error:
        found |= {"outcome": "refused", "reason": str(error)[:300]}
        model = None
    except Exception as error:
        if isinstance(error, TimeoutError):
            raise
        # neither read nor refused by name: a fault, which the table shows as such
        found |= {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"[:300]}
        model = None
    found["seconds"] = time.perf_counter() - begun
    found["changed"] = sorted(k for k, v in attributes(module).items() if v != before.get(k))
    found["own_change"] = relative(zoo.output(module(**inputs)), own)
    if model is None:
        return found
    errors: list[float] = []

    def visit(site: Site, call: Call, real: Tensor) -> None:
        made = call.mapped() if isinstance(call, MapCall) else call.mix(call.pattern())
        errors.append(relative(made, precise(call.z)))

    with model.visited(visit):
        seen = model.run(inputs)
    check = interp.model.check_model(model)
    kinds = [site.kind for site in model.sites]
    return found | {
        "outcome": "partly read" if model.unread else "read",
        "unread": list(model.unread),
        "kinds": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "signed": sorted({s.about for s in model.sites if s.about}),
        "identity": max(errors),
        "results": max((s.result_error or 0.0 for s in check.sites), default=0.0),
        "projected": all(s.result_error is not None for s in check.sites),
        "logits": relative(seen, own),
    }


def relative(got: Tensor, want: Tensor) -> float:
    """Largest error over the largest entry."""
    if got.shape != want.shape:
        return float("inf")
    scale = want.double().abs().max().clamp_min(1e-30)
    return float((got.double() - want.double()).abs().max() / scale)


def limited(make: Callable[[], Made]) -> dict[str, Any]:
    """Measure, and give up after some time."""

    def late(*_: object) -> None:
        raise TimeoutError(f"took more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        return measure(make)
    except TimeoutError as error:
        return {"outcome": "not configured", "reason": str(error)}
    finally:
        signal.alarm(0)


def report(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Write the table."""
    read = {k: r for k, r in rows.items() if r["outcome"] in ("read", "partly read")}
    refused = {k: r for k, r in rows.items() if r["outcome"] == "refused"}
    unconfigured = {k: r for k, r in rows.items() if r["outcome"] == "not configured"}
    altered = [k for k, r in rows.items() if r.get("changed") or r.get("own_change", 0) > 1e-6]
    kinds = sorted({kind for r in read.values() for kind in r["kinds"]})
    most = max((r["logits"] for r in read.values()), default=0.0)
    lines = [
        "# Families of attention",
        "",
        f"{len(read)} families are read and {len(refused)} refused by name; their layers are of "
        f"{len(kinds)} kinds. Tiny models of random weights in float32, {LENGTH} tokens, "
        f"transformers {transformers.__version__}. *map*: largest error of map (or pattern) times "
        "values against the module's own z; *results*: of the sum of head results against the "
        "attention's output. Logits of the observed forward differ from the model's own by at most "
        f"{size(most)} (all errors: relative to the largest entry). *seconds*: loading with its "
        "checks. Made by `python benchmarks/families.py`.",
        "",
        "Models whose own output or attributes differ after loading: "
        + (", ".join(f"`{k}`" for k in altered) + "." if altered else "none."),
        "",
        "| family | layers by kind | map | results | seconds |",
        "|---|---|---|---|---|",
    ]
    for name, r in read.items():
        made = ", ".join(f"{n} {kind}" for kind, n in r["kinds"].items())
        made += f"; not read: {len(r['unread'])} modules" if r["unread"] else ""
        results = size(r["results"]) if r["projected"] else "none"
        lines.append(
            f"| {short(name)} | {made} | {size(r['identity'])} | {results} | {r['seconds']:.1f} |"
        )
    lines += ["", "## Refused", "", "| family | reason |", "|---|---|"]
    lines += [f"| {short(k)} | {cell(r['reason'])} |" for k, r in refused.items()]
    failed = {k: r for k, r in rows.items() if r["outcome"] == "failed"}
    if failed:
        lines += ["", "## Failed, neither read nor refused", "", "| family | error |", "|---|---|"]
        lines += [f"| {k} | {cell(r['reason'])} |" for k, r in failed.items()]
    lines += [
        "",
        f"{len(unconfigured)} further classes of transformers do not run with small sizes that "
        "were not chosen for them, so nothing is said about them; families.json names them.",
        "",
    ]
    return "\n".join(lines)


def size(error: float) -> str:
    """Return one digit and the power of ten of an error."""
    return f"{error:.0e}".replace("e-0", "e-") if error else "0"


def short(name: str) -> str:
    """Return the last word of a family's name: a variant, a model, or a class of transformers."""
    part, _, rest = name.partition("/")
    return f"variant:{rest}" if part == "variants" else rest.split()[-1]


def cell(text: str) -> str:
    """Return the start of a text for a cell of a table."""
    text = " ".join(text.replace("|", "/").removeprefix("family: ").split())
    return text if len(text) <= REASON else text[:REASON].rsplit(" ", 1)[0] + " ..."


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write families.json and families.md.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all by default")
    parser.add_argument("--again", action="store_true", help="measure everything anew")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    path = HERE / "families.json"
    rows = json.loads(path.read_text()) if path.exists() else {}
    for part in options.parts or PARTS:
        if options.again:
            rows = {k: r for k, r in rows.items() if not k.startswith(f"{part}/")}
        for name, make in PARTS[part]():
            if f"{part}/{name}" in rows:
                continue
            rows[f"{part}/{name}"] = limited(make)
            print(f"{part}/{name}: {rows[f'{part}/{name}']['outcome']}", flush=True)
            path.write_text(as_json(rows), encoding="utf-8")
    order = list(PARTS)
    rows = dict(sorted(rows.items(), key=lambda item: order.index(item[0].partition("/")[0])))
    path.write_text(as_json(rows), encoding="utf-8")
    (HERE / "families.md").write_text(report(rows))


if __name__ == "__main__":
    main()
