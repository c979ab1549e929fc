"""The page answers its reader's questions: what comes first, shares of the update, two methods at once, what the weights follow."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from command_line import change_info, run_info
from delta_rlvr.report import write_report
from delta_rlvr.runs import read_run
from delta_rlvr.runs.layout import RunFolderError
from delta_rlvr.runs.reader import runs_below
from report_pages import (
    change_rollouts,
    details,
    first_response,
    opened,
    set_range,
    show_tokens,
    spoken,
    stored_responses,
    unpacked,
    wait_for_prompt,
)
from rounding import FIVE_DIGITS
from rows import write_rows

DESKTOP = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}
SHADE, BESIDE = "#tokens select >> nth=2", "#tokens select >> nth=3"


@pytest.fixture(scope="module")
def compared(make_run, tmp_path_factory):
    """Two methods with two seeds each; a rollout batch lasts two steps, so that every second step has no reward."""
    folder = tmp_path_factory.mktemp("compared")
    runs = []
    for method, scores in {"dapo": (0.45, 0.5), "delta": (0.5, 0.6)}.items():
        for seed, after in enumerate(scores):
            run = make_run(folder / f"{method}-{seed}", method=method, seed=seed, after=after)
            lines = read_run(run).metrics
            for line in lines:
                line["reward"] = None if line["step"] % 2 == 0 else 0.2 + 0.1 * seed + line["step"] / 20
            write_rows(run / "metrics.jsonl", lines)
            runs.append(run)
    return write_report(runs, folder / "report.html")


def total(responses, weights):
    """Weight x |A| x (1 - p), over a step's responses."""
    return sum(
        weight * abs(r["advantage"]) * -math.expm1(logp)
        for r in responses
        for weight, logp in zip(weights(r), r["logps"], strict=True)
    )


def of_step(stored, step):
    return [response for group in stored[step].values() for response in group]


# What comes first.


@pytest.mark.parametrize("several", [False, True])
def test_tokens_are_above_the_fold(browser, report, compared, several):
    with browser.new_context(viewport=DESKTOP) as context:
        page = context.new_page()
        page.goto((compared if several else report).as_uri())
        page.wait_for_selector("html[data-ready]")
        page.wait_for_selector(".response-text .t")
        assert page.evaluate("scrollY") == 0
        box = page.locator(".side.positive .response-text .t").first.bounding_box()
        assert box["y"] + 2 * box["height"] < DESKTOP["height"]
        ids = page.eval_on_selector_all("main > section", "all => all.map(one => one.id)")
        single = ["tokens", "weights", "clouds", "dynamics", "discriminator", "comparison"]
        assert ids == (["comparison", *single[:-1]] if several else single)


def test_it_opens_on_a_weighted_method(browser, compared):
    with opened(browser, compared) as page:
        assert page.locator("#tokens select >> nth=0").input_value() == "3"  # delta, the third run
        assert page.input_value(SHADE) == "weight"
        assert "Cannot tell" in page.text_content("#lede")
        # A method that weighs all tokens alike is shaded by what the optimizer sees of them.
        page.select_option("#tokens select >> nth=0", "1")
        show_tokens(page)
        assert page.input_value(SHADE) == "share:weight"
        assert page.locator("#tokens .t:not(.q0)").count() > 0


def test_it_opens_on_the_readers_own_rule(browser, make_run, tmp_path):
    runs = [
        make_run(tmp_path / name, method=method, steps=1, prompts=2)
        for name, method in (("d", "delta"), ("m", "my.py:Mine"))
    ]
    with opened(browser, write_report(runs, tmp_path / "report.html")) as page:
        assert page.locator("#tokens select >> nth=0").input_value() == "2"


def test_no_section_without_content(browser, make_run, tmp_path):
    run = make_run(tmp_path / "run", method="dapo", steps=2)
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        names = page.locator("nav.sections a").all_text_contents()
        # Clouds of coefficients that are all one, and a discriminator that was not used, have nothing to show; others' weights do.
        assert names == ["Tokens", "Weights", "Training", "Result"]
        assert page.locator("main > section").count() == 4
        assert "weighs all tokens alike" in page.text_content("#weights")
        assert page.locator("#weights circle").count() > 100  # the other method's


