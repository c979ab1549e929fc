# ruff: noqa: RUF001 - the ambiguous characters are what these tables are about
r"""Tables of spellings: which of them mean the same, and what they are written as."""

from __future__ import annotations

import re

UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": r"\div ",
    "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt ", "∞": r"\infty ", "°": r"^\circ ", "º": r"^\circ ", "≤": r"\le ",
    "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ",
    "⟨": r"\langle ", "⟩": r"\rangle ", "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}",
    "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅛": r"\frac{1}{8}", "²": "^{2}", "³": "^{3}", "⁴": "^{4}",
    "⁵": "^{5}", "⁶": "^{6}", "⁷": "^{7}", "⁸": "^{8}", "⁹": "^{9}", "⁰": "^{0}", "¹": "^{1}", "ⁿ": "^{n}", "⁻¹": "^{-1}",
    "₀": "_{0}", "₁": "_{1}", "₂": "_{2}", "₃": "_{3}", "₄": "_{4}", "₅": "_{5}", "₆": "_{6}", "₇": "_{7}",
    "₈": "_{8}", "₉": "_{9}", "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ",
    "δ": r"\delta ", "λ": r"\lambda ", "μ": r"\mu ", "σ": r"\sigma ", "φ": r"\phi ", "ω": r"\omega ", "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}", "，": ",", "；": ";", "：": ":", "（": "(", "）": ")", "％": "%", "＝": "=", "∶": ":",
    "“": "", "”": "", "’": "'", "‘": "'", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u200b": "", "✓": "", "✅": "",
}  # fmt: skip
UNICODE_PATTERN = re.compile("|".join(map(re.escape, sorted(UNICODE, key=len, reverse=True))))

SPELLINGS: list[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (
            r",\s*\\!\s*(?=\d{3})|(?<=\d)\s*\{,\}\s*(?=\d{3})|(?<=\d)\\[,;:]\s*(?=\d{3}(?!\d))",
            "",
        ),  # thousands
        (r"(?<![\d./])(\d+) +(\d+)/(\d+)(?![\d./])", r"\1\\frac{\2}{\3}"),  # mixed numbers
        (r"\\(?:boxed|fbox)\s*(?=\{)", ""),
        (r"\\[()\[\]](?!\w*\{)", " "),  # math delimiters
        (r"(?<!\\)\$", " "),
        (r"\\(?:left|right|middle|[bB]ig+[lrm]?)(?![A-Za-z])\s*\.?", ""),
        (r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|rm|bf|it|mathstrut)(?![A-Za-z])", ""),
        (r"\\(?:hspace|vspace|phantom|hphantom|vphantom|label|tag)\*?\s*\{[^{}]*\}", " "),
        (
            r"\\(?:quad|qquad|thinspace|medspace|thickspace|enspace|negthinspace|space)(?![A-Za-z])|\\[,;:!> ]|~",
            " ",
        ),
        (r"\\(?:d|t|c)frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:d|t)binom(?![A-Za-z])", r"\\binom"),
        (r"\\(?:mbox|hbox|textbf|textit|textrm|textsf|texttt|textnormal|textup|emph)\s*\{", r"\\text{"),
        (
            r"\\(?:operatorname|mathrm|text)\*?\s*\{\s*(arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|ln|log|exp)\s*\}",
            r"\\\1 ",
        ),
        (r"\\mathrm\s*\{\s*([mghslLNJW])\s*\}", r"\\text{\1}"),  # units of one letter, upright as units are
        (
            r"\\(?:mathrm|mathbf|mathit|mathsf|boldsymbol|bm|vec|hat|operatorname)\*?\s*\{\s*([A-Za-z])\s*\}",
            r"\1 ",
        ),
        (r"\\(?:mathrm|mathbf|mathit|mathsf|boldsymbol|operatorname)\*?\s*\{", r"\\text{"),
        (r"\\text\s+\{", r"\\text{"),
        (r"\\text\{\s*(-?[\d.,]*\d)\s+([A-Za-z][^{}]*)\}", r"\1 \\text{\2}"),  # \text{5 cm}
        (
            r"(?<=\d)\s*(km|mi|miles|m|ft|feet|meters|cm|kg|g)\s*/\s*(h|hr|hour|s|sec|second|min|minute|m|L|cm)(?![A-Za-z])",
            r" \\text{\1/\2}",
        ),
        (r"\\text\{([^A-Za-z{}\\]*)\}", r" \1 "),  # \text{42}, \text{, }
        (r"\\leq(?:slant)?(?![A-Za-z])|<=", r"\\le "),
        (r"\\geq(?:slant)?(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq(?![A-Za-z])|!=", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\(?:simeq|doteq|sim)(?![A-Za-z])|~=", r"\\approx "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\lbrack(?![A-Za-z])", "["),
        (r"\\rbrack(?![A-Za-z])", "]"),
        (r"\\(?:[lr]?vert|mid)(?![A-Za-z])", "|"),
        (r"\\(?:ast|star)(?![A-Za-z])", "*"),
        (r"\\times(?![A-Za-z])", r"\\cdot "),
        (r"\\cdotp(?![A-Za-z])|(?<!\*)\*(?!\*)", r"\\cdot "),
        (r"\*\*(?=\s*[\d({A-Za-z-])(?<=[\d)}A-Za-z]\*\*)", "^"),
        (r"\^\s*\{?\s*\\circ(?![A-Za-z])\s*\}?|\\degree(?![A-Za-z])", r"\\degree "),
        (r"\\(?:varnothing|O)(?![A-Za-z])", r"\\emptyset "),
        (r"\\var(theta|phi|epsilon)(?![A-Za-z])", r"\\\1"),
        (r"\\colon(?![A-Za-z])", ":"),
        (r"\\tfrac", r"\\frac"),
        (r"\+\s*/?\s*-(?=\s*[\d\\])", r"\\pm "),
        (r"\\%", "%"),
        (r"\\begin\{array\}\s*\{[^{}]*\}", r"\\begin{matrix}"),
        (r"\\end\{array\}", r"\\end{matrix}"),
    ]
]

_FUNCTIONS = [
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "log",
    "ln",
    "exp",
]
NAMED_WORDS = {"pi": r"\pi ", "infinity": r"\infty ", "inf": r"\infty ", "oo": r"\infty ", "sqrt": r"\sqrt "}
NAMED_WORDS |= {name: f"\\{name} " for name in _FUNCTIONS}
NAMED_WORDS |= {name: f"\\{name} " for name in ("theta", "alpha", "beta", "lambda", "cdot", "frac", "cup")}
# Words that may stand after a number as its unit although they have fewer than four letters.
SHORT_UNITS = frozenset(
    {
        *(
            "mm",
            "cm",
            "dm",
            "km",
            "mi",
            "ft",
            "in",
            "yd",
            "kg",
            "mg",
            "lb",
            "lbs",
            "oz",
            "ml",
            "hr",
            "hrs",
            "min",
            "mins",
        ),
        *(
            "sec",
            "secs",
            "day",
            "days",
            "mph",
            "kph",
            "kmh",
            "mps",
            "am",
            "pm",
            "sq",
            "cu",
            "rad",
            "deg",
            "pct",
        ),
    }
)
