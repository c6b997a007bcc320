"""Parts of the atlas on texts: dependency trees, attributions, faithfulness, refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from interp.core.ties import ordered_by
from interp.draw.parts import (
    FoundPart,
    frame_rows,
    made_of,
    plain_value,
    rows_of_dicts,
    shorter,
    stated_weights,
)
from interp.heads.roles.result import Evidence
from interp.heads.special import LEVEL
from interp.report.atlas.document import Curves, Line, Sentences, Tokens

if TYPE_CHECKING:
    from interp.syntax.result import TreeScores

GAIN = 0.1  # least gain in accuracy over the best fixed offset (Voita et al. 2019)
_Key = tuple[str, str, int, int]


def tree_part(found: TreeScores) -> FoundPart:
    """Return the dependency relations and trees of one model."""
    good = [r for r in found.relations if r.p < LEVEL and r.gain > 0]
    heads: dict[str, list[str]] = {}
    for relation in found.relations:
        heads.setdefault(_label(relation.head), []).append(relation.relation)
    lines = [
        f"{r.relation} {r.head} {r.accuracy:.0%} (fixed distance {r.baseline:.0%})"
        for r in ordered_by(good, lambda r: r.gain)[:4]
    ]
    trees = [t for t in found.trees if not t.baseline]
    best = ordered_by(trees, lambda t: t.uuas)[0] if trees else None
    text = (
        f"Heads beat the best fixed distance in {len(good)} of {len(found.relations)} relations: "
        f"{'; '.join(lines)}."
        if good
        else f"No head beats the best fixed distance in any of {len(found.relations)} relations."
    )
    if best is not None:
        text += f" Best trees: {best.method}, {best.uuas:.0%} of edges."
    figure: Sentences = {
        "draw": "sentences",
        "sentences": [plain_value(asdict(x)) for x in found.drawn],
    }
    part: Any = {
        "id": "",
        "kind": "tree",
        "title": "Dependency relations and trees",
        "text": text,
        "heads": list(heads),
        **frame_rows(found.to_pandas(), ("model",)),
        "figure": figure,
        "provenance": made_of(found.provenance),
    }
    notes = {x: f"best head for {', '.join(names)}" for x, names in heads.items()}
    return FoundPart(part, found.model, stated_weights(found.provenance), notes)


def syntax_evidence(found: TreeScores, model: str) -> dict[_Key, list[Evidence]]:
    """Return the evidence of each head for the role "syntax"; p is corrected over the relations."""
    out: dict[_Key, list[Evidence]] = {}
    for r in found.relations:
        if not (r.p < LEVEL and r.gain >= GAIN):
            continue
        stack, _, label = r.head.rpartition(" ")
        layer, head = (int(x) for x in label[1:].split("H"))
        text = (
            f"Finds {r.accuracy:.0%} of the head words of {r.relation}, the best fixed distance "
            f"{r.baseline:.0%} (p {r.p:.1g}, {r.n} dependents)."
        )
        key = (model, stack or "decoder", layer, head)
        out.setdefault(key, []).append(
            Evidence(
                "syntax",
                text,
                f"relation {r.relation}",
                r.accuracy,
                n=r.n,
                null=r.baseline,
                p=r.p,
                unit="share of dependents",
                size=r.gain / GAIN,
            )
        )
    return out


def _label(head: str) -> str:
    """Return L5H4 of `decoder L5H4` or of `L5H4`."""
    return head.rpartition(" ")[2]


def attribution_parts(document: Mapping[str, Any]) -> list[FoundPart]:
    """Return the attributions of a file, one part per text: a row of scores per method."""
    out = []
    warning = document.get("warning") or ""
    for (model, tokens, target), group in groupby(document["attributions"], key=_text):
        rows = list(group)
        provenance = rows[0]["provenance"]
        figure: Tokens = {
            "draw": "tokens",
            "tokens": list(tokens),
            "rows": [(r["method"], plain_value(r["scores"])) for r in rows],
        }
        table = [
            {"position": at, "token": token, **{r["method"]: r["scores"][at] for r in rows}}
            for at, token in enumerate(tokens)
        ]
        missed = [f"{r['method']}: {r['completeness']}" for r in rows if r.get("incomplete")]
        text = f"Attribution of {target} = {shorter(rows[0]['value'])} to the tokens of the text."
        text = " ".join([text, *missed])
        part: Any = {
            "id": "",
            "kind": "attribution",
            "title": f"Attribution: {''.join(tokens)[:60]}",
            "text": f"{text} {warning}".strip(),
            "heads": [],
            **rows_of_dicts(table),
            "figure": figure,
            "provenance": made_of(provenance),
        }
        out.append(FoundPart(part, model, stated_weights(provenance)))
    return out


def _text(one: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str]:
    provenance = one["provenance"]
    model = str(provenance.get("model_id") or provenance.get("model") or "")
    return model, tuple(map(str, one["tokens"])), str(one["target"])


def faithfulness_part(document: Mapping[str, Any]) -> FoundPart:
    """Return how faithful attribution methods are, best first."""
    provenance = document.get("provenance", {})
    rows = [
        {"measure": measure, **row}
        for measure, methods in document["summary"].items()
        for row in methods
    ]
    lines = []
    for measure, methods in document["summary"].items():
        best = [x for x in methods if x.get("mean") is not None][:1]
        lines += [f"{measure}: {x['method']} {shorter(x['mean'])}" for x in best]
    limits = [str(x["text"]) for x in document["limits"].values() if not x.get("can_show")]
    warning = str(document.get("warning") or "")
    text = (
        f"Best method by each measure: {'; '.join(lines[:4])}, on {len(document['texts'])} texts."
    )
    part: Any = {
        "id": "",
        "kind": "faithfulness",
        "title": "Faithfulness of attribution methods",
        "text": " ".join(f"{x.rstrip('.')}." for x in (text, *limits[:1], warning) if x),
        "heads": [],
        **rows_of_dicts(rows),
        "provenance": made_of(provenance),
    }
    model = str(provenance.get("model_id") or provenance.get("model") or "")
    return FoundPart(part, model, stated_weights(provenance))


def safety_part(document: Mapping[str, Any]) -> FoundPart:
    """Return the refusal direction of one model, its heads, and what removing them does."""
    provenance = document.get("provenance", {})
    curves: Sequence[Mapping[str, Any]] = document["curves"]
    removed = [str(x["last_removed"]) for x in curves if x.get("last_removed")]
    sahara = {form: list(names) for form, names in document.get("sahara", {}).items()}
    heads = list(dict.fromkeys([*removed, *(x for names in sahara.values() for x in names)]))
    text = ""
    refused = document.get("refused") or []
    if len(refused) == 2:
        text = f"Declined: {refused[0]:.0%} of harmful prompts, {refused[1]:.0%} of harmless ones. "
    chosen = [x for x in document["directions"] if x.get("chosen")]
    if chosen:
        text += f"Direction: layer {chosen[0]['layer']}, position {chosen[0]['position']}. "
    if removed:
        text += f"Heads ablated one after another: {', '.join(dict.fromkeys(removed))}."
    part: Any = {
        "id": "",
        "kind": "safety",
        "title": "Refusal",
        "text": text.strip(),
        "heads": heads,
        **rows_of_dicts(document["heads"], ("model", "kv_head")),
        "provenance": made_of(provenance),
    }
    if curves:
        part["figure"] = _removal(curves)
    notes = dict.fromkeys(heads, "among the heads of the refusal direction")
    return FoundPart(part, str(provenance.get("model_id", "")), stated_weights(provenance), notes)


def _removal(curves: Sequence[Mapping[str, Any]]) -> Curves:
    """Return each task over the number of ablated heads, beside random heads."""
    lines: list[Line] = []
    for task in dict.fromkeys(str(x.get("task", "")) for x in curves):
        mine = [x for x in curves if str(x.get("task", "")) == task]
        counts = [x["n_removed"] for x in mine]
        lines.append(
            {
                "name": task,
                "kind": "result",
                "x": counts,
                "y": [x["value"] for x in mine],
                "low": [x["low"] for x in mine],
                "high": [x["high"] for x in mine],
            }
        )
        lines.append(
            {
                "name": f"{task}, random heads",
                "kind": "random",
                "x": counts,
                "y": [x["random_mean"] for x in mine],
                "low": [x["random_low"] for x in mine],
                "high": [x["random_high"] for x in mine],
            }
        )
    unit = str(curves[0].get("unit", ""))
    return {"draw": "curves", "x": "heads ablated", "y": unit, "lines": lines}


def token_part(document: Mapping[str, Any]) -> FoundPart:
    """Return the importance of the tokens of one text by several measures, and their effect."""
    rows = document["tokens"]
    tokens = [str(row["token"]) for row in rows]
    measures = (
        [name for name in rows[0] if name not in ("position", "token", "special")] if rows else []
    )
    provenance = document.get("provenance", {})
    figure: Any = {
        "draw": "tokens",
        "tokens": tokens,
        "rows": [
            (
                "effect of hiding the token" if name == "effect" else name,
                [row[name] for row in rows],
            )
            for name in measures
        ],
    }
    part: Any = {
        "id": "",
        "kind": "attribution",
        "title": "Importance of tokens by published measures",
        "text": f"{max(len(measures) - 1, 0)} measures on one text of {len(tokens)} tokens, beside "
        "the change of the output when each token is hidden.",
        "heads": [],
        "columns": ["position", "token", *measures],
        "rows": [
            [row["position"], row["token"], *(row[name] for name in measures)] for row in rows
        ],
        "figure": figure,
        "provenance": made_of(provenance),
    }
    return FoundPart(
        part,
        str(provenance.get("model_id") or provenance.get("model") or ""),
        stated_weights(provenance),
    )
