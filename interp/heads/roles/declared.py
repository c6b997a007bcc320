"""The roles, in the order of legends and sentences; a new role is one more entry."""

from __future__ import annotations

from interp.heads.roles.declaration import Need, Role

# The second number of each need is the smallest difference from the null in the metric's unit: a
# tenth of the attention, of the needle, of a share or of a correlation; of effects on the answer a
# tenth of a nat or logit (odds 1.1 times as high), and less where several heads share a mechanism.
ROLES: tuple[Role, ...] = (
    Role(
        "induction",
        "induction",
        "Attends to the token after an earlier copy of the current token, and so continues what "
        "was seen before.",
        (Need("induction", 0.1), Need("razor_induction", 0.1), Need("selective_induction", 0.1)),
        slot=0,
        causal=True,
        task="second_copy_loss",
    ),
    Role(
        "previous_token",
        "previous-token",
        "Attends to the token just before the current one.",
        (Need("previous_token", 0.1), Need("previous_token_text", 0.1)),
        slot=1,
    ),
    Role(
        "duplicate_token",
        "duplicate-token",
        "Attends to earlier copies of the current token.",
        (Need("duplicate_token", 0.1), Need("echo", 0.1), Need("duplicate_token_text", 0.1)),
        slot=2,
    ),
    Role(
        "retrieval",
        "retrieval",
        "Copies an answer from a far place in the prompt.",
        (Need("retrieval", 0.1), Need("qr_retrieval", 0.1)),
        slot=3,
        yields_to=("induction", "duplicate_token"),
        causal=True,
        note="With the task of random ids, copying an answer needs no more than induction does.",
    ),
    Role(
        "copying",
        "copying",
        "Raises the logit of whatever token it attends to.",
        (Need("ov_copying", 0.1), Need("copying_score", 0.1)),
        slot=4,
        yields_to=(
            "induction",
            "duplicate_token",
            "retrieval",
            "previous_token",
            "name_mover",
            "context_copying",
            "memory_recall",
            "successor",
        ),
    ),
    Role(
        "sink",
        "sink or no-op",
        "Rests its attention on one token, mostly the first, and so writes little or always the "
        "same.",
        (
            Need("first_token", 0.1),
            Need("sink", 0.1),
            Need("no_op_value", 0.1),
            Need("active_dormant", 0.1, decides=False),
        ),
        slot=5,
        yields_to=("induction", "previous_token", "duplicate_token", "retrieval", "refusal"),
        note="Many heads that look for something rest on the first token where they find nothing.",
    ),
    Role(
        "positional",
        "positional",
        "Attends near the current token, whatever the tokens are.",
        (
            Need("local_window", 0.1),
            Need("recency", 0.1),
            Need("current_token", 0.1),
            Need("streaming", 0.1, decides=False),
            Need("attention_distance", 1, "low", decides=False),
        ),
        slot=6,
        yields_to=(
            "induction",
            "previous_token",
            "duplicate_token",
            "retrieval",
            "sink",
            "syntax",
            "refusal",
        ),
        note="Many heads that look for something attend nearby where they find nothing.",
    ),
    Role(
        "syntax",
        "syntax",
        "Attends from a word to the word that it depends on in the grammar.",
        (Need("dependency_relation", 0.1),),
        slot=7,
        note="Or the best head for a dependency relation of a treebank, if it beats the best fixed "
        "distance by at least 10 percentage points on sentences that did not choose it, with p < "
        "0.05, corrected over the relations. Needs the results of `interp study trees`.",
    ),
    Role(
        "refusal",
        "refusal",
        "Writes the direction that makes the model refuse a request.",
        (
            Need("refusal_projection", 0.05),
            Need("refusal_writer", 0.1),
            Need("ships", 0.1, decides=False),
        ),
        slot=8,
    ),
    Role(
        "name_mover",
        "name-mover",
        "Writes the name of the person who receives, where another one gives.",
        (Need("name_mover", 0.1),),
        slot=11,
        causal=True,
    ),
    Role(
        "s_inhibition",
        "S-inhibition",
        "Turns the name movers away from the person who gives.",
        (Need("s_inhibition", 0.05),),
        slot=12,
        causal=True,
    ),
    Role(
        "suppression",
        "copy-suppression",
        "Lowers the logit of a token that was seen before and that earlier layers would write.",
        (
            Need("negative_name_mover", 0.1),
            Need("copy_suppression", 0.1),
            Need("anti_induction", 0.1),
        ),
        slot=13,
    ),
    Role(
        "successor",
        "successor",
        "Writes the next item of an ordered list.",
        (Need("successor", 0.1),),
        slot=14,
    ),
    Role(
        "function_vector",
        "function-vector",
        "Carries a function that examples show to the place where it is applied.",
        (Need("function_vector", 0.01),),
        slot=15,
        causal=True,
    ),
    Role(
        "context_copying",
        "in-context",
        "Writes the answer that the prompt gives, against what the model has learned.",
        (Need("context_copying", 0.1),),
        slot=16,
        causal=True,
    ),
    Role(
        "memory_recall",
        "parametric",
        "Writes an answer that the model has learned and the prompt does not give.",
        (Need("memory_recall", 0.1),),
        slot=17,
        causal=True,
    ),
    Role(
        "greater_than",
        "greater-than",
        "Raises the years after the one in which a span begins.",
        (Need("greater_than", 0.01),),
        slot=18,
        causal=True,
    ),
    Role(
        "bracket",
        "bracket",
        "Attends from a closing bracket to its own opening bracket.",
        (Need("matching_bracket", 0.1), Need("brackets", 0.1, decides=False)),
        slot=19,
    ),
    Role(
        "delimiter",
        "delimiter",
        "Attends to the signs that end sentences and clauses.",
        (Need("delimiters", 0.1),),
        slot=20,
        yields_to=("induction", "previous_token", "duplicate_token", "retrieval"),
        note="Many heads rest on delimiters where they find nothing.",
    ),
)

SEVERAL = Role(
    "several",
    "several",
    "Has more than one role.",
    slot=9,
    note="Two or more roles of which none is the more exact name of another.",
)
UNCLEAR = Role(
    "unclear",
    "unclear",
    "Was judged, and no role was found.",
    slot=10,
    note="No score that decides a role is significantly and largely away from its null, or a "
    "causal check contradicts the only role.",
)
LEGEND = (*ROLES, SEVERAL, UNCLEAR)


def role_named(name: str) -> Role:
    """Return a role by its id."""
    from interp.core.errors import UnknownName

    known = {role.id: role for role in LEGEND}
    if name not in known:
        raise UnknownName("role", name, known)
    return known[name]
