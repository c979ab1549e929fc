"""Which grader judges a problem that comes from rows."""

from __future__ import annotations

from collections.abc import Sequence

from delta_rlvr.rewards.verdict import Verdict
from delta_rlvr.tasks.problem import Problem

GRADERS = ("math", "code", "choice")


def grade_batch(
    problems: Sequence[Problem], completions: Sequence[str], extract: str = "boxed"
) -> list[Verdict]:
    """Judge each completion by its problem's grader. `extract` says where an answer stands (not for code)."""
    if len(problems) != len(completions):
        raise ValueError(f"{len(problems)} problems but {len(completions)} completions")
    verdicts: dict[int, Verdict] = {}
    for grader in sorted({problem.grader for problem in problems}):
        places = [place for place, problem in enumerate(problems) if problem.grader == grader]
        texts = [completions[place] for place in places]
        answers = [problems[place].answer for place in places]
        if grader == "math":
            from delta_rlvr.rewards import grade_math_batch

            judged = grade_math_batch(texts, answers, extract=extract)
        elif grader == "code":
            from delta_rlvr.rewards.code import grade_code_batch, parse_tests

            # Many responses answer one problem, and parsing may unpack megabytes or run a reference: once a problem.
            chosen = {problems[place].id: problems[place].answer for place in places}
            parsed = {name: parse_tests(answer) for name, answer in chosen.items()}
            judged = grade_code_batch(texts, [parsed[problems[place].id] for place in places])
        elif grader == "choice":
            from delta_rlvr.rewards import grade_choice_batch

            judged = grade_choice_batch(texts, answers, extract=extract)
        else:
            first = problems[places[0]].id
            raise ValueError(f"{first}: no grader is called {grader!r} here; there are {', '.join(GRADERS)}")
        verdicts.update(zip(places, judged, strict=True))
    return [verdicts[place] for place in range(len(problems))]
