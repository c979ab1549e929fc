"""The numeric tests under the vector instructions that this processor has besides its widest, and under other thread counts.

    python scripts/numeric_passes.py          # what `make test` adds to its main pass (widest instructions, one thread)
    python scripts/numeric_passes.py --all    # every pair of instructions and thread count

torch chooses its kernels by `ATEN_CPU_CAPABILITY`; another choice adds in another order. A tolerance that holds on one machine by luck
fails in one of these passes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch

X86 = ("default", "avx2", "avx512")
MARK = "mark.numeric"
ROOT = Path(__file__).parents[1]
TESTS = [ROOT / "tests", ROOT / "graders" / "tests", ROOT / "evidence" / "tests"]


def capabilities() -> list[str]:
    """What can be asked for here, the widest last: asking for more than the processor has would crash."""
    widest = torch.backends.cpu.get_cpu_capability().lower()
    return list(X86[: X86.index(widest) + 1]) if widest in X86 else list(dict.fromkeys(["default", widest]))


def passes(everything: bool) -> list[tuple[str, int]]:
    """(capability, threads) of each pass."""
    *narrower, widest = capabilities()
    if everything:
        return [(name, threads) for name in (*narrower, widest) for threads in (1, 2)]
    return [(name, 2 - number % 2) for number, name in enumerate(narrower)] + [(widest, 2)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every pair, not only those that `make test` adds")
    options = parser.parse_args()
    # Only the files that have such tests: collecting the others takes longer than running these.
    files = sorted(
        str(path) for folder in TESTS for path in folder.rglob("test_*.py") if MARK in path.read_text(encoding="utf-8")
    )
    failed = []
    for name, threads in passes(options.all):
        print(f"== numeric tests: ATEN_CPU_CAPABILITY={name} OMP_NUM_THREADS={threads}", flush=True)
        workers = (os.cpu_count() or 1) // threads
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-m",
                "numeric and not gpu and not slow",
                "-n",
                str(workers if workers > 1 else 0),
                *files,
            ],
            env={**os.environ, "ATEN_CPU_CAPABILITY": name, "OMP_NUM_THREADS": str(threads)},
            check=False,
        )
        if done.returncode:
            failed.append(f"{name} with {threads} threads")
    if failed:
        print(f"failed under: {'; '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
