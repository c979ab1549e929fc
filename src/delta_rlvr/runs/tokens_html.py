"""The responses of a step as a small page for trackers, with each token shaded by its weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = (
    "body{font:14px/1.7 system-ui,sans-serif;margin:1rem;background:#fff;color:#1c1e22}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
    "font:13px/1.8 ui-monospace,monospace;margin:.2rem 0 1rem}h2{font-size:15px}small{color:#5f6368}"
)
_ABOVE, _BELOW = "240,138,36", "69,146,224"
_STRONGEST = 0.84


def tokens_html(step: int, responses: Sequence[Mapping[str, Any]]) -> str:
    """Return the page. Orange is a weight above one, blue one below; the strongest colour is the weight furthest from one."""
    span = max((abs(weight - 1) for one in responses for weight in one.get("weight") or ()), default=0.0)
    parts = [
        f"<h2>Step {step}</h2><small>orange: weight above 1, blue: below; full colour: {span:.3g} away from 1</small>"
    ]
    prompt = None
    for one in responses:
        if one.get("prompt") != prompt:
            prompt = one.get("prompt")
            parts.append(f"<h2>{escape(str(prompt))}</h2>")
        parts.append(f"<small>reward {one['reward']:.4g}, advantage {one['advantage']:+.3g}</small>")
        parts.append(f"<pre>{''.join(_shaded(one, span))}</pre>")
    return f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style>{"".join(parts)}'


def _shaded(response: Mapping[str, Any], span: float) -> Iterable[str]:
    weights = response.get("weight") or [1.0] * len(response["tokens"])
    for token, weight in zip(response["tokens"], weights, strict=True):
        colour = _ABOVE if weight > 1 else _BELOW
        share = _STRONGEST * abs(weight - 1) / span if span else 0.0
        yield f'<span title="{weight:.4g}" style="background:rgba({colour},{share:.2f})">{escape(token)}</span>'
