# ruff: noqa: RUF001 - the ambiguous characters are what these tables are about
r"""Tables of spellings: which of them mean the same, and what they are written as. `latex` reads by them.

Commands stand here without their backslash.
"""

from __future__ import annotations

from .tokens import listed

UNICODE = {
    ord(sign): spelling
    for sign, spelling in {
        "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ",
        "÷": r"\div ", "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∞": r"\infty ", "°": r"^\circ ",
        "º": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
        "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∉": r"\notin ", "∅": r"\emptyset ", "∖": r"\setminus ",
        "⟨": r"\langle ", "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
        "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
        "⅕": r"\frac{1}{5}", "⅙": r"\frac{1}{6}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
        "⁻": "^-", "ⁿ": "^{n}", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
        "∠": r"\angle ", "△": r"\triangle ", "′": "'", "″": "''", "’": "'", "‘": "'", "“": "", "”": "", "…": r"\dots ",
        "⋯": r"\dots ", "→": r"\to ", "⇒": r"\Rightarrow ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "∧": r"\wedge ",
        "∨": r"\vee ", "¬": r"\neg ", "∣": "|", "∶": ":", "、": ",", "。": ".", "€": r"\euro ", "£": r"\pounds ", "¥": r"\yen ",
        "₹": r"\rupee ", "¢": r"\cents ", "✓": "", "✔": "", "✅": "", "\ufe0f": "",
        "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ",
        "λ": r"\lambda ", "μ": r"\mu ", "σ": r"\sigma ", "φ": r"\phi ", "ϕ": r"\phi ", "ω": r"\omega ", "ρ": r"\rho ", "τ": r"\tau ",
        "ψ": r"\psi ", "ζ": r"\zeta ", "η": r"\eta ", "κ": r"\kappa ", "ν": r"\nu ", "ξ": r"\xi ", "χ": r"\chi ", "Γ": r"\Gamma ",
        "Δ": r"\Delta ", "Θ": r"\Theta ", "Λ": r"\Lambda ", "Σ": r"\Sigma ", "Φ": r"\Phi ", "Ψ": r"\Psi ", "Ω": r"\Omega ",
        **{digit: f"^{{{value}}}" for value, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        **{digit: f"_{{{value}}}" for value, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    }.items()
}  # fmt: skip
"""One character -> LaTeX. Whatever else has a compatible plain form (full-width digits, 𝑥) is brought to it by NFKC."""


# --- commands ---

SPACES = listed(
    "quad qquad enspace thinspace medspace thickspace negthinspace negmedspace space hfill nobreakspace"
) | {*",;:!> "}
IGNORED = listed(
    "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm Bigm displaystyle textstyle scriptstyle "
    "scriptscriptstyle limits nolimits tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge rm bf it sf tt cal "
    "mathstrut strut hline centering noindent nonumber notag bfseries itshape upshape checkmark blacksquare qed square Box relax #"
)
"""Say how large or in which face something is set."""
IGNORED_WITH_ARGUMENT = listed("hspace vspace phantom hphantom vphantom label tag color rule mspace")
TRANSPARENT = listed(
    "boxed fbox framebox bbox mathbf mathit mathnormal boldsymbol bm pmb mathcal mathscr vec overrightarrow hat widehat underline "
    "ensuremath mathop mathrel mathbin mathord smash cancel underbrace overbrace"
)
"""Show their argument."""
SECOND_ARGUMENT = listed("textcolor colorbox overset underset stackrel")
"""Show their second argument."""
TEXT = listed(
    "text mbox hbox textbf textit textrm textsf texttt textnormal textup textsc emph mathrm mathsf mathtt operatorname"
)
"""Their argument is text."""
UPRIGHT = listed("mathrm mathsf operatorname")
"""Those of `TEXT` that also set a name of mathematics: one letter in them is a variable, or behind a number a unit."""
UNIT_LETTERS = frozenset("mghslLNJW")
FONTS = listed("mathbb mathfrak")
"""Make another symbol out of a letter."""
ALIASES = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), "frac"),
    **dict.fromkeys(("dbinom", "tbinom"), "binom"),
    **dict.fromkeys(("simeq", "doteq", "sim", "thickapprox", "approxeq"), "approx"),
    **dict.fromkeys(("times", "cdotp", "ast", "star", "bullet", "otimes", "oplus"), "cdot"),
    **dict.fromkeys(("ldots", "cdots", "dotsc", "dotsb", "dotsm", "dotso", "hdots"), "dots"),
    **dict.fromkeys(("leq", "leqslant", "leqq"), "le"),
    **dict.fromkeys(("geq", "geqslant", "geqq"), "ge"),
    **dict.fromkeys(("varnothing", "O"), "emptyset"),
    **dict.fromkeys(("backslash", "smallsetminus"), "setminus"),
    **dict.fromkeys(("implies", "Longrightarrow", "therefore"), "Rightarrow"),
    **dict.fromkeys(("rightarrow", "longrightarrow", "mapsto"), "to"),
    **dict.fromkeys(("newline", "par", "cr"), "\\"),
    **{f"var{name}": name for name in ("theta", "phi", "epsilon", "rho", "sigma", "kappa")},
    **dict.fromkeys(("asin", "arsin"), "arcsin"), **dict.fromkeys(("atan", "arctg"), "arctan"), "acos": "arccos",
    "neq": "ne", "tg": "tan", "ctg": "cot", "cosec": "csc", "sgn": "sign", "lbrace": "{", "rbrace": "}", "textdegree": "degree",
    "degrees": "degree", "infin": "infty", "dollar": "$", "textdollar": "$", "texteuro": "euro", "bar": "overline",
    "widetilde": "tilde",
}  # fmt: skip
"""Another name for the same command."""
SIGNS = {
    **dict.fromkeys(("lvert", "rvert", "vert", "|", "lVert", "rVert", "Vert"), "|"),
    **dict.fromkeys(("land", "wedge"), r"\text{and}"),
    **dict.fromkeys(("lor", "vee"), r"\text{or}"),
    **{name: f"\\mathbb{{{name}}}" for name in "RZNQC"},
    **dict.fromkeys(("%", "percent", "textpercent"), "%"),
    "lt": "<", "gt": ">", "colon": ":", "div": "/", "lbrack": "[", "rbrack": "]", "prime": "'", "cents": r"\text{cents}",
    "imath": "i", "jmath": "j", "&": r"\text{and}", "_": "_", "mod": r"\mod",
}  # fmt: skip
"""Commands that stand for a sign, a letter or a word."""
ARGUMENTS = {"frac": 2, "binom": 2, "overline": 1, "dot": 1, "tilde": 1}
"""Commands that keep their arguments, in braces."""
TABLES = {
    **dict.fromkeys(
        listed("matrix pmatrix bmatrix Bmatrix smallmatrix array psmallmatrix bsmallmatrix"), "matrix"
    ),
    **dict.fromkeys(listed("vmatrix Vmatrix"), "vmatrix"),
    **dict.fromkeys(listed("cases dcases rcases"), "cases"),
}
"""Environments with rows and columns, and which kind they are; all others only set lines below each other."""
WITH_COLUMNS = listed("array alignedat alignat tabular")
"""Environments whose first argument describes their columns."""

# --- words ---

FUNCTIONS = listed(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh arccosh arctanh asin "
    "acos atan sgn sign log ln exp lg max min gcd lcm det cis arg erf mod lim sup inf abs floor ceil cbrt Re Im"
)
r"""Names that are functions wherever they stand alone: ``sin`` as well as ``\sin`` and ``\operatorname{sin}``."""
COMMAND_WORDS = {
    **{name: name for name in FUNCTIONS - {"sup", "inf", "Re", "Im"}},
    **dict.fromkeys(("infinity", "inf", "oo"), "infty"),
    **{
        name: name
        for name in listed(
            "pi theta alpha beta gamma delta epsilon lambda mu sigma phi omega rho tau psi sqrt frac cdot times cup cap infty pm"
        )
    },
}
"""Bare words that stand for a command."""
WORDS = listed(
    "no is of to in if am pm us the are was per for not non yes odd one two six ten all any but its has day man men boy cat dog red "
    "cup box pen hat car way bag set top end low age old new win tie sum out off dne usd eur gbp nor even none true does"
)
"""Read as words whatever their case, although they are short enough for a product of variables."""
