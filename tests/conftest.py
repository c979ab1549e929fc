"""Lets every test import the modules that lie beside this file (`from credit_reference import ...`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
