"""Heads by role: what `interp.heads.roles` says of heads whose role is known.

Every deciding score of a role that applies is computed. Trained models know only the prompts of
their algorithm: their heads are scored on these, by scores that take prompts or read weights.
Where a model does induction, the ablation of single heads on it is a causal check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import interp
from interp.circuits.tasks import make_contrast
from interp.core.errors import InterpError
from interp.core.intervals import share_interval
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.heads.roles.decide import roles
from interp.heads.roles.declared import ROLES
from interp.planted import KINDS, PLANTED, TRAINED
from interp.planted.known_roles import known_roles
from interp.planted.trained.cases import CASES

NAMES = (*(f"trained:{name}" for name in TRAINED), *(f"planted:{name}" for name in PLANTED))
DECIDING = tuple(dict.fromkeys(n.metric for role in ROLES for n in role.needs if n.decides))
PROMPTS = 64
FREE = ("sink", "positional")  # nothing in training says where other heads rest
WRONG = """
- A name that is less exact than the true one (copying, for a name mover) is not counted.
- Sink and positional heads are counted in planted models only: nothing in the training of the
  others says where heads outside the circuit rest.
- Induction: decoys attend like the head of the circuit, and their ablation changes 0.2 to 3 % of
  what that of the true head does, so that the causal check of the role (less than 0.1 %) does not
  contradict it. Ask `interp circuit`, which does not name them.
- The induction heads of planted:backup and planted:zoo are missed, because their ablation alone
  changes nothing: a backup takes over. `interp circuit` names both (table `backups`).
- The copy-suppression head of planted:zoo (L3H3) attends to what induction predicts, where an
  induction head would, and is called both; its head on the last four tokens (L0H3) has a
  quarter of its attention on the previous one, and is called a previous-token head.
- Sink: heads that look for something often rest on the first token where they find nothing.
- Copying is a statement about weights: decoys and heads outside a circuit can have such weights,
  and attend to nothing that would matter.
- Name-mover, S-inhibition, retrieval and bracket heads of the trained models cannot be scored:
  these scores ask in words, or in longer prompts than the models read.
"""


def role_row(source: str, seed: int = 0) -> dict[str, Any]:
    """Measure the roles of the heads of one model, beside those that are known."""
    kind, _, name = source.partition(":")
    assert kind in KINDS
    model, prompts = interp.load(source), None
    if kind == "trained":
        ids = CASES[name].draw(np.random.default_rng([seed, 46]), PROMPTS)
        prompts = Prompts(tuple(map(tuple, ids.tolist())), f"prompts of {name}")
    tables, left = [], {}
    for metric in DECIDING:
        if prompts is not None and METRICS[metric].group not in ("detectors", "weights"):
            left[metric] = "it makes prompts of its own"
            continue
        try:
            tables.append(interp.score(model, metric, prompts=prompts, seed=seed))
        except InterpError as error:
            left[metric] = str(error)
    found = roles(HeadTable.concat(tables), _checks(model, kind, name))
    truth = known_roles(kind, name)
    heads = {
        f"L{x.layer}H{x.head}": [truth[x.layer, x.head], [*x.roles]]
        for x in found.assigned
        if (x.layer, x.head) in truth
    }
    return {
        "class": "roles",
        "model": source,
        "task": "",
        "method": "roles",
        "seed": seed,
        "pairs": PROMPTS,
        "heads": heads,
        "left_out": sorted(left),
    }


def _checks(model: interp.Model, kind: str, name: str) -> Iterator[HeadTable]:
    """Ablate every head on the model's induction, which is that of the prompts' second copy."""
    if kind == "planted":
        if "induction" in interp.planted.build(name).roles:
            yield interp.ablate(model, interp.repeats_task(model)).table
    elif "induction" in CASES[name].nodes:
        several = len(CASES[name].ends) > 1
        task = make_contrast(model, f"trained:{name}" + ":induction" * several, n=PROMPTS).task
        named = replace(task, name="second_copy_loss", corrupted=None)
        yield interp.ablate(model, named).table


def role_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format precision and recall of every role that some head has or is given."""
    heads = [(row, head, *each) for row in rows for head, each in row["heads"].items()]
    text = (
        f"What `interp.heads.roles` says of the {len(heads)} heads of {len(rows)} trained and"
        " planted models, by all scores that decide roles and apply, with the ablation of single"
        " heads where a model does induction. Heads without the role are the negatives: random"
        " heads, heads that do the task by other means, bystanders, and decoys, which attend as a"
        " head of the circuit does, so that no score of attention can tell them apart. Models in"
        " which no deciding score of a role applies (most need a tokenizer of words, or longer"
        " prompts) count for its precision only. Wilson 95 % intervals.\n\n"
        "| role | heads | of them scored | precision | recall | given wrongly to | missed |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for role in ROLES:
        deciding = {need.metric for need in role.needs if need.decides}
        able = [r["model"] for r in rows if not deciding <= {*r["left_out"]}]
        mine = [
            (r["model"], h, t, f)
            for r, h, t, f in heads
            if role.id not in FREE or not r["model"].startswith("trained:")
        ]
        have = [x for x in mine if x[2] == role.id]
        scored = [x for x in have if x[0] in able]
        right = [x for x in scored if role.id in x[3]]
        wrong = [x for x in mine if role.id in x[3] and x[2] not in (role.id, *role.yields_to)]
        missed = [x for x in scored if role.id not in x[3]]
        if have or wrong:
            text += (
                f"| {role.name} | {len(have)} | {len(scored)}"
                f" | {_share(len(right), len(right) + len(wrong))}"
                f" | {_share(len(right), len(scored))} | {_some(wrong)} | {_some(missed)} |\n"
            )
    return text + WRONG


def _share(k: int, n: int) -> str:
    if not n:
        return "-"
    low, high = share_interval(k, n)
    return f"{k}/{n} = {k / n:.2f} [{low:.2f}, {high:.2f}]"


def _some(found: Sequence[tuple], most: int = 4) -> str:
    names = [f"{model} {head}" for model, head, *_ in found]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) + more) or "none"
