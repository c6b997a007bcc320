"""Integrated Jacobians of a sentence encoder: the cosine of two sentences, token by token."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attribution.gradients import embedded, embedding_leaves, embedding_modules
from interp.causal.gate_derivatives import frozen
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.core.interrupts import holding
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.ties import ranked
from interp.core.tokens import words
from interp.model.content import result_provenance
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
Pool = Literal["mean", "first"]
Mode = Literal["forward", "reverse"]


@takes_model
def similarity_matrix(
    model: Model,
    first: str,
    second: str,
    *,
    steps: int = 20,
    baseline: str = "auto",
    pool: Pool = "mean",
    mode: Mode = "forward",
    batch_size: int = 64,
) -> ResultRows:
    """Split the cosine of two sentences into parts of pairs of tokens, by integrated Jacobians.

    Each sentence's embedding is integrated along the straight path from a reference to its token
    embeddings, at the midpoints of the steps; positions and the tokens that the tokenizer adds stay
    as they are. In mode "forward" the derivative in the direction of each token is one entry of a
    batch (forward-mode differentiation); "reverse" runs one backward pass per dimension of the
    embedding, gives the same numbers, and is for models with an operation without a forward
    derivative.

    Args:
        model: an encoder whose output is one state per token.
        first: the first sentence.
        second: the second sentence.
        steps: steps of the integral; more make the residual smaller.
        baseline: tokens' embeddings of the reference, as for `integrated_gradients`.
        pool: embedding of a sentence: "mean" over its final states, or the "first" one.
        mode: "forward" or "reverse".
        batch_size: inputs per forward pass.

    Returns:
        One row per pair of tokens: position, token, other_position, other_token and score, its part
        of the cosine. `cosine = matrix.sum() + sum(reference_terms) + residual`. Facts: first and
        second, the tokens; matrix, the scores, `[first, second]`, which explain the inner product
        of the embeddings' differences from their references; cosine; reference_terms, inner
        products with the references divided by both lengths (first sentence with the second's
        reference, first's reference with the second sentence, and minus that of both references);
        residual, the error of the integral; special, True for the tokens that the tokenizer adds.

    Raises:
        PromptError: a sentence has no token besides those the tokenizer adds.
        OptionError: the model outputs logits, or an option is out of range.
        UnreadableAttention: the model has no derivative in this mode.

    Reference: Möller et al. 2023, "An Attribution Method for Siamese Encoders" (arXiv 2310.05703).
    """
    if steps < 1 or batch_size < 1:
        raise OptionError(f"steps={steps} and batch_size={batch_size}; both must be at least 1")
    if pool not in ("mean", "first"):
        raise OptionError(f"unknown pool={pool!r}; known: mean, first")
    if mode not in ("forward", "reverse"):
        raise OptionError(f"unknown mode={mode!r}; known: forward, reverse")
    sides = [
        _Side.of(model, text, number, baseline, pool)
        for number, text in enumerate((first, second), 1)
    ]
    parts = [side.integrated(steps, mode, batch_size) for side in sides]
    a, b = (side.embedding for side in sides)
    r, s = (side.reference for side in sides)
    size = float(a.norm() * b.norm())
    matrix = (parts[0] @ parts[1].mT / size).numpy()
    cosine = float(a @ b) / size
    terms = float(a @ s) / size, float(r @ b) / size, -float(r @ s) / size
    ids = Prompts(tuple(side.ids for side in sides))
    provenance = result_provenance(
        model,
        "interp.attribution.similarity_matrix",
        ids,
        steps=steps,
        baseline=sides[0].baseline,
        pool=pool,
        mode=mode,
    )
    return matrix_rows(
        sides[0].tokens,
        sides[1].tokens,
        matrix,
        cosine,
        terms,
        (sides[0].special, sides[1].special),
        provenance,
    )


def matrix_rows(
    first: Sequence[str],
    second: Sequence[str],
    matrix: Float[Array, "first second"],
    cosine: float,
    terms: tuple[float, float, float],
    special: tuple[Bool[Array, " first"], Bool[Array, " second"]],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per pair of tokens; see `similarity_matrix`."""
    i, j = (x.flatten() for x in np.indices(matrix.shape))
    columns = {
        "position": i,
        "token": [first[k] for k in i.tolist()],
        "other_position": j,
        "other_token": [second[k] for k in j.tolist()],
        "score": matrix.flatten(),
    }
    facts = {
        "metric": "integrated Jacobians",
        "unit": "cosine",
        "first": tuple(first),
        "second": tuple(second),
        "matrix": matrix,
        "cosine": cosine,
        "reference_terms": terms,
        "residual": cosine - float(matrix.sum()) - sum(terms),
        "special": special,
    }
    return ResultRows(
        "SimilarityMatrix",
        columns,
        ("position", "token", "other_position", "other_token"),
        made,
        facts,
        by="abs",
        why_no_per_prompt="it explains one pair of sentences",
    )


@dataclass(eq=False)
class _Side:
    """One sentence: its tokens, path, and embeddings at both ends."""

    model: Model
    ids: tuple[int, ...]
    inputs: dict[str, Tensor]
    pool: Pool
    baseline: str
    start: Float[Tensor, "1 token d"]
    way: Float[Tensor, "1 token d"]

    @classmethod
    def of(cls, model: Model, text: str, number: int, baseline: str, pool: Pool) -> _Side:
        from interp.attribution.example import Example
        from interp.attribution.methods.integrated_gradients import baseline_embeddings, usable
        from interp.attribution.target import Target

        example = Example(model, text, Target("state", lambda out, real: out[:, 0, 0], 0, "state"))
        if example.output.dim() != 3 or example.output.shape[-1] != model.d_model:
            raise OptionError(
                f"{model.name} outputs logits, not states to compare; give a sentence encoder"
            )
        if bool(example.special.all()):
            raise PromptError(
                f"sentence {number} has no tokens besides those the tokenizer adds "
                f"({' '.join(example.tokens)!r}); give a sentence with at least one word"
            )
        baseline = usable(example) if baseline == "auto" else baseline
        embeddings = embedded(model, example.inputs["input_ids"])
        start = baseline_embeddings(example, baseline).to(embeddings)
        special = torch.from_numpy(example.special).to(embeddings.device)[None, :, None]
        start = torch.where(special, embeddings, start)
        return cls(model, example.ids, example.inputs, pool, baseline, start, embeddings - start)

    @property
    def tokens(self) -> tuple[str, ...]:
        return words(self.model, self.ids)

    @property
    def special(self) -> Bool[Array, " token"]:
        return (self.way[0] == 0).all(-1).cpu().numpy()

    @property
    def embedding(self) -> Float[Tensor, " d"]:
        return self._at(self.start + self.way)

    @property
    def reference(self) -> Float[Tensor, " d"]:
        return self._at(self.start)

    def _at(self, x: Tensor) -> Float[Tensor, " d"]:
        with torch.no_grad(), embedding_leaves(self.model, x):
            return self._pooled(self.model.run(self.inputs))[0].double().cpu()

    def _pooled(self, output: Tensor) -> Float[Tensor, "batch d"]:
        return output.mean(1) if self.pool == "mean" else output[:, 0]

    def integrated(self, steps: int, mode: Mode, size: int) -> Float[Tensor, "token d"]:
        """Return the integral of the Jacobian in the direction of each token's difference."""
        integral = torch.zeros(len(self.ids), self.embedding.shape[0], dtype=torch.double)
        moved = (~torch.from_numpy(self.special)).nonzero().flatten()
        derivative = self._forward if mode == "forward" else self._reverse
        for step in range(steps):
            at = self.start + (step + 0.5) / steps * self.way
            integral[moved] += derivative(at, moved, size) / steps
        return integral

    def _inputs(self, n: int) -> dict[str, Tensor]:
        return {k: v.expand(n, *v.shape[1:]) for k, v in self.inputs.items()}

    def _forward(self, at: Tensor, moved: Tensor, size: int) -> Float[Tensor, "moved d"]:
        from torch.autograd import forward_ad
        from torch.nn.attention import SDPBackend, sdpa_kernel

        tangents = []
        for some in moved.split(size):
            towards = torch.zeros(len(some), *at.shape[1:], dtype=at.dtype, device=at.device)
            towards[torch.arange(len(some)), some] = self.way[0, some]
            points = at.expand_as(towards)
            # only the unfused kernel has a derivative in forward mode
            with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
                with warnings.catch_warnings():  # torch compiles its rules on the first use
                    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
                    dual = forward_ad.make_dual(points.contiguous(), towards)
                try:
                    with _embedding(self.model, dual):
                        output = self._pooled(self.model.run(self._inputs(len(some))))
                except NotImplementedError as error:
                    raise UnreadableAttention(
                        f"{self.model.name}: an operation has no derivative in forward mode "
                        f"({str(error).splitlines()[0]}); use mode='reverse'"
                    ) from error
                tangent = forward_ad.unpack_dual(output).tangent
            if tangent is None:
                raise UnreadableAttention(
                    f"{self.model.name}: its output does not depend on the token embeddings"
                )
            tangents.append(tangent.double().cpu())
        return torch.cat(tangents)

    def _reverse(self, at: Tensor, moved: Tensor, size: int) -> Float[Tensor, "moved d"]:
        model, columns = self.model, []
        with torch.enable_grad(), frozen(model.module), inference(model.module):
            with embedding_leaves(model, at) as leaves:
                output = self._pooled(model.run(self.inputs))[0]
            leaf = leaves.found[0]
            for entry in output:
                (g,) = torch.autograd.grad(entry, leaf, retain_graph=True)
                columns.append((g[0].double() * self.way[0].double()).sum(-1).cpu())
        return torch.stack(columns, -1)[moved]


@holding
@contextmanager
def _embedding(model: Model, value: Tensor) -> Iterator[None]:
    """Put a tensor in place of the embeddings, with its tangent."""
    [module] = embedding_modules(model)
    handle = module.register_forward_hook(in_this_thread(lambda m, args, output: value.clone()))
    try:
        yield
    finally:
        handle.remove()


def similarity_matrix_summary(found: ResultRows) -> str:
    """Return the parts of the cosine and the largest pairs of tokens."""
    a, b, c = found.reference_terms
    lines = [
        f"cosine {found.cosine:+.4f} = pairs of tokens {found.matrix.sum():+.4f}, references "
        f"{a:+.4f} {b:+.4f} {c:+.4f}, residual {found.residual:+.1e}"
    ]
    shown = ranked(found.wide(), "score", absolute=True)
    for row in shown.head(found._asked or 10).to_dict("records"):
        pair = f"{row['token']} ({row['position']})"
        other = f"{row['other_token']} ({row['other_position']})"
        lines.append(f"  {row['score']:+.4f}  {pair:<16} {other}")
    return "\n".join(lines)


def similarity_matrix_figure(found: ResultRows, k: int = 20) -> go.Figure:
    """Draw the matrix, or the k pairs of `top` as bars."""
    from interp.draw.charts import grid
    from interp.draw.rows import bars_of

    if len(found) != found.matrix.size:
        return bars_of(found, k)
    title = f"cosine {found.cosine:.3g}, of which {found.matrix.sum():.3g} in pairs of tokens"
    hover = [[f"{a!r} and {b!r}" for b in found.second] for a in found.first]
    return grid(found.matrix, found.first, found.second, hover=hover, title=title, unit="cosine")


present(
    "SimilarityMatrix",
    summary=similarity_matrix_summary,
    plot=similarity_matrix_figure,
    text="interp.report.printed.tables:top_text",
)
