"""Continuations from a server that holds the same model: its completions endpoint, with token ids as the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from delta_evidence.measured.continuations import COPIES, Chunk, Response, checked_reward
from delta_rlvr.evaluate.errors import EvaluationFailed
from delta_rlvr.evaluate.records import Failure, SampleRequest
from delta_rlvr.evaluate.server_sampler import ServerSampler, ServerSettings
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey, sample_seed
from delta_rlvr.tasks import Task

# Chunks that are judged, and kept, together.
_PIECE = 64


class ServedContinuations:
    """From a server. The response's own tokens are sent, so that the server goes on from the very place; its answer is read as text.

    A chunk's seeds are its own, as in a stack; how far they decide what comes is the server's matter.
    """

    def __init__(
        self,
        server: ServerSettings,
        tokenizer: Any,
        task: Task,
        responses: Mapping[int, Sequence[Response]],
        *,
        seed: int,
        temperature: float = 1.0,
        say: Callable[[str], None] = lambda _: None,
    ):
        """`responses` by the number of their rollout batch."""
        if server.api != "completions":
            raise ValueError('server: api = "completions" is needed, which takes token ids')
        self.tokenizer, self.task, self.responses, self.seed = tokenizer, task, responses, seed
        settings = EvaluationSettings(
            samples=COPIES,
            max_tokens=max(one.limit for some in responses.values() for one in some),
            temperature=temperature,
            top_p=1.0,
            seed=seed,
            # The policy in this process ends a response with its line too.
            stop=("\n",) if task.one_line else (),
        )
        self.sampler = ServerSampler(server, settings, say=say)

    def __call__(self, chunks: Sequence[Chunk]) -> Iterator[tuple[Sequence[Chunk], list[float]]]:
        if not chunks:
            return
        requests = [(chunk, self._request(chunk, copy)) for chunk in chunks for copy in range(COPIES)]
        chunk_of = {request.key: chunk for chunk, request in requests}
        texts: dict[Chunk, list[str]] = {chunk: [] for chunk in chunks}
        finished: list[Chunk] = []
        for outcomes in self.sampler.sample([request for _, request in requests], chunk_of.keys()):
            for request, outcome in outcomes:
                if isinstance(outcome, Failure):
                    raise EvaluationFailed(
                        f"{request.key}: {outcome.reason}. The same command goes on from what was judged so far"
                    )
                chunk = chunk_of[request.key]
                texts[chunk].append(outcome.text)
                if len(texts[chunk]) == COPIES:
                    finished.append(chunk)
            if len(finished) >= _PIECE:
                yield finished, self._judge(finished, texts)
                finished = []
        if finished:
            yield finished, self._judge(finished, texts)

    def _request(self, chunk: Chunk, copy: int) -> SampleRequest:
        response = self.responses[chunk.batch][chunk.response]
        key = SampleKey("continuations", "/".join(map(str, chunk)), copy)
        return SampleRequest(
            key,
            (*response.prompt, *response.tokens[: chunk.position]),
            sample_seed(self.seed, key),
            max_tokens=response.limit - chunk.position,
        )

    def _judge(self, chunks: Sequence[Chunk], texts: Mapping[Chunk, Sequence[str]]) -> list[float]:
        special = set(self.tokenizer.all_special_ids)
        problems, whole = [], []
        for chunk in chunks:
            response = self.responses[chunk.batch][chunk.response]
            before = [token for token in response.tokens[: chunk.position] if token not in special]
            (text,) = self.tokenizer.batch_decode([before], clean_up_tokenization_spaces=False)
            problems += [response.problem] * COPIES
            whole += [text + continuation for continuation in texts[chunk]]
        rewards = [checked_reward(one.score) for one in self.task.grade_batch(problems, whole)]
        return [sum(rewards[start : start + COPIES]) for start in range(0, len(rewards), COPIES)]
