"""Sharing a run: the token view in trackers that show pages, and the card and the report on the hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_rlvr.adapters.metrics import PREFIX
from delta_rlvr.runs.layout import MODEL
from delta_rlvr.runs.tokens_html import tokens_html

if TYPE_CHECKING:
    from delta_rlvr.adapters.trl.trainer import DeltaTrainer

_SHOW_PAGES = ("wandb", "trackio")
"""Trackers with `Html` and `log`."""


def track_tokens(trackers: Iterable[str], step: int, responses: Sequence[Mapping[str, Any]]) -> None:
    """Log the token view of a step to the run's trackers."""
    for name in set(trackers) & set(_SHOW_PAGES):
        tracker = import_module(name)
        view = tracker.Html(tokens_html(step, responses), inject=False)
        tracker.log({f"{PREFIX}tokens": view, "train/global_step": step})


def push_page(trainer: DeltaTrainer, folder: Path) -> None:
    """Upload the finished card and the report to the repository on the hub that has the weights."""
    from huggingface_hub import HfApi

    assert trainer.hub_model_id is not None
    api = HfApi(token=trainer.args.hub_token)
    for file, name in ((folder / MODEL / "README.md", "README.md"), (folder / "report.html", "report.html")):
        if file.exists():
            api.upload_file(
                path_or_fileobj=file,
                path_in_repo=name,
                repo_id=trainer.hub_model_id,
                revision=trainer.args.hub_revision,
                commit_message=f"delta-rlvr: {name}",
            )
