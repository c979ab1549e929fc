"""Loaded into verl's processes by VERL_USE_EXTERNAL_MODULES: verl 0.9 looks for a class that TRL 1.16 lacks."""

from verl.utils import import_utils

import_utils.is_trl_available = lambda: False  # type: ignore[assignment]
