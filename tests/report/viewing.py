"""Numbers and the opened head, as the page of a view writes them."""

from __future__ import annotations


def spoken(x: float) -> str:
    """A number as the page writes it."""
    if x >= 0.001 or x == 0:
        return f"{x:.4f}"
    digits, _, power = f"{x:.2e}".partition("e")
    return f"{digits}e{int(power)}"


def head(page) -> str:
    return page.run(
        "const p = document.querySelector('.panel');"
        "return p && !p.hidden ? p.querySelector('h3').textContent : ''"
    )
