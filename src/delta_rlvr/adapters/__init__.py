"""Adapters: each one moves tensors between a training engine and `credit`, and does nothing else."""
