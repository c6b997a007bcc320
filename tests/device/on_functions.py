"""Public functions that no command calls, on the stand-in device with and without float64.

Not collected by name: `test_stand_in.py` runs this file in a process of its own.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from device import stand_in

import interp
from interp import causal, circuits, dictionaries, heads, lens, probes, text
from interp.model import precision

DEVICE = stand_in.install()
IDS = [[(7 * i + 3 * j) % 50 + 8 for j in range(12)] for i in range(6)]
LABELS = [0, 1, 0, 1, 0, 1]
Call = Callable[[interp.Model], Any]


def task(m: interp.Model) -> Any:
    return interp.repeats_task(m, n=4, max_length=12)


def contrast(m: interp.Model) -> Any:
    return circuits.make_contrast(m, "induction", n=8)


def circuit(m: interp.Model, level: Any = None) -> Any:
    return circuits.find_circuit(m, contrast(m), "attribution_patching", level)


@cache
def dictionary() -> Any:
    model = interp.load("bundled:induction")
    return dictionaries.train_dictionary(model, IDS, layer=1, d_sae=16, steps=3).dictionary


@cache
def lorsa() -> Any:
    model = interp.load("bundled:induction")
    return dictionaries.train_lorsa(model, IDS, layer=1, n_heads=8, k=2, steps=3).lorsa


def outliers(name: str) -> Call:
    return lambda m: getattr(heads.outliers, name)(m, IDS)


CALLS: dict[str, Call] = {
    "ablate": lambda m: interp.ablate(m, task(m)),
    "attribute": lambda m: interp.attribute(m, IDS[0], "gradient_x_input"),
    "causal.aumann_shapley": lambda m: causal.aumann_shapley(m, task(m), steps=2),
    "causal.accuracy": lambda m: causal.accuracy(m, IDS),
    "causal.gate_gradient": lambda m: causal.gate_gradient(m, task(m)),
    "causal.head_responsibilities": lambda m: causal.head_responsibilities(m, task(m), n_random=2),
    "causal.head_aggregation": lambda m: causal.head_aggregation(m, task(m), steps=2),
    "causal.michel": lambda m: causal.michel(m, task(m)),
    "causal.patching_gradient": lambda m: causal.patching_gradient(
        m, causal.logit_difference(m, IDS, [7] * 6, [9] * 6, corrupted=IDS[::-1])
    ),
    "causal.prune_in_rounds": lambda m: causal.prune_in_rounds(
        m, task(m), "ablation", 14, repair_steps=1
    ),
    "causal.repair_pruned": lambda m: causal.repair_pruned(m, ["L0H0"], IDS, steps=2),
    "causal.retrieval_problem_task": lambda m: interp.ablate(
        m, causal.retrieval_problem_task(m, n=4)
    ),
    "causal.kl_to_clean": lambda m: interp.ablate(m, causal.kl_to_clean(m, IDS)),
    "causal.loss": lambda m: interp.ablate(m, causal.loss(m, IDS)),
    "causal.next_token_task": lambda m: interp.ablate(m, causal.next_token_task(m, IDS)),
    "causal.answer_probability": lambda m: interp.ablate(
        m, causal.answer_probability(m, IDS, [7] * 6)
    ),
    "causal.logit_difference": lambda m: interp.ablate(
        m, causal.logit_difference(m, IDS, [7] * 6, [9] * 6)
    ),
    "causal.shapley": lambda m: interp.shapley(m, task(m), heads=["L1H0", "L0H1"]),
    "causal.tucker_loss": lambda m: causal.tucker_loss(m, task(m)),
    "causal.ranked_heads": lambda m: causal.ranked_heads(m, interp.ablate(m, task(m)), 4),
    "circuits.evaluate_circuit": lambda m: circuits.evaluate_circuit(m, circuit(m), contrast(m)),
    "circuits.evaluate_edges": lambda m: circuits.evaluate_edges(
        m, circuit(m, "edge"), contrast(m), n_random=2
    ),
    "circuits.patch_first": lambda m: circuits.patch_first(m, circuit(m), contrast(m), k=3),
    "circuits.patching_map": lambda m: circuits.patching_map(m, contrast(m)),
    "circuits.signals": lambda m: circuits.signals(m, IDS[:2]),
    "dictionaries.ablate_features": lambda m: dictionaries.ablate_features(
        m, dictionary(), task(m), [0, 1]
    ),
    "dictionaries.feature_cards": lambda m: dictionaries.feature_cards(m, dictionary(), IDS),
    "dictionaries.probe_features": lambda m: dictionaries.probe_features(
        m, dictionary(), IDS * 4, LABELS * 4
    ),
    "dictionaries.profile_heads": lambda m: dictionaries.profile_heads(m, IDS, layer=1),
    "dictionaries.profile_lorsa": lambda m: dictionaries.profile_lorsa(m, lorsa(), IDS),
    "dictionaries.score_dictionary": lambda m: dictionaries.score_dictionary(m, dictionary(), IDS),
    "dictionaries.score_features": lambda m: dictionaries.score_features(m, dictionary(), IDS),
    "dictionaries.score_lorsa": lambda m: dictionaries.score_lorsa(m, lorsa(), IDS),
    "dictionaries.train_dictionary": lambda m: dictionaries.train_dictionary(
        m, IDS, layer=1, d_sae=16, steps=2
    ),
    "dictionaries.train_lorsa": lambda m: dictionaries.train_lorsa(
        m, IDS, layer=1, n_heads=8, k=2, steps=2
    ),
    "heads.composition_scores": lambda m: heads.composition_scores(m, "k"),
    "heads.emergence": lambda m: heads.emergence([m, m], ["entropy"], steps=[1, 2]),
    "heads.needle.question_mass": lambda m: heads.needle.question_mass(
        m, heads.needle.ids_instances(m)
    ),
    "heads.needle.copy_paste": lambda m: heads.needle.copy_paste(m, heads.needle.ids_instances(m)),
    "heads.outliers.layer_entropies": outliers("layer_entropies"),
    "heads.outliers.layer_outliers": outliers("layer_outliers"),
    "heads.outliers.massive": outliers("massive"),
    "heads.outliers.result_inf_norm": outliers("result_inf_norm"),
    "heads.outliers.result_kurtosis": outliers("result_kurtosis"),
    "heads.outliers.sink_mass": outliers("sink_mass"),
    "heads.outliers.value_shortfall": outliers("value_shortfall"),
    "heads.outliers.written_share": outliers("written_share"),
    "heads.outliers.disruption": lambda m: heads.outliers.disruption(m, task(m)),
    "heads.outliers.active_dormant_sinks": lambda m: heads.outliers.active_dormant_sinks(
        m, IDS[:3], IDS[3:]
    ),
    "lens.direct_logit_attribution": lambda m: lens.direct_logit_attribution(m, IDS[0]),
    "probes.output_features": lambda m: probes.output_features(m, IDS),
    "probes.metric_features": lambda m: probes.metric_features(m, IDS, ["entropy"]),
    "text.graphs.static_heads": lambda m: text.graphs.static_heads(m, [x * 2 for x in IDS]),
}

LEFT = set(
    """
