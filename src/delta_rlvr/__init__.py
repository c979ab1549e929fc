"""Discriminative token credit assignment (DelTA) for reinforcement learning from verifiable rewards."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "CreditRecord",
    "CreditStream",
    "Delta",
    "RowStore",
    "TokenBatch",
    "TokenRule",
    "credit_record",
    "register",
    "token_coefficients",
    "token_weights",
]

if TYPE_CHECKING:
    from delta_rlvr.adapters.any_trainer import token_weights
    from delta_rlvr.credit import (
        CreditRecord,
        CreditStream,
        Delta,
        RowStore,
        TokenBatch,
        TokenRule,
        credit_record,
        register,
        token_coefficients,
    )


def __getattr__(name: str) -> Any:
    # torch is loaded only when the core is used: the command line starts without it.
    if name == "token_weights":
        from delta_rlvr.adapters.any_trainer import token_weights

        return token_weights
    if name in __all__:
        import delta_rlvr.credit

        return getattr(delta_rlvr.credit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
