"""Measured credit of responses: a pilot decides where the samples go, a second phase of its own samples gives the estimates.

The second phase's numbers are fixed before it begins, so its estimates and intervals know nothing of how they were chosen. Outcomes
are kept in pieces: what is in the folder is not sampled again, and work that was killed goes on with the same result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from delta_rlvr.runs.files import atomic, dump
from delta_rlvr.study.measured.continuations import COPIES, Chunk, Continuations, Response
from delta_rlvr.study.measured.estimate import MeasuredCredit, estimate
from delta_rlvr.study.measured.nodes import Nodes, cut, importance, pilot_ends, pilot_next, share_out

TOLERANCE = 0.005
"""Tokens between which the sum of 1 - p is at most this share their value, if nothing else is said."""
PILOT = 2
"""Chunks of a node in the pilot."""

OnChunks = Callable[[int], None]


class Outcomes:
    """Sums of rewards by chunk, kept in a folder if there is one."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.known: dict[Chunk, float] = {}
        self._pieces = 0
        if folder is not None and folder.is_dir():
            for path in sorted(folder.glob("piece-*.json")):
                self.known |= {Chunk(*key): total for *key, total in json.loads(path.read_text())}
                self._pieces = int(path.stem.removeprefix("piece-")) + 1

    def keep(self, chunks: Sequence[Chunk], sums: Sequence[float]) -> None:
        if self.folder is not None:
            with atomic(self.folder / f"piece-{self._pieces:05d}.json") as file:
                file.write(
                    dump([[*chunk, total] for chunk, total in zip(chunks, sums, strict=True)]).encode()
                )
            self._pieces += 1
        self.known |= zip(chunks, sums, strict=True)


def measure(
    responses: Sequence[Response],
    continuations: Continuations,
    *,
    budget: int,
    tolerance: float,
    folder: Path | None = None,
    planned: OnChunks = lambda _: None,
    done: OnChunks = lambda _: None,
) -> list[MeasuredCredit]:
    """The credit of every token of every response.

    `budget` is the mean number of continuations of a response in the second phase. Tokens between which the sum of 1 - p is at most
    `tolerance` share their value. `planned` receives how many chunks more there will be, `done` how many were finished.
    """
    check_budget(budget, tolerance)
    nodes = [cut(one.surprise, tolerance) for one in responses]
    outcomes = Outcomes(folder)

    def sample(chunks: Sequence[Chunk]) -> None:
        missing = [chunk for chunk in chunks if chunk not in outcomes.known]
        planned(len(missing))
        for finished, sums in continuations(missing):
            outcomes.keep(finished, sums)
            done(len(finished))

    pilot = _pilot(responses, nodes, outcomes, sample)
    shares = [
        importance(cuts, one.surprise, values)
        for one, cuts, values in zip(responses, nodes, pilot, strict=True)
    ]
    pairs = share_out(shares, budget * len(responses) // (2 * COPIES))
    # The pilot's chunks have the numbers below PILOT.
    plan = [
        [
            [Chunk(place, int(cuts.at[node]), PILOT + number) for number in range(2 * int(count))]
            for node, count in enumerate(counts)
        ]
        for place, (cuts, counts) in enumerate(zip(nodes, pairs, strict=True))
    ]
    sample([chunk for of_response in plan for of_node in of_response for chunk in of_node])
    found = []
    for one, cuts, of_response, counts in zip(responses, nodes, plan, pairs, strict=True):
        sums = np.array(
            [
                [math.fsum(outcomes.known[chunk] for chunk in of_node[half::2]) for half in (0, 1)]
                for of_node in of_response
            ]
        ).reshape(-1, 2)
        halves = np.repeat(counts[:, None] * COPIES, 2, axis=1)
        found.append(estimate(cuts, one.surprise, one.reward, sums, halves))
    return found


def check_budget(budget: int, tolerance: float) -> None:
    if budget < 2 * COPIES:
        raise ValueError(f"budget={budget}: give at least {2 * COPIES} continuations a response")
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance={tolerance}: give a number from 0 to 1, such as 0.005")


def _pilot(
    responses: Sequence[Response],
    nodes: Sequence[Nodes],
    outcomes: Outcomes,
    sample: Callable[[Sequence[Chunk]], None],
) -> list[dict[int, float]]:
    """Values of some nodes of each response: segment ends first, then within the segments in which the value moves."""
    values: list[dict[int, float]] = [
        {cuts.unknown: one.reward} for one, cuts in zip(responses, nodes, strict=True)
    ]
    wanted = [pilot_ends(cuts) for cuts in nodes]
    while any(wanted):
        chunks = {
            (place, node): [Chunk(place, int(nodes[place].at[node]), number) for number in range(PILOT)]
            for place, some in enumerate(wanted)
            for node in some
        }
        sample([chunk for of_node in chunks.values() for chunk in of_node])
        for (place, node), of_node in chunks.items():
            total = math.fsum(outcomes.known[chunk] for chunk in of_node)
            values[place][node] = total / (PILOT * COPIES)
        wanted = [pilot_next(cuts, known) for cuts, known in zip(nodes, values, strict=True)]
    return values