alignment.attention_drift alignment.source_mass alignment.spectrogram_attention
alignment.time_alignment attribution.similarity cache.cut_cache
cache.small_cache causal.custom causal.find_function_vector causal.harness_task
causal.repeats_task causal.save_pruned circuits.evaluate_set heads.choose_engine
heads.estimate_score heads.needle.family_instances heads.needle.ids_instances
heads.needle.text_instances heads.needle.try_tasks heads.roofline model.segment_spans
probes.chunk_features probes.last_row_features probes.lookback_features safety.refusal_log_odds
safety.refusal_projection_scores safety.safety_curves safety.sahara safety.search_direction
safety.ships_scores syntax.check_pairs syntax.dependency_trees syntax.topic_products
text.chains.rollout_effects text.chains.sentence_attention text.chains.suppression_effects
text.context.endpoint_faithfulness
text.context.endpoint_sources vision.added_register vision.class_token_effects
vision.correct_spurious_heads vision.describe_heads vision.head_readouts vision.high_norm_tokens
vision.image_batch vision.image_direct_effects vision.image_maps vision.image_parts
vision.language.gaze_heads vision.language.redistribute vision.locate_spurious_heads
vision.map_agreement vision.patch_distance vision.pooling_attention vision.prune_image_tokens
vision.read_images vision.register_neurons vision.text_embeddings
""".split()  # noqa: SIM905
)
"""Functions without a call of their own: most run inside a command, and others make inputs.

