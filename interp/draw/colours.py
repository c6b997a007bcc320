"""Colours of scores: scales, palettes of both themes, and their style rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from interp.core.errors import OptionError

if TYPE_CHECKING:
    import numpy as np

# An end of a range is None or infinite where the metric has no bound.
Range = tuple[float | None, float | None]
Theme = Literal["light", "dark"]

# Okabe and Ito 2008, "Color Universal Design": distinguishable with every common kind of colour
# blindness. Dashes and markers differ too, so that a grey print is readable.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
GREY, BAND = "#6b6b6b", "rgba(107,107,107,0.20)"
BINS = 33  # odd, so that zero has one colour on a signed scale

# Blue above zero and orange below differ for every common kind of colour blindness, and the steps
# differ in lightness, so that they also differ on a grey print. The lowest score is close to the
# background, so that high scores stand out.
_BLUES = {"light": ("#f1f5f8", "#4a98c9", "#06264f"), "dark": ("#262d34", "#2b7bba", "#d9f0ff")}
_ORANGES = {"light": ("#6b2a00", "#df8a3e"), "dark": ("#ffe0b8", "#c4661c")}


@dataclass(frozen=True)
class Scale:
    """Mapping of scores to the BINS colours: from low to high, signed ones around zero.

    `note` states the origin of the ends that the metric does not declare; "" if it declares both.
    """

    low: float
    high: float
    signed: bool
    note: str = field(default="", compare=False)

    @classmethod
    def fit(cls, scores: Iterable[float], declared: Range | None = None) -> Scale:
        """Return the declared range of a metric, with open ends taken from the scores."""
        low, high = given = tuple(_bound(end) for end in declared or (None, None))
        seen = [score for score in scores if math.isfinite(score)]
        if low is None:
            low = min([0.0, *seen] if high is None or high > 0 else [high - 1.0, *seen])
        signed = low < 0 and (high is None or high > 0)
        if high is None:
            high = max([0.0, *seen] if signed else [low, *seen])
        if high < low:
            raise OptionError(
                f"A colour range goes from low to high, not from {low} to {high}. Swap its ends."
            )
        if signed:
            size = max(-low, high)
            return cls(-size, size, True, _even(size, given))
        top = high if high > low else low + 1.0
        return cls(low, top, False, _one_way(low, top, given, seen))

    @classmethod
    def around(cls, size: float, *, signed: bool) -> Scale:
        """Return a scale from 0, or from minus `size` if it is signed, to `size`."""
        end = float(size) or 1.0
        return cls(-end if signed else 0.0, end, signed)

    def bins(self, scores: np.ndarray) -> np.ndarray:
        """Return the index of each score's colour, clipped to 0 to BINS - 1; -1 for NaN."""
        import numpy as np

        part = np.clip((scores - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.where(np.isnan(part), -1, np.rint(np.nan_to_num(part) * (BINS - 1))).astype(int)

    def beyond(self, scores: np.ndarray) -> int:
        """Count the scores outside the scale, which are shown as the nearest end."""
        slack = 1e-6 * (self.high - self.low)  # tolerates rounding in float32
        return int(((scores < self.low - slack) | (scores > self.high + slack)).sum())


def declared_range(ranges: Mapping[str, Range], metric: str) -> Range | None:
    """Return the range of a metric label, or of `name` for a label `name:option=value`."""
    return ranges.get(metric, ranges.get(metric.partition(":")[0]))


def palette(signed: bool, theme: Theme = "light") -> list[str]:
    """Return BINS colours as #rrggbb, in perceptually equal steps (linear in OKLab)."""
    import numpy as np

    named = (_ORANGES[theme] if signed else ()) + _BLUES[theme]
    anchors = np.cbrt(np.array([_linear(c) for c in named]) @ np.transpose(_TO_LMS))
    at, places = np.linspace(0, len(named) - 1, BINS), range(len(named))
    # OKLab is a matrix product of these cube roots, so equal steps here are equal steps there
    roots = np.column_stack([np.interp(at, places, channel) for channel in anchors.T])
    linear = np.clip(np.linalg.solve(_TO_LMS, roots.T**3).T, 0.0, 1.0)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return [f"#{bytes(colour).hex()}" for colour in np.rint(255 * srgb).astype(np.uint8)]


def rules(theme: Theme) -> str:
    """Return the palettes as style rules: per class the colour `--c` and a readable ink `--i`.

    Classes begin with q for scores in one direction and with d for signed scores.
    """
    lines = []
    for letter, signed in (("q", False), ("d", True)):
        colours = palette(signed, theme)
        lines += [f".{letter}{i}{{--c:{c};--i:{ink(c)}}}" for i, c in enumerate(colours)]
        lines.append(f".bar-{letter}{{background:linear-gradient(90deg,{','.join(colours)})}}")
    return "".join(lines)


def ink(colour: str) -> str:
    """Return black or white, whichever has more contrast with a colour: at least 4.58 (WCAG 2.2).

    Their contrasts are equal at a luminance of 0.179.
    """
    red, green, blue = _linear(colour)
    return "#fff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000"


def faded(colour: str, share: float) -> str:
    """Return a colour `#rrggbb` with an opacity."""
    return f"rgba({','.join(map(str, bytes.fromhex(colour[1:])))},{share})"


def scale_ends(scale: Scale) -> tuple[str, str]:
    """Return the two ends of a scale as text."""
    return f"{scale.low:.3g}", f"{scale.high:.3g}"


def _even(size: float, declared: tuple[float | None, ...]) -> str:
    """Return the origin of the ends of a signed scale; "" if the metric declares them."""
    if declared == (-size, size):
        return ""
    at_low = "the size of the metric's lowest value" if declared[0] == -size else ""
    origin = "the metric's highest value" if declared[1] == size else at_low
    return (
        f"colours: from {-size:.3g} to {size:.3g}, as far below 0 as above; {size:.3g} is "
        f"{origin or 'the largest size of a score on this page'}"
    )


def _one_way(low: float, high: float, declared: tuple[float | None, ...], seen: list[float]) -> str:
    """Return the origin of the ends of an unsigned scale; "" if the metric declares both."""
    if None not in declared:
        return ""
    text = f"colours: from {low:.3g}"
    if declared[0] is not None:
        text += ", the metric's lowest value,"
    elif low in seen and low != 0:
        text += ", the lowest score on this page,"
    text += f" to {high:.3g}"
    if declared[1] is not None:
        return f"{text}, the metric's highest value"
    above = f"; no score on this page is above {low:.3g}"
    return text + (", the highest score on this page" if high in seen else above)


def _bound(end: float | None) -> float | None:
    return float(end) if end is not None and math.isfinite(end) else None


# OKLab: Bjorn Ottosson 2020, "A perceptual color space for image processing".
_TO_LMS = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)


def _linear(colour: str) -> list[float]:
    srgb = [channel / 255 for channel in bytes.fromhex(colour[1:])]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in srgb]
