"""What `vllm serve MODEL --served-model-name NAME --port PORT` does, for tiny models on a CPU: OpenAI's completions API.

Only the rehearsal uses it. It samples as `delta-rlvr evaluate` does in its own process, so that a request's seed decides the text.
"""

from __future__ import annotations

import argparse
import json
import queue
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from delta_rlvr.evaluate import EvaluationError
from delta_rlvr.evaluate.local_sampler import LocalSampler
from delta_rlvr.evaluate.records import Completion, SampleRequest
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey
from delta_rlvr.models.load import load_policy

BATCH = 64
_MOMENT = 0.02  # seconds that a batch waits for more requests
_Waiting = tuple[EvaluationSettings, SampleRequest, "Future[Completion]"]


class Engine:
    """Samples the requests of all connections together, in a thread of its own."""

    def __init__(self, path: str) -> None:
        self.model, self.tokenizer = load_policy(path)
        self.waiting: queue.Queue[_Waiting] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def complete(self, body: dict[str, Any]) -> Completion:
        """Wait for the completion of a request."""
        settings = EvaluationSettings(
            samples=1,
            max_tokens=body["max_tokens"],
            temperature=body.get("temperature", 1.0),
            top_p=body.get("top_p", 1.0),
            stop=tuple(body.get("stop") or ()),
        )
        answer: Future[Completion] = Future()
        request = SampleRequest(SampleKey("request", "", 0), body["prompt"], body.get("seed", 0))
        self.waiting.put((settings, request, answer))
        return answer.result()

    def _work(self) -> None:
        while True:
            batch = [self.waiting.get()]
            while len(batch) < BATCH:
                try:
                    batch.append(self.waiting.get(timeout=_MOMENT))
                except queue.Empty:
                    break
            for settings in dict.fromkeys(entry[0] for entry in batch):
                self._sample(settings, [entry[1:] for entry in batch if entry[0] == settings])

    def _sample(self, settings: EvaluationSettings, entries: list[tuple[SampleRequest, Future[Completion]]]) -> None:
        try:
            sampler = LocalSampler(self.model, self.tokenizer, settings)
            completions = sampler.complete([request for request, _ in entries])
        except Exception as error:  # whatever it is, those who wait must hear of it
            for _, answer in entries:
                answer.set_exception(error)
            return
        for (_, answer), completion in zip(entries, completions, strict=True):
            answer.set_result(completion)


def handler(engine: Engine, name: str) -> type[BaseHTTPRequestHandler]:
    """What answers requests for a model of that name."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            self.reply(200, {"data": [{"id": name}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/completions":
                self.reply(404, {"error": {"message": f"there is no {self.path} here"}})
                return
            try:
                done = engine.complete(body)
            except (EvaluationError, KeyError) as error:
                self.reply(400, {"error": {"message": str(error)}})
                return
            choice = {"text": done.text, "finish_reason": done.finish}
            self.reply(200, {"choices": [choice], "usage": {"completion_tokens": done.tokens}})

        def reply(self, status: int, document: dict[str, Any]) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait: `evaluate` opens 32 at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    engine = Engine(arguments.model)
    place = ("127.0.0.1", arguments.port)
    Server(place, handler(engine, arguments.served_model_name)).serve_forever()


if __name__ == "__main__":
    main()
