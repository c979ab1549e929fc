"""Lets the tests here import the modules that lie beside this file, and keeps TRL quiet about `rollout_func`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
