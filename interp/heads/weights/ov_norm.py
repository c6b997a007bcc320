"""Size of OV circuits."""

from interp.heads.declaration import weights
from interp.model.locate.sites import circuit_sites


@weights(unit="written per unit of stream", low=0.0, high=None, requires=("ov",))
def ov_norm(model):
    """Frobenius norm of a head's OV circuit: output size per unit of input.

    Weights are folded: they include the gain of the preceding norm, but not its division. The same
    holds for a norm after the output projection (Gemma 2, OLMo 2). A head can have large weights
    and attend to a token without content: an ablation shows its effect.

    Not for: ranking heads by effect: a head with large weights may attend to tokens without
    content.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    return {site: model.weights_of(site).OV.norm() for site in circuit_sites(model.sites)}
