"""Engines: each adapter moves tensors between an engine and `credit`, and does nothing else."""
