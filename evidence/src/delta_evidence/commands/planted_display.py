"""What `delta-rlvr credit-bench` prints: tables, how to read them, and what they say in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from delta_evidence.methods import label, listed
from delta_evidence.planted.bench import TERCILES
from delta_evidence.planted.conditions import CLEAN, PERTURBED, SHUFFLED
from delta_evidence.planted.measures import BINS, SIDES, Spread
from delta_evidence.planted.settings import BASELINE, RIVAL, PlantedSettings
from delta_evidence.planted.table import Row, by_method, mean_of_known, number_text, value
from delta_rlvr.terminal import add_columns
from delta_rlvr.words import counted


def show(result: dict[str, Any], settings: PlantedSettings, console: Console) -> None:
    """What the tables say, the tables, and what has to be known to read them."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    for note in result["notes"]:
        say(f"Note: {note}.")
    rows = by_method(result)
    if not rows:
        say("No batch had a group with both outcomes: there is nothing to tell.")
        return
    for sentence in sentences(result):
        say(sentence)
    sizes = (
        counted(len(settings.policies), "policy", "policies"),
        counted(len(settings.tasks), "task"),
        counted(settings.batches, "batch", "batches"),
    )
    _print(console, f"Finding the tokens that decided: {' x '.join(sizes)}", rows, _finding(rows))
    say(_finding_caption(result, settings))
    if any("cosine" in row for row in rows.values()):
        _print(console, "Where the update goes", rows, _updates(rows))
        say(_update_caption(rows))
    parts = [f"policy {name}" for name in settings.policies] if len(settings.policies) > 1 else []
    parts += [f"task {name}" for name in settings.tasks] if len(settings.tasks) > 1 else []
    if parts:
        by_part = {part.partition(" ")[2]: by_method(result, part) for part in parts}
        names = dict.fromkeys(name for some in by_part.values() for name in some)
        columns = [(part, [_sides(some.get(name, {})) for name in names]) for part, some in by_part.items()]
        _print(console, "By policy and by task: AUROC on right and wrong responses", names, columns)
    control = by_method(result, condition=SHUFFLED)
    if control:
        columns = [
            (name, [_stability(some.get(method, {})) for method in control])
            for name in (CLEAN, *PERTURBED, *TERCILES)
            for some in (by_method(result, condition=name),)
        ]
        _print(console, "Stability: AUROC on right and wrong responses", control, columns)
        say(
            "Second line: rank correlation with the clean weights on the same tokens. noise: share of the verdicts that is flipped. "
            "sparse: one right response a group is kept. shuffled: rewards permuted within groups, so that they say nothing. Thirds by "
            f"length: the clean weights on those responses. {CLEAN} is over all batches; the perturbed rewards, and the "
            "differences in the next table, are over the batches in which they were measured, so that columns need not subtract."
        )
        found = {name: row for name, row in rows.items() if name in control}
        columns = [(side, _spreads(found, f"{side}_by_reward", sign="+")) for side in SIDES]
        title = "Found by the reward: AUROC less that with shuffled rewards (same rollouts)"
        _print(console, title, found, columns)
    if result["agreement"]:
        console.print(_agreement_table(result["agreement"]))
        say(
            "Rank correlations of margins and of coefficients (lowest .. highest cell), and the cosine of the updates they give."
        )


def sentences(result: dict[str, Any]) -> list[str]:
    """What the tables say, no more than their intervals support."""
    rows = {name: row for name, row in by_method(result).items() if not name.startswith("oracle")}
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
        better = _above_zero(known, rows, f"{side}_gain")
        worse_than_chance = [name for name in known if known[name].high < 0.5]
        rival = "" if best == RIVAL else f"; {RIVAL}, which is 1 - p, {known[RIVAL].mean:.3f}"
        lines.append(
            f"On {side} responses {label(best)} finds the decisive tokens best (AUROC {known[best].mean:.3f}{rival}). "
            + (
                f"Above 1 - p on the same rollouts: {listed(better)}. "
                if better
                else "No weight is shown to be above 1 - p there. "
            )
            + (f"Below chance: {listed(worse_than_chance)}." if worse_than_chance else "")
        )
    control = by_method(result, condition=SHUFFLED)
    for side in SIDES:  # which of the weights above 1 - p stay above it where the reward says nothing
        above = _above_zero([name for name in control if name in rows], rows, f"{side}_gain")
        without = _above_zero(above, control, f"{side}_gain")
        if without:
            lines.append(
                f"With shuffled rewards still above 1 - p on {side} responses: {listed(without)}. That part of what they find they do "
                "not find by the reward."
            )
        elif above:
            taken = _above_zero(above, rows, f"{side}_by_reward")  # paired: the same rollouts, as they are and shuffled
            lines.append(
                f"With shuffled rewards none of {listed(above)} is shown to be above 1 - p on {side} responses. "
                + (
                    f"Shuffling makes {listed(taken)} find less: that part is found by the reward."
                    if taken
                    else "Whether shuffling takes anything from them, the intervals do not tell."
                )
            )
    if any(not math.isnan(value(row, "cosine_gain").low) for row in rows.values()):
        nearer = _above_zero(rows, rows, "cosine_gain")
        lines.append(
            f"The update comes nearer to the oracle's than {BASELINE}'s with: {listed(nearer)}."
            if nearer
            else f"No weight brings the update nearer to the oracle's than {BASELINE}'s, as far as the intervals tell."
        )
    return [text.strip() for text in lines]


