"""Policies and tokenizers: loading by name, encoded prompts, the text of each token."""

from delta_rlvr.models.load import DEFAULT_POLICY, load_policy, resolve_model

__all__ = ["DEFAULT_POLICY", "load_policy", "resolve_model"]
