"""What evaluation raises for something that a person can put right."""

from __future__ import annotations

from delta_rlvr.exit_codes import ExitCode


class EvaluationError(Exception):
    """An evaluation cannot go on as asked; the message says why and what to do."""

    exit_code = ExitCode.BAD_INPUT


class EvaluationFailed(EvaluationError):
    """What was asked was right, and the work failed: the server is gone, or no sample could be scored."""

    exit_code = ExitCode.FAILED