`small_cache` hands out tensors of a class of its own, which the stand-in's tensors cannot become.
"""


def of_commands() -> set[str]:
    """Names that the files of the command line import or name as `module:function`."""
    names: set[str] = set()
    for path in (Path(interp.__file__).parent / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and re.fullmatch(
                r"interp[\w.]*:\w+", str(node.value)
            ):
                names.add(str(node.value).split(":")[1])
    return names


def public(module: ModuleType, seen: set[int]) -> Iterator[str]:
    """Public functions whose first argument is a model, each by one of its names."""
    for name in getattr(module, "__all__", ()):
        x = getattr(module, name)
        if isinstance(x, ModuleType):
            yield from public(x, seen)
        elif isinstance(x, FunctionType) and id(x) not in seen:
            seen.add(id(x))
            if next(iter(inspect.signature(x).parameters), "") in ("model", "models", "a"):
                yield f"{module.__name__}.{name}".removeprefix("interp.")


def test_every_function_of_a_model_has_a_call_or_a_command() -> None:
    called, names = of_commands(), set(public(interp, set()))
    alone = {name for name in names if name.rpartition(".")[2] not in called}
    assert alone <= {*CALLS, *LEFT}, alone - {*CALLS, *LEFT}
    assert not LEFT & set(CALLS)
    assert alone >= LEFT, LEFT - alone


def numbers(x: Any) -> list[np.ndarray]:  # noqa: PLR0911
    """All numbers of a result, in order."""
    if hasattr(x, "to_pandas"):
        return [x.to_pandas().select_dtypes("number").to_numpy(float)]
    if isinstance(x, torch.Tensor):
        return [x.detach().cpu().double().numpy()]
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiub":
        return [x.astype(float)]
    if isinstance(x, Mapping):
        return [y for each in x.values() for y in numbers(each)]
    if isinstance(x, (list, tuple)):
        return [y for each in x for y in numbers(each)]
    if dataclasses.is_dataclass(x):
        return [y for f in dataclasses.fields(x) for y in numbers(getattr(x, f.name))]
    return [np.array([float(x)])] if isinstance(x, (int, float)) else []


@pytest.fixture(scope="module")
def on_devices() -> dict[bool | None, interp.Model]:
    """On the CPU, and on the device with and without float64."""
    here = interp.load("bundled:induction")
    made: dict[bool | None, interp.Model] = {None: here}
    for wide in (True, False):
        with pytest.MonkeyPatch.context() as patch, limits(wide, patch):
            module = deepcopy(here.module).to(DEVICE)
            made[wide] = interp.load(module, tokenizer=here.tokenizer, name=here.name)
    return made


def limits(wide: bool, patch: pytest.MonkeyPatch) -> Any:
    if wide:
        return nullcontext()
    patch.setattr(precision, "WITHOUT", {stand_in.NAME})
    return stand_in.without_float64()


@pytest.mark.parametrize("name", CALLS)
def test_a_function_gives_the_numbers_of_the_cpu(
    name: str, on_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = numbers(CALLS[name](on_devices[None]))
    assert sum(x.size for x in here) > 0
    for wide in (True, False):
        with limits(wide, monkeypatch):
            there = numbers(CALLS[name](on_devices[wide]))
        for one, two in zip(here, there, strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-2, atol=2e-3)
