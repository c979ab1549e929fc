"""Which rollouts of a run are kept."""

import pytest

from delta_rlvr.runs.recorder import is_sampled


@pytest.mark.parametrize(
    ("steps", "updates", "every", "kept"),
    [
        # A rollout batch lasts two steps: batches begin at 1, 3, 5, ..., and the last one at 79.
        (80, 2, 10, [1, 11, 21, 31, 41, 51, 61, 71, 79]),
        (80, 1, 10, [1, 10, 20, 30, 40, 50, 60, 70, 80]),
        (75, 1, 10, [1, 10, 20, 30, 40, 50, 60, 70, 75]),
        (7, 4, 100, [1, 5]),  # the last batch is used three times instead of four
        (8, 1, 0, []),
    ],
)
def test_the_first_and_the_last_batch_are_always_kept(steps, updates, every, kept):
    batches = range(1, steps + 1, updates)
    assert [step for step in batches if is_sampled(step, every=every, updates=updates, last=steps)] == kept
