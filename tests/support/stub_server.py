"""An OpenAI-compatible server for tests, which answers and misbehaves as a function says."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, dict[str, Any], int], tuple[Any, ...]]
"""(path, body, tries so far) -> status, document and, where it wants them, headers."""


class StubServer:
    """An OpenAI-compatible server whose answers a function decides."""

    def __init__(self, answer: Answer, models: Callable[[int], tuple[Any, ...]] | None = None) -> None:
        """`models`: the answer to a request for the list of models, by how many came before."""
        self.answer = answer
        self.models = models or (lambda tries: (200, {"data": [{"id": "tiny"}]}))
        self.times: list[float] = []
        """When each completion was asked for."""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.most_at_once = 0
        self.headers: list[dict[str, str]] = []
        self._now = 0
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                with stub._lock:
                    tries = stub._tries["models"]
                    stub._tries["models"] += 1
                self.reply(*stub.models(tries))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub._lock:
                    stub.requests.append((self.path, body))
                    stub.times.append(time.monotonic())
                    stub.headers.append(dict(self.headers))
                    name = json.dumps(body, sort_keys=True)
                    tries = stub._tries[name]
                    stub._tries[name] += 1
                    stub._now += 1
                    stub.most_at_once = max(stub.most_at_once, stub._now)
                try:
                    status, *rest = stub.answer(self.path, body, tries)
                finally:
                    with stub._lock:
                        stub._now -= 1
                if status == 0:  # hang up without a word
                    self.connection.close()
                    return
                self.reply(status, *rest)

            def reply(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
                content = document.encode() if isinstance(document, str) else json.dumps(document).encode()
                try:
                    self.send_response(status)
                    for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client gave up, which some tests want

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@contextmanager
def stub_server(answer: Answer, models: Callable[[int], tuple[Any, ...]] | None = None) -> Iterator[StubServer]:
    server = StubServer(answer, models)
    try:
        yield server
    finally:
        server.close()


def text_answer(text: str, finish: str = "stop", tokens: int = 5) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": finish}], "usage": {"completion_tokens": tokens}}


def chat_answer(content: str | None, **more: Any) -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": content, **more}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 3},
    }


def seeded_digit(body: dict[str, Any]) -> str:
    """An answer that depends on the request's seed alone, as a good server's does."""
    return f"it is {body['seed'] % 10}"
