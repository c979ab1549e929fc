"""Lets the tests here import `pages`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
