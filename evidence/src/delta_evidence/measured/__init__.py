"""Measured truth: the credit of tokens from continuations, and the gradient of the expected reward from very many rollouts."""
