"""Profiles of heads on text in the atlas: metrics, roles by leading rule, sentences, examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from interp.core.table import HeadTable
from interp.core.ties import ordered_by
from interp.draw.parts import made_of, plain_value
from interp.profiles.examples import KINDS
from interp.profiles.judgement import LEAST_GAIN, LEAST_NATS, LEAST_POSITION
from interp.report.atlas.document import (
    HeadProfile,
    Model,
    Role,
    RuleRow,
    Statement,
    TextExample,
)
from interp.report.atlas.scores import finite
from interp.report.atlas.signs import POSITION, RULE, UNCLEAR
from interp.report.printed.profile import percent_words
from interp.report.printed.text_lines import text_sentences

if TYPE_CHECKING:
    from collections.abc import Hashable

SHOWN = {"strongest": 2, "uniform": 1, "surprise": 1}  # examples of a kind on a card
ELSE = 4  # examples of a card whose kinds are others
LEGEND = 14  # rules of the legend; heads that another one leads are counted together
OTHER, LESS = f"{RULE}other", f"{RULE}less"
_KNOWN = {
    "stack",
    "layer",
    "head",
    "name",
    "status",
    "sentence",
    "labels",
    "avoided",
    "behaviours",
    "numbers",
}
_TEXTS = {
    "off_sink": "Attention that does not go to the first token or a special token.",
    "entropy": "Entropy of the attention off the sink.",
    "distance": "Mean distance of the attention off the sink.",
    "largest_weight": "Largest share of a query's attention off the sink on one key.",
    "pattern": "What even attention leaves to explain: the KL divergence of the pattern from it.",
    "uncovered": "Attention off the sink on keys that no rule of the head names.",
    "explained_offset": "Share of the pattern that the distance explains on unseen documents.",
    "explained_position": "Share of the pattern that position explains on unseen documents.",
    "explained_rules": "Share of the pattern that position and the rules explain on unseen "
    "documents.",
    "explained_tokens": "Share of the pattern that position, rules and the pair of tokens explain "
    "on unseen documents.",
    "needs_context": "What the two tokens leave unexplained.",
    "beyond_position": "What the rules explain more than position.",
    "query_dimensions": "Components that hold 90 % of the variance of its queries.",
    "key_dimensions": "Components that hold 90 % of the variance of the keys it attends to.",
    "value_dimensions": "Components that hold 90 % of the variance of the values it reads.",
    "output_dimensions": "Components that hold 90 % of the variance of its outputs.",
}
_BY_PLACE = "the same of keys that position draws"
_NULLS = {
    "explained_rules": "the same rules on the tokens of another document",
    "key_dimensions": _BY_PLACE,
    "value_dimensions": _BY_PLACE,
}
_BY_POSITION = "the share that position predicts"


class TextProfile(Protocol):
    """The interface of a profile, or of another description of heads on text, to the atlas."""

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A number per head and metric."""
        ...

    @property
    def descriptions(self) -> Sequence[Mapping[str, Any]]:
        """Status, sentence and labels of every head."""
        ...

    @property
    def examples(self) -> Sequence[Mapping[str, Any]]:
        """Queries with their keys and context, by head and kind."""
        ...

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Model, corpus and settings."""
        ...


def profile_table(found: TextProfile, name: str) -> HeadTable:
    """Return the numbers of a profile as a table of heads."""
    rows, about = [], {}
    weights = str(found.provenance.get("content_hash") or "")
    texts = found.provenance.get("metric_texts") or _TEXTS
    for row in found.rows:
        metric, score = str(row["metric"]), float(row["score"])
        rows.append(
            {
                "model": name,
                "metric": metric,
                "score": score,
                **{k: row[k] for k in ("stack", "layer", "head", "low", "high", "null", "unit")},
                "n": int(row["n"]) if math.isfinite(score) else 0,
            }
        )
        ruled = metric.startswith(RULE)
        about[name, metric] = {
            "content_hash": weights,
            "sign": texts.get(metric, ""),
            "null": _BY_POSITION if ruled else _NULLS.get(metric, "none"),
        }
    return HeadTable.from_records(rows, about)


def profile_name(found: TextProfile) -> str:
    """Return the name of the model of a profile."""
    provenance = found.provenance
    return str(provenance.get("model_id") or provenance.get("model") or "model")


def add_profile(model: Model, found: TextProfile, named: int) -> None:
    """Add roles, sentences and examples of a profile to a model that has its heads.

    A head that the profile describes has the role of its leading rule; another one keeps its role.
    """
    names = [stack["name"] for stack in model["stacks"]]
    at = {(names[p["stack"]], p["layer"], p["head"]): i for i, p in enumerate(model["heads"])}
    examples: dict[Hashable, list[Mapping[str, Any]]] = {}
    for one in found.examples:
        examples.setdefault(one["name"], []).append(one)
    described: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for one in found.descriptions:
        i = at[str(one["stack"]), int(one["layer"]), int(one["head"])]
        label = model["heads"][i]["label"]
        card = model["cards"].setdefault(label, {})
        card["profile"] = _card(one, examples.get(one["name"], ()))
        if one["status"]:
            described[label] = _leading(one), one
    if described:
        model["roles"], model["legend"] = _roles(described, model)
    roles, legend = model["roles"], model["legend"]
    provenance = made_of(found.provenance)
    model["provenance"].setdefault("content_hash", provenance.get("content_hash"))
    model["provenance"]["profile"] = provenance
    model["profile"] = {
        "corpus": str(provenance.get("corpus") or ""),
        "text": _summary(found, provenance),
        "statements": _statements(described, roles, legend, model, named),
        "opening": _opening(described, legend),
    }


def _leading(one: Mapping[str, Any]) -> str:
    """Return the role of a head: its rule with the largest share, position, or unclear."""
    if one["status"] == "rules":
        return f"{RULE}{one['labels'][0]['rule']}" if one["labels"] else LESS
    return POSITION if one["status"] == "position" else UNCLEAR


def _card(one: Mapping[str, Any], examples: Sequence[Mapping[str, Any]]) -> HeadProfile:
    shown: list[TextExample] = []
    for kind, n in SHOWN.items():
        mine = [x for x in examples if x["kind"] == kind]
        first = len(mine) // 2 if kind == "uniform" else 0
        shown += [shown_example(x) for x in mine[first : first + n]]
    others = [x for x in examples if x["kind"] not in SHOWN][:ELSE]
    shown += [shown_example(x) for x in others]
    held = one["status"] == "rules"
    rules = [(_described_rule if held else _other_rule)(x) for x in one.get("labels", ())]
    rules += [_other_rule(x) for x in one.get("avoided", ())]
    return {
        "status": str(one["status"]),
        "sentence": str(one["sentence"]),
        "rules": rules,
        "examples": shown,
        "by_rule": [
            (x["phrase"], shown_example(x["examples"][0]))
            for x in (one["labels"] if held else ())
            if x.get("examples")
        ]
        + [
            (f"{x['phrase']}, as a cluster of its own", shown_example(x["examples"][0]))
            for x in one.get("behaviours", {}).get("each", ())
            if x["examples"]
        ],
        "facts": {
            **_behaviours(one),
            **{k: plain_value(v) for k, v in one.items() if k not in _KNOWN},
        },
    }


def _behaviours(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of the clusters of a head's edges, if it has several."""
    each = one.get("behaviours", {}).get("each", ())
    rows = []
    for x in each:
        row = {"attention goes": x["phrase"], "share": percent_words(x["share"])}
        row["of it beyond position"] = percent_words(x["beyond_position"])
        row["raises"] = ", ".join(token for token, _ in x.get("raises", ())[:4])
        rows.append(row)
    return {"clusters of its edges by what it reads": rows} if rows else {}


