"""The options that `credit-bench` and `measured-credit` share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from delta_evidence.bench import Cells
from delta_rlvr.words import comma_list

SHARED = (
    *("policies", "tasks", "methods", "batches", "prompts", "group", "seed"),
    *("learning_rate", "temperature", "rows_at_once"),
)
"""Settings that both benchmarks have."""


def add_shared(
    parser: argparse.ArgumentParser,
    given: Cells,
    *,
    policies: str,
    tasks: str,
    rows: str,
    folders: tuple[Path, Path],
    quick: str,
) -> None:
    """Each benchmark says which policies and tasks it takes, what passes count, and what `--quick` is."""
    add = parser.add_argument
    add("--policies", "--model", type=_names, help=f"{policies} (default: {','.join(given.policies)})")
    add("--tasks", "--task", type=_names, help=f"{tasks} (default: {','.join(given.tasks)})")
    add(
        "--methods",
        type=_names,
        help="methods by name, settings after '?' as in 'delta?proxy=head&scope=group&refinements=0', and oracle, "
        "oracle-wide, oracle-only (default: all, with every proxy and scope)",
    )
    add_settings(
        parser,
        given,
        ("--batches", int, "rollout batches per policy and task"),
        ("--prompts", int, "prompts per batch"),
        ("--group", int, "responses per prompt"),
        ("--seed", int, "seed of prompts, samples and noise"),
        ("--learning-rate", float, "learning rate of the DAPO step after which FIPO's weights are taken"),
        ("--temperature", float, "sampling temperature"),
        ("--rows-at-once", int, rows),
    )
    add(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu, cuda or cuda:N (default: cuda where there is one)",
    )
    add(
        "--output",
        type=Path,
        help=f"folder of the measurements, tables and figure (default: {folders[0]}, with --quick {folders[1]}); run again to resume",
    )
    add("--quick", action="store_true", help=f"{quick}, too little to conclude from")


def shared_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Those of the shared settings that were given."""
    return given_settings(options, SHARED)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(comma_list(text))
    if not names:
        raise argparse.ArgumentTypeError("give names, separated by commas")
    return names


def add_settings(parser: Any, defaults: Any, *rows: tuple[str, Callable[[str], Any], str]) -> None:
    """Options (name, type, help) for fields of a settings record; the help ends with the record's default."""
    for flag, kind, words in rows:
        value = getattr(defaults, flag.removeprefix("--").replace("-", "_"))
        shown = f"{value:g}" if isinstance(value, float) else value
        parser.add_argument(flag, type=kind, help=f"{words} (default: {shown})")


def given_settings(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """What the command line sets of these."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}
