"""The declared roles of heads of planted and trained models."""

from __future__ import annotations

import pytest

from interp import planted
from interp.core.errors import UnknownName
from interp.heads.roles.declared import ROLES
from interp.planted.known_roles import PLANTED_ROLES, VARIABLE_ROLES, known_roles
from interp.planted.trained.cases import CASES

IDS = {role.id for role in ROLES} | {""}


def test_every_role_is_one_that_can_be_given() -> None:
    assert {*PLANTED_ROLES.values(), *VARIABLE_ROLES.values()} <= IDS


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_head_of_a_trained_model_is_declared(name) -> None:
    case, found = CASES[name], known_roles("trained", name)
    heads = {variable: node for variable, node in case.nodes.items() if node[0] == "L"}
    for variable, node in heads.items():
        place = (int(node[1]), int(node[3]))
        if variable == "backup":  # its role depends on another head
            assert place not in found
        else:
            assert found[place] == VARIABLE_ROLES[variable]
    assert len(found) == case.layers * case.heads - ("backup" in heads)


def test_decoys_have_the_roles_of_attention_only() -> None:
    case, found = CASES["induction"], known_roles("trained", "induction")
    assert case.decoys == {"previous": "L0H3", "induction": "L1H0"}
    assert (found[0, 3], found[1, 0]) == ("previous_token", "")
    assert (found[0, 1], found[1, 2], found[0, 0]) == ("previous_token", "induction", "")


def test_random_heads_and_bystanders_have_none_and_backups_are_left_out() -> None:
    built, found = planted.build("zoo"), known_roles("planted", "zoo")
    [backup], [bystander] = built.roles["backup"], built.roles["bystander"]
    assert backup not in found
    assert found[bystander] == ""
    assert {found[place] for place in built.roles["noise"]} == {""}
    assert len(found) == 4 * 8 - 1
    with pytest.raises(UnknownName):
        known_roles("planted", "zo")
