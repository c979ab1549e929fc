"""Sampling, grading, averages, significance, checkpoint choice."""
