"""Checks of how heads are read, and causal checks of scores, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.heads.causal_check.result import Confirmation
    from interp.model.self_check import SelfCheck
    from interp_kernels.self_test import SelfTest


def check_text(results: Sequence[SelfCheck]) -> str:
    """Format a check: a line per layer, then the largest error and the modules not read."""
    [check] = results
    names = [f"{s.site.name}{' with a picture' if s.picture else ''}" for s in check.sites]
    width = max(map(len, names))
    lines = [f"  {'':<{width}}  pattern·v = z  heads = output"]
    for name, s in zip(names, check.sites, strict=True):
        result = "-" if s.result_error is None else f"{s.result_error:.1e}"
        verdict = "ok" if s.passed(check.tolerance) else f"FAILS in {s.site.module}"
        note = f" ({s.note})" if s.note else ""
        lines.append(f"  {name:<{width}}  {s.pattern_error:>13.1e}  {result:>14}  {verdict}{note}")
    largest = max(max(s.pattern_error, s.result_error or 0.0) for s in check.sites)
    verdict = "passed" if check.passed else "FAILED: its scores would not describe this model"
    lines.append(f"  {verdict}; largest error {largest:.1e}, allowed {check.tolerance:.0e}")
    if check.unread:
        lines.append(f"  not read (no softmax attention seen there): {', '.join(check.unread)}")
    if check.unread_why:
        lines.append(f"  towers not read: {check.unread_why}")
    if check.unused:
        from interp.model.surplus import described

        lines.append(f"  {described(check.unused)}")
    for test in check.kernels:
        lines += _kernels(test)
    return "\n".join(lines)


def _kernels(test: SelfTest) -> list[str]:
    """Format a comparison of kernels: a line per backend, then one per result that is wrong."""
    from interp_kernels.self_test import TIMED

    lines = [f"  kernels on {test.device}: {test.width.text()}"]
    if not test.compared:
        return [*lines, "    none of this package's kernels runs there"]
    sdpa = test.seconds.get("sdpa")
    lines.append(f"    {'':<10}  results  wrong  error / allowed  ms for {TIMED} tokens  of SDPA")
    for name in dict.fromkeys(row.backend for row in test.compared):
        mine = [row for row in test.compared if row.backend == name]
        wrong = [row for row in mine if not row.passed]
        factor = max(row.error / row.allowed if row.allowed else math.inf for row in mine)
        ms = 1000 * test.seconds[name] if name in test.seconds else math.nan
        of = f"{test.seconds[name] / sdpa:.2g}x" if sdpa and name in test.seconds else "-"
        counts = f"{len(mine):>7}  {len(wrong):>5}  {factor:>15.2g}"
        lines.append(f"    {name:<10}  {counts}  {ms:>18.3g}  {of:>7}")
        lines += [
            f"      WRONG: {row.result} ({row.call}): error {row.error:.1e}, allowed "
            f"{row.allowed:.1e}{f'; {row.note}' if row.note else ''}"
            for row in wrong
        ]
    lines.append("    SDPA is PyTorch's own attention, which gives the output alone")
    if test.device.startswith("cuda"):
        used = "Triton" if test.passed("triton") else "PyTorch in blocks, not Triton"
        lines.append(f"    kept for this card: by default such heads are computed by {used}")
    return lines


def confirmation_text(results: Sequence[Confirmation]) -> str:
    """Format the heads of each score, then the result of each task."""
    [confirmed] = results
    lines = [confirmed.checks[0].model]
    seen, last = None, {check.metric: check for check in confirmed}
    for check in confirmed:
        if check.metric != seen:
            lines.append(f"  {check.metric}: {', '.join(check.heads)}")
        seen = check.metric
        first, *rest = [*check.parts(), *check.doubts()]
        lines.append(f"    {check.purpose:<8}  {first}")
        lines += [f"              {line}" for line in rest]
        if check is last[check.metric]:
            lines.append(f"    {confirmed.conclusions[check.metric].sentence}")
    lines += [
        f"  {m}: {confirmed.conclusions[m].sentence}" for m in confirmed.notes if m not in last
    ]
    return "\n".join([*lines, ""])
