"""Sizes of pages and times to open them: attention of 12 x 12 heads, and tables of scores.

    python benchmarks/pages.py [--peers SITE_PACKAGES] [--repeats 5] [--only report|interp]

Patterns of a random GPT-2 of the small size at 32, 128 and 512 tokens, shown by
`interp.heads.patterns` and, where they are installed (or found in the given folder), by BertViz and
CircuitsVis, from the same arrays. Chromium opens each file without a network and reports the time
of `load`, of the first paint, and whether anything is drawn. Peers at 512 tokens get one layer of
the twelve: all of them would be gigabytes of text. The column states what was shown. Writes
pages.md and pages.json. `--only report` measures the pages of scores again and keeps the other
rows; `--only interp` measures all pages of `interp` and keeps the rows of the other tools.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp.circuits.result import Circuit
from interp.core.table import HeadTable
from interp.heads.patterns import View, long_view, view
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import atlas_page
from interp.report.circuit_graph import circuit_page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the browser that the tests drive

LENGTHS = (32, 128, 512)
LONG = 16_384
SCORES = "interp atlas"  # a page of scores
CIRCUITS = "interp circuit"
METRICS = (
    "induction",
    "previous_token",
    "duplicate_token",
    "first_token",
    "recency",
    "local_window",
    "streaming",
    "attention_distance",
    "entropy",
    "largest_weight",
    "current_token",
    "sink",
    "retrieval",
    "ov_copying",
    "copying_score",
    "ov_norm",
    "qk_norm",
    "ov_rank",
    "qk_rank",
    "echo",
)
LIMIT = 60  # seconds that a page may keep the browser busy
# What a page has drawn once it shows something.
DRAWN = {
    "interp": "document.querySelectorAll('svg.thumbs image, svg.map, .graph svg').length",
    "BertViz": "document.querySelectorAll('svg rect, svg line').length",
    "CircuitsVis": "document.querySelectorAll('canvas, img').length",
}


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return interp.load(GPT2LMHeadModel(GPT2Config()).eval(), name="random GPT-2", check=False)


def bertviz(which: str) -> Callable[[list, list[str]], str]:
    make = getattr(import_module("bertviz"), which)

    def page(layers: list, tokens: list[str]) -> str:
        body = make(layers, tokens, html_action="return").data
        return f"<!doctype html><html><body>{body}</body></html>"

    return page


def circuitsvis() -> Callable[[list, list[str]], str]:
    heads = import_module("circuitsvis.attention").attention_heads

    def page(layers: list, tokens: list[str]) -> str:
        every = torch.cat([layer[0] for layer in layers])
        shown = heads(every, tokens, mask_upper_tri=False)
        return f"<!doctype html><html><body>{shown.local_src}</body></html>"

    return page


def peers() -> Iterator[tuple[str, str, Callable | None]]:
    """Tool, what it is called here, and how it makes a page; None where it is not installed."""
    for tool, name, make in (
        ("BertViz", "BertViz model view", lambda: bertviz("model_view")),
        ("BertViz", "BertViz head view", lambda: bertviz("head_view")),
        ("CircuitsVis", "CircuitsVis attention heads", circuitsvis),
    ):
        try:
            yield tool, name, make()
        except ImportError:
            yield tool, name, None


def opened(path: Path, tool: str, repeats: int) -> dict[str, Any]:
    """Times in a browser of its own; of a page that keeps it busy for too long, only that."""
    from report.browser import started

    with started() as browser:
        limits = {"script": LIMIT * 1000, "pageLoad": LIMIT * 1000}
        browser.call("POST", "/timeouts", limits)
        browser.emulate("light", 1300)
        try:
            return timed(browser, path, tool, repeats)
        except OSError:  # what urllib says when chromedriver gives up, or does not answer at all
            os.kill(browser.process, signal.SIGKILL)
            return {"stuck_s": LIMIT}


def timed(browser: Any, path: Path, tool: str, repeats: int) -> dict[str, Any]:
    times = []
    for _ in range(repeats):
        browser.open(path)
        time.sleep(0.3)
        found = browser.wait(
            "const n = performance.getEntriesByType('navigation')[0];"
            "const p = performance.getEntriesByName('first-contentful-paint')[0];"
            "return n.loadEventEnd ? [n.loadEventEnd, p ? p.startTime : null] : null",
            LIMIT,
        )
        times.append(found)
    paints = [paint for _, paint in times if paint is not None]
    drawn = browser.run(f"return {DRAWN[tool]}")
    row = {
        "load_ms": statistics.median(load for load, _ in times),
        "load_ms_all": sorted(load for load, _ in times),
        "paint_ms": statistics.median(paints) if len(paints) == len(times) else None,
        "drawn": bool(drawn),
        "wants": sorted(url for url in browser.fetched() if not url.startswith("file:")),
    }
    if browser.run("return typeof openHead !== 'undefined'"):
        row["open_ms"] = statistics.median(card_opened(browser, i) for i in range(repeats))
    elif tool == "interp" and browser.run("return document.querySelector('svg.thumbs') !== null"):
        row["open_ms"] = statistics.median(head_opened(browser) for _ in range(repeats))
    return row


def head_opened(browser: Any) -> float:
    script = (
        "const done = arguments[0], t = performance.now();"
        "open(0, 5).then(() => requestAnimationFrame(() => done(performance.now() - t)));"
    )
    return browser.call("POST", "/execute/async", {"script": script, "args": []})


def card_opened(browser: Any, at: int) -> float:
    script = (
        "const done = arguments[1], t = performance.now(), model = atlas.models[0];"
        "openHead(model.id, model.labels[arguments[0]]);"
        "requestAnimationFrame(() => done(performance.now() - t));"
    )
    return browser.call("POST", "/execute/async", {"script": script, "args": [at]})


def attention_pages() -> Iterator[tuple[str, str, str, int, Callable[[], str]]]:
    """Tool, name, what is shown, tokens, and how its page is made."""
    model = gpt2()
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        ids = rng.integers(0, 50_000, n).tolist()
        tokens = [f"tok{i}" for i in range(n)]
        layers = [x.contiguous() for x in model.capture([ids]).by_site("pattern").values()]
        whole = "144 heads"
        ours = View.of_patterns(layers, tokens)
        yield "interp", "interp", whole, n, ours.html
        if n == LENGTHS[-1]:
            yield (
                "interp",
                "interp, nothing left out",
                whole,
                n,
                lambda v=ours: v.html(budget=10**9),
            )
        full = view(model, ids)
        yield "interp", "interp, with q and k", whole, n, full.html
        part = layers[:1] if n == LENGTHS[-1] else layers
        shown = f"{12 * len(part)} heads"
        for tool, name, make in peers():
            if make is not None:
                yield tool, name, shown, n, lambda m=make, p=part, t=tokens: m(p, t)
    long = interp.load("bundled:induction")
    half = rng.integers(10, long.d_vocab, LONG // 2).tolist()
    found = long_view(long, half + half)
    yield "interp", "interp, long view", "16 heads in blocks", LONG, found.html


def atlas_pages() -> Iterator[tuple[str, str, str, int, Callable[[], str]]]:
    """Atlases of scores with errors and nulls; a few heads of each metric stand out."""
    rng = np.random.default_rng(0)
    for layers, heads in ((12, 12), (32, 32), (100, 100)):
        tables = []
        for metric in METRICS:
            score = rng.uniform(0.02, 0.08, (layers, heads))
            score[rng.integers(layers, size=4), rng.integers(heads, size=4)] = 0.9
            null = rng.uniform(0.04, 0.06, (layers, heads))
            tables.append(
                HeadTable.from_scores(
                    model="random",
                    metric=metric,
                    score=score,
                    sem=0.01,
                    n=16,
                    null=null,
                    null_sem=0.004,
                    unit="fraction",
                    provenance={},
                )
            )
        table = HeadTable.concat(tables)
        shown = f"{layers * heads:,} heads x {len(METRICS)} metrics"
        yield "interp", SCORES, shown, 0, lambda t=table: atlas_page(build_atlas(t))


def circuit_pages() -> Iterator[tuple[str, str, str, int, Callable[[], str]]]:
    """Circuits with made-up effects of every head and 5,000 edges."""
    for layers, heads in ((12, 12), (32, 32), (100, 100)):
        found = made_circuit(layers, heads)
        shown = f"{layers * heads:,} heads, {len(found.edges):,} edges"
        yield "interp", CIRCUITS, shown, 0, lambda c=found: circuit_page(c).decode()


def made_circuit(layers: int, heads: int, edges: int = 5_000) -> Circuit:
    rng = np.random.default_rng(0)
    names = [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]
    nodes = ("embed", *names, *(f"mlp{i}" for i in range(layers)))
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < edges:
        a, b = sorted(rng.integers(len(names), size=2).tolist())
        if a // heads < b // heads:
            pairs[names[a], f"{names[b]}.{'qkv'[len(pairs) % 3]}"] = None
    return Circuit(
        "random",
        layers,
        heads,
        "made",
        "attribution_patching",
        "edge",
        nodes,
        rng.normal(size=len(nodes)) ** 3,
        np.full(len(nodes), 0.1),
        32,
        "logits",
        tuple(pairs),
        rng.normal(size=edges) ** 3,
        {},
        made={},
    )


def measure(repeats: int, sources: Sequence[Iterator]) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "page.html"
        for source in sources:
            for tool, label, shown, tokens, make in source:
                start = time.perf_counter()
                page = make()
                seconds = time.perf_counter() - start
                path.write_text(page, encoding="utf-8")
                row = {
                    "tool": tool,
                    "page": label,
                    "shown": shown + left_out(page),
                    "tokens": tokens,
                    "bytes": path.stat().st_size,
                    "write_s": seconds,
                }
                rows.append(row | opened(path, tool, repeats))
                print(json.dumps({k: v for k, v in rows[-1].items() if k != "load_ms_all"}))
    return rows


def left_out(page: str) -> str:
    """What a page of ours says it shows with less detail."""
    pooled = re.search(r"(\d+) heads? (?:is|are) in full.*?stand for (\d+) tokens", page)
    if pooled:
        return f", {pooled[1]} in full, the others in blocks of {pooled[2]}"
    return ", in 8 bits" if "Weights are stored in 8 bits" in page else ""


def known(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def seen(row: dict[str, Any]) -> str:
    """The last four columns."""
    if "stuck_s" in row:
        return f"more than {row['stuck_s']} s | - | - | nothing by then"
    paint = "-" if row["paint_ms"] is None else f"{row['paint_ms']:.0f} ms"
    opens = f"{row['open_ms']:.0f} ms" if "open_ms" in row else "-"
    shows = "all" if row["drawn"] else "nothing offline" if row["wants"] else "nothing"
    return f"{row['load_ms']:.0f} ms | {paint} | {opens} | {shows}"


def write(rows: list[dict[str, Any]], repeats: int, browser: str, before: dict[str, Any]) -> None:
    versions = {"torch": torch.__version__, "python": platform.python_version(), "browser": browser}
    versions |= {name: known(name) or before.get(name) for name in ("bertviz", "circuitsvis")}
    about = versions | {"repeats": repeats, "machine": platform.machine()}
    (HERE / "pages.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    lines = [
        "# Pages: bytes and time to open",
        "",
        "Patterns of a random GPT-2 of the small size (12 layers x 12 heads), as files that "
        f"{browser} opens from disk without a network; medians of {repeats} opens on two CPU cores "
        "without a GPU. Unless told otherwise, a page of attention keeps to 1.5 MB and a page of "
        "scores to 10 MB. Made by `python benchmarks/pages.py`.",
        "",
        "| page | tokens | shown | MB | written in | load | first paint | a head opens | shows |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        tokens = f"{row['tokens']:,}" if row["tokens"] else "-"
        wrote = f"{row['bytes'] / 1e6:.2f} | {row['write_s']:.2f} s"
        lines.append(f"| {row['page']} | {tokens} | {row['shown']} | {wrote} | {seen(row)} |")
    missing = [name for name in ("bertviz", "circuitsvis") if versions[name] is None]
    lines.append("")
    if missing:
        lines += [f"Not installed, so not measured: {', '.join(missing)}.", ""]
    peers_named = ", ".join(f"{n} {versions[n]}" for n in ("bertviz", "circuitsvis") if versions[n])
    if peers_named:
        lines += [
            f"Beside it: {peers_named}, given the same tensors. Their pages of 512 tokens hold one "
            "layer, a twelfth of what the pages of `interp` hold.",
            "",
        ]
    (HERE / "pages.md").write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", type=Path, help="site-packages with bertviz and circuitsvis")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["report", "interp"], help="keep the other rows")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    from report.browser import started

    with started() as browser:
        name = browser.run("return navigator.userAgent")
    before = json.loads((HERE / "pages.json").read_text())
    if options.only == "report":
        rows = [row for row in before["rows"] if row["page"] not in (SCORES, CIRCUITS)]
        rows += measure(options.repeats, [atlas_pages(), circuit_pages()])
    elif options.only:
        sources = attention_pages(), atlas_pages(), circuit_pages()
        ours = [(row for row in source if row[0] == "interp") for source in sources]
        measured = iter(measure(options.repeats, ours))
        rows = [next(measured) if row["tool"] == "interp" else row for row in before["rows"]]
    else:
        rows = measure(options.repeats, [attention_pages(), atlas_pages(), circuit_pages()])
    number = name.partition("Chrome/")[2].partition(".")[0]
    write(rows, options.repeats, f"Chromium {number}", before["about"] if options.only else {})


if __name__ == "__main__":
    main()
