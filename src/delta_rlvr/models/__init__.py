"""Policies and tokenizers: loaded by name, prompts as they read them, the text of each token."""

from delta_rlvr.models.load import DEFAULT_POLICY, load_policy, resolve_model

__all__ = ["DEFAULT_POLICY", "load_policy", "resolve_model"]
