"""Measured credit of responses: a pilot decides where the samples go, a second phase of its own samples gives the estimates.

The second phase's numbers are fixed before it begins, so its estimates and intervals know nothing of how they were chosen. Outcomes
are kept in pieces: what is in the folder is not sampled again, and work that was killed goes on with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from delta_evidence.bench import read
from delta_evidence.measured.continuations import COPIES, Chunk, Continuations, Response
from delta_evidence.measured.estimate import MeasuredCredit, estimate
from delta_evidence.measured.nodes import STRIDE, Nodes, cut, importance, pilot_next, share_out
from delta_rlvr.files import write_json

TOLERANCE = 0.005
"""Tokens between which the sum of 1 - p is at most this share their value, if nothing else is said."""
PILOT = 2
"""Chunks of a node in the pilot."""

OnChunks = Callable[[int], None]
Key = tuple[int, int]
"""A response: the number of its rollout batch, and its place in it."""


class Outcomes:
    """Sums of rewards by chunk, kept in a folder if there is one."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.known: dict[Chunk, float] = {}
        self._pieces = 0
        if folder is not None and folder.is_dir():
            for path in sorted(folder.glob("piece-*.json")):
                self.known |= {Chunk(*key): total for *key, total in read(path)}
                self._pieces = int(path.stem.removeprefix("piece-")) + 1

    def keep(self, chunks: Sequence[Chunk], sums: Sequence[float]) -> None:
        if self.folder is not None:
            totals = [[*chunk, total] for chunk, total in zip(chunks, sums, strict=True)]
            write_json(self.folder / f"piece-{self._pieces:05d}.json", totals, indent=None)
            self._pieces += 1
        self.known |= zip(chunks, sums, strict=True)


def measure(
    responses: Mapping[int, Sequence[Response]],
    continuations: Continuations,
    *,
    budget: int,
    tolerance: float,
    folder: Path | None = None,
    planned: OnChunks = lambda _: None,
    done: OnChunks = lambda _: None,
) -> dict[int, list[MeasuredCredit]]:
    """The credit of every token of every response of some rollout batches, by the number of the batch.

    Batches are sampled together, which fills the device, but each has its budget to itself: it does not matter what is measured
    beside it. `budget` is the mean number of continuations of a response in the second phase. Tokens between which the sum of 1 - p is
    at most `tolerance` share their value. `planned` receives how many chunks more there will be, `done` how many were finished.
    """
    check_budget(budget, tolerance)
    every = {(batch, place): one for batch, some in responses.items() for place, one in enumerate(some)}
    nodes = {key: cut(one.surprise, tolerance) for key, one in every.items()}
    outcomes = Outcomes(folder)

    def sample(chunks: Sequence[Chunk]) -> None:
        missing = [chunk for chunk in chunks if chunk not in outcomes.known]
        planned(len(missing))
        for finished, sums in continuations(missing):
            outcomes.keep(finished, sums)
            done(len(finished))

    pilot = _pilot(every, nodes, outcomes, sample)
    pairs: dict[Key, Int[np.ndarray, " unknown"]] = {}
    for batch, some in responses.items():
        keys = [(batch, place) for place in range(len(some))]
        shares = [importance(nodes[key], every[key].surprise, pilot[key]) for key in keys]
        pairs |= zip(keys, share_out(shares, budget * len(some) // (2 * COPIES)), strict=True)
    # The pilot's chunks have the numbers below PILOT.
    plan = {
        key: [
            [Chunk(*key, int(nodes[key].at[node]), PILOT + number) for number in range(2 * int(count))]
            for node, count in enumerate(counts)
        ]
        for key, counts in pairs.items()
    }
    sample([chunk for of_response in plan.values() for of_node in of_response for chunk in of_node])

    def credit(key: Key) -> MeasuredCredit:
        sums = np.array(
            [
                [math.fsum(outcomes.known[chunk] for chunk in of_node[half::2]) for half in (0, 1)]
                for of_node in plan[key]
            ]
        ).reshape(-1, 2)
        halves = np.repeat(pairs[key][:, None] * COPIES, 2, axis=1)
        return estimate(nodes[key], every[key].surprise, every[key].reward, sums, halves)

    return {batch: [credit((batch, place)) for place in range(len(some))] for batch, some in responses.items()}


def check_budget(budget: int, tolerance: float, name: str = "budget") -> None:
    """Refuse what nothing can be measured with. `name`: what the budget is called where it is given."""
    if budget < 2 * COPIES:
        raise ValueError(f"{name}={budget}: give at least {2 * COPIES} continuations a response")
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance={tolerance}: give a number from 0 to 1, such as 0.005")


def _pilot(
    responses: Mapping[Key, Response],
    nodes: Mapping[Key, Nodes],
    outcomes: Outcomes,
    sample: Callable[[Sequence[Chunk]], None],
) -> dict[Key, dict[int, float]]:
    """Values of some nodes of each response: segment ends first, then within the segments in which the value moves."""
    values = {key: {nodes[key].unknown: one.reward} for key, one in responses.items()}
    wanted = {key: list(range(0, cuts.unknown, STRIDE)) for key, cuts in nodes.items()}
    while any(wanted.values()):
        chunks = {
            (key, node): [Chunk(*key, int(nodes[key].at[node]), number) for number in range(PILOT)]
            for key, some in wanted.items()
            for node in some
        }
        sample([chunk for of_node in chunks.values() for chunk in of_node])
        for (key, node), of_node in chunks.items():
            total = math.fsum(outcomes.known[chunk] for chunk in of_node)
            values[key][node] = total / (PILOT * COPIES)
        wanted = {key: pilot_next(known) for key, known in values.items()}
    return values
