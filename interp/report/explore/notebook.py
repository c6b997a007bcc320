"""The live view in a notebook, with a still picture that stays when the kernel is gone."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.page import table
from interp.draw.sprite import data_url
from interp.draw.svg import element, standing
from interp.heads.patterns.stack import Stack
from interp.model.model_argument import one_model
from interp.report.explore.page import live_data
from interp.report.explore.session import MEMORY, Session
from interp.report.view_parts import thumbs

if TYPE_CHECKING:
    from interp.profiles.result import Profile

_STYLE = (
    "text{font:11px sans-serif;fill:#5b6570;text-anchor:middle}text.y{text-anchor:end}"
    ".gaps{fill:none;stroke:#fff;stroke-width:3}image{image-rendering:pixelated}"
)


class Explorer:
    """Every head of a model on a prompt, recomputed in the kernel as the prompt changes.

    In a notebook with anywidget: a box for a prompt, all heads, one head down to single tokens, and
    the logits with and without the heads that are clicked. A still picture stands in its place
    where no kernel runs, as in HTML made by nbconvert; without anywidget it is all that is shown.

    Args:
        model: A loaded model, or a source that `load` accepts.
        text: The first prompt, a text or token ids.
        memory: The largest number of bytes of queries, keys and maps of a long prompt.
        profile: What the heads do on text; a click on a pair says what it explains of the row.
        rules: Rules of your own, such as `interp.profile` takes: names, detectors, or functions of
            (query, key) or (query, key, tokens). They are scored on every prompt.

    Raises:
        PromptError: The prompt is empty, or too long for the model or for `memory`.
        OptionError: The model reads no text, or its patterns are not available here.

    Example:
        Explorer("bundled:stories", "Anna had a kite. Tom had a drum. Anna")
    """

    def __init__(
        self,
        model: Any,
        text: str | Sequence[int],
        *,
        memory: int = MEMORY,
        profile: Profile | None = None,
        rules: Iterable[Any] = (),
    ):
        self.session = Session(one_model(model), memory=memory, profile=profile, rules=rules)
        self.first = self.session.prompt(text)
        self._text = text if isinstance(text, str) else " ".join(map(str, text))

    def __repr__(self) -> str:
        n, name = len(self.first["tokens"]), self.session.model.name
        return f"Explorer({name}: {n:,} tokens); the last line of a notebook cell shows it"

    def still(self) -> Markup:
        """Return a picture of every head on the first prompt, and its likeliest next tokens."""
        pictures = [_still(stack) for stack in self.session.stacks()]
        predictions = self.first["predictions"]
        rows = [
            (repr(one["token"]), f"{one['before']['probability']:.3f}")
            for one in predictions["tokens"]
        ]
        beside = table(["next token", "probability"], rows[:5]) if rows else Markup("")
        title = f"{self.session.model.name}, {len(self.first['tokens']):,} tokens"
        return element("p", title) + Markup("").join(pictures) + beside

    def widget(self, still: str = "") -> Any:
        """Return the widget alone; needs anywidget.

        Args:
            still: The id of an element that the widget hides.
        """
        from interp.report.explore.widget import Live

        more = {"linked": False, "first": self.first, "text": self._text, "still": still}
        return Live(self.session, live_data(self.session, **more))

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        name = f"interp-still-{secrets.token_hex(8)}"
        if find_spec("anywidget") is not None:
            display(self.widget(name))
        display(HTML(element("div", self.still(), id=name)))


def _still(stack: Stack) -> Markup:
    svg = thumbs(0, stack).replace(">", f"><style>{_STYLE}</style>", 1)
    source = data_url(standing(Markup(svg)).encode(), "image/svg+xml")
    about = f"{stack.name}: {len(stack.weights)} heads, a thumbnail of each one's attention"
    return element("img", src=source, alt=about, style="max-width:100%")
