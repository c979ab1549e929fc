"""What `delta-rlvr credit-bench` prints: tables, how to read them, and what they say in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from delta_evidence.methods import label
from delta_evidence.planted.bench import TERCILES
from delta_evidence.planted.conditions import CLEAN, PERTURBED, SHUFFLED
from delta_evidence.planted.measures import BINS, SIDES, Spread
from delta_evidence.planted.settings import BASELINE, RIVAL, PlantedSettings
from delta_evidence.planted.table import select, value
from delta_rlvr.terminal import add_columns
from delta_rlvr.words import counted


def show(result: dict[str, Any], settings: PlantedSettings, console: Console) -> None:
    """What the tables say, the tables, and what has to be known to read them."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    for note in result["notes"]:
        say(f"Note: {note}.")
    if not select(result):
        say("No batch had a group with both outcomes: there is nothing to tell.")
        return
    for sentence in sentences(result):
        say(sentence)
    _print_columns(console, *_finding(result, settings))
    say(_finding_caption(result, settings))
    if any("cosine" in row for row in select(result)):
        console.print(_update_table(result))
        say(_update_caption({row["method"] for row in select(result)}))
    parts = [f"policy {name}" for name in settings.policies] if len(settings.policies) > 1 else []
    parts += [f"task {name}" for name in settings.tasks] if len(settings.tasks) > 1 else []
    if parts:
        _print_columns(console, *_slices(result, parts, "By policy and by task"))
    if select(result, condition=SHUFFLED.name):
        _print_columns(console, *_stability(result))
        say(
            "Second line: rank correlation with the clean weights on the same tokens. noise: share of the verdicts that is flipped. "
            "sparse: one right response a group is kept. shuffled: rewards permuted within groups, so that they say nothing. Thirds by "
            f"length: the clean weights on those responses. {CLEAN.name} is over all batches; the perturbed rewards, and the "
            "differences in the next table, are over the batches in which they were measured, so that columns need not subtract."
        )
        console.print(_control_table(result))
    if result["agreement"]:
        console.print(_agreement_table(result))
        say(
            "Rank correlations of margins and of coefficients (lowest .. highest cell), and the cosine of the updates they give."
        )


def sentences(result: dict[str, Any]) -> list[str]:
    """What the tables say, no more than their intervals support."""
    rows = {row["method"]: row for row in select(result) if not row["method"].startswith("oracle")}
    if any(math.isnan(value(row, f"{side}_auroc").low) for row in rows.values() for side in SIDES):
        return [
            "Some policy and task has fewer than two batches to measure: no intervals, and nothing is concluded here."
        ]
    lines = []
    for side in SIDES:
        spreads = {name: value(row, f"{side}_auroc") for name, row in rows.items()}
        known = {name: spread for name, spread in spreads.items() if not math.isnan(spread.mean)}
        if not known:
            continue
        best = max(known, key=lambda name: known[name].mean)
        better = [name for name in known if value(rows[name], f"{side}_gain").low > 0]
        worse_than_chance = [name for name in known if known[name].high < 0.5]
        rival = "" if best == RIVAL else f"; {RIVAL}, which is 1 - p, {known[RIVAL].mean:.3f}"
        lines.append(
            f"On {side} responses {label(best)} finds the decisive tokens best (AUROC {known[best].mean:.3f}{rival}). "
            + (
                f"Above 1 - p on the same rollouts: {_listed(better)}. "
                if better
                else "No weight is above 1 - p there. "
            )
            + (f"Below chance: {_listed(worse_than_chance)}." if worse_than_chance else "")
        )
    lines += _control_sentences(result, rows)
    spreads = {name: value(row, "cosine_gain") for name, row in rows.items()}
    gains = {name: spread for name, spread in spreads.items() if not math.isnan(spread.low)}
    nearer = [name for name in gains if gains[name].low > 0]
    if gains:
        lines.append(
            f"The update comes nearer to the oracle's than {BASELINE}'s with: {_listed(nearer)}."
            if nearer
            else f"No weight brings the update nearer to the oracle's than {BASELINE}'s, as far as the intervals tell."
        )
    return [text.strip() for text in lines]


