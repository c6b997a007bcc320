"""Tables to test with: any that is valid, and one that a reader can check by eye."""

import math

from hypothesis import strategies as st

from interp.core.table import HeadTable

# Everything UTF-8 can hold: commas, quotes, newlines of each kind, NUL, other scripts.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "# model", 'a,"b"\r\nc', "\n# {}", "nan", "=1+1", " pad ", "模型🤖", "\x00", "<script>"]
)
floats = st.floats(allow_nan=False, allow_infinity=False)
errors = st.just(math.nan) | st.floats(min_value=0, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)


@st.composite
def head_tables(draw):
    natural = st.integers(0, 2**63 - 1)
    keys = st.tuples(texts, texts, natural, natural, texts)
    records = []
    for model, stack, layer, head, metric in draw(st.lists(keys, max_size=6, unique=True)):
        n = draw(natural)
        records.append(
            {
                "model": model,
                "stack": stack,
                "layer": layer,
                "head": head,
                "kv_head": draw(natural),
                "metric": metric,
                "score": draw(floats) if n else math.nan,
                "sem": draw(errors),
                "n": n,
                "clusters": draw(st.integers(0, n)),
                "null": draw(st.floats()),
                "null_sem": draw(errors),
                "null_sd": draw(errors),
                "p": draw(st.just(math.nan) | st.floats(min_value=0, max_value=1)),
                "unit": draw(texts),
            }
        )
    pairs = {(record["model"], record["metric"]) for record in records}
    made = st.dictionaries(texts, plain, max_size=3)
    return HeadTable.from_records(records, {pair: draw(made) for pair in sorted(pairs)})


def small(model="tiny", metric="induction", scores=((0.1, 0.9), (0.5, 0.2)), **options):
    """Two layers of two heads; the best is L0H1."""
    options = {"sem": 0.01, "n": 8, "null": 0.05, "unit": "fraction", "provenance": {}} | options
    return HeadTable.from_scores(model=model, metric=metric, score=scores, **options)
