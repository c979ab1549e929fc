"""The hot paths of this checkout against those of an earlier commit, in one run: which of them became slower, and by how much.

    python benchmarks/before_after.py --before b540da1
    python benchmarks/before_after.py --before main --rounds 15 --json speeds.json

The earlier commit is checked out into a temporary folder. Each round starts one process per tree, in an order that changes from round
to round; a process runs every path once to warm up and then several times, and keeps the least processor time (one thread): other
programs disturb it less than the clock, and never make it shorter. A round gives one ratio per path, after over before; the table has
the median of the ratios and a 95 % interval of that median (from the order of the ratios, so no distribution is assumed). "slower" and
"faster" stand where the interval leaves 1 out. The paths call what both trees offer; a commit from before one of their names existed
stops the run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 9


def credit_paths() -> dict[str, Callable[[], Any]]:
    """Solves of one batch: 64 responses of up to 256 tokens, 512 wide, in groups of 8."""
    import torch

    from delta_rlvr import CreditStream
    from delta_rlvr.objectives import LossInputs, get_method, policy_loss

    draw = torch.Generator().manual_seed(0)
    batch, length, width, vocabulary = 64, 256, 512, 2048
    hidden = torch.randn(batch, length, width, generator=draw)
    head = torch.randn(vocabulary, width, generator=draw)
    logps = -3 * torch.rand(batch, length, generator=draw)
    tokens = torch.randint(0, vocabulary, (batch, length), generator=draw)
    lengths = torch.randint(length // 2, length + 1, (batch,), generator=draw)
    mask = torch.arange(length)[None] < lengths[:, None]
    advantages = torch.randn(batch, generator=draw)
    advantages[::8] = 0
    groups = torch.arange(batch) // 8

    def solve(method: str, **more: Any) -> Callable[[], Any]:
        rule = get_method(method).rule

        def whole() -> None:
            stream = CreditStream(rule, head=more.get("head"))
            stream.add(hidden, logps, mask, tokens=more.get("tokens"))
            stream.solve(advantages, groups=more.get("groups"))

        return whole

    def streamed() -> None:
        stream = CreditStream(get_method("delta").rule)
        for start in range(0, batch, 4):
            rows = slice(start, start + 4)
            stream.add(hidden[rows], logps[rows], mask[rows])
        stream.solve(advantages)

    inputs, surrogate = LossInputs(logps, logps + 0.1, advantages, mask), get_method("dapo").surrogate
    return {
        "solve: delta": solve("delta"),
        "solve: delta, a centroid per group": solve("delta?scope=group", groups=groups),
        "solve: delta, rows of the 5 likeliest tokens": solve(
            "delta-topk?top_k=5", head=head[:256], tokens=tokens % 256
        ),
        "streamed solve, 16 micro-batches": streamed,
        "100 losses: dapo": lambda: [policy_loss(inputs, surrogate) for _ in range(100)],
    }


def grading_paths() -> dict[str, Callable[[], Any]]:
    """Answers that are judged in this process, as most of them are."""
    from grade_math import plain_pairs
    from rlvr_graders import grade_math

    pairs = plain_pairs(500, random.Random(0))
    return {"grading of 500 plain answers": lambda: [grade_math(*pair) for pair in pairs]}


def page_paths(folder: Path) -> dict[str, Callable[[], Any]]:
    """The page of a run with 4 responses of 5,000 tokens."""
    from delta_rlvr.report import write_report
    from report_frames import make_run

    run = make_run(folder / "run", responses=4, tokens=5000)
    return {"page of 20,000 tokens": lambda: write_report([run], folder / "report.html")}


def measure() -> dict[str, float]:
    """Seconds of processor time by path, of the tree on the path of imports."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = credit_paths() | grading_paths() | page_paths(Path(folder))
        seconds = {}
        for name, path in paths.items():
            path()
            times = []
            for _ in range(REPEATS):
                start = time.process_time()
                path()
                times.append(time.process_time() - start)
            seconds[name] = min(times)
    return seconds


def measured_in(tree: Path) -> dict[str, float]:
    """The same, in a process of its own that imports the package of a tree."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", str(tree / "src")],
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the paths could not be run in {tree} (exit code {done.returncode}; see above)")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A commit's files in a folder that goes afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def interval(ratios: list[float]) -> tuple[float, float]:
    """At least 95 % sure to hold the median: the k-th smallest and k-th largest ratio, by the binomial distribution of their ranks."""
    ordered, count = sorted(ratios), len(ratios)
    outside, k = 0.0, 0
    while outside + math.comb(count, k) / 2 ** (count - 1) <= 0.05:
        outside += math.comb(count, k) / 2 ** (count - 1)
        k += 1
    return ordered[k - 1], ordered[count - k]


def compare(before: Path, rounds: int) -> dict[str, dict[str, Any]]:
    times: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for number in range(rounds):
        trees = [("before", before), ("after", ROOT)]
        for name, tree in trees if number % 2 == 0 else reversed(trees):
            times[name].append(measured_in(tree))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    result = {}
    for path in times["after"][0]:
        seconds = {name: [one[path] for one in times[name]] for name in times}
        ratios = [after / first for first, after in zip(seconds["before"], seconds["after"], strict=True)]
        low, high = interval(ratios)
        result[path] = {
            "before_seconds": statistics.median(seconds["before"]),
            "after_seconds": statistics.median(seconds["after"]),
            "ratio": statistics.median(ratios),
            "interval": [low, high],
            "verdict": "slower" if low > 1 else "faster" if high < 1 else "",
        }
    return result


def show(result: dict[str, dict[str, Any]]) -> None:
    width = max(map(len, result))
    print(f"{'path':{width}}  {'before':>9}  {'after':>9}  after / before")
    for path, line in result.items():
        low, high = line["interval"]
        print(
            f"{path:{width}}  {line['before_seconds'] * 1e3:6.1f} ms  {line['after_seconds'] * 1e3:6.1f} ms  "
            f"{line['ratio']:.3f} ({low:.3f} to {high:.3f}) {line['verdict']}".rstrip()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of processes (default: 9; 6 or more)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    parser.add_argument("--measure", metavar="SRC", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        import delta_rlvr

        assert Path(delta_rlvr.__file__).is_relative_to(arguments.measure), delta_rlvr.__file__
        print(json.dumps(measure()))
        return
    if not arguments.before:
        parser.error("--before COMMIT is needed: what to compare this checkout with")
    if arguments.rounds < 6:
        parser.error("--rounds: fewer than 6 give no 95 % interval")
    with checkout(arguments.before) as before:
        result = compare(before, arguments.rounds)
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
