"""The page that the server sends, and the scripts that it shares with the notebook view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from markupsafe import Markup

from interp.draw.colours import palette
from interp.draw.page import asset, render
from interp.profiles.result import Profile
from interp.report.atlas.document import Atlas
from interp.report.explore.session import NO_MODEL, Session
from interp.report.view_page import as_json

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.report.atlas.profiles import TextProfile

SCRIPTS = (
    "view_decode",
    "view_draw",
    "view_text",
    "view_lines",
    "view_pair",
    "view_page",
    "view_zoom",
    "text_example",
    "explore_rules",
    "explore",
    "explore_edits",
)


def scripts(root: str, page: str, call: Sequence[str]) -> str:
    """Get the scripts of the live view in one function, which share no name with other scripts."""
    opening = f"const root = {root}, page = {page};\n"
    return (
        "(() => {\n"
        + "".join([asset("make.js"), opening, *call, *(asset(f"{name}.js") for name in SCRIPTS)])
        + "begin();\n})();\n"
    )


def live_data(session: Session | None, **more: Any) -> dict[str, Any]:
    """Return the data that the scripts need before a prompt is typed."""
    return {
        "palette": palette(False),
        "signed": palette(True),
        "stacks": [],
        "linked": True,
        "why": NO_MODEL if session is None else "",
        "about": None if session is None else session.about(),
    } | more


def live_part(session: Session | None, token: str) -> Mapping[str, Markup]:
    """Return the data and the script of the live view of a page of the server."""
    page = 'JSON.parse(document.getElementById("live-data").textContent)'
    script = scripts("document", page, [asset("explore_call.js")])
    data = live_data(session, token=token, **(session.example() if session else {}))
    return {"data": as_json(data), "script": Markup(script)}


def model_page(session: Session, token: str) -> str:
    """Return the page of a model without results."""
    facts = session.about()
    stacks = ", ".join(f"{s['name']} of {s['layers']} layers" for s in facts["stacks"])
    about = f"{facts['kind']} model, {stacks}. Type a prompt to see every head on it."
    return render(
        "explore",
        facts["name"],
        live=live_part(session, token),
        about=about,
        styles=asset("explore.css"),
    )


def explore_page(
    results: Sequence[Path], session: Session | None, command: str | None = None
) -> tuple[Callable[[str], str], Mapping[str, Any] | None]:
    """Return a function of the token that makes the page, and the atlas as data."""
    if not results:
        assert session is not None, "there are results or a model"
        return partial(model_page, session), None
    from interp.report.atlas.build import atlas_of, contents_of
    from interp.report.atlas.from_model import add_model

    contents = contents_of(results)
    atlas = atlas_of(contents, command=command)
    if session is not None:
        add_model(atlas, session.model)
        session.profile = next((x for x in contents.profiles if _fits(x, session.model)), None)
    return partial(results_page, atlas, session), cast(Mapping[str, Any], atlas)


def _fits(profile: TextProfile, model: Model) -> TypeGuard[Profile]:
    """Tell whether a profile has fitted rows of a model, by its weights."""
    return (
        isinstance(profile, Profile)
        and profile.row_model is not None
        and profile.provenance.get("content_hash") == model.content_hash
    )


def results_page(atlas: Atlas, session: Session | None, token: str) -> str:
    """Return the atlas of results, with the live view where there is a model."""
    from interp.report.atlas.page import atlas_page

    return atlas_page(atlas, live=live_part(session, token))
