"""Ours against math-verify on public problem sets: wrong accepts and wrong rejects. Writes the page of numbers.

    DELTA_RLVR_DATA=folder python benchmarks/grade_public_sets.py --page graders/docs/numbers.md

Each reference becomes answers of which it is known whether they are right: spelled otherwise, as an equal value, and made wrong.
math-verify gets the whole response by its defaults, in the same kind of worker as ours and with the same limit of 5 s.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from rlvr_graders import Verdict, grade_math_batch, grade_math_verify_batch, shutdown_workers

SETS = {
    "AIME 2024": "math/aime24.jsonl",
    "AIME 2025": "math/aime25.jsonl",
    "HMMT February 2025": "math/hmmt25_feb.jsonl",
    "MATH-500": "math/math500.jsonl",
    "GSM8K test": "math/gsm8k_test.jsonl",
}
FRACTION = re.compile(r"(?P<sign>-?)\\d?frac\{(?P<top>\d+)\}\{(?P<bottom>\d+)\}")
Rewrite = Callable[[str], str | None]
"""The answer made of a reference; None where this way does not fit it."""


def whole(answer: str) -> int | None:
    return int(answer) if re.fullmatch(r"-?\d{1,15}", answer) else None


def number(make: Callable[[int], str]) -> Rewrite:
    return lambda answer: None if (value := whole(answer)) is None else make(value)


def fraction(make: Callable[[str, int, int], str | None]) -> Rewrite:
    def rewrite(answer: str) -> str | None:
        found = FRACTION.fullmatch(answer)
        return None if found is None else make(found["sign"], int(found["top"]), int(found["bottom"]))

    return rewrite


def finite(sign: str, top: int, bottom: int) -> str | None:
    value = Fraction(top, bottom)
    return f"{sign}{float(value)}" if 10**6 % value.denominator == 0 else None


RIGHT: dict[str, Rewrite] = {
    "as it is": lambda answer: answer,
    "in dollar signs": lambda answer: f"${answer}$",
    "other fractions": lambda answer: answer.replace(r"\frac", r"\dfrac") if r"\frac" in answer else None,
    "full stop": lambda answer: answer + ".",
    "display style": lambda answer: rf"\displaystyle {answer}\,",
    "named": number(lambda value: f"x = {value}"),
    "decimal zero": number(lambda value: f"{value}.0"),
    "thousands": number(lambda value: f"{value:,}".replace(",", "{,}") if abs(value) > 999 else str(value)),
    "unit": number(lambda value: rf"{value}\text{{ units}}"),
    "expanded fraction": fraction(lambda sign, top, bottom: rf"{sign}\frac{{{3 * top}}}{{{3 * bottom}}}"),
    "fraction in a line": fraction(lambda sign, top, bottom: f"{sign}{top}/{bottom}"),
    "finite decimal": fraction(finite),
    "roots as powers": lambda answer: (
        re.sub(r"\\sqrt\{(\d+)\}", r"(\1)^{1/2}", answer) if re.search(r"\\sqrt\{\d+\}", answer) else None
    ),
    "list turned round": lambda answer: (
        ", ".join(reversed(answer.split(",")))
        if re.fullmatch(r"[-\d\\a-z{}/ ]+(,[-\d\\a-z{}/ ]+)+", answer) and not re.search(r"\d,\d{3}|\\[{]", answer)
        else None
    ),
}
WRONG: dict[str, Rewrite] = {
    "one more": number(lambda value: str(value + 1)),
    "other sign": number(lambda value: str(-value) if value else None),  # type: ignore[arg-type,return-value]
    "ten times": number(lambda value: str(10 * value) if value else None),  # type: ignore[arg-type,return-value]
    "among others": number(lambda value: f"{value}, {value + 1}"),
    "upside down": fraction(
        lambda sign, top, bottom: rf"{sign}\frac{{{bottom}}}{{{top}}}" if top not in (0, bottom) else None
    ),
    "one more above": fraction(lambda sign, top, bottom: rf"{sign}\frac{{{top + 1}}}{{{bottom}}}"),
    "point turned round": lambda answer: (
        rf"({found[2]},{found[1]})"
        if (found := re.fullmatch(r"\(\s*(-?\d+)\s*,\s*(-?\d+)\s*\)", answer)) and found[1] != found[2]
        else None
    ),
    "plus one": lambda answer: f"{answer} + 1" if re.search(r"\\sqrt|\\pi|\^", answer) and "," not in answer else None,
}


def references(folder: Path, file: str, rows: int) -> list[str]:
    lines = (folder / file).read_text().splitlines()
    answers = [str(json.loads(line)["answer"]).split("####")[-1].strip() for line in lines]
    return answers if len(answers) <= rows else random.Random(0).sample(answers, rows)


@dataclass(frozen=True)
class Pair:
    completion: str
    reference: str
    way: str
    is_right: bool


def pairs(answers: list[str]) -> list[Pair]:
    made = [
        (given, answer, way, ways is RIGHT)
        for answer in answers
        for ways in (RIGHT, WRONG)
        for way, rewrite in ways.items()
        if (given := rewrite(answer)) is not None
    ]
    # Another row's reference; a pair of texts that both stand for one value would need a judge, so only plain numbers.
    plain = [answer for answer in answers if whole(answer) is not None]
    made += [(b, a, "another row's", False) for a, b in itertools.pairwise(plain) if int(a) != int(b)]
    return [Pair(f"We add up.\n\\[\\boxed{{{given}}}\\]", *rest) for given, *rest in made]  # type: ignore[arg-type]


GRADERS: dict[str, Callable[[list[str], list[str]], list[Verdict]]] = {
    "ours": grade_math_batch,
    "math-verify": grade_math_verify_batch,
}


def measure(rows: list[Pair]) -> dict[str, Counter[tuple[str, bool]]]:
    """For each grader: the errors by (way, whether the answer is right)."""
    results = {}
    for name, grade in GRADERS.items():
        verdicts = grade([row.completion for row in rows], [row.reference for row in rows])
        judged = zip(rows, verdicts, strict=True)
        results[name] = Counter(
            (row.way, row.is_right) for row, verdict in judged if bool(verdict.score) != row.is_right
        )
    return results


def errors_by_way(count: Counter[tuple[str, bool]], errors: dict[str, Counter[tuple[str, bool]]]) -> list[str]:
    """The ways of spelling that a grader got wrong, one a row, and all others in one sentence."""
    lines = ["| answer | is | pairs | ours: errors | math-verify: errors |", "|---|---|---|---|---|"]
    others = []
    for (way, is_right), number in count.items():
        cells = [f"{wrong[way, is_right]:,}" for wrong in errors.values()]
        kind = "right" if is_right else "wrong"
        if any(wrong[way, is_right] for wrong in errors.values()):
            lines.append(f"| {way} | {kind} | {number:,} | {' | '.join(cells)} |")
        else:
            others.append(f"{way} ({kind}, {number:,})")
    words = f"Neither grader errs on the others: {', '.join(others)}."
    return [*lines, "", *textwrap.wrap(words, 120, break_on_hyphens=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500, help="problems of each set")
    parser.add_argument("--page", type=Path, help="where to write the table; standard output without it")
    options = parser.parse_args()
    folder = Path(os.environ["DELTA_RLVR_DATA"])
    lines = ["| set | pairs (right, wrong) | ours: wrong accepts, wrong rejects | math-verify |", "|---|---|---|---|"]
    count: Counter[tuple[str, bool]] = Counter()
    errors: dict[str, Counter[tuple[str, bool]]] = {name: Counter() for name in GRADERS}
    for name, file in SETS.items():
        rows = pairs(references(folder, file, options.rows))
        results = measure(rows)
        count.update((row.way, row.is_right) for row in rows)
        right = sum(row.is_right for row in rows)
        cells = []
        for grader, wrong in results.items():
            errors[grader].update(wrong)
            accepts = sum(number for (_, is_right), number in wrong.items() if not is_right)
            cells.append(f"{accepts}, {wrong.total() - accepts}")
        lines.append(f"| {name} | {len(rows):,} ({right:,}, {len(rows) - right:,}) | {' | '.join(cells)} |")
    lines += ["", *errors_by_way(count, errors)]
    shutdown_workers()
    versions = f"math-verify {importlib.metadata.version('math-verify')}"
    text = "\n".join(lines)
    if options.page is None:
        print(f"{versions}\n{text}")
        return
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(
        f"""# Numbers

References of public sets, spelled otherwise and made wrong, so that it is known which answers are right.
{versions}; a limit of 5 s for both.

    DELTA_RLVR_DATA=folder python benchmarks/grade_public_sets.py --page graders/docs/numbers.md

{text}

One way of spelling can make most of a grader's errors: look at the second table before the first. These are easy pairs:
they show what a plain run meets, not what an adversary finds.
"""
    )


if __name__ == "__main__":
    main()
