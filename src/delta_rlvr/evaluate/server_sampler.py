"""The server backend: any OpenAI-compatible server (vLLM, SGLang, ...) over HTTP, one request per sample.

A request with a transient failure is retried with growing pauses, or when the server says (Retry-After). One that keeps failing becomes
a `Failure` with its reason. A server that is gone stops the evaluation instead of failing every sample.

Why not the `openai` client (3.49): it retries by status, but passes on an answer that is not a completion (cut JSON, no choices, no
text, tokens as text); its pauses cannot be set or shown; it gives up if Retry-After is above two minutes; and other requests do not
wait. It would replace only the loop of `_patiently`, and bring three more packages.
"""

from __future__ import annotations

import asyncio
import math
import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeVar

import httpx

from delta_rlvr.evaluate.errors import EvaluationError, EvaluationFailed
from delta_rlvr.evaluate.records import Completion, Failure, Outcome, SampleRequest
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey

Api = Literal["chat", "completions"]
Read = TypeVar("Read")
# Retried like every 5xx: the server was busy or dropped the request. Other statuses mean that the request is wrong.
_PASSING = {408, 409, 425, 429}
_LONGEST_PAUSE = 60.0
_CONNECT_SECONDS = 10.0


class _PassingTrouble(Exception):
    """A transient failure, which is retried."""

    def __init__(self, reason: str, *, wait: float = 0.0, down: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        """Seconds to wait, as the server asks."""
        self.down = down
        """No server answers, so the other requests would fail too."""


@dataclass(frozen=True)
class ServerSettings:
    """The address of a server and the settings of requests."""

    url: str
    """Address up to and including /v1, as in http://localhost:8000/v1."""
    model: str
    """The server's name for the model."""
    api: Api = "chat"
    """"chat" sends messages (the server applies its template), "completions" plain text."""
    concurrency: int = 32
    """Concurrent requests."""
    timeout: float = 3600.0
    """Seconds to wait for one completion: 30,000 tokens take long on a busy server."""
    retries: int = 5
    """Retries of a request after transient failures."""
    backoff: float = 1.0
    """Seconds before the first retry; doubled each time, up to 60, with jitter."""
    api_key: str | None = None
    """Sent as a bearer token; never stored."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise EvaluationError(f"server address {self.url!r} must begin with http:// or https://")
        if self.api not in ("chat", "completions"):
            raise EvaluationError(f'api = {self.api!r} must be "chat" or "completions"')
        if not self.model:
            raise EvaluationError("give the server's name for the model: its address + /models lists them")
        for name, least in (("concurrency", 1), ("retries", 0), ("backoff", 0)):
            if getattr(self, name) < least:
                raise EvaluationError(f"{name} = {getattr(self, name)} must be at least {least}")
        if not self.timeout > 0:
            raise EvaluationError(f"timeout = {self.timeout} must be above 0 seconds")


@dataclass
class ServerSampler:
    """Samples over HTTP. Requests run in a separate thread, so that an interrupt ends them at once."""

    server: ServerSettings
    settings: EvaluationSettings
    say: Callable[[str], None] = lambda text: None
    _jitter: random.Random = field(default_factory=random.Random)
    _reported: Counter[str] = field(default_factory=Counter)
    _not_before: float = 0.0
    """Time of the event loop until which all requests wait, as the server asked."""

    @property
    def _address(self) -> str:
        return self.server.url.rstrip("/")

    def describe(self) -> dict[str, Any]:
        # Without the address: the same model at another port gives the same samples.
        return {"kind": "server", "api": self.server.api, "served_model": self.server.model}

    def sample(self, requests: Sequence[SampleRequest], wanted: Set[SampleKey]) -> Iterator[Sequence[Outcome]]:
        answers: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        loop = asyncio.new_event_loop()
        work = loop.create_task(self._ask([r for r in requests if r.key in wanted], answers.put))

        def run() -> None:
            try:
                loop.run_until_complete(work)
            except asyncio.CancelledError:
                pass  # the reader of the answers has left
            except BaseExceptionGroup as group:
                # One error is enough: all workers use the same server.
                named = [error for error in group.exceptions if isinstance(error, EvaluationError)]
                answers.put(named[0] if named else group)
            except BaseException as error:
                answers.put(error)
            finally:
                loop.close()
                answers.put(None)

        thread = threading.Thread(target=run, name="requests", daemon=True)
        thread.start()
        try:
            while (answer := answers.get()) is not None:
                if isinstance(answer, BaseException):
                    raise answer
                yield [answer]
        finally:
            if thread.is_alive() and not loop.is_closed():
                loop.call_soon_threadsafe(work.cancel)
            thread.join(timeout=10)

    async def _ask(self, requests: Sequence[SampleRequest], tell: Callable[[Outcome], None]) -> None:
        waiting = iter(requests)

        async def worker(client: httpx.AsyncClient) -> None:
            for request in waiting:  # shared by the workers
                tell((request, await self._complete(client, request)))

        async with httpx.AsyncClient(
            headers={"Authorization": f"Bearer {self.server.api_key}"} if self.server.api_key else {},
            timeout=httpx.Timeout(self.server.timeout, connect=_CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=self.server.concurrency),
        ) as client:
            await self._check(client)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.server.concurrency, len(requests))):
                    group.create_task(worker(client))

    async def _check(self, client: httpx.AsyncClient) -> None:
        """Ask the server for its models, to check the address, the API key and the model."""
        request = client.build_request("GET", f"{self._address}/models", timeout=_CONNECT_SECONDS * 3)
        failure = await self._patiently(client, "models", request, self._check_models, wait_if_down=False)
        if failure is not None:
            raise EvaluationFailed(f"{self.server.url}/models: {failure.reason}")

    def _check_models(self, response: httpx.Response) -> None:
        if response.status_code in (401, 403):
            raise EvaluationError(f"{self.server.url} refuses access ({response.status_code}): check the API key")
        if response.status_code == 404:
            return  # the server has no list of models
        if response.is_error:
            raise EvaluationError(f"{self.server.url}/models answers {_words(response)}")
        try:
            names = {entry["id"] for entry in response.json()["data"]}
        except (ValueError, KeyError, TypeError):
            return
        if names and self.server.model not in names:
            raise EvaluationError(
                f"{self.server.url} does not serve {self.server.model!r}: it has {', '.join(sorted(names))}"
            )

    async def _complete(self, client: httpx.AsyncClient, request: SampleRequest) -> Completion | Failure:
        path, body = self._body(request)
        post = client.build_request("POST", f"{self._address}/{path}", json=body)

        def read(response: httpx.Response) -> Completion | Failure:
            if response.status_code in (401, 403, 404):
                # Wrong key, address or model: every other request would fail too.
                raise EvaluationError(f"{self._address}/{path} answers {_words(response)}")
            if response.is_error:
                return Failure(f"the server refused the request: {_words(response)}")
            completion, limit = read_completion(response), body["max_tokens"]
            if completion.finish == "length" and completion.tokens is not None and completion.tokens < limit:
                # A shorter limit is another protocol: the same model scores lower.
                return Failure(
                    f"the server cut it at {completion.tokens} of {limit} tokens by its own limit: raise that (start vLLM with "
                    "--generation-config vllm and a larger --max-model-len), or lower `max_tokens`"
                )
            return completion

        return await self._patiently(client, str(request.key), post, read)

    async def _patiently(
        self,
        client: httpx.AsyncClient,
        name: str,
        request: httpx.Request,
        read: Callable[[httpx.Response], Read],
        *,
        wait_if_down: bool = True,
    ) -> Read | Failure:
        """Return what `read` makes of the answer; retry after transient failures."""
        now = asyncio.get_running_loop().time
        tries = self.server.retries + 1
        for attempt in range(1, tries + 1):
            await asyncio.sleep(max(0.0, self._not_before - now()))
            try:
                return read(await self._send(client, request))
            except _PassingTrouble as error:
                trouble = error
            if trouble.down and not wait_if_down:
                break
            if trouble.wait > self.server.timeout:
                return Failure(f"{trouble}; it asks to wait {trouble.wait:.0f} s, which is longer than the timeout")
            if attempt < tries:
                self._not_before = max(self._not_before, now() + trouble.wait)
                longest = min(_LONGEST_PAUSE, self.server.backoff * 2 ** (attempt - 1))
                pause = trouble.wait + longest * self._jitter.uniform(0.5, 1.0)
                self._reported[str(trouble)] += 1
                if self._reported[str(trouble)] <= 3:  # many requests have the same failure
                    self.say(f"{name}: try {attempt + 1} of {tries} in {pause:.0f} s, because {trouble}")
                await asyncio.sleep(pause)
        if trouble.down:  # the other requests would fail too
            raise EvaluationFailed(str(trouble))
        return Failure(f"{trouble} ({tries} tries)")

    async def _send(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        try:
            response = await client.send(request)
        except httpx.ConnectError as error:
            reason = (
                f"no server answers at {self.server.url} ({error}). Start it or correct the address, then run the same command again: "
                "samples so far are kept"
            )
            raise _PassingTrouble(reason, down=True) from None
        except httpx.TimeoutException as error:
            raise _PassingTrouble(f"no answer came in time ({type(error).__name__})") from None
        except httpx.RequestError as error:
            raise _PassingTrouble(f"the transfer failed ({type(error).__name__}: {error})") from None
        if response.status_code in _PASSING or response.is_server_error:
            raise _PassingTrouble(f"the server answered {_words(response)}", wait=_retry_after(response))
        return response

    def _body(self, request: SampleRequest) -> tuple[str, dict[str, Any]]:
        settings = self.settings
        body: dict[str, Any] = {
            "model": self.server.model,
            "max_tokens": request.max_tokens or settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": request.seed,
        }
        if settings.stop:
            body["stop"] = list(settings.stop)
        prompt = request.prompt
        if isinstance(prompt, tuple) and all(isinstance(token, int) for token in prompt):
            if self.server.api == "chat":
                raise EvaluationError(f"{request.key} is token ids: use api='completions'")
            return "completions", body | {"prompt": list(prompt)}
        if self.server.api == "chat":
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
            return "chat/completions", body | {"messages": messages}
        if not isinstance(prompt, str):
            raise EvaluationError(f"{request.key} is a chat: use api='chat'")
        return "completions", body | {"prompt": prompt}


def read_completion(response: httpx.Response) -> Completion:
    """Return the completion in a server's answer, with the types that the file of samples needs."""
    try:
        document = response.json()
        choice = document["choices"][0]
        message = choice.get("message")
        if message is None:
            text, reasoning = _text(choice["text"]), None
        else:
            text = _text(message.get("content"))
            text = _text(message.get("refusal")) if text is None else text
            reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
        usage = document.get("usage") or {}
        finish, tokens = str(choice.get("finish_reason") or "unknown"), _count(usage.get("completion_tokens"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        kind = type(error).__name__
        raise _PassingTrouble(f"the server's answer is not a completion ({kind}: {response.text[:120]!r})") from None
    if text is None and reasoning is None:
        raise _PassingTrouble("the server's answer has no text")
    return Completion(text or "", finish, tokens, reasoning)


def _text(content: Any) -> str | None:
    """Return the text of a content, or the joined texts of its parts; None if there is none."""
    if content is None:
        return None
    if not isinstance(content, str | list):
        raise TypeError(f"content is {type(content).__name__}")
    parts = [content] if isinstance(content, str) else content
    texts = [part if isinstance(part, str) else part.get("text", part.get("refusal")) for part in parts]
    kept = [text for text in texts if isinstance(text, str)]
    # Replace lone surrogates, which have no UTF-8 form: the text that is graded must be the one stored.
    return "".join(kept).encode("utf-8", "replace").decode() if kept else None


def _count(value: Any) -> int | None:
    """Return a number of tokens, which some servers send as text or float; None for anything else."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < 2**63):
        return None
    return int(value) if value == int(value) else None


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds to wait from Retry-After (RFC 9110: a number of seconds, or a date); 0 without it."""
    value = response.headers.get("Retry-After", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _words(response: httpx.Response) -> str:
    """Return the status with the server's message."""
    try:
        document = response.json()
        error = document.get("error", document) if isinstance(document, dict) else document
        text = error.get("message", error) if isinstance(error, dict) else error
    except ValueError:
        text = response.text
    return f"{response.status_code}: {str(text).strip()[:300]}"
