"""Part of the atlas on query-key shares: what each head's attention is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.report.atlas.rows import FoundPart, between, frame_rows, made_of, stated_weights

if TYPE_CHECKING:
    from interp.circuits.why.shares import QKShares

ON_CARD, IN_TABLE = 3, 8  # terms of each head on its card, and in the table


def qk_shares_part(found: QKShares) -> FoundPart:
    """Return the largest query side x key side terms of each head, and a note for its card."""
    import pandas as pd

    notes, tables = {}, []
    for name in found.names:
        mine = found.of(name)
        whole: Any = mine.wide()
        rows = mine.top(IN_TABLE, by="relative").to_pandas()
        tables.append(rows)
        text = ", ".join(
            f"{r['query_writer']} x {r['key_writer']} {r['relative']:+.3g}"
            for r in rows.head(ON_CARD).to_dict("records")
        )
        notes[name] = (
            f"Why it attends ({found.at} positions): query side x key side {text}, of a score of "
            f"{whole['relative'].sum():+.3g} relative to the visible keys"
        )
    frame: Any = pd.concat(tables, ignore_index=True)
    columns = [
        "layer",
        "head",
        "query_writer",
        "key_writer",
        "score",
        "low",
        "high",
        "null",
        "relative",
        "n",
    ]
    first = found.top(1).to_pandas().to_dict("records")
    best = "".join(
        f" The largest is {r['query_writer']} x {r['key_writer']} in L{r['layer']}H{r['head']}: "
        f"{r['score']:+.3g}{between(r['low'], r['high'])}, {r['relative']:+.3g} relative to the "
        "visible keys."
        for r in first
    )
    part: Any = {
        "id": "",
        "kind": "shares",
        "title": f"Why heads attend: {found.at} positions",
        "text": f"The attention scores of {len(found.names)} heads on {found.per_prompt.shape[1]} "
        f"prompts as sums over pairs of upstream writers; the first {IN_TABLE} terms of each by "
        f"what they add relative to the visible keys.{best}",
        "heads": list(found.names),
        **frame_rows(frame[columns], ()),
        "provenance": made_of(found.provenance),
    }
    made = found.provenance
    return FoundPart(part, str(made.get("model_id") or ""), stated_weights(made), notes=notes)
