"""Figures as SVG text: all that the studies draw.

By hand, not with matplotlib: a figure is the same text on every machine, so that tests compare kept figures with their outcomes byte by
byte, while matplotlib's SVG changes with its version and with the fonts that it finds. And nothing else here needs matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

INK, SOFT, RULE, PAPER, STRIPE = "#1c1e22", "#5f6368", "#e6e2da", "#fcfbf8", "#f4f1ea"
LINES = ("#0b6bb8", "#c65d00", "#00805f", "#a03a83", "#7a6a00", "#4a5568", "#2f9bd6", "#b02a37")

WIDTH, MARGIN = 1240, 28

Points = Sequence[tuple[float, float]]

# Of marks that are polygons, in units of their size.
_CORNERS = {"triangle": ((0, -1), (-1, 1), (1, 1)), "diamond": ((0, -1), (1, 0), (0, 1), (-1, 0))}


@dataclass
class Canvas:
    """SVG elements as they are drawn."""

    parts: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 12,
        fill: str = INK,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = RULE, width: float = 1, dash: str = ""
    ) -> None:
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"{_dashes(dash)}/>'
        )

    def path(self, points: Points, stroke: str, dash: str = "") -> None:
        self.parts.append(
            f'<polyline points="{_joined(points)}" fill="none" stroke="{stroke}" stroke-width="1.8"{_dashes(dash)}/>'
        )

    def area(self, points: Points, fill: str) -> None:
        self.parts.append(f'<polygon points="{_joined(points)}" fill="{fill}" fill-opacity="0.13"/>')

    def mark(
        self, x: float, y: float, shape: str, colour: str, *, size: float = 4.5, hollow: bool = False, title: str = ""
    ) -> None:
        """A circle, square, triangle or diamond. The title shows where the pointer rests on it."""
        if shape == "circle":
            tag, place = "circle", f'cx="{x:.1f}" cy="{y:.1f}" r="{size}"'
        elif shape == "square":
            tag = "rect"
            place = f'x="{x - size:.1f}" y="{y - size:.1f}" width="{2 * size}" height="{2 * size}"'
        else:
            tag = "polygon"
            place = f'points="{_joined([(x + size * a, y + size * b) for a, b in _CORNERS[shape]])}"'
        style = f'fill="{PAPER if hollow else colour}" stroke="{colour}" stroke-width="1.3"'
        about = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f"<{tag} {place} {style}>{about}</{tag}>")

    def svg(self, height: float) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
            'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">'
            f'<rect width="100%" height="100%" fill="{PAPER}"/>' + "".join(self.parts) + "</svg>\n"
        )


def _joined(points: Points) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _dashes(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


class DotRows:
    """Rows with a label each, and panels beside them in which a row has a dot with its interval."""

    ROW, LABELS, GAP = 19, 230, 30

    def __init__(self, canvas: Canvas, labels: Sequence[str], top: float, panels: int):
        self.canvas, self.labels, self.top = canvas, labels, top
        self.bottom = top + self.ROW * len(labels)
        self.width = (WIDTH - 2 * MARGIN - self.LABELS - self.GAP * (panels - 1)) / panels
        for number, label in enumerate(labels):
            y = self.y(number)
            if number % 2:
                canvas.parts.append(
                    f'<rect x="{MARGIN}" y="{y - self.ROW / 2:.1f}" width="{WIDTH - 2 * MARGIN}" height="{self.ROW}" fill="{STRIPE}"/>'
                )
            canvas.text(MARGIN + self.LABELS - 10, y + 4, label, anchor="end")

    def y(self, number: int) -> float:
        """The middle of a row."""
        return self.top + self.ROW * (number + 0.5)

    def panel(
        self, place: int, title: str, low: float, high: float, step: float, middle: float
    ) -> Callable[[float], float]:
        """A horizontal scale with its grid, dashed at `middle`. What lies beyond its ends is drawn at them."""
        left = MARGIN + self.LABELS + place * (self.width + self.GAP)

        def scale(number: float) -> float:
            return left + self.width * (min(max(number, low), high) - low) / (high - low)

        self.canvas.text(left, self.top - 12, title, bold=True)
        for tick in range(round((high - low) / step) + 1):
            number = low + tick * step
            grid = (SOFT, 1, "3 3") if abs(number - middle) < 1e-9 else (RULE,)
            self.canvas.line(scale(number), self.top, scale(number), self.bottom, *grid)
            label = f"{number:.2f}".rstrip("0").rstrip(".") or "0"
            self.canvas.text(scale(number), self.bottom + 15, label, size=11, fill=SOFT, anchor="middle")
        return scale

    def dot(
        self, number: int, scale: Callable[[float], float], mean: float, low: float, high: float, colour: str
    ) -> None:
        """A row's mean with its interval; nothing, or no interval, where they are not known."""
        if math.isnan(mean):
            return
        y = self.y(number)
        if not math.isnan(low):
            self.canvas.line(scale(low), y, scale(high), y, colour, 2.4)
        self.canvas.mark(scale(mean), y, "circle", colour, title=f"{self.labels[number]}: {mean:.3f}")
