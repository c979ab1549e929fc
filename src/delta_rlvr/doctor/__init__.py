"""Checks of a run before it starts: versions, machine, memory, disk. The command is `delta-rlvr doctor`."""
