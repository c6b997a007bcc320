"""`Dictionary`: a sparse dictionary or transcoder, its encoder and decoder for each architecture.

With x' = x - b_dec (x' = x for a transcoder or `subtract=False`), the codes are

    standard   relu(x' W_enc + b_enc)
    topk       the k largest of x' W_enc + b_enc at each position, through a relu
    jumprelu   pre = x' W_enc + b_enc where pre > threshold and pre > 0, otherwise 0
    gated      relu(x' (W_enc exp(r_mag)) + b_mag) where x' W_enc + b_gate > 0

and the reconstruction is codes W_dec + b_dec, for a transcoder with a skip also + x W_skip. A batch
TopK dictionary is trained with k codes per position on average over a batch; it is kept as jumprelu
with one threshold, so that a code does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, UnknownName
from interp.model.layer_tensors import PLACES

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

ARCHITECTURES = ("standard", "topk", "jumprelu", "gated")
EXTRA = {
    "standard": (),
    "topk": (),
    "jumprelu": ("threshold",),
    "gated": ("b_gate", "b_mag", "r_mag"),
}
"""Parameters `[d_sae]` of each architecture beside the four that all have."""


class DictionaryMismatch(OptionError):
    """Dictionary that belongs to another model, layer or width than it is used on."""


@dataclass(frozen=True, eq=False, repr=False)
class Dictionary:
    """Sparse dictionary of the activations at one place of one layer, or a transcoder.

    Args:
        architecture: one of `ARCHITECTURES`.
        W_enc: encoder; column f reads feature f.
        W_dec: decoder; row f is what feature f writes.
        b_enc: bias of the encoder; zeros for gated, whose biases are `b_gate` and `b_mag`.
        b_dec: bias of the output.
        site: place that is read, of `interp.model.layer_tensors.PLACES`.
        layer: layer of the attention.
        stack: attention stack.
        n_heads: number of heads that z is the concatenation of; None at other places.
        site_out: place that is reconstructed; the same as `site` unless it is a transcoder.
        parts: the parameters of the architecture; see `EXTRA`, and `W_skip [d_out, d_in]`.
        k: number of codes per position of topk.
        rescale: of topk: codes are chosen after multiplication by the norm of their decoder row.
        subtract: whether `b_dec` is subtracted from the input.
        model: name and hash of the model; empty if unknown.
        about: how it was made, as plain data.
    """

    architecture: str
    W_enc: Float[Tensor, "d_in d_sae"]
    W_dec: Float[Tensor, "d_sae d_out"]
    b_enc: Float[Tensor, " d_sae"]
    b_dec: Float[Tensor, " d_out"]
    site: str
    layer: int
    stack: str = "decoder"
    n_heads: int | None = None
    site_out: str = ""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    k: int | None = None
    rescale: bool = False
    subtract: bool = True
    model: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise UnknownName("architecture", self.architecture, ARCHITECTURES)
        object.__setattr__(self, "site_out", self.site_out or self.site)
        for name in (self.site, self.site_out):
            if name not in PLACES:
                raise UnknownName("place", name, PLACES)
        d_in, d_sae = self.W_enc.shape
        d_out = self.W_dec.shape[1]
        parameters = {"W_dec": self.W_dec, "b_enc": self.b_enc, "b_dec": self.b_dec} | dict(
            self.parts
        )
        wanted = {"W_dec": (d_sae, d_out), "b_enc": (d_sae,), "b_dec": (d_out,)}
        wanted |= dict.fromkeys(EXTRA[self.architecture], (d_sae,))
        if "W_skip" in self.parts:
            wanted["W_skip"] = (d_out, d_in)
        shapes = {name: tuple(x.shape) for name, x in parameters.items()}
        if shapes != wanted:
            raise OptionError(
                f"a {self.architecture} dictionary with an encoder of {d_in} x {d_sae} needs "
                f"parameters of shapes {wanted}, not {shapes}"
            )
        if not self.is_transcoder and d_in != d_out:
            raise OptionError(f"the decoder writes {d_out} entries and the encoder reads {d_in}")
        if self.architecture == "topk" and not 1 <= (self.k or 0) <= d_sae:
            raise OptionError(f"k={self.k} of a topk dictionary; give 1 to {d_sae}")
        if self.n_heads is not None and d_in % self.n_heads:
            raise OptionError(f"{d_in} entries cannot be split over {self.n_heads} heads")

    @property
    def d_in(self) -> int:
        """Entries that are read at each position."""
        return self.W_enc.shape[0]

    @property
    def d_out(self) -> int:
        """Entries that are reconstructed at each position."""
        return self.W_dec.shape[1]

    @property
    def d_sae(self) -> int:
        """Number of features."""
        return self.W_enc.shape[1]

    @property
    def is_transcoder(self) -> bool:
        """True if it reads one place and reconstructs another."""
        return self.site_out != self.site

    def pre(self, x: Float[Tensor, "*at d_in"]) -> Float[Tensor, "*at d_sae"]:
        """Compute the codes before their activation; for gated those of the gate."""
        x = x.to(self.W_enc)
        if self.subtract and not self.is_transcoder:
            x = x - self.b_dec
        bias = self.parts["b_gate"] if self.architecture == "gated" else self.b_enc
        return x @ self.W_enc + bias

    def encode(self, x: Float[Tensor, "*at d_in"]) -> Float[Tensor, "*at d_sae"]:
        """Compute the codes of activations."""
        pre = self.pre(x)
        if self.architecture == "standard":
            return pre.relu()
        if self.architecture == "jumprelu":
            return pre.relu() * (pre > self.parts["threshold"])
        if self.architecture == "gated":
            size = (pre - self.parts["b_gate"]) * self.parts["r_mag"].exp() + self.parts["b_mag"]
            return size.relu() * (pre > 0)
        assert self.k is not None
        if self.rescale:
            pre = pre * self.W_dec.norm(dim=1)
        best = pre.topk(self.k, -1)
        return torch.zeros_like(pre).scatter(-1, best.indices, best.values.relu())

    def decode(
        self, f: Float[Tensor, "*at d_sae"], x: Float[Tensor, "*at d_in"] | None = None
    ) -> Float[Tensor, "*at d_out"]:
        """Compute the reconstruction from codes."""
        f = f / self.W_dec.norm(dim=1) if self.rescale else f
        y = f @ self.W_dec + self.b_dec
        if "W_skip" not in self.parts:
            return y
        if x is None:
            raise OptionError("a transcoder with a skip decodes codes and input; give x too")
        return y + x.to(y) @ self.parts["W_skip"].T

    def __call__(self, x: Float[Tensor, "*at d_in"]) -> Float[Tensor, "*at d_out"]:
        """Compute the reconstruction of activations."""
        return self.decode(self.encode(x), x)

    def written(self) -> Float[Tensor, "d_sae d_out"]:
        """Return what one unit of each code writes."""
        return self.W_dec / self.W_dec.norm(dim=1, keepdim=True) if self.rescale else self.W_dec

    def chosen(self, features: Sequence[int]) -> tuple[int, ...]:
        """Return features as numbers of this dictionary."""
        numbers = tuple(int(f) for f in features)
        if not numbers or min(numbers) < 0 or max(numbers) >= self.d_sae:
            raise OptionError(f"features {list(numbers[:5])}; give some of 0 to {self.d_sae - 1}")
        return numbers

    def head_share(self, of: str = "decoder") -> Float[Tensor, "d_sae head"]:
        """Return the share of each head in each feature of z: the norm of its slice of the row."""
        if self.n_heads is None:
            raise OptionError(f"head shares need a dictionary of z, not of {self.site}")
        if of not in ("decoder", "encoder"):
            raise UnknownName("side", of, ("decoder", "encoder"))
        rows = self.W_dec if of == "decoder" else self.W_enc.T
        size = rows.unflatten(1, (self.n_heads, -1)).norm(dim=2)
        return size / size.sum(1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)

    def site_in(self, model: Model, *, other_weights: bool = False) -> Site:
        """Return the attention layer of a model that this dictionary belongs to."""
        from interp.model.layer_tensors import place_width, require_place

        what = f"the dictionary of {self.site} of {self.stack}.{self.layer}"
        sites = {(s.stack, s.layer): s for s in model.sites}
        site = sites.get((self.stack, self.layer))
        if site is None:
            raise DictionaryMismatch(
                f"{what}: {model.name} has no such layer; it has "
                f"{', '.join(s.name for s in model.sites)}"
            )
        for name, width in ((self.site, self.d_in), (self.site_out, self.d_out)):
            require_place(name, site)
            mine = place_width(model, name, site)
            if mine != width:
                raise DictionaryMismatch(
                    f"{what} has {width} entries at {name}, and {model.name} has {mine}; use the "
                    "model that it was trained on"
                )
        mine = self.model.get("hash")
        if mine and mine != model.content_hash and not other_weights:
            raise DictionaryMismatch(
                f"{what} was trained on {self.model.get('name')} ({str(mine)[:12]}), and the "
                f"weights of {model.name} ({model.content_hash[:12]}) differ; other_weights=True "
                "accepts them"
            )
        return site

    def to(self, dtype: torch.dtype) -> Dictionary:
        """Return the dictionary with parameters of another dtype."""
        return self.mapped(lambda x: x.to(dtype))

    def mapped(self, change: Any) -> Dictionary:
        """Return the dictionary with a function applied to every parameter."""
        four = {name: change(getattr(self, name)) for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
        return replace(self, **four, parts={k: change(v) for k, v in self.parts.items()})

    def __repr__(self) -> str:
        out = f" to {self.site_out}" if self.is_transcoder else ""
        size = f", k {self.k}" if self.k else ""
        return (
            f"Dictionary({self.architecture}, {self.site}{out} of {self.stack}.{self.layer}: "
            f"{self.d_in} entries, {self.d_sae} features{size})"
        )