def _described_rule(label: Mapping[str, Any]) -> RuleRow:
    """Return the row of a rule of a head's description: keys of several rules count in parts."""
    share = label["share"]
    return RuleRow(
        phrase=label["phrase"],
        share=share["value"],
        share_low=finite(share["low"]),
        share_high=finite(share["high"]),
        by_position=label["position"],
        nats=label["nats"],
        **_alone(label),
    )


def _other_rule(label: Mapping[str, Any]) -> RuleRow:
    """Return the row of a rule that a head avoids or is near to: its undivided share."""
    return RuleRow(
        phrase=label["phrase"],
        share=label["total"],
        share_low=None,
        share_high=None,
        by_position=label["expected"],
        nats=label["nats"],
        **_alone(label),
    )


def _alone(label: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the share that a rule explains without other rules; None where it is not known."""
    number = label.get("alone", {})
    ends = {f"alone_{end}": finite(number.get(end)) for end in ("low", "high")}
    return {"alone": finite(number.get("value")), **ends}


def shown_example(one: Mapping[str, Any]) -> TextExample:
    """Return an example of a profile as a page shows it."""
    kind = str(one["kind"])
    return {
        "kind": kind,
        "how": KINDS.get(kind, ""),
        "tokens": [str(t) for t in one["tokens"]],
        "query": int(one["query"]),
        "keys": [(int(k), float(m)) for k, m in one["keys"]],
        "gaps": [int(g) for g in one.get("gaps", ())],
        "document": str(one.get("document", "")),
        "surprise": finite(one.get("surprise")),
    }


def _roles(
    described: Mapping[str, tuple[str, Mapping[str, Any]]], model: Model
) -> tuple[list[str | None], list[Role]]:
    """Return the role of every head, and the legend: rules by their number of heads, then rest."""
    leading = [role for role, _ in described.values()]
    rules = [r for r in dict.fromkeys(leading) if r.startswith(RULE)]
    first = set(sorted(rules, key=lambda r: -leading.count(r))[:LEGEND])
    roles: list[str | None] = []
    for place, before in zip(model["heads"], model["roles"], strict=True):
        role = described[place["label"]][0] if place["label"] in described else before
        roles.append(OTHER if role in rules and role not in first else role)
    phrases = {
        f"{RULE}{label['rule']}": str(label["phrase"])
        for _, one in described.values()
        for label in one["labels"][:1]
    }
    ruled = [r for r in dict.fromkeys(roles) if r and r.startswith(RULE)]
    last = {OTHER: 1, LESS: 2}
    counted = sorted(ruled, key=lambda r: (last.get(r, 0), -roles.count(r)))
    by_id = {role["id"]: role for role in model["legend"]}
    by_scores = [r for r in by_id if r in roles and r not in (UNCLEAR, POSITION)]
    order = [*counted, POSITION, *by_scores, UNCLEAR]
    legend: list[Role] = [
        by_id[r] if r in by_scores else _role(r, phrases.get(r, ""), roles.count(r)) for r in order
    ]
    return roles, legend


def _role(role: str, phrase: str, count: int) -> Role:
    beats = (
        f"On both parts of the documents the rules explain at least {LEAST_GAIN} of the pattern "
        f"and {LEAST_NATS} nats per query more than position, and more than the same rules on the "
        "tokens of another document."
    )
    if role == POSITION:
        name, text = "position alone", "Attends by place: the rules add nothing to position."
        rule = f"Position explains at least {LEAST_POSITION} of the pattern on both parts."
    elif role == UNCLEAR:
        name, text = "unclear", "Neither the rules nor position alone describe it."
        rule = "None of the above."
    elif role == LESS:
        name, text, rule = "avoids a rule", "Attends less to a rule than position predicts.", beats
    elif role == OTHER:
        name, text, rule = "another rule", "Another rule leads; its card names it.", beats
    else:
        name = phrase.removeprefix("to ").partition(" (")[0]
        text = f"Its rule with the largest share: attention that goes {phrase}."
        rule = beats
    return {"id": role, "name": name, "text": text, "rule": rule, "count": count}


def _summary(found: TextProfile, made: Mapping[str, Any]) -> str:
    """Return counts of heads and the mean share that each rung explains, in one paragraph."""
    status = [one["status"] for one in found.descriptions]
    if not any(status):
        return f"{len(status):,} heads with examples; no description was fitted."
    mean: dict[str, float] = {}
    for rung in ("position", "rules", "tokens"):
        scores = [r["score"] for r in found.rows if r["metric"] == f"explained_{rung}"]
        known = [x for x in scores if math.isfinite(x)]
        mean[rung] = sum(known) / len(known) if known else math.nan
    used = made.get("documents_used")
    where = f" ({used:,} documents)" if used else ""
    shares = "position {position:.2f}, rules {rules:.2f}, the two tokens {tokens:.2f}".format(
        **mean
    )
    return " ".join([*text_sentences(made), ""]) + (
        f"{status.count('rules'):,} of {len(status):,} heads are described by rules beyond "
        f"position, {status.count('position'):,} by position alone, {status.count('unclear'):,} "
        f"are unclear{where}. Share of the pattern explained on documents that did not fit it, "
        f"mean of heads: {shares}; the rest needs context."
    )


def _strength(role: str, one: Mapping[str, Any]) -> float:
    return (
        float(one["labels"][0]["share"]["value"]) if role.startswith(RULE) and one["labels"] else 0
    )


def _statements(
    described: Mapping[str, tuple[str, Mapping[str, Any]]],
    roles: Sequence[str | None],
    legend: Sequence[Role],
    model: Model,
    named: int,
) -> list[Statement]:
    """Return a statement for each role of the legend, with its first heads by share."""
    shown = dict(zip((p["label"] for p in model["heads"]), roles, strict=True))
    out: list[Statement] = []
    for role in legend:
        mine = [label for label in described if shown[label] == role["id"]]
        mine = ordered_by(mine, lambda label: _strength(*described[label]))
        if not mine:
            continue
        first = described[mine[0]][1]
        share: Mapping[str, Any] = {}
        if _strength(*described[mine[0]]):
            share = first["labels"][0]["share"]
        names = [
            f"{label} {100 * size:.0f} %" if (size := _strength(*described[label])) else label
            for label in mine[:named]
        ]
        n = f"{len(mine):,} head{'s' * (len(mine) != 1)}"
        out.append(
            {
                "role": role["id"],
                "text": f"{role['name']}, {n}: {', '.join(names)}",
                "heads": mine,
                "metric": f"{RULE}{first['labels'][0]['rule']}" if share else "",
                "score": finite(share.get("value")),
                "low": finite(share.get("low")),
                "high": finite(share.get("high")),
                "null": finite(first["labels"][0]["position"]) if share else None,
                "found": True,
            }
        )
    return out


def _opening(
    described: Mapping[str, tuple[str, Mapping[str, Any]]], legend: Sequence[Role], n: int = 3
) -> list[str]:
    """Return the heads whose sentences the page opens with: of the first roles, and one unclear."""
    first: list[str] = []
    for role in legend:
        mine = [label for label, (leading, _) in described.items() if leading == role["id"]]
        if mine and len(first) < n and role["id"] != UNCLEAR:
            first.append(ordered_by(mine, lambda label: _strength(*described[label]))[0])
    unclear = [label for label, (leading, _) in described.items() if leading == UNCLEAR]
    return [*first, *unclear[:1]]
