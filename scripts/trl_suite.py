"""TRL's own tests of GRPOTrainer, with TRL's classes and then with ours in their place: what fails with ours alone?

    git clone https://github.com/huggingface/trl
    pip install jmespath  # or its tests of tools and environments are skipped
    pip download --no-deps dashscope && unzip dashscope-*.whl dashscope/resources/qwen.tiktoken
    python scripts/trl_suite.py --trl-tests trl/tests --vocabulary dashscope/resources/qwen.tiktoken
    python scripts/trl_suite.py ... --method dapo -- -k "not sampler" -n 2

The run itself fetches nothing: small random models and made-up prompts stand in for those of the hub (trl_stand_ins.py), and trainings
are cut to 3 steps. Tests of models that have no stand-in (those that read images, remote code) fail with both. What stock gave is kept
in the folder and not run again for the same arguments of pytest. Further arguments go to pytest. Exit code 1: a test that passes with
stock fails with ours.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STEPS = 3
COUNTS_STEPS = "test_prepare_input_called_with_correct_data"
"""The test that asks how many there were: its training is whole."""


# ---------------------------------------------------------------------------- inside of pytest: this file is its plug-in


def pytest_configure(config: Any) -> None:
    """Put our classes in the place of TRL's, cut trainings, and note what they end in."""
    if "TRL_SUITE_METHOD" not in os.environ:
        return
    import trl
    from transformers import Trainer

    # The tests of another version may ask for packages that the installed TRL has no question for.
    importlib.import_module("trl.import_utils").__getattr__ = _not_available  # type: ignore[method-assign]
    train = Trainer.train

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].rpartition("::")[2]
        if self.args.max_steps < 0 and test != COUNTS_STEPS:
            self.args.max_steps = STEPS
        result = train(self, *args, **kwargs)
        digest = hashlib.sha256()
        for name, value in sorted(self.model.named_parameters()):
            digest.update(name.encode() + value.detach().float().numpy().tobytes())
        with open(os.environ["TRL_SUITE_WEIGHTS"], "a") as file:
            file.write(json.dumps([test, digest.hexdigest()]) + "\n")
        return result

    Trainer.train = noted
    method = os.environ["TRL_SUITE_METHOD"]
    if method == "stock":
        return
    from trl import GRPOConfig

    from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig

    given = DeltaTrainerConfig.__init__

    def with_method(self: Any, *args: Any, **kwargs: Any) -> None:
        # With TRL's own clip where a test gives none: the methods have DAPO's, which is wider above.
        given(self, *args, **{"method": method, "epsilon": GRPOConfig.epsilon, **kwargs})

    DeltaTrainerConfig.__init__ = with_method  # type: ignore[method-assign]
    trl.GRPOTrainer, trl.GRPOConfig = DeltaTrainer, DeltaTrainerConfig


def _not_available(name: str) -> Any:
    if name.startswith("is_") and name.endswith("_available"):
        return lambda: False
    raise AttributeError(name)


# ---------------------------------------------------------------------------- outside


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-tests", type=Path, required=True, help="the folder `tests` of a checkout of TRL")
    parser.add_argument("--vocabulary", type=Path, required=True, help="qwen.tiktoken")
    parser.add_argument("--method", default="delta")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "trl-suite", help="for stand-ins and results")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    arguments = parser.parse_args()
    for path in (arguments.trl_tests / "test_grpo_trainer.py", arguments.vocabulary):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    from trl_stand_ins import make_stand_ins

    folder: Path = arguments.folder.resolve()
    make_stand_ins(folder / "hub", arguments.vocabulary)
    # A copy, because a checkout of TRL beside it would be imported in the place of the installed TRL.
    tests = folder / "suite" / "tests"
    shutil.rmtree(tests, ignore_errors=True)
    tests.mkdir(parents=True)
    for path in arguments.trl_tests.glob("*.py"):
        if path.name in ("__init__.py", "conftest.py", "test_grpo_trainer.py") or path.name.startswith("testing_"):
            shutil.copy(path, tests)
    chosen, kept = json.dumps(arguments.pytest), folder / "stock.arguments"
    if not (kept.exists() and kept.read_text() == chosen):
        kept.unlink(missing_ok=True)
        run("stock", folder, tests, arguments.pytest)
        kept.write_text(chosen)
    run(arguments.method, folder, tests, arguments.pytest)
    return compare(arguments.method, folder)


def run(method: str, folder: Path, tests: Path, more: list[str]) -> None:
    """One time through the tests. They name models as `trl-internal-testing/...`, which from the stand-ins' folder are paths."""
    (folder / f"{method}.weights").unlink(missing_ok=True)
    environment = {
        **os.environ,
        "TRL_SUITE_METHOD": method,
        "TRL_SUITE_WEIGHTS": str(folder / f"{method}.weights"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(tests / "test_grpo_trainer.py"),
        "-p",
        "trl_suite",
        "-q",
        "--tb=short",
    ]
    command += ["--rootdir", str(tests.parent), "-p", "no:cacheprovider", "--timeout=900"]
    command += [f"--junitxml={folder / method}.xml", *more]
    classes, output = ("TRL's own classes" if method == "stock" else f"method={method!r}", folder / f"{method}.log")
    print(f"running TRL's tests with {classes}; pytest writes to {output}", flush=True)
    with open(output, "w") as log:
        done = subprocess.run(command, cwd=folder / "hub", env=environment, stdout=log, stderr=log, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest did not come to its end (exit code {done.returncode}): see {output}")


def compare(method: str, folder: Path) -> int:
    """Print the counts, and every test that passes with stock and not with ours."""
    stock, ours = outcomes(folder / "stock.xml"), outcomes(folder / f"{method}.xml")
    for name, results in (("stock", stock), (method, ours)):
        counts = Counter(kind for kind, _ in results.values())
        print(f"{name}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    new = [test for test, (kind, _) in ours.items() if kind == "failed" and stock[test][0] != "failed"]
    for test in new:
        print(f"  fails with ours alone: {test}: {ours[test][1]}")
    theirs, mine = (weights(folder / f"{name}.weights") for name in ("stock", method))
    shared = [test for test in theirs if test in mine]
    same = sum(theirs[test] == mine[test] for test in shared)
    print(f"tests whose trainings end in the same weights, bit for bit: {same} of {len(shared)}")
    return int(bool(new))


def outcomes(path: Path) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kind, message = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                kind, message = "failed", (child.get("message") or "").split("\n")[0][:300]
            elif child.tag == "skipped":
                kind = "failed as expected" if "xfail" in (child.get("type") or "") else "skipped"
        found[f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}"] = (kind, message)
    return found


def weights(path: Path) -> dict[str, list[str]]:
    """What the trainings of each test ended in."""
    ended: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        test, digest = json.loads(line)
        ended.setdefault(test, []).append(digest)
    return ended


if __name__ == "__main__":
    sys.exit(main())
