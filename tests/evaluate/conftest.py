"""Lets the tests of this folder import `evaluation_support`, which lies beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
