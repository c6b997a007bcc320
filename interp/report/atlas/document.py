"""The atlas as plain data: what the page, the local server and the notebook view all draw.

Everything here can be written as JSON. Numbers of heads are columns in the order of `heads`, so
that 10,000 heads stay small; what is known of few heads only is in `cards`, by the head's label. A
number that does not exist is None, never NaN. Texts are plain; whoever draws them escapes them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, NotRequired, TypedDict

Column = list[float | None]  # one number per head, in the order of `Model.heads`


class Atlas(TypedDict):
    """One page."""

    version: int
    title: str
    models: list[Model]
    comparisons: list[Comparison]
    pages: list[Part]  # results that are not about single heads: faithfulness, safety, checks
    command: str | None
    notes: NotRequired[list[str]]  # to be seen: files that could not be read, models of one name


class Model(TypedDict):
    """One model; its `id` is its part of a deep link, as in `#tiny/L5H4`."""

    id: str
    name: str
    stacks: list[Stack]
    heads: list[Place]
    roles: list[str | None]  # of each head: a role's `id`; None if no score of it can be judged
    legend: list[Role]  # the roles in the order of the legend
    statements: list[Statement]
    metrics: list[Metric]
    cards: dict[str, Card]
    results: list[Part]  # circuits, trees, attributions and pruning of this model
    provenance: dict
    profile: NotRequired[TextSummary]  # what its heads do on text
    view: NotRequired[str]  # command that shows HEAD on a text, where the name loads the model


class Stack(TypedDict):
    """Layers with attention: "decoder", "encoder", "cross"."""

    name: str
    layers: int
    heads: int
    kinds: NotRequired[str]  # layers by the kind of their attention, where not all are a softmax


class Place(TypedDict):
    """Place of a head; `label` is L5H4, with its stack where the model has several."""

    label: str
    stack: int
    layer: int
    head: int
    kv_head: int | None


class Role(TypedDict):
    """A role of the legend, `unclear` and `several` included."""

    id: str
    name: str
    text: str  # what a head of this role does, in one sentence
    rule: str  # the scores, nulls and checks that decide it
    count: int
    slot: NotRequired[int]  # place of its colour in the palette of roles, from 0


class Statement(TypedDict):
    """One sentence about a role or a group of metrics: what was found, or that nothing was."""

    role: str | None
    text: str
    heads: list[str]  # labels, the strongest first
    metric: str
    score: float | None
    low: float | None
    high: float | None
    null: float | None
    found: bool
    judged: NotRequired[bool]  # False where there is no null, so that nothing is claimed


class Metric(TypedDict):
    """The scores of one metric over all heads."""

    name: str
    text: str
    unit: str
    group: str
    low: float | None  # ends of its range
    high: float | None
    end: str  # "high", "low" or "both": the end of interest
    null: str | None  # what the null is
    null_values: NotRequired[list[float]]  # its distribution over heads: their nulls, sorted
    drawn_values: NotRequired[list[float]]  # scores of the heads of random weights, sorted
    draws: NotRequired[int]  # of random weights
    draws_shared: NotRequired[bool]  # True if they are from the cache of this machine
    score: Column
    sem: Column
    n: Column
    null_score: Column
    null_sem: Column
    score_low: NotRequired[Column]  # 95 % interval of the score; None where there is no error
    score_high: NotRequired[Column]
    why_no_interval: NotRequired[list[str]]  # per head; "" where there is one
    null_sd: NotRequired[Column]  # spread of single heads under the null; None if it is not known
    p: Column


class TextSummary(TypedDict):
    """Summary of the heads of a model on text."""

    corpus: str
    text: str  # numbers of heads, and what is explained of them
    statements: list[Statement]  # one per role
    opening: list[str]  # labels of the heads whose sentences come first


class RuleRow(NamedTuple):
    """One entry of the list on a card; the page reads the fields by their order."""

    phrase: str  # such as "to the token just before"
    share: float  # of the attention off the sink
    share_low: float | None  # None where the share has no interval
    share_high: float | None
    by_position: float  # the share that position alone predicts
    nats: float  # the fitted parameter: by how much a key of the rule is preferred to others
    alone: float | None  # share of the pattern that is lost without it
    alone_low: float | None
    alone_high: float | None


class HeadProfile(TypedDict):
    """Description of one head on text; its numbers are among the metrics."""

    status: str  # grade of the list; "" where no description was fitted
    sentence: str
    rules: list[RuleRow]
    examples: list[TextExample]
    by_entry: list[tuple[str, TextExample]]  # phrase of an entry, and its strongest query
    facts: dict  # whatever else is known, as plain data


class TextExample(TypedDict):
    """One query with its largest keys in context; places count the tokens that are shown."""

    kind: str
    how: str  # how it was chosen
    tokens: list[str]
    query: int
    keys: list[tuple[int, float]]  # place and attention
    gaps: list[int]  # places before which tokens are left out
    document: str
    surprise: float | None  # KL from the row that the rules predict, in nats


class Card(TypedDict, total=False):
    """Results about one head, other than its scores."""

    profile: HeadProfile
    evidence: list[Evidence]
    examples: list[Example]
    writes: Writes
    effects: list[Effect]
    parts: list[Link]  # circuits, trees and attributions in which it takes part
    nearest: list[Nearest]


class Evidence(TypedDict):
    """One reason for a role."""

    role: str
    text: str
    metric: str
    score: float | None
    null: float | None
    p: float | None


class Example(TypedDict):
    """The pattern of a head on a prompt that drives it; `weights` is the row of each query."""

    metric: str | None
    tokens: list[str]
    query: int  # the strongest query position
    value: float
    weights: list[float]  # of the strongest query, over the tokens up to it


class Writes(TypedDict, total=False):
    """Tokens that the head's output raises and lowers, and examples of its OV and QK circuit."""

    up: list[tuple[str, float]]
    down: list[tuple[str, float]]
    ov: list[tuple[str, list[str]]]  # a token attended to, and what the head then raises
    qk: list[tuple[str, list[str]]]  # a query token, and the keys that it prefers
    how: str


