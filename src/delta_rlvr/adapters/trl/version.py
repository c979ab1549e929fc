"""The versions of TRL whose internals we know."""

from __future__ import annotations

import trl
from packaging.version import Version

SUPPORTED_TRL = ("1.16", "1.17")

VERSION_HELP = f"delta-rlvr was written for TRL >= {SUPPORTED_TRL[0]}, < {SUPPORTED_TRL[1]}; install such a version"


def check_trl_version(version: str | None = None) -> None:
    """Refuse a TRL whose internals we do not know."""
    installed = Version(version or trl.__version__)
    # The base version, because a development version of the next release sorts before it.
    if not Version(SUPPORTED_TRL[0]) <= Version(installed.base_version) < Version(SUPPORTED_TRL[1]):
        raise ImportError(
            f"TRL {installed} is installed, but delta-rlvr needs >= {SUPPORTED_TRL[0]}, < {SUPPORTED_TRL[1]} (it relies on the "
            f'trainer\'s internals): pip install "trl~={SUPPORTED_TRL[0]}.0"'
        )
