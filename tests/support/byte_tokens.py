"""A tokenizer whose characters take several tokens."""

from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast


def bytes_alone() -> PreTrainedTokenizerFast:
    """A byte-level vocabulary without merges: every token is one byte."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["a"], vocab_size=256, show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer)
