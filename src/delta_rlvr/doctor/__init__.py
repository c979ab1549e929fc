"""Whether a run can start as it is configured: versions, machine, memory, disk. `delta-rlvr doctor` puts it together."""
