"""The supported versions of TRL: the trainer relies on its internals."""

from __future__ import annotations

import trl
from packaging.version import Version

SUPPORTED_TRL = ("1.16", "1.17")

VERSION_HELP = f"delta-rlvr was written for TRL >= {SUPPORTED_TRL[0]}, < {SUPPORTED_TRL[1]}; install such a version"


def check_trl_version(version: str | None = None) -> None:
    """Refuse an unsupported version of TRL."""
    installed = Version(version or trl.__version__)
    # Compare base versions: a development version of a release sorts before it.
    if not Version(SUPPORTED_TRL[0]) <= Version(installed.base_version) < Version(SUPPORTED_TRL[1]):
        raise ImportError(
            f"TRL {installed} is installed, but delta-rlvr needs >= {SUPPORTED_TRL[0]}, < {SUPPORTED_TRL[1]} (it relies on the "
            f'trainer\'s internals): pip install "trl~={SUPPORTED_TRL[0]}.0"'
        )
