"""Check that installed packages fit together, by the requirements they declare. No versions are listed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from delta_rlvr.versions import installed_version

OURS = "delta-rlvr"
LOOKED_AT = frozenset(
    {
        *("torch", "transformers", "accelerate", "peft", "datasets", "numpy", "vllm", "sglang"),
        *("trl", "verl", "ray", "tensordict", "transferqueue"),
    }
)
"""The packages that are checked; other requirements are left to pip."""


def unmet(by: str, requirement: Requirement) -> str | None:
    """Return why a requirement is not met and the pip command that meets it; None if it is met."""
    name, wanted = requirement.name, requirement.specifier
    install = f'pip install "{name}{wanted}"'
    installed = installed_version(name)
    if installed is None:
        return f"{name} is not installed, and {by} needs it: {install}"
    # A local version ("2.13.0+cpu") or a development version meets what its release meets.
    if not wanted.contains(Version(installed).base_version, prereleases=True):
        return f"{name} {installed} is installed, and {by} needs {wanted}: {install}"
    return None


def wants(package: str, extra: str | None = None) -> Iterator[tuple[str, Requirement]]:
    """Yield the requirements of an installed package (and of `extra`), each with the package that requires it, as pip writes it.
    Extras of the package that name other extras of it are followed."""
    by = f"{package}[{extra}]" if extra else package
    for line in requires(package) or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": extra or ""}):
            continue
        if canonicalize_name(requirement.name) == canonicalize_name(package):
            for inner in requirement.extras:
                yield from wants(package, inner)
        else:
            yield by, requirement


def version_problems(sources: Mapping[str, str | None]) -> list[str]:
    """Return the unmet requirements of these packages (each with an extra or None) among `LOOKED_AT`, one per package."""
    problems: dict[str, str] = {}
    for package, extra in sources.items():
        if installed_version(package) is None:
            problems.setdefault(package, f"{package} is not installed: pip install {package}")
            continue
        for by, requirement in wants(package, extra):
            name = canonicalize_name(requirement.name)
            if name in LOOKED_AT and (problem := unmet(by, requirement)) is not None:
                problems.setdefault(name, problem)
    return list(problems.values())


def version_line(*packages: str) -> str:
    """Return the installed versions as text."""
    return ", ".join(f"{name} {installed_version(name) or '-'}" for name in packages)
