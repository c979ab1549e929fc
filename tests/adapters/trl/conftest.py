"""Keeps TRL quiet about `rollout_func`."""

import os

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
