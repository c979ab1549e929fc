"""Commands that `delta-rlvr` finds by the entry-point group `delta_rlvr.commands`."""
