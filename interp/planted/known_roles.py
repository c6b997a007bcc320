"""Roles of the heads of models whose mechanism is known, by the ids of `interp.heads.roles`.

A head of the mechanism that has none of the named roles (such as one that counts brackets) has the
role "". A head whose role depends on others (a backup) is left out, and neither right nor wrong.
Decoys of trained models attend as the head of a variable does and have no effect: they have the
roles that say only where a head attends, and no other.
"""

from __future__ import annotations

PLANTED_ROLES: dict[str, str] = {
    "previous_token": "previous_token",
    "induction": "induction",
    "selective_induction": "induction",
    "duplicate_token": "duplicate_token",
    "copy_suppression": "suppression",
    "local_window": "positional",
    "offset": "positional",
    "sink": "sink",
    "refusal": "refusal",
    "bystander": "",
    "noise": "",
    "likelihood": "",
    "average": "",
}
VARIABLE_ROLES: dict[str, str] = {  # by the variable of the algorithm
    "previous": "previous_token",
    "key": "previous_token",
    "induction": "induction",
    "copy": "copying",
    "marked": "copying",
    "primary": "copying",
    "value": "retrieval",
    "suppression": "suppression",
    "duplicate": "duplicate_token",
    "inhibition": "s_inhibition",
    "mover": "name_mover",
    "query": "",
    "depth": "",
    "broken": "",
}
BY_ATTENTION = ("previous_token", "duplicate_token")


def known_roles(kind: str, name: str) -> dict[tuple[int, int], str]:
    """Return the role of each head (layer, head) of a planted or trained model; "" for none.

    Heads that are missing in it have a role that depends on other heads.
    """
    from interp.planted import build, check_known

    check_known(kind, name)
    if kind == "planted":
        built = build(name)
        config = built.model.config
        roles = {
            (layer, head): ""
            for layer in range(config.num_hidden_layers)
            for head in range(config.num_attention_heads)
        }
        for role, heads in built.roles.items():
            for place in heads:
                if role in PLANTED_ROLES:
                    roles[place] = PLANTED_ROLES[role]
                else:
                    roles.pop(place, None)
        return roles
    from interp.planted.trained.cases import CASES

    case = CASES[name]
    roles = {(layer, head): "" for layer in range(case.layers) for head in range(case.heads)}
    for variable, node in case.decoys.items():
        role = VARIABLE_ROLES.get(variable, "")
        roles[_place(node)] = role if role in BY_ATTENTION else ""
    for variable, node in case.nodes.items():
        if node[0] == "L" and variable in VARIABLE_ROLES:
            roles[_place(node)] = VARIABLE_ROLES[variable]
        elif node[0] == "L":
            roles.pop(_place(node), None)
    return roles


def _place(node: str) -> tuple[int, int]:
    layer, head = node.removeprefix("L").split("H")
    return int(layer), int(head)
