"""The options that commands of this distribution share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from delta_evidence.bench import Cells
from delta_evidence.judging import MOST_JUDGES
from delta_rlvr.models.load import check_device
from delta_rlvr.terminal import make_console
from delta_rlvr.words import comma_list

ALSO = {"policies": "--model", "tasks": "--task"}
"""Second names of options."""


def add_options(parser: argparse.ArgumentParser, settings: type[Cells], folders: tuple[Path, Path], quick: str) -> None:
    """Those of a benchmark: its settings that have words for the command line, device and folder. `quick`: what `--quick` is."""
    for name, one in options_of(settings).items():
        default = one.default
        shown = f"{default:g}" if isinstance(default, float) else default
        kind: Any = type(default)
        if isinstance(default, tuple):
            kind, shown = _names, ",".join(default)
        elif default is None:
            kind = int
        words = one.metadata["help"] + ("" if shown in ("", None) else f" (default: {shown})")
        flags = [f"--{name.replace('_', '-')}", *([ALSO[name]] if name in ALSO else [])]
        choices = one.metadata["choices"]
        shape = None if choices else {_names: "NAMES", float: "X"}.get(kind, "N")
        parser.add_argument(*flags, type=kind, choices=choices, metavar=shape, help=words)
    add_device(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help=f"folder of the measurements, tables and figure (default: {folders[0]}, with --quick {folders[1]}); run again to resume",
    )
    parser.add_argument("--quick", action="store_true", help=f"{quick}, too little to conclude from")


def options_of(settings: type[Cells]) -> dict[str, Any]:
    """The settings of a benchmark that are options, by name."""
    return {one.name: one for one in fields(settings) if "help" in one.metadata}  # type: ignore[arg-type]


def asked(
    options: argparse.Namespace, settings: type[Cells], quick: Mapping[str, Any], folders: tuple[Path, Path]
) -> tuple[dict[str, Any], Path]:
    """What the command line sets of them, with `--quick` beside what that is, and the folder."""
    given = {name: value for name in options_of(settings) if (value := getattr(options, name)) is not None}
    return {**(quick if options.quick else {}), **given}, options.output or folders[options.quick]


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu, cuda or cuda:N (default: cuda where there is one)",
    )


def begin(device: str) -> Console:
    """Refuse a device that is not there, and return the console, on which libraries show no bars of their own."""
    from transformers.utils import logging

    check_device(device)
    logging.disable_progress_bar()
    return make_console()


def add_workers(parser: argparse.ArgumentParser) -> None:
    words = f"processes that judge responses (default: one per core beside a GPU, at most {MOST_JUDGES}, else 1)"
    parser.add_argument("--workers", type=int, metavar="N", help=words)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(comma_list(text))
    if not names:
        raise argparse.ArgumentTypeError("give names, separated by commas")
    return names
