"""Writing of the page: one HTML file with data, style and script, and a content security policy that forbids network access."""

from __future__ import annotations

import base64
import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from delta_rlvr.bounds import typed
from delta_rlvr.files import atomic, plain, replaces
from delta_rlvr.report.clouds import TYPES, clouds
from delta_rlvr.report.comparison import comparison
from delta_rlvr.report.discriminator import summary
from delta_rlvr.report.dynamics import POINTS, columns, notes, panels
from delta_rlvr.report.groups import group_runs, run_label, run_labels, without_repeats
from delta_rlvr.report.shading import check_shadings
from delta_rlvr.report.tokenview import compress, token_view
from delta_rlvr.report.weights import points_for
from delta_rlvr.runs import RunReader, read_run
from delta_rlvr.runs.reader import runs_below
from delta_rlvr.specs import shown_spec

_SCRIPTS = (
    *("dom.js", "choice.js", "csv.js", "shading.js", "response.js", "search.js", "tokens.js", "clouds.js"),
    *("charts.js", "weights.js", "dynamics.js", "comparison.js", "discriminator.js", "main.js"),
)
_INFO = (*("engine", "method", "seed", "status", "started", "updated", "steps", "steps_planned", "explained"),)
"""The keys of `run.json` that the page shows."""
_STYLES = ("vendor/uplot-1.6.32.min.css", "page.css", "tokens.css", "sections.css")
_PLOTS = "vendor/uplot-1.6.32.min.js"

PAGE_MARK = b'id="block-page"'
"""A text that is in every page of ours."""

SECTIONS = ("tokens", "weights", "clouds", "dynamics", "discriminator", "comparison")
"""The sections of a page about one run, in order. If runs are compared, the comparison comes first."""

# The default size of the token view, and the most points and types of the other sections: the page stays under 5 MB.
TOKEN_MEGABYTES = 3.5
CURVE_POINTS = 3000
CLOUD_TYPES = 8000


def replaces_page(path: Path) -> bool:
    """Return whether a page of ours would be replaced; refuse to replace anything else."""
    return replaces(path, b"(?s).*" + PAGE_MARK + b".*", "a page of explain or report")


@typed
def write_report(
    run_paths: Sequence[str | Path],
    output: str | Path | None = None,
    *,
    title: str | None = None,
    lede: str | None = None,
    sections: Sequence[str] = SECTIONS,
    megabytes: float = TOKEN_MEGABYTES,
    shade_by: Sequence[str] = (),
    say: Callable[[str], object] = str,
) -> Path:
    """Write the page of one or more run folders, or folders of runs, by default into the first of them.

    `megabytes`: the largest size of the token views of all runs. `lede`: the sentence under the title (default: the verdict).
    `shade_by`: further methods whose weights the token view can show. `say` is told of missing and damaged parts."""
    if not run_paths:
        raise ValueError(f"runs={run_paths!r}: give at least one run folder, by its path")
    if not 0 < megabytes < math.inf:
        raise ValueError(f"megabytes={megabytes}: give a finite number above 0")
    target = Path(output or Path(run_paths[0]) / "report.html")
    replaces_page(target)
    check_shadings(shade_by)
    given = [read_run(path) for path in runs_below(run_paths)]
    runs = without_repeats(given)
    if len(runs) < len(given):
        left_out = ", ".join(str(run.path) for run in given if run not in runs)
        warnings.warn(f"these runs repeat others and are left out: {left_out}", stacklevel=3)
    if unknown := set(sections) - set(SECTIONS):
        raise ValueError(f"sections: there is no {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    model, blocks = _page_model(runs, int(megabytes * 1e6 / len(runs)), shade_by)
    order = sorted(SECTIONS, key=lambda section: len(runs) > 1 and section != "comparison")
    model["sections"] = [each for each in order if each in sections and _holds(model, each)]
    model |= {"title": title or _title(runs), "lede": lede or model["comparison"]["verdict"]}
    for run in (one for one in runs if one.problems):
        more = f" (and {len(run.problems) - 1} more, on the page)" if len(run.problems) > 1 else ""
        say(f"missing or damaged in {run.path}: {run.problems[0]}{more}")
    with atomic(target) as file:
        file.write(render(model, blocks).encode("utf-8", "replace"))
    return target


def render(model: dict[str, Any], blocks: dict[str, str]) -> str:
    """Return the HTML of the page. Data is base64 of compressed JSON, so that no text can end its element. The policy has the hashes of
    style and scripts, so that nothing else can run or be loaded."""
    style = "\n".join(_asset(name) for name in _STYLES)
    # Our scripts share one module scope, in this order.
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    plots = _asset(_PLOTS)
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src {_hash(style)}; script-src {_hash(plots)} {_hash(script)}"
    )
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_asset("page.html.jinja")).render(
        title=model["title"],
        policy=policy,
        style=_inline(style),
        plots=_inline(plots),
        script=_inline(script),
        sections=model["sections"],
        several=len(model["runs"]) > 1,
        blocks={"page": compress(plain(model)), **blocks},
    )


