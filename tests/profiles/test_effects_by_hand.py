"""Effects of heads on a corpus are equal to what is computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from profiles.effects_by_hand import (
    FEW,
    given_to,
    look_of,
    loss_of,
    means,
    plain,
    projection,
    score,
    windows_of,
)

import interp
from interp.core.prompts import Prompts
from interp.profiles.gradient_look import gradient_look
from interp.profiles.predictions import Prediction
from interp.profiles.rows_read import FLOOR
from interp.profiles.writes import HeadWrites


def test_ablation_equals_one_by_hand(loaded: Any) -> None:
    """Plain hooks put the mean in place of a head; the loss is that of the sampled queries."""
    model = loaded("llama", "eager")
    rows = plain(model, 10, 14)
    asked = ["L0H1", "L1H0"]
    found = interp.profile(model, rows, rules=FEW, n_queries=6, heads=asked)
    windows = windows_of(rows, model, n_queries=6)
    mean = means(model, windows)
    for layer, head in ((0, 1), (1, 0)):
        site = model.site(layer)
        at = slice(head * site.d_v, (head + 1) * site.d_v)

        def ablated(x: torch.Tensor, at: slice = at, layer: int = layer) -> torch.Tensor:
            x = x.clone()
            x[..., at] = mean[layer][at]
            return x

        total, n = 0.0, 0
        for window in windows:
            with torch.no_grad():
                clean = loss_of(model, window)
                with given_to(projection(model, layer), ablated):
                    changed = loss_of(model, window)
            scored = window.queries[window.queries < len(window.ids) - 1]
            total += float((changed - clean).double()[scored].sum())
            n += len(scored)
        assert score(found, f"L{layer}H{head}", "loss_without") == pytest.approx(
            total / n, abs=1e-6
        )


def test_the_estimate_equals_plain_autograd(loaded: Any) -> None:
    model = loaded("llama", "eager")
    rows = plain(model, 10, 14)
    found = interp.profile(model, rows, rules=FEW, n_queries=6, n_ablated=0)
    windows = windows_of(rows, model, n_queries=6)
    mean = means(model, windows)
    n = sum(len(window.ids) - 1 for window in windows)
    for site in model.sites:
        total = torch.zeros(site.n_heads, dtype=torch.double)
        square = torch.zeros(site.n_heads, dtype=torch.double)
        for window in windows:
            seen: list[torch.Tensor] = []

            def keep(x: torch.Tensor, seen: list = seen) -> torch.Tensor:
                x = x.detach().requires_grad_()
                seen.append(x)
                return x

            with given_to(projection(model, site.layer), keep):
                loss = loss_of(model, window).sum()
            [slope] = torch.autograd.grad(loss, seen)
            change = (mean[site.layer] - seen[0].detach()) * slope
            each = change[0].sum(0).view(site.n_heads, -1).double().sum(1)
            total, square = total + each, square + each**2 / 2
        for head in range(site.n_heads):
            name = f"L{site.layer}H{head}"
            value = score(found, name, "loss_without_estimate")
            assert value == pytest.approx(float(total[head]) / n, abs=1e-7)
            value = score(found, name, "ablation_divergence_estimate")
            assert value == pytest.approx(float(square[head]) / n, rel=1e-4)
            with pytest.raises(KeyError):
                score(found, name, "loss_without")


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_direct_effects_are_those_of_the_lens(loaded: Any, family: str) -> None:
    """Norms after the projection, biases and soft caps, against the sums of single positions."""
    model = loaded(family, "eager")
    rows = plain(model, 8, 7)
    windows = windows_of(rows, model, n_queries=None)
    look = look_of(model, windows)
    writes = HeadWrites(model, model.sites, windows[0].ids)
    assert writes.why_not == ""
    window = windows[0]
    sums = gradient_look(look, writes, [Prediction().of(window)], [np.arange(2)], lambda: None)
    cache = model.capture(
        Prompts((window.ids,)), ("resid_pre", "resid_post", "result", "z", "pattern")
    )
    last = cache["resid_post", model.n_layers - 1][0]
    logits = cache.logits[0].double()
    cap = writes.end.cap
    for site in model.sites:
        place = look.places[site]
        direct = torch.zeros(site.n_heads, dtype=torch.double)
        size = torch.zeros(site.n_heads)
        copied = torch.zeros(site.n_heads, dtype=torch.double)
        for t in range(len(window.ids)):
            result = cache["result", site.layer][0, t]
            if t < len(window.ids) - 1:
                towards = -logits[t].softmax(-1)
                towards[window.ids[t + 1]] += 1
                if cap is not None:
                    towards = towards * (1 - (logits[t] / cap) ** 2)
                direct += result.double() @ writes.end.back(towards, last[t])[0]
            size += result.norm(dim=-1) / cache["resid_pre", site.layer][0, t].norm()
            if t < 2:
                continue
            pattern = cache["pattern", site.layer][0, :, t, 1 : t + 1].double()
            each = []
            for key in range(1, t + 1):
                one = torch.zeros(logits.shape[-1], dtype=torch.double)
                one[window.ids[key]] = 1
                each.append(result.double() @ writes.end.back(one, last[t])[0])
            effect = torch.stack(each, 1)
            off = pattern.sum(1)
            visible = cache["pattern", site.layer][0, 0, t, 1 : t + 1] > 0
            even = effect[:, visible].mean(1)
            copied += ((pattern * effect).sum(1) - off * even) * (off >= FLOOR)
        assert sums.direct[0, place] == pytest.approx(direct.numpy(), abs=2e-5)
        assert sums.size[0, place] == pytest.approx(size.numpy(), rel=1e-3)
        assert sums.copied[0, place] == pytest.approx(copied.numpy(), abs=2e-5)
