"""Loss of a model in which a head attends as a hypothesis says, in place of its own pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.prompts import Prompts
from interp.profiles.claim_fit import MODELS, ClaimFit, ClaimPage, ClaimPages
from interp.profiles.first_look import uniform_rows
from interp.profiles.log_linear import log_rows
from interp.profiles.rows_read import AttentionRows, sink_of

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.profiles.corpus import TextWindow

PATTERNS = ("own", "even", "described")
"""Patterns off the sink under which the loss is measured; the sink's part is the head's own.

Of a limited hypothesis, only the rows of its queries are another pattern's.
"""


@torch.no_grad()
def losses_by_pattern(
    pages: ClaimPages, fit: ClaimFit, judged: str, windows: Sequence[TextWindow]
) -> Float[np.ndarray, "document pattern"]:
    """Return the summed loss of the next tokens of each document, in nats."""
    return np.stack([_losses(pages, fit, judged, window) for window in windows])


def _losses(
    pages: ClaimPages, fit: ClaimFit, judged: str, window: TextWindow
) -> Float[np.ndarray, " pattern"]:
    model, n, head = pages.model, len(window.ids), fit.head
    every = replace(window, queries=np.arange(n))
    sink, rows = sink_of(window, pages.reader.special), torch.arange(n)
    changes = torch.full((n, 1), pages.hypothesis.at is None)
    changes[window.queries] = True
    log_model: list[Tensor] = []

    def described(visible: Tensor) -> Tensor:
        if not log_model:
            claim = pages.hypothesis.features(pages.reader.read(window.ids), every.queries)
            blank = torch.zeros(0)
            page = ClaimPage(every, fit.pages[0].rows, claim, *[blank] * 4)
            logits = page.features(MODELS[judged]).logits(fit.parameters[judged])
            log_model.append(log_rows(logits, visible)[head])
        return log_model[0]

    losses = []
    for pattern in PATTERNS:

        def visit(site: Site, call: Call, real: Tensor, pattern: str = pattern) -> Any:
            if site != pages.site or pattern == "own":
                return
            read = AttentionRows.read(call, rows, sink)
            even = pattern == "even"
            log = uniform_rows(read.visible) if even else described(read.visible)
            changed = call.pattern(rows.to(call.z.device)).clone()
            row = read.weight[head, :, None] * torch.exp(log) * read.visible
            changed[0, head] += ((row - read.mass[head]) * changes).to(changed)
            z = call.z.clone()
            z[:, head] = call.mix(changed)[:, head].to(z)
            call.z = z

        with model.visited(visit, stage="mix"):
            logits = model.run(Prompts((window.ids,)))
        log_p = logits[0, :-1].float().log_softmax(-1)
        truth = torch.as_tensor(window.ids[1:], device=log_p.device)
        losses.append(float(-log_p.gather(1, truth[:, None]).sum(dtype=torch.double)))
    return np.array(losses)
