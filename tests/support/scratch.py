"""Folders that are gone with the process that asked for them."""

import tempfile

_ALL = tempfile.TemporaryDirectory(prefix="delta-rlvr-test-")


def scratch_folder() -> str:
    """A new folder, for a trainer that must have one and of which nothing is read."""
    return tempfile.mkdtemp(dir=_ALL.name)
