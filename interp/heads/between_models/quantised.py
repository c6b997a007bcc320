"""Quantised weights as heads see them: outputs and maps before and after, and what restoring gives.

Weights are replaced by the values that quantisation leaves, in every linear layer but the output
embedding; activations keep their type. Errors of early layers reach later heads, as they do when
the quantised model runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.causal.checkpoint.indices import axis_of, columns_of, plain_linear, require_removable
from interp.core.clusters import cluster_summary, score_columns
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.prompts import Prompts, repeats
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.ties import ordered
from interp.heads.between_models.compare import compare, prompt_losses
from interp.model.content import result_provenance
from interp.model.inputs import output_embedding
from interp.model.locate.find_layout import layouts
from interp.model.locate.layout import ReadMatrix
from interp.model.model_argument import takes_model
from interp.model.rounding import rounded_weight

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

LONGEST = 1024  # tokens of a prompt whose maps are compared
WeightPlaces = Sequence[tuple[str, int, Tensor]]
"""Parameter, axis and indices along it."""


@takes_model
def quantised_heads(
    model: Model,
    prompts: Any = None,
    *,
    method: str = "int4",
    k: int = 2,
    n_random: int = 5,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure what quantising the weights does to every head, and what restoring heads gives back.

    Half of the prompts, drawn at random, choose the `k` heads whose restored weights lower the loss
    of the quantised model most, one head at a time. Everything reported is measured on the others.

    Args:
        model: a language model with float weights.
        prompts: texts, ids or `Prompts`, of at most 1,024 tokens; 32 prompts of random tokens
            repeated twice by default.
        method: "int8", "int4" and "int16" round to nearest per row of outputs, "fp8" to 8-bit
            floats; "torchao:int8", "torchao:fp8", "bitsandbytes:int8", "bitsandbytes:nf4" and
            "bitsandbytes:fp4" quantise as these packages do.
        k: number of heads that are restored together.
        n_random: draws of as many random heads, restored for comparison; 0 for none.
        seed: seed of the default prompts, their division and the random heads.
        batch_size: prompts per forward pass.
        progress: callback with the name of the step, the steps done and their total.

    Returns:
        One row per head: score, the distance between its output before and after, divided by the
        norm of the former, on each prompt; pattern_change, the mean total variation between its
        rows; role_before and role_after; gain, the loss that restoring its weights gives back on
        held-out prompts, with gain_sem, and chosen. Facts: losses, one mapping with what, loss,
        sem, n and share, the share of the quantised weights that is restored, for the model in full
        precision, quantised, and quantised with the chosen heads, the attention of their layers,
        or random heads restored.

    Raises:
        OptionError: the weights of single heads cannot be located, or a number is out of range.
        PromptError: there are fewer than four prompts, or one is too long.
        UnknownName: the method is not known.

    Unit: share of the norm of the output.

    Cost: One forward pass of the prompts per head; the scores of `interp.compare`.

    Null: the same measure with weights of 16 bits.

    Not for: the speed or the memory of a quantised model.

    Reference: this project; Dettmers et al. 2022, "LLM.int8()", on outliers.
    """
    tokenized = repeats(model, n=32, seed=seed) if prompts is None else Prompts.of(prompts, model)
    _require(model, tokenized, k, n_random)
    progress, rng = progress or silent, np.random.default_rng(seed)
    order = rng.permutation(len(tokenized))
    chosen_on, judged_on = (sorted(x.tolist()) for x in np.array_split(order, 2))
    judged = tokenized.part(judged_on)
    other, names = quantised_model(model, method)
    restored = Restoring(model, other)
    progress("heads", 0, 1)
    changes = output_changes(model, other, judged)
    floor = output_changes(model, quantised_model(model, "int16")[0], judged)[0].mean(1)
    progress("heads", 1, 1)
    heads = [(s, h) for s in model.sites for h in range(s.n_heads)]
    before = prompt_losses(other, tokenized)
    gains = np.zeros((len(heads), len(tokenized)))
    for at, (site, h) in enumerate(heads):
        with restored(weights_of_head(model, site, h)):
            gains[at] = before - prompt_losses(other, tokenized)
        progress("restored heads", at + 1, len(heads))
    best = ordered(gains[:, chosen_on].mean(1))[:k]

    def loss(what: str, each: Float[np.ndarray, " prompt"], share: float) -> dict[str, Any]:
        mean = cluster_summary(each[:, None], judged.clusters)
        return {
            "what": what,
            "loss": float(mean.score[0]),
            "sem": float(mean.sem[0]),
            "n": mean.n,
            "share": share,
        }

    def measured(what: str, places: Sequence[WeightPlaces]) -> dict[str, Any]:
        each, shares = [], []
        for one in places:
            with restored(one):
                each.append(prompt_losses(other, judged))
            shares.append(_size(model, one) / sum(_parameter(model, n).numel() for n in names))
        return loss(what, np.mean(each, 0), float(np.mean(shares)))

    def together(which: Sequence[int]) -> WeightPlaces:
        return [x for i in which for x in weights_of_head(model, *heads[i])]

    layers = {heads[i][0].name: heads[i][0] for i in best}.values()
    losses = [
        loss("full precision", prompt_losses(model, judged), 1.0),
        measured("quantised", [[]]),
        measured("chosen heads restored", [together(best)]),
        measured("attention of their layers restored", [layer_places(model, layers)]),
    ]
    if n_random:
        draws = [rng.choice(len(heads), k, replace=False).tolist() for _ in range(n_random)]
        losses.append(measured("random heads restored", [together(x) for x in draws]))
    roles = _roles(model, other, judged, seed=seed, batch_size=batch_size)
    labels = [(s.stack, s.layer, h) for s, h in heads]
    judged_gains = gains[:, judged_on]
    given_back = score_columns(judged_gains, judged.clusters)
    columns: dict[str, Any] = dict(
        zip(("stack", "layer", "head"), zip(*labels, strict=True), strict=True)
    )
    columns |= {"metric": f"change of the output by {method}"}
    columns |= score_columns(changes[0], judged.clusters) | {
        "null": floor,
        "unit": "share of the norm",
        "pattern_change": changes[1].mean(1),
        "role_before": [", ".join(roles[0].get(x, ())) for x in labels],
        "role_after": [", ".join(roles[1].get(x, ())) for x in labels],
        "gain": given_back["score"],
        "gain_sem": given_back["sem"],
        "chosen": [i in best for i in range(len(heads))],
    }
    provenance = result_provenance(
        model,
        "interp.heads.quantised_heads",
        tokenized,
        seed=seed,
        method=method,
        k=k,
        n_random=n_random,
    )
    facts = {"losses": losses, "limits": (0.0, None)}
    return ResultRows(
        "QuantisedHeads",
        columns,
        ("stack", "layer", "head"),
        provenance,
        facts,
        changes[0],
        arrays={"gains": judged_gains},
        clusters=judged.clusters,
    )


