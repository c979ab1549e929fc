"""Versions of installed packages, for runs and results."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed."""
    known = {package: installed_version(package) for package in packages}
    return {"python": platform.python_version()} | {name: version for name, version in known.items() if version}
