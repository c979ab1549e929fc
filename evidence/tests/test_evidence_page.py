"""docs/evidence.md: what stands there is what the kept outcomes say, and nothing else has numbers."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from pathlib import Path

import pytest

from delta_evidence.page.studies import kept_studies, read_studies, short_task
from delta_evidence.page.text import fill, pages, wrapped

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    return pages(ROOT)


def test_the_pages_are_what_the_outcomes_say(made: dict[Path, str]) -> None:
    assert len(made) == 4
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python -m delta_evidence.page"


def test_the_page_is_short(made: dict[Path, str]) -> None:
    assert len(made[ROOT / "docs" / "evidence.md"].split()) < 2000


def test_lines_are_short_and_stay_what_they_are() -> None:
    """At most 120 characters; what would begin an item (`- p`, `1. Then`) never begins a line of a paragraph."""
    words = "word " * 23  # 115 characters
    text = f"{words}so 1 - p is small.\n{words}T = 1. Then\n\n- {words}\n  more\n| {words * 2}|\n    code {words * 2}\n# {words * 2}\n"
    lines = wrapped(text).splitlines()
    prose = [line for line in lines if not line.startswith(("|", "#", "    "))]
    assert max(map(len, prose)) <= 120
    assert not [line for line in prose if re.match(r"\s*([-+*]|\d+\.) (?!word)", line)]
    assert wrapped(wrapped(text)) == wrapped(text)
    assert " ".join(wrapped(text).split()) == " ".join(text.split())


@pytest.mark.parametrize("name", ["page.md", "summary.md"])
def test_the_words_have_no_results_of_their_own(name: str) -> None:
    """A difference, a p-value or a share stands in a blank, or it could go stale."""
    words = re.sub(r"`[^`]*`|\(-0\.4, 0\.4\)|arXiv \S+", "", (EVIDENCE / name).read_text())
    assert re.findall(r"(?<!\w)[-+]\d+\.\d|p [=<] 0\.|\d+ %(?! (?:level|interval|power))", words) == []


def test_every_kept_study_with_a_primary_is_listed() -> None:
    listed = {study.name for study in read_studies(EVIDENCE)}
    declared = set()
    for path in (EVIDENCE / "results").rglob("protocol.json"):
        if json.loads(path.read_text())["protocol"].get("primary"):
            declared.add(str(path.parent.relative_to(EVIDENCE / "results")))
    assert declared <= listed


def test_every_kept_study_is_told_of_and_its_pairs_counted(made: dict[Path, str]) -> None:
    """The page said that all that ran had declared a comparison; it had 55 pairs of DelTA where the leaderboard has 61."""
    text = made[ROOT / "docs" / "evidence.md"]
    told, _, _ = text.partition("## What was declared")[2].partition("## Every pair")
    for study in kept_studies(EVIDENCE):
        assert any(f"`{name}`" in told for name in (study.name, study.name.partition("/")[0])), study.name
    board = (ROOT / "docs" / "leaderboard.md").read_text().partition("lr 1e-5**")[2]
    pairs = next(line for line in board.splitlines() if line.startswith("| `delta` |")).split("|")[-2]
    here = next(line for line in text.splitlines() if line.startswith("| SmolLM2-135M, lr 1e-5 |")).split("|")[2]
    assert f"but the {int(pairs) - int(here)} of pilots" in " ".join(text.split())


def test_a_row_by_an_independent_loop() -> None:
    """Fading against DAPO: mean, and all sign flips of the counted differences."""
    lines = [json.loads(line) for line in (EVIDENCE / "results/smollm2-fading-500/runs.jsonl").read_text().splitlines()]
    right = {
        (line["run"]["arm"], line["run"]["seed"]): sum(round(128 * value) for value in line["curve"]) for line in lines
    }
    gaps = [right["fading", seed] - right["dapo", seed] for seed in range(500, 516)]
    totals = [sum(signed) for signed in itertools.product(*((-gap, gap) for gap in gaps))]
    p = sum(abs(total) >= abs(sum(gaps)) for total in totals) / len(totals)
    blanks = fill(read_studies(EVIDENCE), EVIDENCE)
    assert blanks["fading"].startswith(f"{100 * statistics.fmean(gaps) / 6400:+.1f} (")
    assert blanks["fading_p"] == f"{p:.3f}"


def test_the_ranks_are_those_of_every_kept_study() -> None:
    """Three learning rates that were kept had correlations outside of the page's range."""
    means = []
    for place in (EVIDENCE / "results").glob("*/**/runs.jsonl"):
        by_side: dict[tuple[str, str], list[float]] = {}
        for line in map(json.loads, place.read_text().splitlines()):
            told = line.get("diagnostics", {})
            for side in ("rank_positive", "rank_negative"):
                if line["run"]["arm"] == "delta" and side in told and "rivals" not in place.parts:  # a tiny policy
                    by_side.setdefault((line["run"]["task"], side), []).append(
                        statistics.fmean(value for value in told[side] if value is not None)
                    )
        means += [abs(statistics.fmean(values)) for values in by_side.values()]
    blanks = fill(read_studies(EVIDENCE), EVIDENCE)
    assert blanks["ranks"] == f"{min(means):.2f} to {max(means):.2f}" == "0.42 to 0.89"
    assert blanks["ranks_least"] == "4e-5"


def test_no_gain_was_shown_at_the_end_of_the_better_rate() -> None:
    """What the summary says of both draws: each interval has 0 in it."""
    blanks = fill(read_studies(EVIDENCE), EVIDENCE)
    for name in ("rate_end", "rate_end_other"):
        low, high = re.search(r"\((\S+) to (\S+)\)", blanks[name]).groups()
        assert float(low) < 0 < float(high)


def test_tasks_by_their_short_names() -> None:
    assert short_task("small_word_problems.jsonl?shots=4&working=working") == "word problems"
    assert short_task("math/gsm8k_train.jsonl?schema=gsm8k") == "GSM8K"
    assert short_task("reasoning-gym:gcd?min_numbers=2") == "gcd"


def test_mistakes_in_the_list_are_named(tmp_path: Path) -> None:
    (tmp_path / "protocols").symlink_to(EVIDENCE / "protocols")
    (tmp_path / "studies.yaml").write_text("- {study: smollm2-learning-rate/thrice}")
    with pytest.raises(ValueError, match=r"has no study 'smollm2-learning-rate/thrice'; it has .*/half"):
        read_studies(tmp_path)
    (tmp_path / "studies.yaml").write_text("- {study: main}")
    with pytest.raises(ValueError, match="has no outcomes"):
        read_studies(tmp_path)
