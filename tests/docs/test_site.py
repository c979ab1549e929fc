"""The docs site: what its API page lists, and what its build makes of the Markdown."""

import importlib
import os
import re
import tomllib
from types import SimpleNamespace

import delta_rlvr
from delta_rlvr.adapters import trl
from delta_rlvr.user_code import module_at
from pages import ROOT

SITE = module_at(str(ROOT / "scripts" / "docs_site.py"))
LISTED = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)


def test_the_api_page_lists_what_exists():
    for path in LISTED:
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name).__doc__, path
    assert len(set(LISTED)) == len(LISTED)


def test_the_api_page_lists_every_public_name():
    names = {path.rpartition(".")[2] for path in LISTED}
    assert set(delta_rlvr.__all__) <= names
    assert set(trl.__all__) <= names
    assert {"check_rule", "RuleBroken"} <= names


def test_lists_and_tables_get_their_blank_line():
    """As GitHub reads them; Python-Markdown would take them for a part of the paragraph."""
    text = ["Words:", "- one", "  goes on", "- two", "", "More:", "| a |", "|---|", "```", "x", "- y", "```"]
    expected = [
        *("Words:", "", "- one", "  goes on", "- two", "", "More:", "", "| a |", "|---|"),
        *("```", "x", "- y", "```"),
    ]
    assert SITE.separated(text) == expected
    assert SITE.separated(["# Title", "- one", "1. two"]) == ["# Title", "- one", "1. two"]


def test_borrowed_pages_exist():
    for source, place in SITE.BORROWED.items():
        assert (ROOT / source).is_file()
        assert place in (ROOT / "mkdocs.yml").read_text()


def test_links_of_borrowed_pages_lead_to_files_of_the_site():
    own = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*")}
    kept = {
        f"{at}/{path.relative_to(folder).as_posix()}" for at, folder in SITE.KEPT.items() for path in folder.rglob("*")
    }
    for source, place in SITE.BORROWED.items():
        page = SimpleNamespace(file=SimpleNamespace(src_uri=place))
        text = SITE.on_page_markdown((ROOT / source).read_text(), page)
        for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", text):
            target = os.path.normpath(os.path.join(os.path.dirname(place), link))
            assert target in own | kept | set(SITE.BORROWED.values()), f"{source}: {link}"


def test_the_badges_are_true():
    """Python, TRL and verl as pyproject.toml asks for them: the lowest versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = {"Python": project["requires-python"], "TRL": extras["trl"][0], "verl": extras["verl"][0]}
    badges = dict(re.findall(r"^\[!\[(\w+) ([\d.]+)\+?\]\(https://img", (ROOT / "README.md").read_text(), re.MULTILINE))
    lowest = {name: re.search(r">=([\d.]+)", text).group(1) for name, text in asked.items()}
    assert lowest.items() <= badges.items()
    assert project["license"] == "Apache-2.0"


def test_search_from_disk_loads_nothing_from_elsewhere():
    """The offline plug-in takes a script with iframe-worker in its name; where there is none, it loads one from unpkg.com."""
    config = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^  - offline\b", config, re.MULTILINE)
    (script,) = re.findall(r"^  polyfills: \[(\S*iframe-worker\S*)\]", config, re.MULTILINE)
    assert "IFrameWorker" in (ROOT / "docs" / script).read_text()
    assert "Permission is hereby granted" in (ROOT / "docs" / script).with_name("LICENSE").read_text()