def _control_sentences(result: dict[str, Any], rows: dict[str, dict[str, Any]]) -> list[str]:
    """Which of the weights above 1 - p stay above it where the reward says nothing."""
    control = {row["method"]: row for row in select(result, condition=SHUFFLED.name)}
    lines = []
    for side in SIDES:
        above = [name for name in control if name in rows and value(rows[name], f"{side}_gain").low > 0]
        without = [name for name in above if value(control[name], f"{side}_gain").low > 0]
        if without:
            lines.append(
                f"With shuffled rewards still above 1 - p on {side} responses: {_listed(without)}. That part of what they find they do "
                "not find by the reward."
            )
        elif above:
            lines.append(
                f"With shuffled rewards none of {_listed(above)} is above 1 - p on {side} responses: as far as the intervals "
                "tell, what they find beyond it they find by the reward."
            )
    return lines


Columns = list[tuple[str, list[str]]]
"""Headings with their cells."""


def _print_columns(console: Console, title: str, names: Sequence[str], columns: Columns) -> None:
    """One table where it fits the width; else as many as it takes, each with the names of the weights."""
    first = max(map(len, ("weight", *names)))
    parts: list[Columns] = []
    left = 0
    for heading, cells in columns:
        width = 3 + max(len(line) for cell in (heading, *cells) for line in cell.split("\n"))
        if not parts or width > left:
            parts.append([])
            left = console.width - first - 4
        parts[-1].append((heading, cells))
        left -= width
    for part in parts:
        table = _table(title if part is parts[0] else None, [heading for heading, _ in part])
        for place, name in enumerate(names):
            table.add_row(name, *(cells[place] for _, cells in part))
        console.print(table)


def _finding(result: dict[str, Any], settings: PlantedSettings) -> tuple[str, list[str], Columns]:
    title = (
        f"Finding the tokens that decided: {counted(len(settings.policies), 'policy', 'policies')} x "
        f"{counted(len(settings.tasks), 'task')} x {counted(settings.batches, 'batch', 'batches')}"
    )
    rows = select(result)
    columns: Columns = []
    for side in SIDES:
        auroc = [_spread(value(row, f"{side}_auroc")) for row in rows]
        gain = [
            "" if row["method"] == RIVAL else _spread(value(row, f"{side}_gain"), sign="+") for row in rows
        ]
        alike = [
            " ".join(_number(value(row, f"{side}_alike_{bins}").mean, 2) for bins in BINS) for row in rows
        ]
        precision = [_number(value(row, f"{side}_precision").mean, 2) for row in rows]
        columns += [(f"{side} AUROC", auroc), ("- 1-p's", gain), ("alike in p", alike), ("AP", precision)]
    return title, [row["label"] for row in rows], columns


def _finding_caption(result: dict[str, Any], settings: PlantedSettings) -> str:
    share = {side: _average_fact(result, settings, f"{side}_decisive_share") for side in SIDES}
    fipo = f" fipo: in the second of two mini-batches, after one DAPO step (before it, it is {BASELINE})."
    return (
        "Only tokens of groups with both outcomes count. ±: half of a 95 % interval over rollout batches. - 1-p's: difference to "
        f"the AUROC of {RIVAL} (1 - p) on the same tokens, over the batches in which both were measured, and rounded by itself: it "
        "need not be the difference of the two AUROCs that are shown. alike in p: AUROC among tokens within the same tenth, and "
        f"fiftieth, of p; what {RIVAL} still has there is what p tells within a bin. AP: average precision; without skill it is "
        f"the share of decisive tokens, {share['right']:.3f} (right) and {share['wrong']:.3f} (wrong)."
        + (fipo if any(row["method"] == "fipo" for row in select(result)) else "")
    )


