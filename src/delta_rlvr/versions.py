"""Versions of installed packages, which runs and results keep."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def installed_version(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def installed_versions(*packages: str) -> dict[str, str]:
    """Python's version, and those of the packages that are installed."""
    known = {package: installed_version(package) for package in packages}
    return {"python": platform.python_version()} | {name: version for name, version in known.items() if version}