def _require(model: Model, given: Prompts, k: int, n_random: int) -> None:
    """Raise if the model, prompts or numbers do not fit."""
    require_removable(model)
    count = sum(s.n_heads for s in model.sites)
    if not 1 <= k <= count or n_random < 0:
        raise OptionError(
            f"k={k}, n_random={n_random}: give 1 to {count} heads and 0 or more draws"
        )
    if model.kind != "causal":
        raise OptionError(f"{model.name} does not predict the next token; give a language model")
    if len(given) < 4:
        raise PromptError(
            f"{len(given)} prompts are too few: half of them choose heads and half judge them; "
            "give at least 4"
        )
    if max(map(len, given.ids)) > LONGEST:
        raise PromptError(f"maps of more than {LONGEST:,} tokens are not compared; cut the prompts")


def quantised_model(model: Model, method: str) -> tuple[Model, list[str]]:
    """Return a copy with quantised weights, and the names of the weights that changed type."""
    from interp.model.model import Model

    module = copy.deepcopy(model.module)
    last: Any = output_embedding(module)
    names = []
    for name, part in module.named_modules():
        if not plain_linear(part) or (last is not None and part.weight is last.weight):
            continue
        weight: Any = part.weight
        turn = not isinstance(part, nn.Linear)  # GPT-2 keeps inputs first
        with torch.no_grad():
            new = rounded_weight(weight.T if turn else weight, method)
            weight.copy_(new.T if turn else new)
        names.append(f"{name}.weight")
    quantised = Model(
        module,
        f"{model.name} ({method})",
        model.sites,
        model.tokenizer,
        joint_sites=model.joint_sites,
    )
    quantised.padding = model.padding.of_same(module, quantised.name)
    return quantised, names


def weights_of_head(model: Model, site: Site, head: int) -> WeightPlaces:
    """Return the weights of one head: its queries, its group's keys and values, its output."""
    layout, places = layouts(model).sites[site], []
    for part, n in (("q", site.n_heads), ("k", site.n_kv_heads), ("v", site.n_kv_heads)):
        reading = getattr(layout, part)
        index = _rows_of_heads(model, reading, n)
        if index is None:
            raise OptionError(
                f"{model.name}: the queries, keys and values of {site.name} are not plain matrices "
                "with rows for every head, so the weights of one head cannot be restored"
            )
        axis = axis_of(model.module.get_submodule(reading.module), "out")
        rows = index[head if part == "q" else site.kv_head(head)]
        places.append((f"{reading.module}.weight", axis, rows))
    projection = str(site.projection)
    axis = axis_of(model.module.get_submodule(projection), "in")
    return [*places, (f"{projection}.weight", axis, columns_of(site, [head]))]


