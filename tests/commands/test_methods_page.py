"""docs/methods.md: every method that has a name stands in it."""

import re
from pathlib import Path

from delta_rlvr.objectives import all_methods

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")


def test_every_method_stands_in_it():
    assert all_methods().keys() <= set(re.findall(r"`([a-z0-9-]+)`", PAGE))
