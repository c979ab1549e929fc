"""The characters that each token adds to a response, and the text of single tokens."""

from __future__ import annotations

from typing import Any

_WINDOW = 16


def token_texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """Return the text that each token adds, so that the joined list is the decoded response.

    A token of a byte-level vocabulary can be part of a character, so that each text is what the token adds to the decoded prefix. If
    several tokens make one character, the last one gets it and the others are empty. (`tokenizers.decoders.DecodeStream` never returns
    an unfinished character, so that its texts would not be the response if that was cut within one.)
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
        # character of the one before (four bytes at most), because decoders treat the start of a text differently.
        if end - anchor >= _WINDOW and not whole.endswith("\ufffd"):
            for start in range(end - 1, max(anchor, end - 5), -1):
                if "\ufffd" not in (last := decode(ids[start:end])):
                    anchor, done = start, last
                    break
        elif end - anchor >= 32 * _WINDOW:
            # So many bytes that are not a character will not become one.
            anchor, done = end, ""
    return texts


def vocabulary_texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """Return the text of each token by itself, with the leading space that SentencePiece drops (U+2581) at the start of a text."""
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
