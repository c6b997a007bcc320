"""Rows of `benchmarks/beside.py` by interp itself."""

from beside_timing import measure

import interp
from interp.causal.measures import logit_difference
from interp.circuits import ContrastTask, attribution_patching
from interp.core.prompts import Prompts
from interp.lens import direct_logit_attribution, logit_lens


def prompts(ids):
    return Prompts(tuple(map(tuple, ids)))


def scores(model, ids, metric):
    table = interp.score(model, metric, prompts(ids), null="none")
    return table.to_pandas()["score"].tolist()


def induction(model, inputs):
    return scores(model, inputs["repeats"], "induction")


def long_prompt(model, inputs):
    return scores(model, inputs["long"], "first_token")


def task(model, inputs):
    return logit_difference(
        model,
        prompts(inputs["clean"]),
        inputs["answers"],
        inputs["wrong"],
        corrupted=prompts(inputs["corrupted"]),
    )


def ablation(model, inputs):
    table = interp.ablate(model, task(model, inputs), null="none").table
    return table.to_pandas()["score"].tolist()


def patching(model, inputs):
    found = attribution_patching(model, ContrastTask(task(model, inputs)), "head")
    means = dict(zip(found.nodes, found.per_prompt.mean(1).tolist(), strict=True))
    return [score for node, score in means.items() if node.startswith("L")]


def edges(model, inputs):
    found = attribution_patching(model, ContrastTask(task(model, inputs)), "edge")
    means = found.edges_per_prompt.mean(1).tolist()
    return {f"{a}>{b}": score for (a, b), score in zip(found.edges, means, strict=True)}


def direct(model, inputs):
    found = direct_logit_attribution(
        model, inputs["text"][0], inputs["answers"][0], contrast=inputs["wrong"][0]
    )
    return found.table.to_pandas()["score"].tolist()


def lens(model, inputs):
    found = logit_lens(model, inputs["text"][0], target=inputs["answers"][0])
    return found.target_logits.tolist()


def integrated(model, inputs):
    return interp.attribute(
        model,
        inputs["text"][0],
        "integrated_gradients:steps=20,baseline=pad",
        target=f"token:w{inputs['answers'][0]}",
    ).scores.tolist()


def rollout(model, inputs):
    return interp.attribute(model, inputs["text"][0], "rollout").scores.tolist()


measure(
    interp.load,
    {
        "induction": induction,
        "first token of a long prompt": long_prompt,
        "ablation": ablation,
        "attribution patching": patching,
        "edges": edges,
        "direct attribution": direct,
        "lens": lens,
        "integrated gradients": integrated,
        "rollout": rollout,
    },
)
