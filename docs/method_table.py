"""The method table: every declared method with definition, cost, null and when not to use it.

`docs/tables.py` writes them into docs/methods.md.

The tables are generated from the code. Paragraphs of a docstring that begin with `Not for:`,
`Cost:`, `Null:`, `Unit:` and `Reference:` are the cells of the table; a metric or a method of
attribution or circuits needs only the first, since the others follow from its declaration and its
kind.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from interp.causal.comparison.questions import METHODS as QUESTIONS
from interp.causal.game.interventions import INTERVENTIONS, Intervention
from interp.core.calibration import chance_of
from interp.core.declaration import section
from interp.core.entry import Entry
from interp.core.registry import ATTRIBUTION_METHODS, METRICS, REGISTRIES
from interp.model.edits import gate

# Sections of the page: title and introduction.
SECTIONS = {
    "detectors": (
        "Where heads attend",
        "`interp score MODEL -m NAME`, `interp.score(model, NAME)`. A detector is one line that "
        "states which keys an ideal head attends to; the score is the mean attention there over "
        "the rows that have such a key, so an ideal head scores 1 on any prompt.",
    ),
    "weights": (
        "What heads compute, from weights alone",
        "`interp score MODEL -m NAME`. Exact: no prompts, no standard error. They show what a head "
        "would compute from possible inputs.",
    ),
    "geometry": (
        "Geometry and statistics of heads",
        "`interp score MODEL -m NAME`, or `-m geometry` for all of them; not by default. Measured "
        "on the prompts that are given, on one layer at a time; nothing of queries by keys is "
        "stored for long prompts.",
    ),
    "categories": (
        "Which kinds of token heads attend to",
        "`interp score MODEL -m NAME`, or `-m categories` for all of them; not by default. Each is "
        "scored on labelled texts; for labels of your own see `interp texts categories`.",
    ),
    "cache": (
        "Heads and caches",
        "`interp score MODEL -m NAME`, or `-m cache` for all of them; not by default. Each "
        "generates its own prompts. `interp cache MODEL` measures the cards of heads and a plan "
        "for the model.",
    ),
    "cross": (
        "Where cross attention looks",
        "`interp score MODEL -m NAME`, or `-m cross` for all of them; not by default. For "
        "encoder-decoder models. `interp study align MODEL` measures alignments of words.",
    ),
    "segments": (
        "Between images, text and registers",
        "`interp score MODEL -m NAME --image FILE`, or `-m segments` for all of them; not by "
        "default. Prompts must hold the segments that a metric names.",
    ),
    "experiments": (
        "Kinds of head that show in an experiment",
        "`interp score MODEL -m NAME`, not by default. Each generates its own prompts. The "
        "null column states the chance level of one head.",
    ),
    "roles": (
        "Named heads of known tasks",
        "`interp score MODEL -m NAME`, or `-m roles` for all of them; not by default. Each runs "
        "its own task, and a model that cannot do the task gets no scores and the reason.",
    ),
    "attribution methods": (
        "Which tokens a number comes from",
        "`interp attribute MODEL --text TEXT -m NAME`, `interp.attribute`. The null "
        "of all is `random_scores`, and all are tested on `bundled:deceive`, a model trained "
        "to hide the decisive word from its attention.",
    ),
    "token_importance": (
        "Which tokens matter, by published rules",
        "`interp attribute tokens MODEL --text TEXT --file TEXTS`, "
        "`interp.attribution.compare_importance`; "
        "each also by `interp attribute -m NAME`. They explain no target: they are rules for "
        "caches, quantisation and pooling, and `interp attribute tokens` measures how well each "
        "predicts the "
        "effect of hiding a token.",
    ),
    "importance": (
        "What a task loses without a head",
        "`interp importance ablate`, `interp importance shapley`, `interp importance`; in Python "
        "`from interp.causal import *`. They answer different questions, so their rankings differ. "
        "The unit is the task's.",
    ),
    "importance_more": ("More about heads and tasks", "In Python; some have a command."),
    "replacement": (
        "Seven kinds of ablation",
        "The replacement of an ablated head's output is part of every score's name (`--kind`; "
        "`interp.model.edits`). The kinds give different numbers.",
    ),
    "circuit methods": (
        "Which circuit does a task",
        "`interp circuit MODEL --task TASK --method NAME`, `interp.find_circuit`. Scores are "
        "measured "
        "again on held-out pairs of prompts, and compared with heads in random order.",
    ),
    "circuits": ("How good a circuit is", "Part of `interp circuit`."),
    "syntax": ("Dependency trees", "`interp study trees MODEL`; `interp.syntax`."),
    "safety": ("The heads behind refusal", "`interp study safety MODEL`; `interp.safety`."),
    "needle": (
        "Needles in haystacks",
        "`interp.heads.needle`; as metrics `retrieval`, `qr_retrieval`.",
    ),
    "outliers": (
        "Sinks, inactive heads and outliers on your own prompts",
        "`interp.heads.outliers`; on random tokens they are metrics (above).",
    ),
    "lens": ("Logits of the residual stream", "`interp.lens`."),
    "alignment": (
        "Cross attention of encoder-decoder models",
        "`interp study align MODEL --file PAIRS.jsonl`; `interp.alignment`. Heads are "
        "chosen on some pairs"
        " of sentences, or recordings, and judged on the others.",
    ),
    "vision": (
        "Heads that look at images",
        "`interp study vision MODEL --image DIR`; `interp.vision`. For vision "
        "transformers and the"
        " image towers of CLIP and SigLIP. What is found on some images is judged on others.",
    ),
    "vision_language": (
        "Pictures inside text",
        "`interp study pictures MODEL`; `interp.vision.language`. For models that read "
        "pictures "
        "inside text, such as LLaVA.",
    ),
    "chains": (
        "Sentences of a chain of thought",
        "`interp texts anchors MODEL --file TEXT`; `interp.text.chains`. Which sentences of a "
        "long text later "
        "ones attend to and depend on.",
    ),
    "context": (
        "Which sentences of a prompt an answer rests on",
        "`interp texts sources MODEL --file TEXT`; `interp.text.context`. Heads are chosen on "
        "some documents and judged on the others.",
    ),
    "graphs": (
        "Attention as a graph",
        "`interp texts graph MODEL`; `interp.text.graphs`. Graphs of one prompt or network, "
        "with their measures beside random graphs of equal degrees.",
    ),
    "probes": (
        "What heads carry: linear probes",
        "`interp train probe MODEL --file FILE`; `interp.probes`. Folds are of whole documents, "
        "and a probe is compared with shuffled labels and a control task.",
    ),
}
# Folders of functions that are not in a registry: their public functions are methods, except
# these, which make a method's inputs or draw its results.
PACKAGES = {
    "importance_more": "interp.causal",
    "circuits": "interp.circuits",
    "syntax": "interp.syntax",
    "safety": "interp.safety",
    "needle": "interp.heads.needle",
    "outliers": "interp.heads.outliers",
    "lens": "interp.lens",
    "alignment": "interp.alignment",
    "vision": "interp.vision",
    "vision_language": "interp.vision.language",
    "chains": "interp.text.chains",
    "context": "interp.text.context",
    "graphs": "interp.text.graphs",
    "probes": "interp.probes",
}
BESIDE = {"importance_more": [("interp.circuits", "confirm")]}  # methods of another folder
NO_METHODS = {
    "interp.circuits": {
        # methods that find circuits have their own table; these make or evaluate parts of circuits
        "confirm",
        "discovery",
        "evaluate_circuit",
        "evaluate_edges",
        "evaluate_set",
        "find_circuit",
        "make_contrast",
        "make_pairs",
        "patch_first",
        "published",
        "attribute_interchanges",
        "signals",
    },
    "interp.causal": {
        # tasks and their measures
        "accuracy",
        "answer_probability",
        "custom",
        "kl_to_clean",
        "logit_difference",
        "loss",
        "next_token_task",
        "repeats_task",
        "retrieval_problem",
        "retrieval_problem_task",
        # functions called before a run, for drawing after it, or shared by several methods
        "compare_importances",
        "michel",
        # choice of the heads that a checkpoint leaves out, and the check of its certificate
        "ranked_heads",
        "verify_certificate",
        # listed in the table of importances
        "all_but_one",
        "patching_gradient",
        "banzhaf",
        "gate_gradient",
        "aumann_shapley",
        "leave_one_out",
        "shapley",
        "truncated_shapley",
    },
    "interp.syntax": {"read_conllu", "read_labelled_texts", "read_pairs", "topic_texts"},
    "interp.safety": {"damage_at", "marker_sets", "outside_band", "read_prompts"},
    "interp.heads.needle": {"family_instances", "ids_instances", "read_task", "text_instances"},
    "interp.heads.outliers": {"replace_channel"},
    "interp.lens": set(),
    "interp.alignment": {
        # input, combination and drawing of alignments, and latency of outputs rather than heads
        "average_lagging",
        "both_directions",
        "encode_pairs",
        "made_sentence_pairs",
        "pair_alignment",
        "read_recordings",
        "read_sentence_pairs",
        "spectrogram_attention",
        "wait_k_delays",
    },
    "interp.vision": {
        # inputs, parts and measures that several methods share
        "image_batch",
        "image_parts",
        "read_images",
        "text_embeddings",
    },
    "interp.vision.language": set(),
    "interp.text.chains": {"linked_chains"},
    "interp.text.context": {"sentence_documents", "stated_and_observed"},
    "interp.text.graphs": {"graph_of", "node_attention", "read_graph"},
    "interp.probes": {"read_probe_items"},
}
NULLS = {"shuffled-tokens": "tokens shuffled", "random-init": "random weights"}
COSTS = {  # by the kind of a metric, or by what an attribution method needs
    "detector": "One forward pass per prompt for all detectors; the nulls need one more on "
    "shuffled tokens and one per draw of random weights (6).",
    "statistic": "As for detectors: the same forward pass.",
    "measurement": "One forward pass per prompt for all of them, and arithmetic on one layer at a "
    "time; the null needs one more pass per draw of random weights (6).",
    "weights": "No forward pass: matrix products of a head's own factors, never d_model x d_model "
    "per head.",
    "experiment": "A few dozen short forward passes on generated prompts; the null needs as many "
    "again per draw of random weights (6).",
    "nothing": "Nothing.",
    "patterns": "One forward pass that stores the patterns.",
    "forward": "One forward pass, then arithmetic per layer.",
    "gradients": "One forward and one backward pass.",
    "discovery": "One gradient for all nodes or edges.",
}


@dataclass(frozen=True)
class Row:
    """One method of the table."""

    name: str
    definition: str
    unit: str
    cost: str
    null: str
    not_for: str
    source: str


def rows(part: str) -> list[Row]:
    """Return the rows of one section, in the order of the code."""
    for registry in REGISTRIES:
        if part in registry.groups:
            return [_declared(e) for e in registry.values() if e.group == part]
    if part == "importance":
        return [_importance(name) for name in QUESTIONS]
    if part == "replacement":
        formula = "z is multiplied by a number between 0 and 1."
        gated = Intervention("gate", formula, section(_doc(gate), "Not for"))
        return [
            Row(x.name, x.formula, "", "", "", x.not_for, "")
            for x in (*INTERVENTIONS.values(), gated)
        ]
    own = [(PACKAGES[part], name) for name in functions(PACKAGES[part])]
    return [_function(package, name) for package, name in own + BESIDE.get(part, [])]


def _declared(e: Entry) -> Row:
    """Return the row of a registry's entry."""
    definition, null = e.summary, section(e.doc, "Null").rstrip(".")
    unit = section(e.doc, "Unit").rstrip(".") or e.unit
    if e.name in METRICS and e.kind in METRICS.kinds:
        cost = COSTS[e.kind]
        null = null or NULLS[METRICS.load(e.name).default_null]
        unit = f"{unit}, {e.range}" if e.range != "unbounded" else unit
        if e.kind == "detector":
            definition += f" Target: `{predicate(e)}`."
        if e.kind == "experiment":
            null += _chance(e)
    elif e.kind in ATTRIBUTION_METHODS.kinds:
        cost, null = COSTS[e.about["needs"]], null or "`random_scores`"
        unit = "of the target" if unit == "target" else unit
    else:
        cost, null = COSTS[e.kind], null or "heads in random order"
        unit = unit or "of the task"
    cost = section(e.doc, "Cost") or cost
    return Row(e.name, definition, unit, cost, null, e.not_for, e.source or "this project")


