"""A finished run for the tests of the commands."""

import pytest

from command_line import SMALL
from delta_rlvr.adapters.trl.run_folder import RunFolderCallback
from delta_rlvr.cli import main


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run of four steps with everything in its folder, and the rollout batches that it was made from."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    batches = []
    observe = RunFolderCallback.observe

    def keep(callback, batch):
        batches.append(batch)
        observe(callback, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolderCallback, "observe", keep)
        options = [*SMALL, "--steps", "4", "--eval_problems", "4", "--eval_samples", "2", "--report", "true"]
        options += ["--rollouts_every", "1", "--rollout_groups", "0", "--save_steps", "2"]
        assert main(["train", *options, "--output", str(folder)]) == 0
    return folder, batches
