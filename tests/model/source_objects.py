"""The same tiny weights as each package's users hold them."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
import zoo

import interp
from interp.model.sources.packages import wrapped

# What packages do when imported, and while they wrap a model, is not ours to fix.
NOT_OURS = (
    "ignore:.*:DeprecationWarning",
    "ignore:.*:FutureWarning",
    "ignore::UserWarning:transformer_lens.*",
)
NO_BRIDGE = (
    "deepseek_v32",
    "biogpt",
    "ctrl",
    "xlm_roberta",
    "electra",
    "distilbert",
    "modernbert",
    "albert",
    "whisper",
    "dinov2",
    "dinov2_with_registers",
    "beit",
    "swin",
    "clip",
    "siglip",
    "falcon_gqa",
    "mpnet",
    "roformer",
    "deberta",
    "deberta_v2",
    "xlnet",
)
NO_ATTENTION = ("fnet", "squeezebert", "yoso")
TEXT = [n for n, f in zoo.FAMILIES.items() if f.kind in ("text", "seq2seq")]


@cache
def tokenizer() -> Any:
    """Words t00 to t63, of which t03 is a mask."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i:02}": i for i in range(64)}, unk_token="t00"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="t00", eos_token="t02", mask_token="t03"
    )


def build(name: str, attention: str | None = None) -> Any:
    family = zoo.FAMILIES[name]
    return family.build(attention or family.attentions[0])


def bridge_of(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wrapped("transformer-lens", build(name), None)


def nnsight_of(name: str, attention: str | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wrapped("nnsight", build(name, attention), tokenizer())


def load_as(source: str, name: str) -> interp.Model:
    """The same weights through one of the four ways, with the family's own first kernel."""
    if source == "transformers":
        return interp.load(build(name), name=name)
    if source == "transformer-lens":
        kernel = zoo.FAMILIES[name].attentions[0]
        return interp.load(bridge_of(name), name=name, attention=kernel)
    return interp.load(nnsight_of(name), name=name, remote="local" if "remote" in source else False)


def same(got: torch.Tensor, want: torch.Tensor, tolerance: float = 3e-6) -> None:
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance, equal_nan=True)