def _chance(e: Entry) -> str:
    """Describe the score that an experiment gives an irrelevant head."""
    chance = METRICS.load(e.name).chance
    says_more = not any(x in chance for x in ("of the null", "of random weights"))
    text = f"; chance: {chance}" if says_more else ""
    if found := chance_of(e.name):
        median, low, high = found
        text += f"; heads of small random models score {median:g} ({low:g} to {high:g})"
    return text


def _importance(name: str) -> Row:
    """Return the row of an importance, from its question and its function's docstring."""
    question = QUESTIONS[name]
    call, doc = question.call, _doc(called(question.call))
    form = re.search(r'form="(\w+)"', call)
    cells = {title: section(doc, title) for title in ("Cost", "Null", "Not for", "Reference")}
    if form:  # one function with several methods: one item for each
        for title in ("Not for", "Reference"):
            found = re.search(rf"\b{form[1]}: (.*?)(?= [a-z]+_[a-z]+: |$)", cells[title])
            cells[title] = found[1] if found else ""
    source = f"{cells['Reference'].rstrip('.')}; `interp.causal.{call}`"
    return Row(
        name,
        question.asks,
        "of the task",
        cells["Cost"],
        cells["Null"].rstrip("."),
        cells["Not for"],
        source,
    )


def called(call: str) -> Any:
    """Return the function of `interp.causal` that a question's call names."""
    return getattr(import_module("interp.causal"), call.partition("(")[0])


