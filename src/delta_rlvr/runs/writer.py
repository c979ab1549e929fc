"""Writing a run folder, from a run's first step to its last, also across resumes."""

from __future__ import annotations

import gzip
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from delta_rlvr.files import atomic, dump, now, plain, write_text
from delta_rlvr.runs.layout import (
    CONTENT,
    METRICS,
    MODEL,
    RESPONSE_ARRAYS,
    ROLLOUTS,
    RUN,
    SCHEMA,
    TOKENS,
    RunFolderError,
    misfits,
    rollout_path,
    rollout_steps,
    round_significant,
)
from delta_rlvr.runs.tokens import TextOf, TokenSums

# A run can only be resumed with these unchanged; other settings (more steps, another batch split) may change.
_IDENTITY = ("engine", "method", "seed", "model", "task", "rule")
_OF_THE_OPTIMIZER = ("optim", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "lora_rank")
"""Settings whose values come back with a checkpoint: others would be recorded, and have no effect or end in an error."""


@dataclass(frozen=True)
class RunDescription:
    """The fixed part of run.json."""

    engine: str
    """"trl", "verl" or "minimal"."""
    method: str
    """The spec of the method: "delta", "dapo", "delta?lambda_min=0.5", ..."""
    seed: int
    """The seed of everything random in the run."""
    model: str
    """As given on the command line."""
    task: str
    """As given on the command line."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the engine, flat, with defaults filled in."""
    rule: Mapping[str, Any] | None = None
    """The settings of the method's token rule; None for a method that weighs all tokens alike."""
    steps_planned: int | None = None
    """The planned number of steps."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of python, torch, the engine, ..."""

    def __post_init__(self) -> None:
        for name in ("engine", "method", "model", "task"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} must be a non-empty text, got {value!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ValueError(f"seed must be an integer, got {self.seed!r}")


class RunWriter:
    """The writer of one run folder, made with `create` or `resume`. As a context manager it marks the run as finished, or as
    interrupted or failed if an exception ends the block."""

    def __init__(self, path: Path, info: dict[str, Any], tokens: TokenSums, last_step: int) -> None:
        self.path = path
        self.tokens = tokens
        self._info = info
        self._last_step = last_step
        self._line: dict[str, Any] = {}
        """The last line of the metrics that this writer has written."""
        self._line_at = 0
        """The place of that line in the file."""
        self._metrics = (path / METRICS).open("a", encoding="utf-8")
        self._write_info()

    @classmethod
    def create(cls, path: str | Path, description: RunDescription) -> RunWriter:
        """Start a run in a folder without a run, or with one that ended before its first step."""
        folder = Path(path)
        check_is_free(folder)
        for name in (RUN, METRICS, TOKENS):
            (folder / name).unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        info = {"schema": SCHEMA, "status": "running", "started": now(), "steps": 0, "final": {}}
        return cls(folder, {**info, **plain(asdict(description))}, TokenSums(), 0)

    @classmethod
    def resume(
        cls, path: str | Path, description: RunDescription, step: int, accept_changed: bool = False
    ) -> RunWriter:
        """Resume a run from the checkpoint at `step` (0: from the start). Later steps are deleted, since they will be taken again.

        The folder must hold the same run. With `accept_changed`, the code and data files of its settings may have changed
        (`settings_changed` in run.json lists them).
        """
        folder, new = Path(path), plain(asdict(description))
        info = _info_to_resume(folder, new)
        settings, before = new["settings"], info.get("settings", {})
        if step and not accept_changed and (changes := [*_changes(before, settings)]):
            raise RunFolderError(
                f"{folder}: {changes[0]}, so that later steps would differ from earlier ones: restore it, resume anyway with "
                f"`{'trainer.train(..., accept_changed=True)' if _of_a_script(settings) else 'accept_changed'}` (run.json records it), "
                "or start another run in a new folder"
            )
        given = [name for name in _OF_THE_OPTIMIZER if step and name in before and name in settings]
        for name in (one for one in given if before[one] != settings[one]):
            raise RunFolderError(
                f"{folder}: `{name}` was {before[name]} and is now {settings[name]}, but a resumed run goes on with the optimizer of "
                f"its checkpoint: leave it as it was, or start another run from the model in {folder / f'checkpoint-{step}'}"
            )
        kept, unreadable = _metrics_until(folder / METRICS, step)
        write_text(folder / METRICS, "".join(line + "\n" for line in kept.values()))
        for rollout_step, rollout_file in rollout_steps(folder).items():
            if rollout_step > step:
                rollout_file.unlink()
        keys = sorted({*before, *settings})
        pairs = {key: [before.get(key), settings.get(key)] for key in keys}
        changed = {key: values for key, values in pairs.items() if values[0] != values[1]}
        resumed: dict[str, Any] = {"step": step, "time": now(), "settings_changed": changed}
        if unreadable:
            resumed["metrics_lines_unreadable"] = unreadable
        tokens = TokenSums()
        if step > 0:
            copy = folder / f"checkpoint-{step}" / TOKENS
            try:
                tokens = TokenSums.load(copy)
            except (FileNotFoundError, RunFolderError):
                resumed["tokens"] = f"the token sums of the checkpoint were lost: they start at step {step}"
                warnings.warn(f"{copy} is missing or damaged: {resumed['tokens']}", stacklevel=2)
        info.update(new, status="running", steps=max(kept, default=0))
        info.pop("error", None)
        info.setdefault("resumed", []).append(resumed)
        info["final"] = {key: value for key, value in info.get("final", {}).items() if key not in ("after", "best")}
        return cls(folder, info, tokens, max(kept, default=0))

    @property
    def info(self) -> dict[str, Any]:
        """A copy of the content of run.json."""
        return json.loads(dump(self._info))

    def log(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Append one training step and return its line. Values that are not finite become null, and `note` names them."""
        step = metrics.get("step")
        if isinstance(step, bool) or not isinstance(step, int):
            raise ValueError(f"metrics need an integer step, got {step!r}")
        if step <= self._last_step:
            raise ValueError(f"step {step} after step {self._last_step}: each step is written once, in order")
        # 0-d arrays and tensors become numbers.
        line = {key: value.item() if hasattr(value, "item") else value for key, value in metrics.items()}
        lost = [f"{key} = {v}" for key, v in line.items() if isinstance(v, float) and not math.isfinite(v)]
        if lost:
            line["note"] = "; ".join(filter(None, [line.get("note"), "not finite: " + ", ".join(lost)]))
        self._write_line(line)
        self._last_step = step
        self._info["steps"] = step
        return line

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add metrics to the line of a step, such as those of an evaluation after it; without such a line, write one."""
        if metrics["step"] != self._line.get("step"):
            self.log(metrics)
            return
        self._metrics.truncate(self._line_at)
        self._write_line({**self._line, **metrics})

    def _write_line(self, line: dict[str, Any]) -> None:
        self._line, self._line_at = line, (self.path / METRICS).stat().st_size
        self._metrics.write(dump(line) + "\n")
        self._metrics.flush()

    def write_rollouts(self, step: int, responses: Iterable[Mapping[str, Any]]) -> Path:
        """Write the sampled responses of a step atomically. Missing `step` and `response` (the joined tokens) are added."""
        lines = [_rollout(step, number, response) for number, response in enumerate(responses)]
        path = rollout_path(self.path, step)
        # The gzip header has no name and no time, so that equal rollouts give equal files.
        with atomic(path) as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            # A lone surrogate (half of a pair, from a token cut in two) has no UTF-8 form.
            packed.write("".join(line + "\n" for line in lines).encode("utf-8", "replace"))
        return path

    def save_tokens(self, step: int | None = None, text_of: TextOf | None = None) -> None:
        """Write the token sums, and with `step` the copy in that step's checkpoint that a resume starts from. Call this when the engine
        has saved its checkpoint, and at the end."""
        self.tokens.save(self.path / TOKENS, text_of)
        if step is not None:
            self.tokens.save(self.path / f"checkpoint-{step}" / TOKENS, text_of)

    def update(self, **values: Any) -> None:
        """Set keys of run.json (`final`, ...) and write it. For `status` use `finish`, `interrupt` or `fail`."""
        if "status" in values:
            raise ValueError("use finish, interrupt or fail to change the status")
        self._info.update(values)
        self._write_info()

    def finish(self) -> None:
        self._close("finished")

    def interrupt(self) -> None:
        self._close("interrupted")

    def fail(self, error: BaseException | str) -> None:
        if isinstance(error, BaseException):
            error = f"{type(error).__name__}: {error}"
        self._info["error"] = error
        try:
            self._close("failed")
        except OSError:  # the disk may be full: overwrite the status in place
            self._mark_failed()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.interrupt()
        elif error is not None:
            self.fail(error)
        elif self._info["status"] == "running":
            self.finish()

    def _close(self, status: str) -> None:
        self._info["status"] = status
        self._write_info()
        self._metrics.close()

    def _mark_failed(self) -> None:
        """Overwrite the status in run.json by a text of the same length, which needs no free disk space."""
        path = self.path / RUN
        before, after = b'"status": "running"', b'"status": "failed" '
        place = path.read_bytes().find(before)
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place)
                file.write(after)

    def _write_info(self) -> None:
        self._info["updated"] = now()
        write_text(self.path / RUN, dump(self._info, indent=1) + "\n")


def check_is_free(folder: Path) -> None:
    """Refuse a folder in which no run can start: a file, or the folder of a run that took a step."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file: give a folder for the run")
    held = [name for name in (RUN, METRICS, ROLLOUTS, TOKENS) if (folder / name).exists()]
    if held and not ended_before_its_first_step(folder):
        advice = "resume it, give another folder, or delete it"
        if not any(folder.glob("checkpoint-*")):
            advice = "it has no checkpoint yet: resume it, which starts it again, or give another folder"
        raise RunFolderError(f"{folder} holds a run already ({', '.join(held)}): {advice}")


def check_is_ours(folder: Path) -> None:
    """Refuse a folder where a run would write over files of somebody else's, too."""
    check_is_free(folder)
    theirs = [name for name in (MODEL, "report.html", "log.txt") if (folder / name).exists()]
    theirs += [path.name for path in folder.glob("checkpoint-*")]
    if theirs and not (folder / RUN).exists():
        raise RunFolderError(
            f"{folder} is no run's folder and holds {', '.join(theirs[:4])}, where a run would write: give another folder"
        )
    if folder.resolve() == Path(folder.resolve().anchor):
        raise RunFolderError(f"{folder} is the root of the file system: give a folder for the run")


def ended_before_its_first_step(folder: Path) -> bool:
    """Return whether a folder's run failed or was interrupted before its first step, so that it can be overwritten."""
    try:
        info = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(info, dict):
        return False
    ended = info.get("status") in ("failed", "interrupted") and not info.get("steps")
    metrics = folder / METRICS
    stepped = metrics.exists() and metrics.stat().st_size > 0
    return ended and not stepped and not rollout_steps(folder) and not any(folder.glob("checkpoint-*"))


def _info_to_resume(folder: Path, new: Mapping[str, Any]) -> dict[str, Any]:
    try:
        info = json.loads((folder / RUN).read_text(encoding="utf-8"))
        if not isinstance(info, dict) or misfits(info):
            raise ValueError(f"wrong types: {', '.join(misfits(info)) if isinstance(info, dict) else 'not an object'}")
    except FileNotFoundError:
        raise RunFolderError(f"{folder} has no {RUN}: there is no run to resume there") from None
    except ValueError as error:
        raise RunFolderError(f"{folder / RUN} is damaged ({error}): restore it or start in another folder") from error
    if info.get("schema") != SCHEMA:
        raise RunFolderError(f"{folder} was written with schema {info.get('schema')}, this version writes {SCHEMA}")
    if other := list(_other_identity(info, new)):
        raise RunFolderError(
            f"{folder} holds another run ({'; '.join(other)}): resume it with its original settings, or give another folder"
        )
    return dict(info)


def _of_a_script(settings: Mapping[str, Any]) -> bool:
    return f"train_dataset{CONTENT}" in settings


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence part for each change of code or data since a run began. What was not stored, or is not evaluated from now on,
    has not changed."""
    script = _of_a_script(now)
    for name in (one for one in now if one.endswith(CONTENT) and before.get(one) not in (None, now[one])):
        what = name.removesuffix(CONTENT)
        if what == "eval_dataset" and now[name] is None:
            continue
        changed = f"the code of `{what}` has changed" if script else f"the file that `{what}` names has changed"
        if what in ("train_dataset", "eval_dataset"):
            rows = [one.get(what.replace("dataset", "rows")) for one in (before, now)]
            changed = f"`{what}` has other rows" + (f" ({rows[0]}, now {rows[1]})" if rows[0] != rows[1] else "")
        elif what == "reward_settings":
            changed = "the settings of its reward functions, or numbers that they read, have changed"
        yield f"{changed} since this run began"
    if _other_reward(before, now):
        yield f"`reward` has changed from {before['reward']} to {now['reward']} since this run began"


def _other_reward(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether another function judges. A path can be written in several ways: for the same file the function's name counts."""
    if "reward" not in before or "reward" not in now:  # an older run, or another engine's
        return False
    names, files = ([one.get(key) for one in (before, now)] for key in ("reward", f"reward{CONTENT}"))
    if files[0] and files[0] == files[1]:
        names = [str(name).rpartition(":")[2] for name in names]
    return names[0] != names[1]


def _other_identity(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence part for each difference that makes this another run. For another method, its rule's settings are left out."""
    for key in _IDENTITY:
        old, new = before.get(key), now[key]
        if old == new or (key == "rule" and before.get("method") != now["method"]):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            yield from (f"{key} {name} {old.get(name)!r} is now {new.get(name)!r}" for name in changed)
        else:
            yield f"{key} {old!r} is now {new!r}"


def _metrics_until(path: Path, step: int) -> tuple[dict[int, str], int]:
    """Return the last line of each step up to `step`, and the number of lines that could not be read."""
    kept: dict[int, str] = {}
    unreadable = 0
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                number = json.loads(line)["step"]
            except (ValueError, KeyError, TypeError):
                unreadable += 1
                continue
            if number <= step:
                kept[number] = line
    return dict(sorted(kept.items())), unreadable


def _rollout(step: int, number: int, response: Mapping[str, Any]) -> str:
    """Return one response as a line; every per-token array must be as long as its tokens."""
    line: dict[str, Any] = {"step": step, **response}
    if line["step"] != step:
        raise ValueError(f"response {number} is of step {line['step']}, not {step}")
    tokens = line.get("tokens")
    if tokens is None:
        raise ValueError(f"response {number} has no tokens: give its tokens as text")
    line.setdefault("response", "".join(tokens))
    arrays: dict[str, Any] = {"tokens": list(tokens)}
    for key in RESPONSE_ARRAYS[1:]:
        if line.get(key) is not None:
            arrays[key] = _per_token(line[key], len(tokens), f"response {number}: {key}")
    if line.get("other_weights"):
        arrays["other_weights"] = {
            str(name): _per_token(values, len(tokens), f"response {number}: other_weights[{name!r}]")
            for name, values in line["other_weights"].items()
        }
    facts = plain({key: value for key, value in line.items() if key not in arrays})
    return json.dumps({**facts, **arrays}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _per_token(values: Any, length: int, name: str) -> list[Any]:
    if len(values) != length:
        raise ValueError(f"{name} has {len(values)} entries for {length} tokens")
    return round_significant(values)
