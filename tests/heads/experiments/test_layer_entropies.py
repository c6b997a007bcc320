"""Entropy of what attention and MLPs write: of Gaussians, and of a layer that writes a constant."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.heads.outliers import layer_entropies
from interp.heads.outliers.entropies import FLOOR, gaussian_entropy

PROMPTS = [[5, 9, 12, 7, 6, 10], [8, 6, 5, 11, 13, 7], [9, 9, 5, 6]]


def test_entropies_are_those_of_gaussians() -> None:
    x = torch.randn(2, 4000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    found = gaussian_entropy(x * 5)
    assert found.tolist() == pytest.approx(
        [0.5 * math.log(2 * math.pi * math.e * 25)] * 2, abs=0.03
    )
    still = gaussian_entropy(torch.ones(1, 6, 3, dtype=torch.double))
    assert float(still) == pytest.approx(0.5 * math.log(2 * math.pi * math.e * FLOOR))


def test_a_layer_whose_attention_writes_a_constant_is_the_lowest(loaded) -> None:
    module: Any = copy.deepcopy(loaded("gpt2", "sdpa").module)
    module.transformer.h[1].attn.c_proj.weight.data.zero_()  # its bias is all that it writes
    model = interp.load(module, name="constant")
    found = layer_entropies(model, PROMPTS)
    rows = found.wide().set_index(["layer", "part"])
    assert rows.loc[(1, "attention"), "score"] == rows["score"].min()
    assert rows.loc[(1, "difference"), "score"] < rows.loc[(0, "difference"), "score"] - 5
    assert rows.loc[(1, "difference"), "null"] > rows.loc[(1, "difference"), "score"] + 5
    cache = model.capture([PROMPTS[0]], ["mlp_out"], layers=0)
    x = cache["mlp_out", 0].double()[0].numpy()
    wanted = np.mean(0.5 * np.log(2 * np.pi * np.e * (x.var(0) + FLOOR)))
    at = [*zip(found.stack, found.layer, found.part, strict=True)].index(("decoder", 0, "mlp"))
    assert found.per_prompt[at, 0] == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(OptionError, match="two tokens or more"):
        layer_entropies(model, [[5]])