def test_scores_fit_a_phone(browser, report):
    """The note on a single run's problems and samples pushed its scores off the screen."""
    with opened(browser, report, **PHONE) as page:
        for cell in page.locator(".forest tbody td").all():
            if box := cell.bounding_box():
                assert box["x"] + box["width"] <= PHONE["width"]


def test_what_a_shading_means_has_the_width_of_a_phone(browser, report):
    """Beside an empty half it took six lines."""
    with opened(browser, report, **PHONE) as page:
        assert page.locator("#tokens .legend p").first.bounding_box()["width"] > PHONE["width"] * 0.8


def test_scores_beside_the_one_that_decides_are_a_table(browser, make_run, tmp_path):
    """The terminal had a table of them, the page a paragraph in the margin, which called a reward a percentage."""
    runs = [make_run(tmp_path / f"{m}-0", method=m, steps=2) for m in ("dapo", "delta")]
    rows = [["method", "rate", "greedy"], ["dapo", "1e-3", "0.856"], ["delta", "5e-4", "0.825"]]
    stored = {"scores": {"dapo": [], "delta": []}, "seeds": [0], "tuned": "The best of 5e-4, 1e-3."}
    stored["beside"] = {"title": "greedy mean reward", "rows": rows, "caption": "rate: of learning"}
    (tmp_path / "comparison.json").write_text(json.dumps(stored))
    with opened(browser, write_report(runs, tmp_path / "report.html")) as page:
        table = page.locator("#comparison .scores table >> nth=1")
        assert [row.split() for row in table.inner_text().splitlines()] == rows
        assert "Greedy mean reward. Rate: of learning." in page.text_content("#comparison .scores")
        assert "The best of 5e\N{NON-BREAKING HYPHEN}4, 1e\N{NON-BREAKING HYPHEN}3." in page.text_content(
            "#comparison .verdict"
        )
    # Of other runs than these it says nothing.
    with opened(browser, write_report(runs[:1], tmp_path / "one.html")) as page:
        assert page.locator("#comparison .scores table").count() == 1


def judged_by_own_reward(run):
    """The same run, with scores that are mean rewards of a function of one's own."""
    info = run_info(run)
    final = {when: score | {"own_reward": True} for when, score in info["final"].items()}
    return change_info(run, settings=info["settings"] | {"reward": "my_reward.py:close"}, final=final)


@pytest.fixture(scope="module")
def wide_scores(make_run, tmp_path_factory):
    """Pages whose scores need much room: four scores of long rewards, and two runs that only their long folders tell apart."""
    folder = tmp_path_factory.mktemp("wide")
    seeds = [
        judged_by_own_reward(
            make_run(folder / f"{number}-{seed}", method=method, seed=seed, steps=1, prompts=1, after=seed - 12.3)
        )
        for number, method in enumerate(("dapo", "my_rules.py:Unlikely"))
        for seed in range(4)
    ]
    folders = [
        make_run(folder / f"a_run_with_a_long_name_of_its_own_{number}", steps=1, prompts=1, after=after)
        for number, after in enumerate((0.3, 0.9))
    ]
    return [write_report(seeds, folder / "seeds.html"), write_report(folders, folder / "folders.html")]


def test_scores_and_their_picture_fit_beside_the_sentence(browser, wide_scores):
    """The picture was cut off at its right end."""
    for page_file in wide_scores:
        with opened(browser, page_file) as page:
            for width in (1000, 1210, 1260, 1900):
                page.set_viewport_size({"width": width, "height": 900})
                holder = page.locator("#comparison .table-holder").first
                assert holder.evaluate("box => box.scrollWidth - box.clientWidth") == 0, width
                right = holder.bounding_box()["x"] + holder.bounding_box()["width"]
                for picture in holder.locator("svg.score").all():
                    box = picture.bounding_box()
                    assert box["width"] >= 100, width
                    assert box["x"] + box["width"] <= right, width


