"""What trackers call the numbers of the weights: the same for both engines, and as the docs say."""

import re
from pathlib import Path

from delta_rlvr.adapters import trl, verl
from delta_rlvr.adapters.metrics import MAIN_METRICS, PREFIX, tracked, untracked
from delta_rlvr.adapters.trl.run_folder import _NAMES
from delta_rlvr.adapters.verl.run_folder import _METRICS
from delta_rlvr.rewards import OverlongReward, SoftOverlong
from rlvr_graders import MathReward
from rlvr_graders.code.grader import CodeReward

DOCS = Path(__file__).parents[2] / "docs"


def test_a_tracker_and_the_run_folder_differ_in_the_prefix_alone():
    assert tracked({"weight_std": 0.1}) == {"credit/weight_std": 0.1}
    assert untracked({"credit/weight_std": 0.1, "reward": 1.0}) == {"weight_std": 0.1}


def test_no_engine_has_a_prefix_of_its_own():
    """Both take it from one place: neither writes the numbers of the weights under a literal prefix."""
    for engine in (trl, verl):
        sources = [path.read_text(encoding="utf-8") for path in Path(engine.__file__).parent.rglob("*.py")]
        assert sum("adapters.metrics import" in source for source in sources) >= 2  # writes, reads back
        assert not [found for source in sources for found in re.findall(r"[\"'](?:credit|delta)/", source)]


def test_the_docs_say_what_rewards_count():
    page = (DOCS / "run_schema.md").read_text()
    ours = (MathReward(), CodeReward(), OverlongReward(SoftOverlong(8, 4)))
    assert {name for reward in ours for name in reward.counts([])} == set(re.findall(r"`NAME/([a-z_]+)`", page))


def test_the_docs_have_the_names():
    section = (DOCS / "run_schema.md").read_text().split("### In a tracker")[1].split("\n## ")[0]
    assert f"`{PREFIX}weight_std`" in section
    by_default = section.split("get six:")[1].split(". ")[0]
    assert tuple(re.findall(r"`(\w+)`", by_default)) == MAIN_METRICS
    trl_names = {ours: theirs for theirs, ours in _NAMES.items()}
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", section, re.MULTILINE)[2:]
    checked = 0
    for here, on_trl, on_verl in rows:
        for place, name in enumerate(re.findall(r"`(\w+)`", here)):
            for column, known in ((on_trl, trl_names), (on_verl, _METRICS)):
                if name in known:
                    named = re.findall(r"`([^`]+)`", column) or re.findall(r"`([^`]+)`", here)
                    assert named[place] == known[name]
                    checked += 1
    assert checked == 15
