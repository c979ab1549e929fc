"""The two ways a grading can go wrong, kept apart: the program's fault, and the sandbox's."""

from __future__ import annotations


class ProgramFailure(Exception):
    """The program under test failed; the text is the verdict's reason."""


class SandboxError(RuntimeError):
    """The sandbox itself failed, so nothing was learned about the program."""


class SandboxLost(SandboxError):
    """Something outside ended the sandbox: another may do."""


class SandboxUnavailable(SandboxError):
    """There is no working sandbox of the asked kind; the text says how to get one."""


class Stopped(Exception):
    """The batch that this grading belonged to was interrupted."""
