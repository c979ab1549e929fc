"""Programs run on a SandboxFusion-compatible server: POST /run_code, one isolated run a request.

A request cannot talk back and forth, so a function's calls travel together and the answers come back as printed
lines. Test source is run on the server as well, in requests of its own that hold none of the candidate's code:
first to learn which calls it makes, then, with the candidate's answers as data, to judge.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from delta_rlvr.rewards.code_settings import CodeSettings
from delta_rlvr.rewards.sandbox.errors import ProgramFailure, SandboxError, Stopped
from delta_rlvr.rewards.sandbox.runner import broken, last_word, raised
from delta_rlvr.rewards.sandbox.wire import WireError, decode, encode

PACKAGE = "delta_rlvr.rewards.sandbox."
MODULES = ("wire", "inside", "inside_assertions", "inside_server")
GRACE_SECONDS = 30.0  # beyond the program's own limit: the server's queue and its start of an interpreter
MOST_ROUNDS = 1000
BOOT = """
import base64, sys
for name, source in {modules!r}:
    sys.modules[name] = type(sys)(name)
    exec(compile(source, name, "exec"), sys.modules[name].__dict__)
sys.modules["delta_rlvr.rewards.sandbox.inside_server"].main(base64.b64decode({job!r}))
"""


@cache
def _modules() -> list[tuple[str, str]]:
    folder = Path(__file__).parent
    return [(PACKAGE + name, (folder / f"{name}.py").read_text()) for name in MODULES]


class ServerRunner:
    """Runs programs through HTTP."""

    def __init__(self, settings: CodeSettings, stop: threading.Event | None = None) -> None:
        self.settings = settings
        self.stop = stop

    def calls(self, program: str, entry: str, arguments: Sequence[tuple[Any, ...]]) -> Iterator[bytes]:
        for answer in self._calls(
            program, entry, [encode((positional, {})) for positional in arguments], False
        ):
            if answer[0] == "error":
                raise raised(answer[2], answer[3])
            yield answer[2]

    def runs(self, program: str, inputs: Sequence[str]) -> Iterator[str]:
        end = time.monotonic() + self.settings.seconds_total
        for text in inputs:
            if time.monotonic() > end:
                raise ProgramFailure(
                    f"timed out: all tests together took more than {self.settings.seconds_total:g} s"
                )
            result = self._post(program, text, self.settings.seconds_per_test)
            if result.get("return_code") != 0:
                lines = (result.get("stderr") or "").strip().splitlines()
                status = f"ended with status {result.get('return_code')}"
                raise ProgramFailure(f"{status}: {lines[-1][:200]}" if lines else status)
            yield result.get("stdout") or ""

    def assertions(self, program: str, entry: str, source: str, setup: str, in_place: bool) -> None:
        job = {"entry": entry, "source": source, "setup": setup, "in_place": in_place}
        known: list[tuple[bytes, tuple[Any, ...]]] = []
        for _ in range(MOST_ROUNDS):
            *wanted, verdict = self._script(
                {"mode": "assertions", "known": known, **job}, len(known) + 2, None
            )
            if verdict[0] != "unknown":
                return last_word(verdict)
            # The calls before the first unknown one stand; those after it were a guess at what is asked next.
            calls = [message[2] for message in wanted]
            answers = list(self._calls(program, entry, calls, in_place))
            for answer in answers:
                if answer[0] == "error" and answer[2] in ("SystemExit", "MemoryError", "KeyboardInterrupt"):
                    raise raised(answer[2], answer[3])
            known = list(zip(calls, answers, strict=True))
        raise ProgramFailure(f"the tests cannot judge: they made new calls in each of {MOST_ROUNDS} rounds")

    def _calls(
        self, program: str, entry: str, calls: list[bytes], return_arguments: bool
    ) -> Iterator[tuple[Any, ...]]:
        job = {"mode": "calls", "program": program, "entry": entry, "calls": calls}
        messages = self._script(
            {**job, "return_arguments": return_arguments}, len(calls), self.settings.seconds_total
        )
        for number in range(len(calls)):
            message = messages[number] if number < len(messages) else ("ended",)
            form = tuple(map(type, message))
            if message[0] == "broken" and form == (str, str, str):
                raise broken(message[1], message[2])
            if message[0] == "late":
                raise ProgramFailure(f"timed out after {self.settings.seconds_per_test:g} s")
            if form not in ((str, int, bytes, bytes), (str, int, str, str)) or message[1] != number:
                raise ProgramFailure("ended before answering")
            yield message

    def _script(self, job: dict[str, Any], most: int, seconds: float | None) -> list[tuple[Any, ...]]:
        """Run our own script on the server and collect the messages that it prints behind a mark."""
        mark = secrets.token_hex(8)
        job = {**job, "mark": mark, "seconds": self.settings.seconds_per_test}
        script = BOOT.format(modules=_modules(), job=base64.b64encode(encode(job)).decode())
        result = self._post(script, "", seconds or self.settings.seconds_total)
        messages = []
        for line in (result.get("stdout") or "").split("\n"):
            if line.startswith(mark):
                try:
                    message = decode(base64.b64decode(line[len(mark) :]))
                except (WireError, ValueError):
                    raise ProgramFailure("wrote something else to the grader's pipe") from None
                if not isinstance(message, tuple) or not message:
                    raise ProgramFailure("wrote something else to the grader's pipe")
                messages.append(message)
        if job["mode"] == "assertions" and not messages:
            raise SandboxError(f"the server ran no tests; it said: {str(result.get('stderr'))[-500:]}")
        return messages

    def _post(self, code: str, text: str, seconds: float) -> dict[str, Any]:
        """One request: the run's result, after as many attempts as the settings allow where the server fails."""
        body = {
            "code": code,
            "language": "python",
            "stdin": text,
            "run_timeout": seconds,
            "compile_timeout": seconds,
            "memory_limit_MB": self.settings.memory_bytes >> 20,
        }
        address = f"{(self.settings.server_url or '').rstrip('/')}/run_code"
        said = ""
        for attempt in range(self.settings.server_attempts):
            if attempt:
                time.sleep(min(0.25 * 2**attempt, 5.0))
            if self.stop is not None and self.stop.is_set():
                raise Stopped
            request = urllib.request.Request(
                address, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
            )
            try:
                with urllib.request.urlopen(request, timeout=seconds + GRACE_SECONDS) as response:
                    reply = json.loads(response.read(4 * self.settings.output_bytes + (1 << 20)))
            except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
                said = str(error)
                continue
            result = reply.get("run_result")
            if reply.get("status") == "SandboxError" or result is None:
                said = str(reply.get("message") or reply.get("status"))
                continue
            if result.get("status") == "TimeLimitExceeded":
                raise ProgramFailure(f"timed out after {seconds:g} s")
            if len(result.get("stdout") or "") > 2 * self.settings.output_bytes:
                raise ProgramFailure(f"too much output: more than {self.settings.output_bytes} bytes")
            return dict(result)
        raise SandboxError(
            f"{address} failed {self.settings.server_attempts} times; the last time it said: {said}"
        )
