"""What of each family's weights is read and what is refused; inputs at position 0; scores."""

from __future__ import annotations

import numpy as np
import torch
import zoo
from torch import Tensor

import interp
from interp.core.registry import METRICS

LATENT = "values of another module (a latent, as in multi-head latent attention)"
SUM = "scores are a sum of products, no single q and k give them"
NONE = "not columns of the output of a single matrix"
NO_MODULE = "no module takes the heads' outputs as its input"

# Every part of every family that is refused, with the reason; all others are read.
UNREAD = {
    "deepseek_v3": {"q": LATENT, "k": NONE, "v": LATENT},
    "deepseek_v32": {"q": LATENT, "k": NONE, "v": LATENT},
    "deberta": {"q": SUM, "k": SUM},
    "deberta_v2": {"q": SUM, "k": SUM},
    "xlnet": {"q": SUM, "k": SUM, "v": NONE, "o": NO_MODULE},
}
NONLINEAR = "a nonlinear layer precedes the unembedding"
NO_LOGITS = "its output is not logits"
NO_TOKENS = "not made from token ids"
NO_VOCABULARY = (
    dict.fromkeys(
        (
            "bert",
            "roberta",
            "xlm_roberta",
            "electra",
            "distilbert",
            "modernbert",
            "albert",
            "mpnet",
            "roformer",
            "deberta",
            "deberta_v2",
        ),
        NONLINEAR,
    )
    | dict.fromkeys(
        ("vit", "deit", "dinov2", "dinov2_with_registers", "beit", "swin", "clip", "siglip"),
        NO_LOGITS,
    )
    | dict.fromkeys(("wav2vec2", "xlnet"), NO_TOKENS)
)
GATED = {"qwen3_next": "z is gated entry by entry"}

READ = [name for name, f in zoo.FAMILIES.items() if "refused" not in f.features]
NORMED = [
    n for n in READ if "qk-norm" in zoo.FAMILIES[n].features
]  # Qwen3, OLMo 2, Gemma 3, Llama 4, ...


READING_TOKENS = [n for n in READ if zoo.FAMILIES[n].kind in ("text", "seq2seq") and n != "xlnet"]


def single_tokens(name: str) -> dict[str, Tensor]:
    """Twelve prompts at position 0, where no rotary embedding turns; whole inputs of towers."""
    family = zoo.FAMILIES[name]
    if family.kind in ("text", "seq2seq"):
        given = family.inputs(batch=12, length=5, seed=3)
        return {k: v[:, :1] for k, v in given.items()}
    return family.inputs(seed=3)


def along(got: Tensor, want: Tensor) -> Tensor:
    """The factor per token and head, last axis gone, by which `got` is `want`; else it fails."""
    factor = (got * want).sum(-1) / got.square().sum(-1)
    close = 2e-5 * float(want.abs().max())
    torch.testing.assert_close(got * factor[..., None], want, rtol=0, atol=close)
    return factor


NAMES = sorted(n for n, e in METRICS.items() if e.kind == "weights")


def scores(model: interp.Model, name: str, **options) -> dict[tuple[str, int], np.ndarray]:
    found = METRICS.load(name).bind(**options).from_weights(model)
    return {(s.stack, s.layer): x.double().numpy() for s, x in found.items()}


def together(model: interp.Model, name: str, **options) -> np.ndarray:
    return np.concatenate(list(scores(model, name, **options).values()))
