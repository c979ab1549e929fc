"""The server backend: any OpenAI-compatible server (vLLM, SGLang, ...) over HTTP, one request a sample.

A request that fails is tried again with growing pauses; one that keeps failing is handed back as a `Failure`
with its reason. A server that is gone stops the evaluation instead of failing every sample in turn.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Completion, Failure, Outcome, SampleRequest
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey

Api = Literal["chat", "completions"]
# Worth another try: the server was busy, starting, or dropped the request. Anything else is our request's
# fault.
_PASSING = {408, 409, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class ServerSettings:
    """How a server is spoken to."""

    url: str
    """Address up to and including /v1, as in http://localhost:8000/v1."""
    model: str
    """The name the server knows the model by."""
    api: Api = "chat"
    """"chat" sends messages (the server applies its template), "completions" plain text."""
    concurrency: int = 32
    """Requests under way at once."""
    timeout: float = 3600.0
    """Seconds to wait for one completion: 30,000 tokens take long on a busy server."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection."""
    retries: int = 5
    """Further tries of a request that failed in passing."""
    backoff: float = 1.0
    """Seconds before the first further try; doubled each time, up to 60, with jitter."""
    api_key: str | None = None
    """Sent as a bearer token; never stored."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise EvaluationError(f"server address {self.url!r} must begin with http:// or https://")
        if self.api not in ("chat", "completions"):
            raise EvaluationError(f'api = {self.api!r} must be "chat" or "completions"')
        if not self.model:
            raise EvaluationError("a server needs the name of a model: see the list at its address + /models")
        for name, least in (("concurrency", 1), ("retries", 0), ("backoff", 0)):
            if getattr(self, name) < least:
                raise EvaluationError(f"{name} = {getattr(self, name)} must be at least {least}")
        for name in ("timeout", "connect_timeout"):
            if not getattr(self, name) > 0:
                raise EvaluationError(f"{name} = {getattr(self, name)} must be above 0 seconds")


class ServerSampler:
    """Samples over HTTP. Requests run in a thread of their own, so that an interrupt ends them at once."""

    def __init__(
        self,
        server: ServerSettings,
        settings: EvaluationSettings,
        *,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.server = server
        self.settings = settings
        self._say = say
        self._jitter = random.Random()
        self._told: Counter[str] = Counter()
        self._address = server.url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}

    def describe(self) -> dict[str, Any]:
        # The address is left out: the same model behind another port gives the same samples.
        return {"kind": "server", "api": self.server.api, "served_model": self.server.model}

    def check(self) -> None:
        """Ask the server for its models: is it there, does it let us in, does it know ours?"""
        patience = self.server.connect_timeout * 3
        try:
            response = httpx.get(f"{self._address}/models", headers=self._headers, timeout=patience)
        except httpx.TransportError as error:
            raise EvaluationError(self._down(error)) from None
        if response.status_code in (401, 403):
            raise EvaluationError(
                f"{self.server.url} refuses us ({response.status_code}): is the API key right?"
            )
        if response.status_code == 404:
            return  # a server without a list of models; the first completion will tell
        if response.is_error:
            raise EvaluationError(f"{self.server.url}/models answers {_words(response)}")
        names = _model_names(response)
        if names and self.server.model not in names:
            raise EvaluationError(
                f"{self.server.url} does not serve {self.server.model!r}: it has {', '.join(sorted(names))}"
            )

    def sample(
        self, requests: Sequence[SampleRequest], wanted: Set[SampleKey]
    ) -> Iterator[Sequence[Outcome]]:
        self.check()
        answers: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        loop = asyncio.new_event_loop()
        work = loop.create_task(self._ask([r for r in requests if r.key in wanted], answers.put))

        def run() -> None:
            try:
                loop.run_until_complete(work)
            except asyncio.CancelledError:
                pass  # the reader of the answers has left
            except BaseExceptionGroup as group:
                # The first error speaks for all: every worker meets the same server.
                named = [error for error in group.exceptions if isinstance(error, EvaluationError)]
                answers.put(named[0] if named else group)
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
            for request in waiting:  # shared: each request is taken by one worker
                tell((request, await self._complete(client, request)))

        async with (
            httpx.AsyncClient(
                headers=self._headers,
                timeout=httpx.Timeout(self.server.timeout, connect=self.server.connect_timeout, pool=None),
                limits=httpx.Limits(max_connections=self.server.concurrency),
            ) as client,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(min(self.server.concurrency, len(requests))):
                group.create_task(worker(client))

    async def _complete(self, client: httpx.AsyncClient, request: SampleRequest) -> Completion | Failure:
        path, body = self._body(request)
        reason = ""
        for attempt in range(self.server.retries + 1):
            if attempt:
                self._tell(request.key, attempt, reason)
                longest = min(60.0, self.server.backoff * 2 ** (attempt - 1))
                await asyncio.sleep(longest * self._jitter.uniform(0.5, 1.0))
            try:
                response = await client.post(f"{self._address}/{path}", json=body)
            except httpx.ConnectError as error:
                reason, down = self._down(error), True
                continue
            except httpx.TimeoutException as error:
                reason, down = f"no answer came in time ({type(error).__name__})", False
                continue
            except httpx.TransportError as error:
                reason, down = f"the connection broke ({type(error).__name__}: {error})", False
                continue
            down = False
            if response.status_code in (401, 403, 404):
                # Every other request would fail alike: wrong key, wrong address or wrong model.
                raise EvaluationError(f"{self._address}/{path} answers {_words(response)}")
            if response.status_code in _PASSING:
                reason = f"the server answered {_words(response)}"
                continue
            if response.is_error:
                return Failure(f"the server refused the request: {_words(response)}")
            completion = _read_completion(response)
            if isinstance(completion, Completion):
                return completion
            reason = completion.reason
        if down:  # not this request's fault: the others would fail as well
            raise EvaluationError(reason)
        return Failure(f"{reason} ({self.server.retries + 1} tries)")

    def _tell(self, key: SampleKey, attempt: int, reason: str) -> None:
        self._told[reason] += 1
        if self._told[reason] <= 3:  # many requests meet the same trouble
            self._say(f"{key}: try {attempt + 1} of {self.server.retries + 1}, because {reason}")

    def _body(self, request: SampleRequest) -> tuple[str, dict[str, Any]]:
        settings = self.settings
        body: dict[str, Any] = {
            "model": self.server.model,
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": request.seed,
        }
        if settings.stop:
            body["stop"] = list(settings.stop)
        if self.server.api == "chat":
            prompt = request.prompt
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
            return "chat/completions", body | {"messages": messages}
        if not isinstance(request.prompt, str):
            raise EvaluationError(f"{request.key} is a chat: it needs --api chat")
        return "completions", body | {"prompt": request.prompt}

    def _down(self, error: Exception) -> str:
        return (
            f"no server answers at {self.server.url} ({error}). Start it, or correct the address, and "
            "run the same "
            "command again: samples so far are kept"
        )


def _read_completion(response: httpx.Response) -> Completion | Failure:
    try:
        document = response.json()
        choice = document["choices"][0]
        message = choice.get("message")
        text = choice["text"] if message is None else message.get("content")
        reasoning = None
        if message is not None:
            reasoning = message.get("reasoning_content") or message.get("reasoning")
        if text is None and reasoning is None:
            return Failure("the server's answer holds no text")
        tokens = (document.get("usage") or {}).get("completion_tokens")
        return Completion(text or "", str(choice.get("finish_reason") or "unknown"), tokens, reasoning)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        return Failure(
            f"the server's answer is not a completion ({type(error).__name__}: {response.text[:120]!r})"
        )


def _words(response: httpx.Response) -> str:
    """A status with the server's own message."""
    try:
        document = response.json()
        error = document.get("error", document) if isinstance(document, dict) else document
        text = error.get("message", error) if isinstance(error, dict) else error
    except ValueError:
        text = response.text
    return f"{response.status_code}: {str(text).strip()[:300]}"


def _model_names(response: httpx.Response) -> set[str]:
    try:
        return {entry["id"] for entry in response.json()["data"]}
    except (ValueError, KeyError, TypeError):
        return set()
