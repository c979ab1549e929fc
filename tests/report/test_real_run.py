"""The page of a real training run of the bundled policy, as `make demo` ends with it."""

import pytest

from command_line import run
from delta_rlvr.evaluate import EvaluationResult, compare_results
from report_pages import details, opened, set_range, shown, side_texts, spoken, stored_responses, wait_for_prompt
from rounding import FIVE_DIGITS

SHORT = ["--steps", "4", "--eval_problems", "8", "--eval_samples", "2", "--per_device_train_batch_size", "32"]


def train(folder, *options):
    return run("train", "--output", folder, *options, log=folder.with_suffix(".txt"))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real") / "run"
    train(folder, *SHORT, "--rollouts_every", "2")
    return folder


def test_the_page_shows_what_training_wrote(browser, run_folder):
    stored = stored_responses(run_folder)
    page_file = run_folder / "report.html"
    assert page_file.stat().st_size < 5e6
    with opened(browser, page_file) as page:
        step = max(stored)
        group = int(page.input_value("#tokens select >> nth=1"))
        wait_for_prompt(page, step, group)
        positive = [r for r in stored[step][group] if r["advantage"] > 0]
        assert side_texts(page, "positive") == [shown(r["tokens"]) for r in positive]
        page.locator(".side.positive .response-text >> nth=0").locator(".t").nth(2).hover()
        assert spoken(details(page)["dapo-ft"]) == pytest.approx(
            positive[0]["other_weights"]["dapo-ft"][2], rel=FIVE_DIGITS
        )
        set_range(page, "#tokens input[type=range]", 0)
        first = min(stored)
        page.wait_for_selector(f"#tokens-view[data-shown^='{first}/']")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_demo_learns_and_its_report_opens(browser, tmp_path):
    """The whole of `make demo`: at least 15 points, before and after told apart with p < 0.01, and a page under 5 MB."""
    folder = tmp_path / "demo"
    told = train(folder)
    before, after = (
        EvaluationResult.load(folder / "evaluations" / f"heldout_{when}.json") for when in ("before", "after")
    )
    comparison = compare_results(before, after, names=("before", "after"))
    assert after.accuracy - before.accuracy >= 0.15
    assert comparison.paired.p < 0.01
    assert "report: " in told
    assert (folder / "report.html").stat().st_size < 5e6
    with opened(browser, folder / "report.html"):
        pass