class Effect(TypedDict):
    """Change of a behaviour when the head is removed."""

    task: str
    intervention: str
    value: float
    low: float | None
    high: float | None
    unit: str
    n: int


class Nearest(TypedDict):
    """A head that behaves alike."""

    model: str  # a model's `id`, or its name where it is not on the page
    label: str
    similarity: float
    how: str


class Link(TypedDict):
    """Another part of the page where the head appears."""

    part: str  # a part's `id`
    text: str


class Part(TypedDict):
    """A result that is shown as a whole."""

    id: str
    kind: str  # "circuit", "tree", "attribution", "pruning", "faithfulness", "safety", "check",
    # "importance", "comparison", "match", "emergence", "cache", "gates", "probe", "shares",
    # "steering", "alignment", "speech", "maps", "lens", "anchors"
    title: str
    text: str  # what it says, in one or two sentences
    heads: list[str]
    columns: list[str]
    rows: list[list]
    figure: NotRequired[
        Graph | Curves | Sentences | Tokens | ColouredTexts | Alignment | Sound | Maps
    ]
    # told apart by its `draw`
    provenance: NotRequired[dict]


class Graph(TypedDict):
    """A circuit: the nodes and edges of its smallest set, or its first ones."""

    draw: str  # "graph"
    nodes: list[Node]  # the largest score first
    edges: list[tuple[str, str, float | None]]  # from, to, score; empty if only nodes were scored
    chosen: list[str]  # the nodes of the smallest set; empty if there is none
    unit: str
    curves: NotRequired[Curves]  # faithfulness over the number of heads
    pair: NotRequired[Pair]  # of the task's prompts, the first one


class Pair(TypedDict):
    """One prompt with the behaviour, and its corrupted version of the same length."""

    clean: list[str]  # tokens
    corrupted: list[str]
    positions: dict[str, int]  # of the named tokens


class Node(TypedDict):
    """A node of a circuit; `layer` and `head` are None for embeddings, MLPs and the logits."""

    id: str
    layer: int | None
    head: int | None
    score: float | None
    sem: float | None
    role: str
    reads: NotRequired[tuple[int, int, float]]  # query, key and weight, its strongest on the pair


class Curves(TypedDict):
    """Lines over one axis, such as a task against the number of removed heads."""

    draw: str  # "curves"
    x: str  # title of the axis, with its unit
    y: str
    lines: list[Line]


class Line(TypedDict):
    """One line with its band; `kind` is "result", "random" or "head"."""

    name: str
    kind: str
    x: list[float | None]
    y: list[float | None]
    low: list[float | None]  # empty without a band
    high: list[float | None]


class Sentences(TypedDict):
    """Sentences with gold and predicted arcs of dependency trees."""

    draw: str  # "sentences"
    sentences: list[dict]  # words, heads, relations, predicted, directed, as in `trees.json`


class Tokens(TypedDict):
    """Scores of the tokens of one text, one row per method."""

    draw: str  # "tokens"
    tokens: list[str]
    rows: list[tuple[str, list[float | None]]]  # name of the method, a score per token


class ColouredTexts(TypedDict):
    """Several texts with scores of their parts; each has a name, `tokens` and `rows`."""

    draw: str  # "texts"
    texts: list[dict]


class Alignment(TypedDict):
    """One sentence pair by one cross-attention head; links are (source word, target word)."""

    draw: str  # "alignment"
    layer: int
    head: int
    row: Literal["emits", "fed"]
    source: list[str]
    target: list[str]
    weights: list[list[float]]  # [target, source]
    links: list[tuple[int, int]]
    sure: list[tuple[int, int]] | None
    possible: list[tuple[int, int]]


class Sound(TypedDict):
    """A spectrogram and attention over the same time."""

    draw: str  # "sound"
    bands: list[list[float]]
    attention: list[list[float]]  # [token, position]
    tokens: list[str]
    seconds: float
    title: str
    starts: list[tuple[float, int]]  # found start and row of each word


class Maps(TypedDict):
    """Images (`pixels`, [channel, row, column]) and maps of patches over each, by method."""

    draw: str  # "maps"
    images: list[dict]


class Comparison(TypedDict):
    """Differences of two models, in the order of the heads of the first."""

    id: str
    a: str
    b: str
    text: str
    metrics: list[Difference]
    said: NotRequired[list[tuple[str, str]]]  # label of a changed head, and its sentence


class Difference(TypedDict):
    """Second minus first, for one metric."""

    metric: str
    unit: str
    difference: Column
    low: Column
    high: Column
    p: Column  # corrected over heads
