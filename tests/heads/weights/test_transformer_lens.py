"""TransformerLens on the same weights: its compositions, factored matrices and eigenvalues."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import zoo
from heads.weights.families import together
from heads.weights.perturbed import perturb

import interp
from interp.heads.weights._composition import composition_matrices
from interp.model.locate.weights import head_weights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # not our warnings


@pytest.fixture(scope="module", params=["gpt2", "llama", "gpt_neox"])
def beside_lens(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("transformer_lens")
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        module = perturb(zoo.FAMILIES[request.param].build())
        theirs = copy.deepcopy(module)  # it rewires what it is given
        theirs.config.architectures = [type(theirs).__name__]
        bridge = build_bridge_from_module(theirs, type(theirs).__name__, hf_config=theirs.config)
        centred = request.param != "llama"  # an RMS norm sees the mean
        bridge.process_weights(fold_value_biases=False, center_writing_weights=centred)
    return interp.load(module, name=request.param), bridge


@pytest.mark.parametrize("kind", "qkv")
def test_compositions_agree(beside_lens, kind):
    model, bridge = beside_lens
    theirs = bridge.all_composition_scores(kind.upper())
    ours = composition_matrices(model, kind)
    assert len(ours) == 3
    for (earlier, later), (score, _) in ours.items():
        expected = theirs[earlier.layer, :, later.layer, :].detach()
        np.testing.assert_allclose(score, expected, atol=1e-6)


def test_norms_agree(beside_lens):
    model, bridge = beside_lens
    scale = head_weights(model, model.sites[0]).scale  # TransformerLens leaves it out of QK
    qk, ov = (x.norm().detach().flatten().numpy() for x in (bridge.QK, bridge.OV))
    np.testing.assert_allclose(together(model, "qk_norm"), qk * scale, rtol=1e-5)
    np.testing.assert_allclose(together(model, "ov_norm"), ov, rtol=1e-5)


def test_copying_agrees(beside_lens):
    model, bridge = beside_lens
    values = (bridge.W_E @ bridge.OV @ bridge.W_U).eigenvalues.detach()
    expected = (values.sum(-1).real / values.abs().sum(-1)).flatten().numpy()
    np.testing.assert_allclose(together(model, "ov_copying"), expected, atol=1e-5)