def _rows_of_heads(model: Model, reading: Any, n: int) -> Int[Tensor, "head d"] | None:
    """Return the outputs of a matrix that make each head's vector; None where they are not known.

    A row of zeros cannot be located by its value, and one of equal rows may be taken for another.
    In a matrix that holds this part alone, the rows of a head are one block: each row that was
    located lies in it, or equals the row of the block in its place.
    """
    if not isinstance(reading, ReadMatrix):
        return None
    linear: Any = model.module.get_submodule(reading.module)
    rows = reading.columns.index
    if not plain_linear(linear) or rows.numel() % n:
        return None
    index = rows.reshape(n, -1)
    if bool((index >= 0).all()) and len(index.unique()) == index.numel():
        return index
    blocks = torch.arange(index.numel()).reshape(n, -1)
    weight = linear.weight if axis_of(linear, "out") == 0 else linear.weight.T
    if len(weight) != index.numel():
        return None
    inside = (index < 0) | (index // index.shape[1] == blocks // index.shape[1])
    same = (weight[index.clamp_min(0)] == weight[blocks]).all(-1).to(inside.device)
    return blocks if bool((inside | same).all()) else None


def layer_places(model: Model, sites: Any) -> WeightPlaces:
    """Return all weights of some attentions."""
    return [
        x for site in sites for h in range(site.n_heads) for x in weights_of_head(model, site, h)
    ]


class Restoring:
    """Puts weights of the original into the quantised copy for the time of a block."""

    def __init__(self, model: Model, other: Model) -> None:
        self.model, self.other = model, other

    @contextmanager
    def __call__(self, places: WeightPlaces) -> Iterator[None]:
        """Restore the weights at some places, and quantise them again at the end."""
        with torch.no_grad():
            weights = {name: _parameter(self.other, name).clone() for name, _, _ in places}
            for name, axis, index in places:
                theirs = _parameter(self.model, name)
                at = index.to(theirs.device)
                _parameter(self.other, name).index_copy_(axis, at, theirs.index_select(axis, at))
            try:
                yield
            finally:
                for name, weight in weights.items():
                    _parameter(self.other, name).copy_(weight)


def _parameter(model: Model, name: str) -> Tensor:
    return model.module.get_parameter(name).data


def _size(model: Model, places: WeightPlaces) -> int:
    """Return the number of weights at some places, each counted once."""
    seen: dict[tuple[str, int], set[int]] = {}
    for name, axis, index in places:
        seen.setdefault((name, axis), set()).update(index.tolist())
    return sum(
        len(rows) * _parameter(model, name).numel() // _parameter(model, name).shape[axis]
        for (name, axis), rows in seen.items()
    )


def output_changes(
    model: Model, other: Model, prompts: Prompts
) -> tuple[Float[np.ndarray, "head prompt"], Float[np.ndarray, "head prompt"]]:
    """Return the relative change of every head's output, and the total variation of its rows."""
    outputs, rows = [], []
    for i in range(len(prompts)):
        one, before = prompts.part([i]), {}

        def keep(site: Site, call: Call, real: Tensor, before: dict[Any, Any] = before) -> None:
            before[site] = [_written(model, site, call), call.pattern()[0].double()]

        changes: dict[Site, np.ndarray] = {}

        def hold(
            site: Site,
            call: Call,
            real: Tensor,
            before: Mapping[Any, Any] = before,
            changes: dict[Site, np.ndarray] = changes,
        ) -> None:
            z, pattern = before[site]
            moved = (call.pattern()[0].double() - pattern).abs().sum(-1).mean(-1) / 2
            each = []
            for was, now in zip(z, _written(other, site, call), strict=True):
                first, second = was(), now()
                each.append(float((second - first).norm() / first.norm().clamp_min(1e-30)))
            changes[site] = np.stack([each, moved.cpu().numpy()])

        model.read(one, keep)
        other.read(one, hold)
        both = np.concatenate([changes[s] for s in model.sites], 1)
        outputs.append(both[0])
        rows.append(both[1])
    return np.stack(outputs, 1), np.stack(rows, 1)


def _written(model: Model, site: Site, call: Call) -> list[Callable[[], Tensor]]:
    """Return, for every head, what gives its part of the output of the attention."""
    projection: Any = model.module.get_submodule(str(site.projection))
    weight = projection.weight.detach()
    weight = weight.T if isinstance(projection, nn.Linear) else weight
    z = call.z[0].detach()

    def of(head: int) -> Tensor:
        return z[head].double() @ weight[columns_of(site, [head]).to(weight.device)].double()

    return [lambda head=h: of(head) for h in range(site.n_heads)]


def _roles(
    model: Model, other: Model, prompts: Prompts, **options: Any
) -> tuple[dict[tuple[str, int, int], list[str]], dict[tuple[str, int, int], list[str]]]:
    """Return the roles of every head in both models."""
    answer = compare(model, other, None, prompts, top=0, **options).answer
    sides: tuple[dict[Any, list[str]], dict[Any, list[str]]] = ({}, {})
    for change in answer.roles if answer is not None else ():
        for side, named in zip(sides, (change.before, change.after), strict=True):
            for head in map(Head.parse, named):
                at = (model.sites[0].stack, head.layer, head.head)
                side.setdefault(at, []).append(change.role)
    return sides


present(
    "QuantisedHeads",
    summary="interp.report.printed.quantised:quantised_summary",
    first_line="interp.report.printed.quantised:quantised_line",
)
