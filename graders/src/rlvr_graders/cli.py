"""The command `rlvr-graders`: verdicts for a file of answers, and an audit of a run's rollouts."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .answer_files import ANSWERS, COMPLETIONS, PROMPTS, Answer, FileError, extract_of, read_answers
from .choice import grade_choice_batch
from .extract import EXTRACTORS
from .math.grade import grade_math_batch
from .others import grade_exact_batch, grade_math_verify_batch
from .verdict import Verdict

GRADERS: dict[str, Any] = {
    "math": grade_math_batch,
    "choice": grade_choice_batch,
    "math-verify": grade_math_verify_batch,
    "exact": grade_exact_batch,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.target is not None:
            _check_target(options.target, Path(options.file))
        rows = read_answers(options.file, options.completion, options.answer)
        try:
            return int(options.run(rows, options))
        except (ValueError, TypeError):
            _check_each(rows, getattr(options, "grader", "math"))
            raise
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (FileError, ValueError, TypeError) as error:
        print(f"rlvr-graders: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"rlvr-graders: {error.filename or options.target}: {error.strerror}", file=sys.stderr)
        return 2


_OURS = (b'{"where": ', b"<title>How graders disagree on ")
"""What our files of verdicts and our pages have near their beginning."""


def _check_target(path: Path, source: Path) -> None:
    """Refuse to write over a file that is read, or is not ours."""
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as file:
        begun = file.read(4096)
    if path.resolve() == source.resolve() or not any(mark in begun for mark in _OURS):
        raise FileError(f"{path} is there already, and is no result of rlvr-graders: name another file")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rlvr-graders", description=__doc__)
    parser.add_argument("--version", action="version", version=f"rlvr-graders {version('rlvr-graders')}")
    commands = parser.add_subparsers(required=True)
    grade = commands.add_parser("grade", help="a verdict with its reason for each line of a file")
    grade.set_defaults(run=_grade)
    grade.add_argument("--grader", choices=[*GRADERS, "code"], default="math")
    grade.add_argument(
        "--output", dest="target", type=Path, help="where the verdicts go, as JSON Lines (default: shown)"
    )
    audit = commands.add_parser("audit", help="where ours, math-verify and exact match disagree about a run's rollouts")
    audit.set_defaults(run=_audit)
    audit.add_argument("--html", dest="target", type=Path, help="also write a page with the responses")
    audit.add_argument("--without-math-verify", action="store_true", help="leave it out: it takes most of the time")
    for command in (grade, audit):
        command.epilog = (
            f"The column prompt (or {', '.join(PROMPTS[1:])}) is optional: `audit` compares the responses to one prompt, and `grade` "
            "does not read it."
        )
        command.add_argument("file", help="JSON Lines, also gzipped, Parquet, or a run's folder")
        for name, what, known in (
            ("completion", "responses", COMPLETIONS),
            ("answer", "reference answers or tests", ANSWERS),
        ):
            command.add_argument(
                f"--{name}", help=f"the column of the {what} (default: the first of {', '.join(known)})"
            )
        command.add_argument("--extract", choices=sorted(EXTRACTORS), help="where the answer stands in a response")
    return parser


def _grade(rows: list[Answer], options: argparse.Namespace) -> int:
    if options.grader == "math-verify":
        _need_math_verify()
    if options.grader in ("math", "exact"):
        # Who gives --extract has the verdicts in any case.
        options.extract, trouble = _where(rows, options, refuse=options.extract is None)
        if trouble:
            print(trouble, file=sys.stderr)
    verdicts = _verdicts(rows, options.grader, options.extract)
    out = options.target.open("w") if options.target else sys.stdout
    for row, verdict in zip(rows, verdicts, strict=True):
        line = {"where": row.where, "score": verdict.score, "reason": verdict.reason, "failed": verdict.failed}
        print(json.dumps({**line, "answer": verdict.answer}), file=out)
    if options.target:
        out.close()
    right = sum(verdict.score == 1.0 for verdict in verdicts)
    print(f"{right} of {len(verdicts)} right", file=sys.stderr)
    for reason, count in Counter(verdict.reason.split(":")[0] for verdict in verdicts if not verdict.score).most_common(
        8
    ):
        print(f"{count:8} {reason}", file=sys.stderr)
    return 0


def _where(rows: list[Answer], options: argparse.Namespace, refuse: bool = True) -> tuple[str, str]:
    """Where to look for answers, and a sentence where most responses have none there."""
    from .audit import advice

    extract = options.extract or extract_of(options.file) or "boxed"
    found, trouble = advice(rows, extract)
    if refuse and not found:
        raise ValueError(f"{options.file}: {trouble}: nothing can be judged. Give the fitting --extract")
    return extract, trouble


def _check_each(rows: list[Answer], grader: str) -> None:
    """Name the first row whose reference cannot be used: a batch knows only its place among the others."""
    for row in rows:
        try:
            _verdicts([replace(row, completion="")], grader, None)
        except (ValueError, TypeError) as error:
            raise FileError(f"{row.where}: {str(error).replace('answers[0]', 'its answer')}") from error


def _verdicts(rows: list[Answer], grader: str, extract: str | None) -> list[Verdict]:
    completions, answers = [row.completion for row in rows], [row.answer for row in rows]
    if grader == "code":
        from .code import grade_code_batch

        if extract is not None:
            raise ValueError("--extract is for answers: a program is found by itself")
        return grade_code_batch(completions, answers)
    words = {} if extract is None else {"extract": extract}
    verdicts: list[Verdict] = GRADERS[grader](completions, answers, **words)
    return verdicts


def _need_math_verify(otherwise: str = "") -> None:
    if importlib.util.find_spec("math_verify") is None:
        raise ValueError(f"math-verify is not installed: pip install 'rlvr-graders[math-verify]'{otherwise}")


def _audit(rows: list[Answer], options: argparse.Namespace) -> int:
    from .audit import audit
    from .audit_page import page, text

    with_math_verify = not options.without_math_verify
    if with_math_verify:
        _need_math_verify(", or --without-math-verify")
    extract, trouble = _where(rows, options)
    result = audit(rows, extract, with_math_verify, lambda line: print(line, file=sys.stderr))
    print(*filter(None, [trouble, text(result)]), sep="\n\n")
    if options.target:
        options.target.write_text(page(result, f"How graders disagree on {Path(options.file).name}", trouble))
        print(f"\nwritten: {options.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
