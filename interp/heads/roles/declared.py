"""The roles, in the order of legends and sentences; a new role is one more entry."""

from __future__ import annotations

from interp.heads.roles.declaration import Need, Role

ROLES: tuple[Role, ...] = (
    Role(
        "induction",
        "induction",
        "Attends to the token after an earlier copy of the current token, and so continues what "
        "was seen before.",
        (Need("induction"), Need("razor_induction"), Need("selective_induction")),
        slot=0,
        causal=True,
        task="second_copy_loss",
    ),
    Role(
        "previous_token",
        "previous-token",
        "Attends to the token just before the current one.",
        (Need("previous_token"),),
        slot=1,
    ),
    Role(
        "duplicate_token",
        "duplicate-token",
        "Attends to earlier copies of the current token.",
        (Need("duplicate_token"), Need("echo")),
        slot=2,
    ),
    Role(
        "retrieval",
        "retrieval",
        "Copies an answer from a far place in the prompt.",
        (Need("retrieval"), Need("qr_retrieval")),
        slot=3,
        yields_to=("induction",),
        causal=True,
        note="With the task of random ids, copying an answer needs no more than induction does.",
    ),
    Role(
        "copying",
        "copying",
        "Raises the logit of whatever token it attends to.",
        (Need("ov_copying"), Need("copying_score")),
        slot=4,
        yields_to=("induction", "duplicate_token", "retrieval", "previous_token"),
    ),
    Role(
        "sink",
        "sink or no-op",
        "Rests its attention on one token, mostly the first, and so writes little or always the "
        "same.",
        (
            Need("first_token"),
            Need("sink"),
            Need("no_op_value"),
            Need("active_dormant", decides=False),
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
            Need("local_window"),
            Need("recency"),
            Need("current_token"),
            Need("streaming", decides=False),
            Need("attention_distance", "low", decides=False),
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
        (),
        slot=7,
        note="The best head for a dependency relation of a treebank, if it beats the best fixed "
        "distance by at least 10 percentage points on sentences that did not choose it, with p < "
        "0.05, corrected over the relations. Needs the results of `interp trees`.",
    ),
    Role(
        "refusal",
        "refusal",
        "Writes the direction that makes the model refuse a request.",
        (Need("refusal_projection"), Need("ships", decides=False)),
        slot=8,
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
    """Return a role by its id.

    Raises:
        UnknownName: there is no such role.
    """
    from interp.core.errors import UnknownName

    found = {role.id: role for role in LEGEND}
    if name not in found:
        raise UnknownName("role", name, found)
    return found[name]
