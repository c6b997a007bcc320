"""Profiles of heads on text in the atlas: metrics, roles by leading entry, sentences, examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from interp.core.table import HeadTable
from interp.core.ties import ordered_by
from interp.draw.parts import made_of, plain_value
from interp.profiles.examples import KINDS
from interp.profiles.judged_lists import GRADES
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
GROUPED = {"favoured": "to tokens that it favours"}
LEGEND = 14  # rules of the legend; heads that another one leads are counted together
OTHER = f"{RULE}other"
_KNOWN = {
    "stack",
    "layer",
    "head",
    "name",
    "status",
    "sentence",
    "entries",
    "lines",
    "mixed",
    "score_name",
    "behaviours",
    "numbers",
}
_TEXTS = {
    "off_sink": "Attention that does not go to the first token or a special token.",
    "entropy": "Entropy of the attention off the sink.",
    "distance": "Mean distance of the attention off the sink.",
    "largest_weight": "Largest share of a query's attention off the sink on one key.",
    "pattern": "What even attention leaves to explain: the KL divergence of the pattern from it.",
    "uncovered": "Attention off the sink on keys of no entry of the head's list.",
    "explained_offset": "Share of the pattern that the distance explains on unseen documents.",
    "explained_position": "Share of the pattern that position explains on unseen documents.",
    "explained_list": "Share of the pattern that position and the printed list explain on unseen "
    "documents.",
    "list_beyond_position": "What the list explains more than position.",
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
    "explained_list": "the same list on the tokens of another document",
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
        """Status, sentence and entries of every head."""
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
        ruled = metric.startswith(("entry:", "line:"))
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

    A head that the profile describes has the role of its leading entry; another one keeps its role.
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
    """Return the role of a head: its leading entry, position, or unclear."""
    if one["status"] not in ("described", "in part"):
        return UNCLEAR
    first = _first(one)
    return f"{RULE}{first['rule']}" if first else POSITION


def _card(one: Mapping[str, Any], examples: Sequence[Mapping[str, Any]]) -> HeadProfile:
    shown: list[TextExample] = []
    for kind, n in SHOWN.items():
        mine = [x for x in examples if x["kind"] == kind]
        first = len(mine) // 2 if kind == "uniform" else 0
        shown += [shown_example(x) for x in mine[first : first + n]]
    others = [x for x in examples if x["kind"] not in SHOWN][:ELSE]
    shown += [shown_example(x) for x in others]
    return {
        "status": str(one["status"]),
        "sentence": str(one["sentence"]),
        "rules": [_row(x) for x in one.get("entries", ())],
        "examples": shown,
        "by_entry": [
            (x["phrase"], shown_example(x["examples"][0]))
            for x in one["entries"]
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


def _row(entry: Mapping[str, Any]) -> RuleRow:
    """Return the row of an entry of a head's list."""
    share, gain = entry["share"], entry["gain"] or {}
    return RuleRow(
        phrase=entry["phrase"],
        share=share["value"],
        share_low=finite(share["low"]),
        share_high=finite(share["high"]),
        by_position=entry["position"],
        nats=entry["nats"],
        alone=finite(gain.get("value")),
        alone_low=finite(gain.get("low")),
        alone_high=finite(gain.get("high")),
    )


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
    """Return the role of every head, and the legend: entries by number of heads, then rest."""
    leading = [role for role, _ in described.values()]
    rules = [r for r in dict.fromkeys(leading) if r.startswith(RULE)]
    first = set(sorted(rules, key=lambda r: -leading.count(r))[:LEGEND])
    roles: list[str | None] = []
    for place, before in zip(model["heads"], model["roles"], strict=True):
        role = described[place["label"]][0] if place["label"] in described else before
        roles.append(OTHER if role in rules and role not in first else role)
    entries = [entry for _, one in described.values() if (entry := _first(one))]
    phrases = {f"{RULE}{one['rule']}": _of_any_query(one) for one in entries}
    ruled = [r for r in dict.fromkeys(roles) if r and r.startswith(RULE)]
    last = {OTHER: 1}
    counted = sorted(ruled, key=lambda r: (last.get(r, 0), -roles.count(r)))
    by_id = {role["id"]: role for role in model["legend"]}
    by_scores = [r for r in by_id if r in roles and r not in (UNCLEAR, POSITION)]
    order = [*counted, POSITION, *by_scores, UNCLEAR]
    legend: list[Role] = [
        by_id[r] if r in by_scores else _role(r, phrases.get(r, ""), roles.count(r)) for r in order
    ]
    return roles, legend


def _of_any_query(entry: Mapping[str, Any]) -> str:
    """Return the words of an entry without its kind of query and its members."""
    words = str(entry["phrase"]).removeprefix(f"from {entry['queries']} ")
    return GROUPED.get(entry["rule"], words)


def _role(role: str, phrase: str, count: int) -> Role:
    graded = f"Its list explains at least {GRADES['in part']} of the pattern on unseen documents."
    if role == POSITION:
        name, text = "position alone", "Attends by position: no place and no other keys stand out."
        rule = graded.replace("Its list", "Position")
    elif role == UNCLEAR:
        name, text = "not described", "Neither a list of five entries nor position describes it."
        rule = "None of the above."
    elif role == OTHER:
        name, text, rule = "another entry", "Another entry leads; its card names it.", graded
    else:
        name = phrase.removeprefix("to ").partition(" (")[0]
        text, rule = f"The leading entry of its list: attention that goes {phrase}.", graded
    return {"id": role, "name": name, "text": text, "rule": rule, "count": count}


def _summary(found: TextProfile, made: Mapping[str, Any]) -> str:
    """Return counts of heads and the mean share that each rung explains, in one paragraph."""
    status = [one["status"] for one in found.descriptions]
    if not any(status):
        return f"{len(status):,} heads with examples; no description was fitted."
    mean: dict[str, float] = {}
    for rung in ("position", "list", "tokens"):
        scores = [r["score"] for r in found.rows if r["metric"] == f"explained_{rung}"]
        known = [x for x in scores if math.isfinite(x)]
        mean[rung] = sum(known) / len(known) if known else math.nan
    used = made.get("documents_used")
    where = f" ({used:,} documents)" if used else ""
    shares = "position {position:.2f}, the lists {list:.2f}, the two tokens {tokens:.2f}".format(
        **mean
    )
    said = (
        f"The lists describe {status.count('described'):,} of {len(status):,} heads, "
        f"{status.count('in part'):,} in part, {status.count('not described'):,} not{where}. Share "
        f"of the pattern explained on documents that did not fit it, mean of heads: {shares}; the "
        "rest needs context."
    )
    return " ".join([said, *text_sentences(made)])


def _first(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leading entry of a head; empty if it has none.

    It has the largest share: of a place the whole, of other keys what position does not give.
    """
    attended = [entry for entry in one["entries"] if not entry["avoided"]]
    return ordered_by(attended, _beyond)[0] if attended else {}


def _beyond(entry: Mapping[str, Any]) -> float:
    return entry["share"]["value"] - (0.0 if entry["place"] else entry["position"])


def _strength(role: str, one: Mapping[str, Any]) -> float:
    return float(_first(one)["share"]["value"]) if role.startswith(RULE) else 0.0


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
        leading, one = described[mine[0]]
        first = _first(one) if leading.startswith(RULE) else {}
        share = first.get("share", {})
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
                "metric": f"entry:{first['name']}" if first else "",
                "score": finite(share.get("value")),
                "low": finite(share.get("low")),
                "high": finite(share.get("high")),
                "null": finite(first.get("position")),
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
