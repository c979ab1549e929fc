"""Errors of an evaluation that the user can fix."""

from __future__ import annotations

from delta_rlvr.exit_codes import ExitCode


class EvaluationError(Exception):
    """The evaluation cannot be made as requested. The message says why and what to do."""

    exit_code = ExitCode.BAD_INPUT


class EvaluationFailed(EvaluationError):
    """A valid evaluation failed: the server is gone, or no sample could be scored."""

    exit_code = ExitCode.FAILED
