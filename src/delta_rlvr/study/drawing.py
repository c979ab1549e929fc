"""Figures as SVG text: they need no library to make and none to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

INK, SOFT, RULE, PAPER = "#1c1e22", "#5f6368", "#e6e2da", "#fcfbf8"
LINES = ("#0b6bb8", "#c65d00", "#00805f", "#a03a83", "#7a6a00", "#4a5568", "#2f9bd6", "#b02a37")

WIDTH, MARGIN = 1240, 28


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
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        stroke: str = RULE,
        width: float = 1,
        dash: str = "",
    ) -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"{dashes}/>'
        )

    def path(self, points: Sequence[tuple[float, float]], stroke: str, dash: str = "") -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{places}" fill="none" stroke="{stroke}" stroke-width="1.8"{dashes}/>'
        )

    def area(self, points: Sequence[tuple[float, float]], fill: str) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon points="{places}" fill="{fill}" fill-opacity="0.13"/>')

    def mark(
        self,
        x: float,
        y: float,
        shape: str,
        colour: str,
        *,
        size: float = 4.5,
        hollow: bool = False,
        title: str = "",
    ) -> None:
        fill = PAPER if hollow else colour
        style = f'fill="{fill}" stroke="{colour}" stroke-width="1.3"'
        hint = f"<title>{escape(title)}</title>" if title else ""
        match shape:
            case "circle":
                self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {style}>{hint}</circle>')
            case "square":
                self.parts.append(
                    f'<rect x="{x - size:.1f}" y="{y - size:.1f}" width="{2 * size}" height="{2 * size}" {style}>{hint}</rect>'
                )
            case "triangle":
                corners = (
                    f"{x:.1f},{y - size:.1f} {x - size:.1f},{y + size:.1f} {x + size:.1f},{y + size:.1f}"
                )
                self.parts.append(f'<polygon points="{corners}" {style}>{hint}</polygon>')
            case "diamond":
                corners = f"{x:.1f},{y - size:.1f} {x + size:.1f},{y:.1f} {x:.1f},{y + size:.1f} {x - size:.1f},{y:.1f}"
                self.parts.append(f'<polygon points="{corners}" {style}>{hint}</polygon>')
            case _:
                raise ValueError(f"shape={shape!r}: choose circle, square, triangle or diamond")

    def svg(self, height: float) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
            'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">'
            f'<rect width="100%" height="100%" fill="{PAPER}"/>' + "".join(self.parts) + "</svg>\n"
        )