def _table(title: str | None, headings: Iterable[str]) -> Table:
    """A table whose rows are weights."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("weight", no_wrap=True)
    add_columns(table, headings)
    return table


def _update_table(result: dict[str, Any]) -> Table:
    table = _table("Where the update goes", ("mass", "cosine", f"against {BASELINE}"))
    for row in select(result):
        table.add_row(
            row["label"],
            _number(value(row, "mass_share").mean),
            _number(value(row, "cosine").mean),
            "" if row["method"] == BASELINE else _spread(value(row, "cosine_gain"), sign="+"),
        )
    return table


def _update_caption(methods: Collection[str]) -> str:
    ranges = {"oracle": "[0.8, 1.2]", "oracle-wide": "[0.5, 1.5]"}
    perfect = [
        f"{name}: perfect credit within the range {range_of}"
        for name, range_of in ranges.items()
        if name in methods
    ]
    return (
        "mass: share of sum rho|A| on decisive tokens. cosine: of the update sum rho A grad log pi, over all parameters, with the "
        f"one that credits the decisive tokens alone. against {BASELINE}: over the batches in which both were measured."
        + "".join(f" {text}, the measure of what a weight of that range could do." for text in perfect)
    )


def _slices(result: dict[str, Any], parts: Sequence[str], title: str) -> tuple[str, list[str], Columns]:
    by_part = {part.partition(" ")[2]: {row["method"]: row for row in select(result, part)} for part in parts}
    names = list(dict.fromkeys(name for rows in by_part.values() for name in rows))
    columns = [(part, [_sides(rows.get(name, {})) for name in names]) for part, rows in by_part.items()]
    return f"{title}: AUROC on right and wrong responses", [label(name) for name in names], columns


def _stability(result: dict[str, Any]) -> tuple[str, list[str], Columns]:
    conditions = [CLEAN.name, *(condition.name for condition in PERTURBED), *TERCILES]
    rows = {name: {row["method"]: row for row in select(result, condition=name)} for name in conditions}
    methods = list(rows[SHUFFLED.name])

    def cell(name: str, method: str) -> str:
        row = rows[name].get(method, {})
        moved = value(row, "rank_correlation").mean
        return _sides(row) + ("" if math.isnan(moved) else f"\n{moved:.2f}")

    columns = [(name, [cell(name, method) for method in methods]) for name in conditions]
    return "Stability: AUROC on right and wrong responses", [label(method) for method in methods], columns


def _control_table(result: dict[str, Any]) -> Table:
    table = _table("Found by the reward: AUROC less that with shuffled rewards (same rollouts)", SIDES)
    control = {row["method"] for row in select(result, condition=SHUFFLED.name)}
    for row in select(result):
        if row["method"] in control:
            spreads = [value(row, f"{side}_by_reward") for side in SIDES]
            table.add_row(row["label"], *(_spread(one, sign="+") for one in spreads))
    return table


def _agreement_table(result: dict[str, Any]) -> Table:
    first = result["agreement"][0]
    table = Table(
        title=f"Proxies against full-parameter gradients: {first['tokens']} tokens of {first['cells']} policies x tasks",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    headings = ("proxy", "scope", "K", "margins", "coefficients", "updates")
    add_columns(table, headings, left=("proxy", "scope"))
    for row in result["agreement"]:
        table.add_row(
            row["proxy"],
            row["scope"],
            str(row["refinements"]),
            *(
                f"{_number(row[key], 2)} ({'..'.join(_number(end, 2) for end in row[f'{key}_range'])})"
                for key in ("margin_rank_correlation", "weight_rank_correlation")
            ),
            _number(row["update_cosine"], 4),
        )
    return table


def _sides(row: dict[str, Any]) -> str:
    return " ".join(_number(value(row, f"{side}_auroc").mean, 2) for side in SIDES)


def _average_fact(result: dict[str, Any], settings: PlantedSettings, key: str) -> float:
    rows = (row for row in result["facts"] if row["task"] in settings.tasks)
    known = [row[key] for row in rows if not math.isnan(row[key])]
    return sum(known) / len(known) if known else math.nan


def _listed(names: Sequence[str]) -> str:
    return ", ".join(label(name) for name in names)


def _number(number: float, digits: int = 3) -> str:
    return "-" if math.isnan(number) else f"{number:.{digits}f}"


def _spread(spread: Spread, sign: str = "") -> str:
    if math.isnan(spread.mean):
        return "-"
    reach = "" if math.isnan(spread.low) else f" ±{(spread.high - spread.low) / 2:.3f}".replace("±0.", "±.")
    return f"{spread.mean:{sign}.3f}{reach}"