def test_scores_of_two_kinds_have_a_table_each(browser, make_run, tmp_path):
    """A run with a share of right answers stood under "Mean reward", because the run beside it has a reward of its own."""
    shares = make_run(tmp_path / "shares", method="dapo", steps=1, prompts=1, after=0.55)
    rewards = judged_by_own_reward(make_run(tmp_path / "rewards", steps=1, prompts=1, after=1.7))
    with opened(browser, write_report([shares, rewards], tmp_path / "report.html")) as page:
        assert "not compared" in page.text_content("#lede")
        tables = page.locator("#comparison .forest").all()
        headings = [table.locator("thead th").nth(1).text_content() for table in tables]
        assert headings == ["○\N{NO-BREAK SPACE}Before", "○\N{NO-BREAK SPACE}Mean reward before"]
        scores = [table.locator("tbody td").nth(1).all_text_contents() for table in tables]
        assert scores == [["55.0 %"], ["1.700"]]


def test_one_sampled_step_and_all_its_tokens_are_not_called_a_sample(browser, make_run, tmp_path):
    """The page said "sample 1 of 1", and that tokens were drawn at random where all of them are there."""
    run = make_run(tmp_path / "run", steps=1, prompts=2)
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        assert page.text_content("#tokens .step-output") == "step 1"
        assert re.search(r"a dot is a token: \d+ right ones and \d+ wrong ones\. ", page.text_content("#weights"))


def test_rewards_beyond_one_stay_in_the_picture(browser, make_run, tmp_path):
    """A reward of one's own may be -1 or 3; such dots were drawn at 0 and 1."""
    runs = [
        make_run(tmp_path / f"run-{after}", method="dapo", seed=seed, after=after)
        for seed, after in ((1, -1.0), (2, 3.0))
    ]
    with opened(browser, write_report(runs, tmp_path / "report.html")) as page:
        places = page.eval_on_selector_all(
            ".folds svg.score circle.after", "all => all.map(one => parseFloat(one.getAttribute('cx')))"
        )
        # Intervals reach from -1.04 to 3.04; the picture has 6 % of that more at each end: 4.5696 in all, from -1.2848.
        assert places == pytest.approx([100 * 0.2848 / 4.5696, 100 * 4.2848 / 4.5696], rel=1e-9)


def test_the_legend_shows_how_a_line_is_drawn(browser, compared):
    with opened(browser, compared) as page:
        panel = page.locator("#dynamics .panel", has_text="Coefficient spread")
        marks = panel.locator(".u-series:not(.edge) svg.u-marker line")
        dashes = marks.evaluate_all("all => all.map(one => one.getAttribute('stroke-dasharray'))")
        assert dashes[:2] == ["", "7 4"]  # positive side, negative side


