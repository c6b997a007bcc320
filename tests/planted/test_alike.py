"""The parallel form of the training gives the same output as the form of attention itself."""

from __future__ import annotations

import torch
from together import over

from training import alike, forms


@over("form", alike.forms())
def test_the_parallel_form_is_the_form(form: str) -> None:
    rule = forms.build(form, seed=1).blocks[0].attention.rule
    x = torch.randn(2, 12, rule.shape.d_model, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        given = rule.prepare(x)
        torch.testing.assert_close(
            alike.in_parallel(rule, given), rule.mix(given), atol=1e-4, rtol=1e-3
        )
