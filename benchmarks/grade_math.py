"""Gradings a second on plain answers: ours against math-verify called directly, in the same run on the same pairs.

    python benchmarks/grade_math.py            # in words
    python benchmarks/grade_math.py --json     # for a machine

Every pair is new: no answer is repeated, so no cache helps either side, and every second one is wrong. The plain answers are
integers, decimals, fractions and numbers with a unit or a thousands separator, as in GSM8K and AIME; "algebra" is the slower
rest that needs a worker. math-verify is called as its documentation shows, `verify(parse(reference), parse(completion))`, with
its own time limits on, in one process. Ours is timed as one batch, which may use every core, and one call after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable

from rlvr_graders import grade_math, grade_math_batch, shutdown_workers

Pair = tuple[str, str]


def plain_pairs(count: int, generator: random.Random) -> list[Pair]:
    """(completion, reference): right half of the time."""
    pairs = []
    for number in range(count):
        value = generator.randint(10, 10**6)
        bottom = generator.randint(2, 99)
        shown = value + number % 2
        reference, given = [
            (str(value), str(shown)),
            (str(value), f"{shown:,}"),
            (f"{value / 100:.2f}", f"{shown / 100:.2f}"),
            (f"\\frac{{{value}}}{{{bottom}}}", f"\\dfrac{{{shown}}}{{{bottom}}}"),
            (str(value), f"{shown} \\text{{ apples}}"),
            (str(-value), f"-{shown}.0"),
        ][number // 2 % 6]
        pairs.append((f"We add the parts and simplify. The answer is $\\boxed{{{given}}}$.", reference))
    return pairs


def algebra_pairs(count: int, generator: random.Random) -> list[Pair]:
    pairs = []
    for number in range(count):
        a, b = generator.randint(2, 999), generator.randint(2, 999)
        wrong = number % 2
        reference, given = [
            (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{a * a * b + wrong}}}"),
            (f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b + wrong})"),
            (f"\\frac{{{a}\\pi}}{{{b}}}", f"{a + wrong}\\pi/{b}"),
        ][number % 3]
        pairs.append((f"Hence $\\boxed{{{given}}}$.", reference))
    return pairs


def rate(grade: Callable[[list[Pair]], list[float]], pairs: list[Pair]) -> tuple[float, list[float]]:
    begin = time.perf_counter()
    scores = grade(pairs)
    return len(pairs) / (time.perf_counter() - begin), scores


def direct(pairs: list[Pair]) -> list[float]:
    from math_verify import parse, verify

    return [float(verify(parse(f"${reference}$"), parse(completion))) for completion, reference in pairs]


def batch(pairs: list[Pair]) -> list[float]:
    return [verdict.score for verdict in grade_math_batch([c for c, _ in pairs], [a for _, a in pairs])]


def one_by_one(pairs: list[Pair]) -> list[float]:
    return [grade_math(completion, answer).score for completion, answer in pairs]


def measure(count: int, seed: int) -> dict[str, object]:
    generator = random.Random(seed)
    plain, algebra = plain_pairs(count, generator), algebra_pairs(max(count // 10, 30), generator)
    warm = plain_pairs(20, generator) + algebra_pairs(20, generator)
    direct(warm)
    batch(warm)
    results: dict[str, object] = {
        "pairs": len(plain),
        "algebra_pairs": len(algebra),
        "cores": len(os.sched_getaffinity(0)),
    }
    for name, pairs in (("plain", plain), ("algebra", algebra)):
        theirs, their_scores = rate(direct, pairs)
        ours, our_scores = rate(batch, pairs)
        single, _ = rate(one_by_one, pairs)
        results[name] = {
            "ours_per_second": round(ours, 1),
            "ours_one_by_one_per_second": round(single, 1),
            "math_verify_per_second": round(theirs, 1),
            "ratio": round(ours / theirs, 2),
            "ratio_one_by_one": round(single / theirs, 2),
            "ours_right": sum(s == (i % 2 == 0) for i, s in enumerate(our_scores)) / len(pairs),
            "math_verify_right": sum(s == (i % 2 == 0) for i, s in enumerate(their_scores)) / len(pairs),
        }
    shutdown_workers()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3000, help="plain pairs; a tenth as many need algebra")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    results = measure(arguments.pairs, arguments.seed)
    if arguments.json:
        print(json.dumps(results))
        return
    for name in ("plain", "algebra"):
        row = results[name]
        assert isinstance(row, dict)
        print(
            f"{name:8} ours {row['ours_per_second']:>9} /s (one by one {row['ours_one_by_one_per_second']} /s), "
            f"math-verify {row['math_verify_per_second']} /s, ratio {row['ratio']}; "
            f"right: ours {row['ours_right']:.1%}, math-verify {row['math_verify_right']:.1%}"
        )


if __name__ == "__main__":
    main()
