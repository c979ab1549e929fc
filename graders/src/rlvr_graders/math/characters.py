r"""The characters of an answer before they become tokens: Unicode, invisible ones, and the separators inside long numbers."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from .spelling import MARKS, UNICODE
from .tokens import UnreadableAnswer

MAX_LENGTH = 4000
"""Longest answer that is looked at, in characters. The longest of MATH-500 has 64."""
MAX_NESTING = 30
"""Deepest nesting of brackets, braces and arguments that is looked at."""
MAX_DIGITS = 1000
"""Longest run of digits that is looked at: beyond it, turning text into a number is itself an attack."""

_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)", re.ASCII)
_TEX_GROUPS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\[,;:! ]|~|\{,\}|,\s*\\!)\s*\d{3})+(?!\d)", re.ASCII)
_SPACED_GROUPS = re.compile(r"\s*-?\d{1,3}(?: \d{3})+(?:\.\d+|,\d{1,2})?\s*", re.ASCII)
_QUOTED_GROUPS = re.compile(r"(?<![\d.'_])\d{1,3}(?:['_]\d{3})+(?![\d'_])", re.ASCII)
_INDIAN_GROUPS = re.compile(r"(?<![\d.,])\d{1,2}(?:,\d{2})+,\d{3}(?![\d,])", re.ASCII)
_TEX_INDIAN_GROUPS = re.compile(r"(?<![\d.,}])\d{1,2}(?:(?:\\,|\{,\})\d{2})+(?:\\,|\{,\})\d{3}(?![\d,{])", re.ASCII)
_EUROPEAN = re.compile(r"(\s*-?(?:\\?[$]|€|£)?\s*)(\d{1,3}(?:\.\d{3})+)(?:(?:,|\{,\})(\d+))?(\D*)", re.ASCII)
_PERIOD_IN_BRACKETS = re.compile(r"((?:.*=)?\s*-?\d+\.\d*)\((\d{1,30})\)\s*", re.ASCII)
_RAISED_FRACTION = re.compile(r"\^(?:\{(\d+)\}|(\d))\s*/\s*_(?:\{(\d+)\}|(\d))", re.ASCII)
"""^3/_4, as three quarters are set by hand."""
_CHOSEN = re.compile(r"(?<![\w.^\\])(\d+|[nmN])([CP])(\d+|[rk])(?![\w.^])", re.ASCII)
"""10C3 and nP2, as calculators have it."""
_PERIOD_IN_WORDS = re.compile(
    r"(\d+\.\d*?)(?:(\d+)\s*(?:\\text\{)?\s*\(\s*(?:the\s+)?\2|\((\d+))\s+(?:is\s+)?(?:repeat(?:s|ing)|recurring)\s*\)\s*\}?",
    re.ASCII,
)
_PREFIXED = re.compile(
    r"(\\(?:text|math)[a-z]*\{)?(?<![\w.])0(?:[xX]([0-9A-Fa-f]+)|[bB]([01]+)|[oO]([0-7]+))(?!\w)(?(1)\})", re.ASCII
)
"""0x2B, 0b101 and 0o17, as programs have numbers in other bases."""
_UPRIGHT_DIGITS = re.compile(
    r"\\(?:text|math)[a-z]{0,4}\{\s*(\(?[0-9A-Fa-f]{2,40}\)?)\s*\}(?=\)?\s*_\s*\{?(?:\\text\{)?(?:1[1-6]|twelve|sixteen)(?!\d))",
    re.ASCII,
)
"""The digits of \\text{B4}_{16}."""
_UPRIGHT_COUNT = re.compile(
    r"\\(?:text|math)[a-z]{0,4}\{([CAP])\}(?=\s*_(?:\d|\{\d+\})\s*\^(?:\d|\{\d+\}))"
    r"|((?:\^|(?<=\{\})_|^_)(?:\d|\{\d+\})\s*)\\(?:text|math)[a-z]{0,4}\{([CP])\}(?=\s*_(?:\d|\{\d+\}))",
    re.ASCII,
)
"""The letter of \\mathrm{C}_5^2 and of {}^5\\mathrm{C}_2."""
_UPRIGHT_EXPONENT = re.compile(
    r"(?<=[0-9])(?:\s|\\[,;:!])*(?:\\(?:text|mathrm|textrm|operatorname)\{\s*[eE](?:([-+]?[0-9]+)(?:\}|(?=\s))|([-+]?)\})|\{\\rm\s+[eE]\}|[eE](?=\{))"
    r"(?:\s|\\[,!])*(?:\{([-+]?[0-9]+)\}|([-+]?[0-9]+)(?![0-9])|)",
    re.ASCII,
)
_MARKED = re.compile(rf"(?<![^\W\d_])([^\W\d_])([{''.join(MARKS)}])(?![^\W\d_])")
_PERIOD = re.compile("(?:[0-9][\u0304\u0305\u0307])+")
_UNICODE_ROOT = re.compile(r"[√∛∜]\s*(\d+(?:\.\d+)?)?")
_RAISED = "".join(
    c for c in map(chr, range(0x2FFF)) if unicodedata.decomposition(c).startswith("<super>") and c not in UNICODE
)
_LOWERED = "".join(c for c in map(chr, range(0x2FFF)) if unicodedata.decomposition(c).startswith("<sub>"))
_SCRIPTS = re.compile(f"[{re.escape(_RAISED)}]+|[{re.escape(_LOWERED)}]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\xa0]")
_INVISIBLE = ("Cf", "Cs", "Co", "Cn")


def check_size(raw: str) -> None:
    """Refuses what is too long or nests too deeply to be read."""
    if len(raw) > MAX_LENGTH:
        raise UnreadableAnswer(f"the answer has {len(raw)} characters, more than {MAX_LENGTH}")
    if len(raw) > MAX_DIGITS and re.search(rf"\d{{{MAX_DIGITS + 1}}}", raw):
        raise UnreadableAnswer(f"a number has more than {MAX_DIGITS} digits")
    depth = 0
    for bracket in re.findall(r"[(\[{)\]}]", raw):
        depth = depth + 1 if bracket in "([{" else max(depth - 1, 0)
        if depth > MAX_NESTING:
            raise UnreadableAnswer(f"brackets nest deeper than {MAX_NESTING}")


def plain_characters(raw: str) -> str:
    """The answer in ASCII as far as it goes, with plain spaces for whatever is one."""
    if not raw.isascii():
        raw = _with_marks(raw)
        raw = _SCRIPTS.sub(_script, raw)
        raw = _UNICODE_ROOT.sub(lambda m: _root(m[0][0]) + (f"{{{m[1]}}}" if m[1] else " "), raw)
        raw = "".join(map(_plain, raw))
        raw = re.sub(r"(?<![\w)}\]])\^\{(\d)\}\s*\\sqrt(?!\[)", r"\\sqrt[\1]", raw)
    if "C" in raw or "P" in raw:
        raw = _CHOSEN.sub(r"\2(\1,\3)", raw)
    if "0x" in raw or "0b" in raw or "0o" in raw or "0X" in raw:
        raw = _PREFIXED.sub(_based, raw)
    if "_" in raw and "\\" in raw:
        raw = _UPRIGHT_DIGITS.sub(r"\1", raw)
        raw = _UPRIGHT_COUNT.sub(lambda m: "".join(part or "" for part in m.groups()), raw)
    if "^" in raw:
        raw = _RAISED_FRACTION.sub(r"\\frac{\1\2}{\3\4}", raw)
    return _CONTROLS.sub(" ", raw)


def _with_marks(raw: str) -> str:
    """Marks above letters and digits as commands: the bar of a mean or a period. Letters of words keep their accents."""
    apart = unicodedata.normalize("NFD", raw)
    if not any(mark in apart for mark in MARKS):
        return raw
    apart = _PERIOD.sub(lambda m: f"\\overline{{{re.sub('[^0-9]', '', m[0])}}}", apart)
    apart = re.sub("([A-Za-z])\u0305(?!\u0305)", r"\\overline{\1}", apart)  # no language has this one
    apart = _MARKED.sub(lambda m: f"\\{MARKS[m[2]]}{{{m[1]}}}", apart)
    return unicodedata.normalize("NFC", apart)


def _script(match: re.Match[str]) -> str:
    """A run of raised or lowered characters: xⁿ⁺¹."""
    before = match.string[: match.start()].rstrip()[-1:]
    if match[0] == "⁻" and not (before.isalnum() or before in (")", "]", "}")):
        return "-"
    mark = "^" if _is_script(match[0][0], "super") else "_"
    return f"{mark}{{{''.join(map(_plain, unicodedata.normalize('NFKC', match[0])))}}}"


def _is_script(character: str, kind: str) -> bool:
    return unicodedata.decomposition(character).startswith(f"<{kind}>") and character not in UNICODE


def _based(match: re.Match[str]) -> str:
    base = 16 if match[2] else 2 if match[3] else 8
    return f"{(match[2] or match[3] or match[4]).upper()}_{{{base}}}"


def _root(sign: str) -> str:
    return {"√": "\\sqrt", "∛": "\\sqrt[3]", "∜": "\\sqrt[4]"}[sign]


@lru_cache(maxsize=4096)
def _plain(character: str) -> str:
    if character.isascii():
        return character
    if character in UNICODE:
        return UNICODE[character]
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    if category == "Nd":
        return str(unicodedata.decimal(character))  # the digits of any script
    if category in _INVISIBLE:
        return ""
    if category == "Pd" or name.endswith("MINUS SIGN"):
        return "-"
    greek = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)", name)
    if greek:
        letter = "lambda" if greek[2] == "LAMDA" else greek[2].lower()
        return f"\\{letter if greek[1] == 'SMALL' else letter.title()} "
    if unicodedata.decomposition(character).startswith("<fraction>"):
        top, bottom = unicodedata.normalize("NFKC", character).split("\u2044")
        return f"\\frac{{{top}}}{{{bottom}}}" if bottom else top + "/"
    wide = unicodedata.normalize("NFKC", character)
    if category == "Nl":
        return f"\\text{{{wide}}}"  # Roman numerals
    if power := re.fullmatch(r"([A-Za-z]+)([23])", wide):
        return f"\\text{{{power[1]}}}^{{{power[2]}}}"  # a square centimeter in one sign
    if wide != character:
        return "".join(map(_plain, wide))
    if category == "Mn":
        raise UnreadableAnswer(f"a mark over or through a character is not understood: {name}")
    return " " if character.isdigit() else character


def digits_joined(text: str, *, thousands: bool) -> str:
    r"""Long numbers in one piece: 10,\!080, 1{,}234, 1\,234, 1 234; with `thousands` also 1,234."""
    if "{,}" in text or "\\," in text:
        text = _TEX_INDIAN_GROUPS.sub(lambda m: re.sub(r"[^0-9]", "", m[0]), text)
    text = _TEX_GROUPS.sub(lambda m: re.sub(r"[^0-9]", "", m[0]), text)
    if "'" in text or "_" in text:
        text = _QUOTED_GROUPS.sub(lambda m: re.sub(r"[^0-9]", "", m[0]), text)
    if "." in text:
        european = _EUROPEAN.fullmatch(text)  # 1.234.567 and 1.234,5; but 1.234 is a decimal
        if european and (european[3] or european[2].count(".") > 1):
            return european[1] + european[2].replace(".", "") + "." + (european[3] or "0") + european[4]
        if "re" in text:
            text = _PERIOD_IN_WORDS.sub(lambda m: f"{m[1]}\\overline{{{m[2] or m[3]}}}", text)
        text = _PERIOD_IN_BRACKETS.sub(r"\1\\overline{\2}", text) if _PERIOD_IN_BRACKETS.fullmatch(text) else text
    if "{" in text and any(part in text for part in ("{e", "{E", "e{", "E{", "\\rm ")):
        text = _UPRIGHT_EXPONENT.sub(_power_of_ten, text)
    if "{,}" in text:
        text = re.sub(r"(?<=[0-9])\{,\}(?=[0-9])", ".", text)  # what is left of it is a decimal comma: 3{,}14
    if _SPACED_GROUPS.fullmatch(text):
        return text.replace(" ", "").replace(",", ".")
    if not thousands or "," not in text:
        return text
    text = _INDIAN_GROUPS.sub(lambda m: m[0].replace(",", ""), text)
    return _GROUPS.sub(lambda m: m[0] if _in_list(text, m.start()) else m[0].replace(",", ""), text)


def _power_of_ten(match: re.Match[str]) -> str:
    r"""3.2\mathrm{e}{-19} with its power of ten. 2\mathrm{e}-1 is twice Euler's number, less one."""
    within, sign, braced, beside = match.groups()
    is_whole = re.search(r"\.\d{1,40}$", match.string[max(0, match.start() - 41) : match.start()]) is None
    exponent = within or braced or ("" if is_whole and (beside or "")[:1] == "-" else beside)
    exponent = f"{sign or ''}{exponent}" if exponent else ""
    if not exponent:
        return match[0]
    rest = "\\text{" if within and "}" not in match[0] else ""
    return f"\\cdot 10^{{{exponent}}}{rest}"


def has_thousands(raw: str) -> bool:
    """Whether a comma in the answer can be read both as a thousands separator and as the comma of a list."""
    return "," in raw and _GROUPS.search(raw) is not None


def _in_list(text: str, at: int) -> bool:
    """Whether the commas at that place separate the items of a bracket: (100,200), but not (1,000, 2,000)."""
    depth = 0
    for start in range(at - 1, -1, -1):
        if text[start] in ")]":
            depth += 1
        elif text[start] in "([" or text[start - 1 : start + 1] == "\\{":
            depth -= 1
            if depth < 0:
                inside = re.split(r"[)\]}]", text[start + 1 :], maxsplit=1)[0]
                return re.search(r",\s", inside) is None
    return False
