"""How many programs a second the code grader judges, against the same programs run without any sandbox.

    python benchmarks/grade_code.py [--programs 200] [--workers 2] [--json]

The rival is one ordinary interpreter a program (`python -I -S -c`, program and tests together), in as many threads:
it gives no protection, and is the least that a fresh process a program can cost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from rlvr_graders.code import (
    AssertionTests,
    Call,
    CodeSettings,
    CodeTests,
    FunctionTests,
    Run,
    StdioTests,
    grade_code_batch,
)

PROGRAM = """
def primes(limit):
    found = []
    for number in range(2, limit):
        if all(number % prime for prime in found if prime * prime <= number):
            found.append(number)
    return found
"""
WHOLE = PROGRAM + "print(*primes(int(input())))\n"
LIMITS = (2, 10, 30, 100)


def known(limit: int) -> list[int]:
    return [n for n in range(2, limit) if all(n % d for d in range(2, n))]


ASSERTIONS = "".join(f"assert primes({limit}) == {known(limit)}\n" for limit in LIMITS)
STYLES: dict[str, tuple[str, CodeTests]] = {
    "values": (PROGRAM, FunctionTests("primes", tuple(Call((limit,), known(limit)) for limit in LIMITS))),
    "assertions": (PROGRAM, AssertionTests("primes", ASSERTIONS)),
    "stdio": (WHOLE, StdioTests(tuple(Run(f"{limit}\n", " ".join(map(str, known(limit)))) for limit in LIMITS))),
}


def graded_per_second(style: str, programs: int, settings: CodeSettings) -> float:
    program, tests = STYLES[style]
    completions = [f"```python\n{program}\nunique = {number}\n```" for number in range(programs)]
    start = time.perf_counter()
    verdicts = grade_code_batch(completions, [tests] * programs, settings=settings)
    seconds = time.perf_counter() - start
    assert all(verdict.score == 1 for verdict in verdicts), verdicts[0]
    return programs / seconds


def plain_per_second(programs: int, workers: int) -> float:
    command = [sys.executable, "-I", "-S", "-c", PROGRAM + ASSERTIONS]

    def run(_: int) -> int:
        return subprocess.run(command, check=True).returncode

    start = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, range(programs)))
    return programs / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    arguments = parser.parse_args()
    settings = CodeSettings(workers=arguments.workers)
    for style in STYLES:
        graded_per_second(style, 2, settings)  # the check for bubblewrap, and the file cache
    load = os.getloadavg()[0]
    rates = {style: graded_per_second(style, arguments.programs, settings) for style in STYLES}
    plain = plain_per_second(arguments.programs, arguments.workers)
    result = {
        "programs": arguments.programs,
        "workers": arguments.workers,
        "load_average_before": round(load, 2),
        "programs_per_second": {style: round(rate, 1) for style, rate in rates.items()},
        "plain_interpreter_per_second": round(plain, 1),
        "share_of_plain": {style: round(rate / plain, 2) for style, rate in rates.items()},
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{arguments.programs} programs, {arguments.workers} workers, load before {load:.1f}")
    for style, rate in rates.items():
        print(f"{style:<12} {rate:6.1f} programs/s   {rate / plain:5.2f} of a plain interpreter's {plain:.1f}")


if __name__ == "__main__":
    main()