def _holds(model: dict[str, Any], section: str) -> bool:
    """Return whether a section has content; others are left out."""
    runs = model["runs"]
    if section == "tokens":
        return any(run["steps"] for run in runs)
    if section == "dynamics":
        return bool(model["panels"])
    if section == "discriminator":
        return any(run["discriminator"] or run["proxy_agreement"] for run in runs)
    if section == "comparison":
        shown = model["comparison"]
        is_set = shown["differing"] or any(value is not None for value in shown["agreeing"].values())
        is_scored = any(run["after"] or run["before"] for run in shown["runs"])
        return bool(is_set or is_scored or any(shown["evaluations"]))
    return any(run[section] for run in runs)


def _page_model(runs: list[RunReader], limit: int, methods: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    shown = panels(runs)
    groups = group_runs(runs)
    points = points_for(sum(len(run.rollout_steps) for run in runs))
    curve_points = min(POINTS, max(100, CURVE_POINTS // len(runs)))
    types = min(TYPES, max(100, CLOUD_TYPES // len(runs)))
    blocks: dict[str, str] = {}
    described = []
    for place, (run, label) in enumerate(zip(runs, run_labels(runs), strict=True)):
        view = vars(token_view(run, f"r{place}", limit, methods, points))
        blocks |= view.pop("blocks")
        described.append(
            {
                "name": run.path.resolve().name,
                "label": label,
                "group": next(number for number, group in enumerate(groups) if place in group.members),
                "info": {**{key: run.info.get(key) for key in _INFO}, "model": _model(run), "task": _task(run)},
                "metrics": columns(run, shown, curve_points),
                "notes": notes(run),
                "clouds": clouds(run.tokens, types) if run.tokens is not None else None,
                **view,
                "discriminator_summary": summary(view["discriminator"]) if view["discriminator"] else None,
                "proxy_agreement": _agreement(run),
                "problems": run.problems,
            }
        )
    model = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "runs": described,
        "groups": [{"label": group.label, "members": list(group.members)} for group in groups],
        "panels": shown,
        "comparison": comparison(runs, groups),
    }
    return model, blocks


def _agreement(run: RunReader) -> dict[str, Any] | None:
    """Return the measured proxies if the file has the form of docs/run_schema.md."""
    if run.proxy_agreement is None:
        return None
    proxies = run.proxy_agreement.get("proxies")
    if not isinstance(proxies, dict) or not all(isinstance(row, dict) for row in proxies.values()):
        run.problems.append("proxy_agreement.json has no proxies in the form of docs/run_schema.md")
        return None
    return run.proxy_agreement


def _model(run: RunReader) -> str | None:
    """Of a model in a folder, the folder's name."""
    model = run.info.get("model")
    return model and (Path(str(model)).name if Path(str(model)).is_absolute() else str(model))


def _task(run: RunReader) -> str | None:
    task = run.info.get("task")
    return shown_spec(str(task)) if task else None


def _title(runs: list[RunReader]) -> str:
    if len(runs) == 1:
        # Settings of the task, such as a prompt, stand below the title.
        task = shown_spec(str(runs[0].info.get("task") or "").partition("?")[0])
        return f"{run_label(runs[0])} on {task or runs[0].path.resolve().name}"
    methods = list(dict.fromkeys(str(run.info.get("method") or run.path.resolve().name) for run in runs))
    return f"{len(runs)} runs: {', '.join(methods[:4])}{' and more' if len(methods) > 4 else ''}"


def _asset(name: str) -> str:
    return files("delta_rlvr.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inline(text: str) -> Markup:
    """Return an asset as HTML that is not escaped."""
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError("an inlined text would end its element")
    return Markup(text)
