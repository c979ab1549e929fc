"""A file of DeepMath's size goes the recipe's way on both engines within its bounds of memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS, TEXT = 103_000, 48_000


def peak(*words: object) -> float:
    """GB that the command took at its peak."""
    process = subprocess.Popen([sys.executable, *map(str, words)], env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_maxrss * 1024 / 1e9


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_file_of_deepmaths_size(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source, prepared = tmp_path / "deepmath.parquet", tmp_path / "train.parquet"
    names = ["question", "final_answer", *(f"r1_solution_{k}" for k in (1, 2, 3))]
    with parquet.ParquetWriter(source, pa.schema([(name, pa.string()) for name in names])) as writer:
        for first in range(0, ROWS, 1000):
            # No two solutions are alike: a dictionary would keep what is.
            solutions = [f"{n:08d}" * (TEXT // 24) for n in range(first, first + 1000)]
            questions = [f"{n} + 1 =" for n in range(first, first + 1000)]
            answers = [str(n + 1) for n in range(first, first + 1000)]
            writer.write_table(pa.table(dict(zip(names, [questions, answers, *[solutions] * 3], strict=True))))

    script = ROOT / "recipes" / "verl" / "prepare_data.py"
    preparing = peak(script, "--source", source, "--schema", "deepmath", "--output", prepared)
    # verl's own call
    load = f"""
import datasets
rows = datasets.load_dataset("parquet", data_files={str(prepared)!r}, cache_dir={str(tmp_path / "cache")!r})["train"]
assert len(rows) == {ROWS}, len(rows)
assert "r1_solution_1" not in str(rows[0])
"""
    loading = peak("-c", load)
    training = peak(
        *("-m", "delta_rlvr", "train", "--task", f"{source}?schema=deepmath", "--output", tmp_path / "run"),
        *("--steps", 2, "--eval_problems", 8, "--per_device_train_batch_size", 16, "--max_completion_length", 16),
    )
    print(f"peak memory in GB: prepare_data.py {preparing:.2f}, load_dataset {loading:.2f}, train {training:.2f}")
    assert max(preparing, loading, training) < 1.0