def test_a_reason_that_repeats_the_reward_is_not_shown(browser, make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    reasons = ["reward 0.5", "reward -1e-05", "rewards are odd"]
    change_rollouts(run, 2, lambda number, line: line.update(reason=reasons[number % 3]))
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        assert set(page.locator("#tokens .reason").all_text_contents()) == {"rewards are odd"}


def test_a_folder_of_runs_is_its_runs(make_run, tmp_path):
    for place, name in enumerate(("late", "early")):
        change_info(make_run(tmp_path / "all" / name, steps=2), started=f"2026-01-0{2 - place}T00:00:00Z")
    (tmp_path / "all" / "comparison.json").write_text("{}")
    assert [run.name for run in runs_below([str(tmp_path / "all")])] == ["early", "late"]
    assert runs_below([str(tmp_path / "all" / "late")]) == [tmp_path / "all" / "late"]
    assert runs_below(["nowhere"]) == [Path("nowhere")]  # for the reader to refuse in its words


def test_a_mistyped_run_is_guessed(make_run, tmp_path):
    make_run(tmp_path / "runs" / "mine", steps=1, prompts=1)
    with pytest.raises(RunFolderError, match=r"give the folder of a run; did you mean '.*runs/mine'\?"):
        write_report([tmp_path / "runs" / "mien"], tmp_path / "report.html")


def test_nothing_moves(browser, compared):
    with opened(browser, compared, **DESKTOP) as page:
        page.evaluate("scrollTo(0, 0)")
        for place in (0, 4, 9):
            page.locator(".side.positive .response-text >> nth=0").locator(".t").nth(place).hover()
        moved = page.evaluate(
            """() => new Promise((resolve) => {
              let sum = 0;
              new PerformanceObserver((list) => { for (const shift of list.getEntries()) sum += shift.value; })
                .observe({ type: "layout-shift", buffered: true });
              setTimeout(() => resolve(sum), 100);
            })"""
        )
        assert moved < 0.01


# Share of the update, and two methods at once.


def test_share_of_the_update(browser, report, stored):
    last = max(stored)
    with opened(browser, report) as page:
        response = first_response(page, stored, last)
        whole = total(of_step(stored, last), lambda r: r["weight"])
        own = [
            w * abs(response["advantage"]) * -math.expm1(p)
            for w, p in zip(response["weight"], response["logps"], strict=True)
        ]
        page.select_option(SHADE, "share:weight")
        tokens = page.locator(".side.positive .response-text >> nth=0").locator(".t")
        span = spoken(page.locator(".legend-ends span").nth(2).text_content().removeprefix("≥ ")) / 100
        place = int(np.argmax(own))
        for chosen in (place, 5):
            tokens.nth(chosen).hover()
            share = own[chosen] / whole
            # Both are shown with three digits.
            assert spoken(details(page)["update share"]) == pytest.approx(100 * share, rel=1e-2)
            within = 100 * own[chosen] / sum(own)
            assert spoken(details(page)["of its response"]) == pytest.approx(within, rel=1e-2)  # three digits
            bucket = round(14 * math.sqrt(min(1.0, share / span)))
            assert re.search(r"\bq(\d+)\b", tokens.nth(chosen).get_attribute("class"))[1] == str(bucket)
        page.click("text=Highest")
        assert spoken(details(page)["update share"]) >= 100 * own[place] / whole * 0.99


def test_shares_of_every_method_are_listed(browser, report, stored):
    with opened(browser, report) as page:
        groups = page.eval_on_selector_all(
            f"{SHADE.split(' >> ')[0]}:nth-of-type(1)",
            "lists => [...lists[2].querySelectorAll('optgroup')].map(group => [group.label, group.children.length])",
        )
        assert groups == [["delta (this run)", 2], ["forking tokens", 2], ["every weight 1", 1], ["the policy", 2]]
        response = first_response(page, stored, max(stored))
        weights = response["other_weights"]["forking tokens"]
        place = int(np.argmax(weights))
        page.locator(".side.positive .response-text >> nth=0").locator(".t").nth(place).hover()
        shares = page.locator(".details tbody td:nth-child(3)").all_text_contents()
        whole = total(of_step(stored, max(stored)), lambda r: r["other_weights"]["forking tokens"])
        mass = weights[place] * abs(response["advantage"]) * -math.expm1(response["logps"][place])
        # Shown with three digits.
        assert spoken(shares[0]) == pytest.approx(100 * mass / whole, rel=1e-2)


def test_two_methods_on_one_response(browser, report, stored):
    with opened(browser, report) as page:
        response = first_response(page, stored, max(stored))
        page.select_option(BESIDE, "other:forking tokens")
        assert page.locator(".legend-bar").count() == 2
        first = page.locator(".side.positive .response-text >> nth=0").locator(".t")
        chosen = [response["other_weights"]["forking tokens"].index(0), int(np.argmax(response["weight"]))]
        for place in chosen:
            names = first.nth(place).get_attribute("class").split()
            above, below = names[1], next(name for name in names if name.startswith("b"))
            image = first.nth(place).evaluate("span => getComputedStyle(span).backgroundImage")
            colours = first.nth(place).evaluate(
                """(span, names) => names.map((name) => {
                  const probe = document.createElement("span");
                  probe.className = "t " + name;
                  span.parentElement.append(probe);
                  const colour = getComputedStyle(probe).backgroundColor;
                  probe.remove();
                  return colour;
                })""",
                [above, below[1:]],
            )
            # The upper half has the run's own colour, the lower half the other method's, as each has alone.
            assert image == f"linear-gradient({colours[0]} 50%, {colours[1]} 50%)"
        assert "bd0" in first.nth(chosen[0]).get_attribute("class")
        page.select_option(BESIDE, "")
        assert page.locator(".t.two").count() == 0


# What the weights follow.


def test_sentences_and_figure(browser, report):
    model = unpacked(report)["page"]["runs"][0]
    last = model["weights"][-1]
    with opened(browser, report) as page:
        assert page.text_content("#tokens .reading") == " ".join(last["sentences"][:2])
        said = page.locator("#weights .sentences .verdict").all_text_contents()
        assert said == last["sentences"]
        assert "of the coefficients are at the ends of their range; on this batch the weights differ between" in said[0]
        assert said[-1].endswith("agree: rank correlation +0.71.")
        for side in ("positive", "negative"):
            assert page.locator(f"#weights .scatter.{side} circle").count() == len(last["points"][side]["weight"]) > 50
        axes = page.locator("#weights .scatter text").all_text_contents()
        assert "1" in axes
        rows = page.locator("#weights tbody tr").all_text_contents()
        assert rows[0].startswith("delta")
        assert rows[-1].startswith("every weight 1")
        # Another step: other dots and words on the same axes; and the token view goes there, too.
        set_range(page, "#weights input[type=range]", 0)
        assert page.locator("#weights .scatter text").all_text_contents() == axes
        assert page.locator("#weights .sentences .verdict").all_text_contents() == model["weights"][0]["sentences"]
        page.wait_for_selector("#tokens-view[data-shown^='1/']")
        assert page.text_content("#tokens .reading") == " ".join(model["weights"][0]["sentences"][:2])


def test_curves_of_the_diagnostics(browser, report):
    with opened(browser, report) as page:
        titles = page.locator("#dynamics .panel figcaption b").all_text_contents()
        wanted = {
            "The positive side's share of the update": [0.45, 0.48],
            "Weight against 1 \N{MINUS SIGN} p": [-0.3, 0.3],
            "Saturation and reliability": [0.2, 0.71],
        }
        page.locator("#dynamics .uplot").first.focus()
        page.keyboard.press("Home")
        for title, values in wanted.items():
            panel = page.locator("#dynamics .panel").nth(titles.index(title))
            assert [spoken(text) for text in panel.locator(".u-value").all_text_contents()[1:]] == values


def test_measured_credit(browser, make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=2, measured=True)
    stored = stored_responses(run)
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        response = first_response(page, stored, 2)
        page.select_option(SHADE, "measured")
        ends = page.locator(".legend-ends span").all_text_contents()
        assert ends[1] == "0"
        span = spoken(ends[2].removeprefix("≥ +"))
        assert ends[0] == f"≤ \N{MINUS SIGN}{span:g}"
        tokens = page.locator(".side.positive .response-text >> nth=0").locator(".t")
        for place in (0, 2, 4):
            value = response["measured"][place]
            bucket = round(7 + 7 * max(-1.0, min(1.0, value / span)))
            assert re.search(r"\bd(\d+)\b", tokens.nth(place).get_attribute("class"))[1] == str(bucket)
            tokens.nth(place).hover()
            shown, error = details(page)["measured credit"].split(" ± ")
            # Shown with three digits.
            assert spoken(shown.removeprefix("+")) == pytest.approx(value, rel=1e-2)
            assert spoken(error) == 0.04
        assert " none" in tokens.nth(1).get_attribute("class")
        tokens.nth(1).hover()
        assert details(page)["measured credit"] == "not measured"
        assert "with the measured credit" in page.text_content("#weights .sentences")


# Legends, clouds, bands.


def test_decisive_tokens_have_a_legend(browser, report, make_run, tmp_path):
    with opened(browser, report) as page:
        assert page.locator(".legend-decisive").is_visible()
        decoration = "element => getComputedStyle(element).textDecoration"
        sample = page.locator(".legend-decisive .t").evaluate(decoration)
        assert sample == page.locator(".response-text .t.decisive").first.evaluate(decoration)
    run = make_run(tmp_path / "run", steps=1)
    change_rollouts(run, 1, lambda _, line: line.pop("decisive"))
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        assert not page.locator(".legend-decisive").is_visible()


def test_clouds_of_a_rule_that_leaves_a_side_as_it_is(browser, run_folder, tmp_path):
    run = shutil.copytree(run_folder, tmp_path / "run")
    with np.load(run / "tokens.npz") as sums:
        changed = {**sums, "sum_positive": sums["count_positive"].astype(float)}
    np.savez(run / "tokens.npz", **changed)
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        assert page.is_checked("input[name=cloud-side][value=mean_negative]")
        assert page.locator("#clouds .cloud li").count()
        page.check("input[name=cloud-side][value=mean_positive]", force=True)
        assert "Every frequent type has a mean of 1 on this side." in page.locator("#clouds .cloud").nth(0).inner_text()


def test_clouds_are_anchored_at_one(browser, report, run_folder):
    sums = read_run(run_folder).tokens
    with opened(browser, report) as page:
        assert page.is_checked("input[name=cloud-side][value=mean_positive]")
        for cloud, sign in ((0, 1), (1, -1)):
            words = page.locator("#clouds .cloud").nth(cloud).locator("li")
            means = [spoken(words.nth(i).get_attribute("title").split()[1]) for i in range(words.count())]
            assert all(sign * (mean - 1) > 0 for mean in means)
            distances = [sign * (mean - 1) for mean in means]
            assert distances == sorted(distances, reverse=True)
        expected = sums.sum_positive / np.maximum(sums.count_positive, 1)
        assert max(means, default=0) < 1
        shown = [spoken(text) for text in page.locator("#clouds tbody td:nth-child(4)").all_text_contents()]
        # Shown with four digits.
        assert max(shown) == pytest.approx(expected.max(), rel=1e-3)


def test_bands_go_on_over_steps_without_a_value(browser, compared):
    with opened(browser, compared) as page:
        page.locator("#dynamics").scroll_into_view_if_needed()
        # The fill of a band is the only thing on the canvas that is faint: it has an alpha of 0x2e.
        count_faint = """(canvas) => {
              const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
              copy.drawImage(canvas, 0, 0);
              const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
              let count = 0;
              for (let at = 3; at < pixels.length; at += 4) if (pixels[at] > 35 && pixels[at] < 100) count += 1;
              return count / (canvas.width * canvas.height);
            }"""
        canvas = page.locator("#dynamics .panel canvas").first
        assert canvas.evaluate(count_faint) < 0.01  # several bands over each other are a grey: lines alone
        page.locator("#dynamics .uplot").first.focus()
        page.keyboard.press("Home")
        line = page.locator("#dynamics .panel").first.locator(".u-cursor-pt").nth(1).bounding_box()
        page.mouse.move(line["x"] + 3, line["y"] + 3)
        page.mouse.move(line["x"] + 4, line["y"] + 3)
        page.wait_for_timeout(200)
        assert canvas.evaluate(count_faint) > 0.05


def test_the_navigation_marks_the_last_section_at_the_end(browser, report):
    """The last section is shorter than a screen, and the one before it stayed marked."""
    with opened(browser, report) as page:
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_timeout(300)
        assert page.text_content("nav.sections a[aria-current]") == "Result"


def test_the_table_of_weights_fits_1280(browser, report):
    with opened(browser, report) as page:
        inside, whole = page.locator("#weights .table-holder").evaluate("one => [one.clientWidth, one.scrollWidth]")
        assert whole <= inside


def test_a_legend_says_nothing_until_a_step_is_pointed_at(browser, report):
    """Every chart said "step: - reward: -"."""
    with opened(browser, report) as page:
        panel = page.locator("#dynamics .panel").first
        assert not panel.locator(".u-legend").is_visible()  # one line, named by the title
        assert not page.locator("#dynamics .panel .u-value").first.is_visible()
        page.locator("#dynamics .uplot").first.focus()
        page.keyboard.press("Home")
        assert panel.locator(".u-legend .u-value").first.is_visible()


# Readout and search.


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_readout_covers_no_token(browser, report, size):
    with opened(browser, report, **size) as page:
        texts = page.locator(".response-text")
        for number in (0, texts.count() - 1):
            texts.nth(number).focus()
            page.keyboard.press("End")
            page.keyboard.press("Home")
            covered = page.evaluate(
                """() => {
                  const box = document.querySelector(".t.selected").getBoundingClientRect();
                  return document.elementFromPoint(box.left + 2, box.top + box.height / 2)?.className ?? "";
                }"""
            )
            assert "selected" in covered
        if size is DESKTOP:  # a column of its own: it covers no response wherever one scrolls to
            over = page.evaluate(
                """() => {
                  const readout = document.querySelector(".details").getBoundingClientRect();
                  return [...document.querySelectorAll(".response")].map((one) => one.getBoundingClientRect())
                    .filter((box) => box.right > readout.left && box.left < readout.right).length;
                }"""
            )
            assert over == 0


def test_search_finds_without_jumping(browser, report, stored):
    with opened(browser, report, **DESKTOP) as page:
        page.evaluate("scrollTo(0, 100)")
        before = page.evaluate("scrollY")
        group = int(page.evaluate("document.getElementById('tokens-view').dataset.shown").split("/")[1])
        text = "".join(stored[max(stored)][group][-1]["tokens"])
        query = text[len(text) // 2 :][:6]
        page.locator("#tokens input[type=search]").type(query)
        assert page.evaluate("scrollY") == before
        listed = page.locator(".matches button")
        assert listed.count() >= 1
        marks = page.locator(".matches mark").all_text_contents()
        squeezed = re.sub(r"\s+", " ", query).lower()
        assert any(squeezed.strip() in re.sub(r"\s+", " ", mark).lower() for mark in marks)
        assert page.locator(".t.selected").count() == 0
        listed.last.click()
        assert page.locator(".t.selected").count() == 1
        # The search stays where it can be used.
        box = page.locator("#tokens input[type=search]").bounding_box()
        assert 0 <= box["y"] < DESKTOP["height"]


# Links and files.


def test_links_say_what_is_shown(browser, compared):
    address = "#weights&run=4&step=2&prompt=1&shade=share:weight&beside=probability"
    with opened(browser, compared, address=address) as page:
        wait_for_prompt(page, 2, 1)
        assert page.locator("#tokens select >> nth=0").input_value() == "4"
        assert page.input_value(SHADE) == "share:weight"
        assert page.input_value(BESIDE) == "probability"
        assert page.locator("#weights select").input_value() == "4"
        assert page.text_content("#weights .step-output") == "step 2, sample 2 of 4"
        # Whoever changes something finds it in the address.
        page.select_option(SHADE, "entropy")
        page.wait_for_function("() => location.hash.includes('shade=entropy')")
        assert "step=2&prompt=1" in page.evaluate("location.hash")
        set_range(page, "#tokens input[type=range]", 0)
        page.wait_for_function("() => location.hash.includes('step=1&')")
        # A link on the page, and one that is typed.
        page.click("nav.sections a >> text=Training")
        page.wait_for_function("() => Math.abs(document.getElementById('dynamics').getBoundingClientRect().top) < 120")
        page.evaluate("location.hash = '#tokens&run=3&step=4&shade=weight&beside='")
        page.wait_for_selector("#tokens-view[data-shown^='4/']")
        assert page.input_value(SHADE) == "weight"
        assert page.locator(".t.two").count() == 0


def test_a_link_opens_at_its_section(browser, compared):
    with browser.new_context(viewport=DESKTOP) as context:
        page = context.new_page()
        page.goto(compared.as_uri() + "#dynamics&run=4")
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(200)
        assert abs(page.evaluate("document.getElementById('dynamics').getBoundingClientRect().top")) < 120


@pytest.mark.parametrize("address", ["#nowhere&run=99&step=x&prompt=%ff&shade=%00&beside=share:", "#%%%", "#&&&run"])
def test_a_bad_link_shows_the_default(browser, report, address):
    with opened(browser, report, address=address) as page:
        assert page.input_value(SHADE) == "weight"
        assert page.text_content("#tokens .step-output") == "step 6, sample 4 of 4"
        assert page.get_attribute("#tokens input[type=range]", "aria-valuetext") == "step 6, sample 4 of 4"


def saved(page, button):
    """The rows of the file that a button saves."""
    with page.expect_download() as download:
        button.click()
    with open(download.value.path(), newline="") as file:
        return download.value.suggested_filename, list(csv.reader(file))


def test_charts_and_tables_save_what_they_show(browser, compared, run_folder, report):
    with opened(browser, report) as page:
        metrics = read_run(run_folder).metrics
        name, rows = saved(page, page.locator("#dynamics .panel .csv").first)
        assert name == "reward.csv"
        assert rows[0] == ["step", "reward"]
        assert [float(row[1]) for row in rows[1:]] == pytest.approx([one["reward"] for one in metrics], rel=FIVE_DIGITS)
        chart = page.locator("#dynamics .uplot").first
        chart.focus()
        for key in ("Home", "ArrowRight", "ArrowRight", "+", "+"):
            page.keyboard.press(key)
        _, zoomed = saved(page, page.locator("#dynamics .panel .csv").first)
        assert 1 < len(zoomed) < len(rows)
        _, rows = saved(page, page.locator("#weights .picture .csv").first)
        assert rows[0] == ["one minus p", "weight"]
        assert len(rows) - 1 == page.locator("#weights .scatter.positive circle").count()
        _, rows = saved(page, page.locator("#clouds .csv"))
        assert rows[0][0] == "text"
        assert len(rows) - 1 == page.locator("#clouds tbody tr").count()
        _, rows = saved(page, page.locator("#discriminator .picture .csv").first)
        # Shares with two decimals each.
        assert sum(float(row[2]) for row in rows[1:]) == pytest.approx(1, abs=0.01)
    with opened(browser, compared) as page:
        _, rows = saved(page, page.locator("#dynamics .panel .csv").first)
        assert rows[0] == ["step", "dapo", "dapo highest", "dapo lowest", "delta", "delta highest", "delta lowest"]
        assert [float(value) for value in rows[1][1:]] == pytest.approx([0.3, 0.35, 0.25] * 2)
        assert rows[2][1] == ""  # the second step of a rollout batch
        _, rows = saved(page, page.locator("#comparison .verdict-and-scores .csv"))
        assert [row[0] for row in rows] == ["run", "dapo", "delta"]


def test_a_file_runs_no_formula(browser, make_run, tmp_path):
    run = change_info(make_run(tmp_path / "run", steps=1), method='=cmd|"calc",1')
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        _, rows = saved(page, page.locator("#weights .table-holder .csv"))
        assert rows[1][0] == '\'=cmd|"calc",1'


def test_many_long_runs_stay_light(make_run, tmp_path):
    """Six long runs with large vocabularies: what is not the token view must not outgrow the page."""
    runs = []
    for seed in range(6):
        run = make_run(tmp_path / f"run-{seed}", seed=seed, steps=2)
        draw, sums, names = np.random.default_rng(seed), read_run(run).tokens, read_run(run).metrics[0]
        lines = ({name: float(draw.normal()) for name in names} | {"step": step} for step in range(1, 4001))
        write_rows(run / "metrics.jsonl", lines)
        sums.add(np.arange(100, 40_000), 0.8 + draw.random(39_900) * 0.4, 1)
        sums.save(run / "tokens.npz", lambda ids: [f"token {number}" for number in ids])
        runs.append(run)
    assert write_report(runs, tmp_path / "report.html").stat().st_size < 1.4e6  # beside 3.5 MB of tokens


def test_it_opens_where_something_was_learned(browser, make_run, tmp_path):
    """The last sampled step has no prompt with a signal; its tokens still have coefficients, which the readout explains."""
    run = make_run(tmp_path / "run", steps=4, prompts=2)
    without_signal(run, 4, groups=(0, 1))
    explained = "Its coefficient is not 1 because"
    with opened(browser, write_report([run], tmp_path / "report.html")) as page:
        assert page.locator("#tokens .step-output").text_content() == "step 2, sample 2 of 3"
        assert explained not in page.text_content(".details")
        set_range(page, "#tokens input[type=range]", 2)
        page.wait_for_selector("#tokens-view[data-shown^='4/']")
        assert explained in page.text_content(".details")


def test_another_run_is_shown_where_something_was_learned(browser, make_run, tmp_path):
    """The prompt's number stays, unless nothing was learned from it in that run; a link is taken at its word."""
    runs = [make_run(tmp_path / f"{seed}", seed=seed, steps=1, prompts=2, responses=20) for seed in (0, 1)]
    without_signal(runs[1], 1, groups=(0,))
    report = write_report(runs, tmp_path / "report.html")
    with opened(browser, report) as page:
        page.select_option("#tokens select >> nth=1", "0")
        wait_for_prompt(page, 1, 0)
        page.select_option("#tokens select >> nth=0", "2")
        wait_for_prompt(page, 1, 1)
    with opened(browser, report, address="#tokens&run=2&prompt=0") as page:
        wait_for_prompt(page, 1, 0)


def without_signal(run, step, groups):
    """As if all responses to these prompts had earned the same."""
    change_rollouts(run, step, lambda _, line: line.update(advantage=line["advantage"] * (line["group"] not in groups)))