def _function(package: str, name: str) -> Row:
    doc = _doc(getattr(import_module(package), name))
    return Row(
        name,
        " ".join(doc.partition("\n\n")[0].split()),
        section(doc, "Unit").rstrip("."),
        section(doc, "Cost"),
        section(doc, "Null").rstrip("."),
        section(doc, "Not for"),
        f"{section(doc, 'Reference').rstrip('.')}; `{package}.{name}`",
    )


def functions(package: str) -> Iterator[str]:
    """Yield the names of the public functions of a package that are methods."""
    module: ModuleType = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) and not (name in NO_METHODS[package] or _reads_rows(value)):
            yield name


def _reads_rows(function: Any) -> bool:
    """Whether a function summarises a result, and measures nothing."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.annotation == "ResultRows"


def _doc(function: Any) -> str:
    return inspect.getdoc(function) or ""


def predicate(e: Entry) -> str:
    """Return the line of a detector that defines its target, with local names substituted."""
    tree = ast.parse(e.path.read_text(encoding="utf-8"))
    body = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == e.name).body
    steps = [ast.unparse(n) for n in body if isinstance(n, (ast.Assign, ast.Return))]
    return "; ".join(steps).replace("return ", "")


def page() -> str:
    """Return every section with its table, as Markdown.

    Raises:
        ValueError: a method's docstring has no `Not for:` paragraph.
    """
    parts = []
    for part, (title, about) in SECTIONS.items():
        found = rows(part)
        if silent := [row.name for row in found if not row.not_for]:
            raise ValueError(
                f"no paragraph 'Not for:' in the docstring of {', '.join(silent)}; say there when "
                "the method is the wrong one"
            )
        parts += [f"## {title}", about, table(part, found)]
    return "\n\n".join(parts)


def table(part: str, found: list[Row]) -> str:
    """Return one section's table without empty columns."""
    heads = {
        "name": "method",
        "definition": "definition",
        "unit": "unit, range",
        "cost": "cost",
        "null": "null",
        "not_for": "not for",
        "source": "source",
    }
    if part == "importance":
        heads["definition"] = "the question it answers"
    used = [c for c in heads if any(getattr(row, c) for row in found)]
    lines = ["| " + " | ".join(heads[c] for c in used) + " |", "|" + "---|" * len(used)]
    for row in found:
        cells = {c: " ".join(getattr(row, c).split()).replace("|", "\\|") for c in used}
        cells["name"] = f"`{cells['name']}`"
        lines.append("| " + " | ".join(cells[c] for c in used) + " |")
    return "\n".join(lines)
