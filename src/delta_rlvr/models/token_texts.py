"""Which characters of a response each of its tokens adds, and the text of a token alone."""

from __future__ import annotations

from typing import Any

_WINDOW = 16


def token_texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """The text each token adds, so that the joined list is the decoded response.

    A token of a byte-level vocabulary can be a part of a character, so each text is what the decoded prefix gains by the token.
    What an earlier token seemed to be (a replacement character) goes where a later one completes it: of the tokens that make a
    character together the last one has it, and the others are empty. (`tokenizers.decoders.DecodeStream` keeps an unfinished
    character back for good: of a response that was cut within one, the joined texts would not be the response.)
    """

    def decode(some: list[int]) -> str:
        return tokenizer.decode(some, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    texts: list[str] = []
    anchor, done = 0, ""
    for end in range(1, len(ids) + 1):
        whole = decode(ids[anchor:end])
        if not whole.startswith(done):
            pairs = enumerate(zip(done, whole, strict=False))
            kept = next((place for place, (old, new) in pairs if old != new), len(whole))
            _take_back(texts, len(done) - kept)
            done = done[:kept]
        texts.append(whole[len(done) :])
        done = whole
        # Decode short windows: whole prefixes of a 20,000-token response would take for ever. A window starts with the last
        # character of the one before (four bytes at most), because decoders treat the start of a text in their own way.
        if end - anchor >= _WINDOW and not whole.endswith("\ufffd"):
            for start in range(end - 1, max(anchor, end - 5), -1):
                if "\ufffd" not in (last := decode(ids[start:end])):
                    anchor, done = start, last
                    break
        elif end - anchor >= 32 * _WINDOW:
            # Bytes that have been no character for so long will not become one.
            anchor, done = end, ""
    return texts


def vocabulary_texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """The text of each token alone. SentencePiece writes a leading space as U+2581, and drops it where a text begins."""
    texts = [token_texts(tokenizer, [number])[0] for number in ids]
    return [
        f" {text}" if str(piece).startswith("\u2581") and not text.startswith(" ") else text
        for piece, text in zip(tokenizer.convert_ids_to_tokens(ids), texts, strict=True)
    ]


def _take_back(texts: list[str], count: int) -> None:
    """Remove the last `count` characters of the joined texts."""
    place = len(texts) - 1
    while count > 0:
        taken = min(count, len(texts[place]))
        texts[place] = texts[place][: len(texts[place]) - taken]
        count -= taken
        place -= 1
