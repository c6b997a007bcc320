"""Size of OV circuits."""

from interp.heads.declaration import weights


@weights(unit="written per unit of stream", low=0.0, high=None, requires=("ov",))
def ov_norm(model):
    """How much a head writes of what it reads: the Frobenius norm of its OV circuit.

    Folded weights: the gain of the norm before is part of them, what it divides by is not.
    The same holds for a norm after the output projection (Gemma 2, OLMo 2). A head can have large
    weights and rest on a token with nothing to read: an ablation says what it does.

    Not for: ranking heads by effect: a large head may attend where there is nothing to read.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    return {site: model.weights_of(site).OV.norm() for site in model.sites}
