"""Rooms of the benchmark of long contexts: what each one runs on one prompt."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Run = Callable[[], object]
VOCABULARY, POSITIONS = 64, 65_536


class Room(NamedTuple):
    """Title of a row, and a function of model and ids that returns the run."""

    title: str
    make: Callable[[Any, list[int]], Run]


def model_of() -> Any:
    """Return the loaded model: a Llama of 2 layers with random weights from a fixed seed."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import interp

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=POSITIONS,
        attn_implementation="sdpa",
    )
    return interp.load(LlamaForCausalLM(config).eval(), name="llama-2l")


def ids_of(tokens: int) -> list[int]:
    """Return random tokens from a fixed seed."""
    import numpy as np

    return np.random.default_rng(tokens).integers(3, VOCABULARY, tokens).tolist()


def prepare(room: str, tokens: int) -> Run:
    """Return the run of one room on a prompt of this length."""
    return ROOMS[room].make(model_of(), ids_of(tokens))


def _task(model: Any, ids: list[int]) -> Any:
    from interp.causal.measures import logit_difference

    other = [*ids[:-2], (ids[-2] + 1) % VOCABULARY, ids[-1]]
    return logit_difference(model, [ids], 5, 6, corrupted=[other])


def _forward(model: Any, ids: list[int]) -> Run:
    import torch

    inputs = model.inputs([ids]) | {"logits_to_keep": 1}

    def run() -> object:
        with torch.no_grad():
            return model.run(inputs)

    return run


def _score(model: Any, ids: list[int]) -> Run:
    import interp
    from interp.core.registry import METRICS

    detectors = [name for name, entry in METRICS.items() if entry.group == "detectors"]
    return lambda: interp.score(model, detectors, [ids], null="none", engine="fused")


def _causal(name: str, **options: Any) -> Callable[[Any, list[int]], Run]:
    def make(model: Any, ids: list[int]) -> Run:
        import interp.causal

        return lambda: getattr(interp.causal, name)(
            model, _task(model, ids), null="none", **options
        )

    return make


def _circuit(method: str, level: str, **options: Any) -> Callable[[Any, list[int]], Run]:
    def make(model: Any, ids: list[int]) -> Run:
        from interp.circuits.contrast import ContrastTask
        from interp.core.registry import CIRCUIT_METHODS

        found = CIRCUIT_METHODS.load(method)
        return lambda: found.function(model, ContrastTask(_task(model, ids)), level, **options)

    return make


def _attribution(method: str, **options: Any) -> Callable[[Any, list[int]], Run]:
    def make(model: Any, ids: list[int]) -> Run:
        from interp.attribution.declaration import attribute
        from interp.attribution.target import token_logit

        target = token_logit(model, 5)
        return lambda: attribute(model, ids, method, target, **options)

    return make


def _outliers(name: str) -> Callable[[Any, list[int]], Run]:
    def make(model: Any, ids: list[int]) -> Run:
        import interp.heads.outliers

        return lambda: getattr(interp.heads.outliers, name)(model, [ids])

    return make


def _view(model: Any, ids: list[int]) -> Run:
    from interp.heads.patterns import long_view

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            long_view(model, ids).save_html(Path(folder) / "view.html")

    return run


def _verify(model: Any, ids: list[int]) -> Run:
    from interp.circuits.head_checks import confirm

    return lambda: confirm(
        model, ["induction"], k=1, task=_task(model, ids), plain=_task(model, ids), n_random=3
    )


ROOMS: dict[str, Room] = {
    "forward": Room("plain forward, last logits", _forward),
    "score": Room("`interp.score`, eleven metrics", _score),
    "gate_gradient": Room("gate gradients", _causal("gate_gradient")),
    "patching_gradient": Room("patching gradients", _causal("patching_gradient")),
    "aumann_shapley": Room("integrated gates, 2 steps", _causal("aumann_shapley", steps=2)),
    "ablation": Room("ablation, zero", _causal("leave_one_out")),
    "ablation_uniform": Room(
        "ablation, uniform attention", _causal("leave_one_out", kind="uniform-attention")
    ),
    "ablation_resample": Room("ablation, resampled", _causal("leave_one_out", kind="resample")),
    "attribution_patching": Room(
        "attribution patching, heads", _circuit("attribution_patching", "head")
    ),
    "edge_attribution": Room(
        "attribution patching, edges", _circuit("attribution_patching", "edge")
    ),
    "exact_patching": Room("exact patching, heads", _circuit("exact_patching", "head")),
    "rollout": Room("rollout", _attribution("rollout", engine="streamed")),
    "raw_attention": Room("raw attention", _attribution("raw_attention")),
    "mean_attention": Room("mean attention", _attribution("mean_attention")),
    "value_weighted": Room("value-weighted attention", _attribution("value_weighted")),
    "column_concentration": Room("column concentration", _attribution("column_concentration")),
    "output_error": Room("attention output error", _attribution("attention_output_error")),
    "attention_gradient": Room("attention x its gradient", _attribution("attention_gradient")),
    "chefer": Room("Chefer relevance", _attribution("chefer")),
    "gradient_x_input": Room("gradient x input", _attribution("gradient_x_input")),
    "sinks": Room("attention sinks", _outliers("sink_mass")),
    "no_op": Room("no-op heads by values", _outliers("value_shortfall")),
    "written": Room("size of head outputs", _outliers("written_share")),
    "view": Room("viewer, page written", _view),
    "verify": Room("`interp importance verify`", _verify),
}