def _above_zero(names: Iterable[str], rows: Mapping[str, Row], measure: str) -> list[str]:
    return [name for name in names if value(rows[name], measure).low > 0]


Columns = list[tuple[str, list[str]]]
"""Headings with their cells."""


def _print(console: Console, title: str, methods: Iterable[str], columns: Columns) -> None:
    """One table where it fits the width; else as many as it takes, each with the names of the weights."""
    names = [label(method) for method in methods]
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
        table = _table(title if part is parts[0] else None)
        table.add_column("weight", no_wrap=True)
        add_columns(table, [heading for heading, _ in part])
        for place, name in enumerate(names):
            table.add_row(name, *(cells[place] for _, cells in part))
        console.print(table)


def _table(title: str | None) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)


def _finding(rows: Mapping[str, Row]) -> Columns:
    columns: Columns = []
    for side in SIDES:
        alike = [
            " ".join(number_text(value(row, f"{side}_alike_{bins}").mean, 2) for bins in BINS) for row in rows.values()
        ]
        precision = [number_text(value(row, f"{side}_precision").mean, 2) for row in rows.values()]
        columns += [
            (f"{side} AUROC", _spreads(rows, f"{side}_auroc")),
            ("against 1-p", _spreads(rows, f"{side}_gain", sign="+", but=RIVAL)),
            ("alike in p", alike),
            ("AP", precision),
        ]
    return columns


def _finding_caption(result: dict[str, Any], settings: PlantedSettings) -> str:
    facts = [row for row in result["facts"] if row["task"] in settings.tasks]
    right, wrong = (mean_of_known(row[f"{side}_decisive_share"] for row in facts) for side in SIDES)
    fipo = f" fipo: in the second of two mini-batches, after one DAPO step (before it, it is {BASELINE})."
    return (
        "Only tokens of groups with both outcomes count. ±: half of a 95 % interval over rollout batches. against 1-p: difference to "
        f"the AUROC of {RIVAL} (1 - p) on the same tokens, over the batches in which both were measured, and rounded by itself: it "
        "need not be the difference of the two AUROCs that are shown. alike in p: AUROC among tokens within the same tenth, and "
        f"fiftieth, of p; what {RIVAL} still has there is what p tells within a bin. AP: average precision; without skill it is "
        f"the share of decisive tokens, {right:.3f} (right) and {wrong:.3f} (wrong)."
        + (fipo if "fipo" in by_method(result) else "")
    )


def _updates(rows: Mapping[str, Row]) -> Columns:
    columns = [
        (heading, [number_text(value(row, measure).mean) for row in rows.values()])
        for heading, measure in (("mass", "mass_share"), ("cosine", "cosine"))
    ]
    gains = _spreads(rows, "cosine_gain", sign="+", but=BASELINE)
    return [*columns, (f"against {BASELINE}", gains)]


def _update_caption(methods: Collection[str]) -> str:
    ranges = {"oracle": "[0.8, 1.2]", "oracle-wide": "[0.5, 1.5]"}
    return (
        "mass: share of sum rho|A| on decisive tokens. cosine: of the update sum rho A grad log pi, over all parameters, with the "
        f"one that credits the decisive tokens alone. against {BASELINE}: over the batches in which both were measured."
        + "".join(
            f" {name}: perfect credit within the range {ends}, the measure of what a weight of that range could do."
            for name, ends in ranges.items()
            if name in methods
        )
    )


def _agreement_table(rows: Sequence[dict[str, Any]]) -> Table:
    title = (
        f"Proxies against full-parameter gradients: {rows[0]['tokens']} tokens of {rows[0]['cells']} policies x tasks"
    )
    table = _table(title)
    headings = ("proxy", "scope", "K", "margins", "coefficients", "updates")
    add_columns(table, headings, left=("proxy", "scope"))
    for row in rows:
        table.add_row(
            row["proxy"],
            row["scope"],
            str(row["refinements"]),
            *(
                f"{number_text(row[key], 2)} ({'..'.join(number_text(end, 2) for end in row[f'{key}_range'])})"
                for key in ("margin_rank_correlation", "weight_rank_correlation")
            ),
            number_text(row["update_cosine"], 4),
        )
    return table


def _sides(row: Row) -> str:
    return " ".join(number_text(value(row, f"{side}_auroc").mean, 2) for side in SIDES)


def _stability(row: Row) -> str:
    moved = value(row, "rank_correlation").mean
    return _sides(row) + ("" if math.isnan(moved) else f"\n{moved:.2f}")


def _spreads(rows: Mapping[str, Row], measure: str, sign: str = "", but: str = "") -> list[str]:
    """A measure of each row with its interval; nothing for one of the methods, which it compares with."""
    return ["" if method == but else _spread(value(row, measure), sign) for method, row in rows.items()]


def _spread(spread: Spread, sign: str) -> str:
    if math.isnan(spread.mean):
        return "-"
    reach = "" if math.isnan(spread.low) else f" ±{(spread.high - spread.low) / 2:.3f}".replace("±0.", "±.")
    return f"{spread.mean:{sign}.3f}{reach}"
