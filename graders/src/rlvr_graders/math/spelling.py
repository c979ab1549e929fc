# ruff: noqa: RUF001 - the ambiguous characters are what these tables are about
r"""Tables of spellings: which of them mean the same, and what they are written as. `latex` reads by them.

Commands stand here without their backslash.
"""

from __future__ import annotations

import unicodedata

from .tokens import commands, listed

UNICODE = {
    **dict.fromkeys("·⋅∙•∙⸱", r"\cdot "), **dict.fromkeys("×✕✖⨯╳", r"\times "), **dict.fromkeys("∗⁎＊", "*"),
    **dict.fromkeys("⁄∕／⧸", "/"), **dict.fromkeys("°º˚", r"^\circ "), **dict.fromkeys("∅⌀øØ", r"\emptyset "),
    **dict.fromkeys("⟨〈❬⟪", r"\langle "), **dict.fromkeys("⟩〉❭⟫", r"\rangle "), **dict.fromkeys("→⟶", r"\to "),
    **dict.fromkeys("⟼↦", r"\mapsto "),
    **dict.fromkeys("⇒⟹∴", r"\Rightarrow "), **dict.fromkeys("⇔⟺↔", r"\iff "), **dict.fromkeys("≈≃∼", r"\approx "), "≅": r"\cong ",
    **dict.fromkeys("…⋯⋮", r"\dots "), **dict.fromkeys("′’‘ʹ´", "'"), **dict.fromkeys("∣｜", "|"), **dict.fromkeys("∥‖", r"\parallel "),
    **dict.fromkeys("“”✓✔✅∎■□\ufe0f", ""), **dict.fromkeys("∶：", ":"), **dict.fromkeys("、，", ","), **dict.fromkeys("≤≦⩽≲", r"\le "),
    **dict.fromkeys("≥≧⩾≳", r"\ge "), **dict.fromkeys("△▵∆", r"\triangle "), **dict.fromkeys("∖⧵", r"\setminus "),
    "−": "-", "➖": "-", "➕": "+", "÷": r"\div ", "➗": r"\div ", "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "≠": r"\ne ",
    "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∉": r"\notin ", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "∠": r"\angle ", "″": "''", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "∧": r"\wedge ",
    "∨": r"\vee ", "¬": r"\neg ", "。": ".", "€": r"\euro ", "£": r"\pounds ", "¥": r"\yen ", "₹": r"\rupee ", "¢": r"\cents ",
    "‰": r"\permille ", "≰": ">", "≱": "<", "≮": r"\ge ", "≯": r"\le ", "∤": r"\nmid ", "∝": r"\propto ", "∀": r"\forall ",
    "∃": r"\exists ", "⊂": r"\subset ", "⊆": r"\subseteq ", "⊃": r"\supset ", "⊇": r"\supseteq ", "⊥": r"\perp ",
    "⊕": r"\oplus ", "⊗": r"\otimes ", "∘": r"\circ ", "⋆": r"\star ", "★": r"\star ", "∇": r"\nabla ", "∂": r"\partial ",
    "ℓ": r"\ell ", "ℏ": r"\hbar ", "†": r"\dagger ", "⊤": r"\top ", "ϕ": r"\phi ", "ϑ": r"\theta ", "ϵ": r"\epsilon ", "ϱ": r"\rho ",
    "ς": r"\sigma ", "µ": r"\mu ", "Ω": r"\Omega ", "ı": "i", "ȷ": "j", "⟂": r"\perp ", "∡": r"\angle ", "⨉": r"\times ", "∗": "*",
    "Å": r"\text{angstrom}", "ℵ": r"\aleph ",
    **{letter: f"\\mathbb{{{unicodedata.normalize('NFKC', letter)}}}" for letter in "ℝℤℕℚℂℙ𝔼"},
}  # fmt: skip
"""One character -> LaTeX; `characters` finds what follows from Unicode's own tables (Greek, dashes, digits, fractions, alphabets)."""
MARKS = {
    "\u0304": "bar",
    "\u0305": "bar",
    "\u0302": "hat",
    "\u0303": "tilde",
    "\u0307": "dot",
    "\u0308": "ddot",
    "\u20d7": "vec",
    "\u20d1": "vec",
}
"""Combining marks above a letter, and the command that sets them."""


# --- commands ---

SPACES = listed(
    "quad qquad enspace thinspace medspace thickspace negthinspace negmedspace space hfill nobreakspace"
) | {*",;:!> "}
IGNORED = listed(
    "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm Bigm displaystyle textstyle scriptstyle "
    "scriptscriptstyle limits nolimits tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge rm bf it sf tt cal "
    "mathstrut strut hline centering noindent nonumber notag bfseries itshape upshape checkmark blacksquare qed square Box relax"
)
"""Say how large or in which face something is set."""
IGNORED_WITH_ARGUMENT = listed(
    "hspace vspace phantom hphantom vphantom label tag color rule mspace cancel bcancel xcancel sout st"
)
TRANSPARENT = listed(
    "boxed fbox framebox bbox mathbf mathit mathnormal boldsymbol bm pmb mathcal mathscr vec overrightarrow underline "
    "ensuremath mathop mathrel mathbin mathord smash underbrace overbrace"
)
"""Show their argument."""
VECTORS = listed("vec overrightarrow mathbf boldsymbol bm pmb")
"""Those of them that make a vector out of a letter, or a matrix out of a bold capital."""
OPERATORS = commands(
    "oplus otimes ominus odot star circ diamond boxplus boxtimes triangle bowtie rtimes ltimes sqcup amalg"
)
"""Between two parts they are operations that nothing is known of: neither products, nor may the parts change places."""
SECOND_ARGUMENT = listed("textcolor colorbox overset underset stackrel")
"""Show their second argument."""
TEXT = listed(
    "text mbox hbox textbf textit textrm textsf texttt textnormal textup textsc emph mathrm mathsf mathtt operatorname"
)
"""Their argument is text."""
UPRIGHT = listed("mathrm mathsf operatorname")
"""Those of `TEXT` that also set a name of mathematics: one letter in them is a variable, or behind a number a unit."""
UNIT_LETTERS = frozenset("mghslLNJWVAKTFHCM")
FONTS = listed("mathbb mathfrak")
"""Make another symbol out of a letter."""
ALIASES = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac", "sfrac", "nicefrac"), "frac"),
    **dict.fromkeys(("dbinom", "tbinom"), "binom"),
    **dict.fromkeys(("simeq", "doteq", "sim", "thickapprox", "approxeq"), "approx"),
    **dict.fromkeys(("cdotp", "ast", "bullet"), "cdot"),
    **dict.fromkeys(("ldots", "cdots", "dotsc", "dotsb", "dotsm", "dotso", "hdots"), "dots"),
    **dict.fromkeys(("leq", "leqslant", "leqq"), "le"),
    **dict.fromkeys(("geq", "geqslant", "geqq"), "ge"),
    **dict.fromkeys(("varnothing", "O"), "emptyset"),
    **dict.fromkeys(("backslash", "smallsetminus"), "setminus"),
    **dict.fromkeys(("implies", "Longrightarrow", "therefore"), "Rightarrow"),
    **dict.fromkeys(("rightarrow", "longrightarrow"), "to"),
    **dict.fromkeys(("newline", "par", "cr"), "\\"),
    **{f"var{name}": name for name in ("theta", "phi", "epsilon", "rho", "sigma", "kappa")},
    **dict.fromkeys(("asin", "arsin"), "arcsin"), **dict.fromkeys(("atan", "arctg", "artan"), "arctan"), "acos": "arccos",
    **{f"{start}{name}": f"arc{name}" for start in ("ar", "arg", "a") for name in ("sinh", "cosh", "tanh")}, "arsh": "arcsinh",
    **dict.fromkeys(("arcctg", "acot"), "arccot"), "arch": "arccosh", "arth": "arctanh",
    "sh": "sinh", "ch": "cosh", "th": "tanh", "cth": "coth", "cotg": "cot",
    "tr": "trace", "Tr": "trace", "longmapsto": "mapsto",
    **dict.fromkeys(("Leftrightarrow", "leftrightarrow", "Longleftrightarrow"), "iff"), "dddot": "ddot",
    "neq": "ne", "tg": "tan", "ctg": "cot", "cosec": "csc", "sgn": "sign", "lbrace": "{", "rbrace": "}", "textdegree": "degree",
    "degrees": "degree", "infin": "infty", "dollar": "$", "textdollar": "$", "texteuro": "euro", "bar": "overline",
    "lnot": "neg", "Bbb": "mathbb", "widetilde": "tilde", "widehat": "hat", "widebar": "overline",
}  # fmt: skip
"""Another name for the same command."""
SIGNS = {
    **dict.fromkeys(("lvert", "rvert", "vert", "|", "lVert", "rVert", "Vert"), "|"),
    **dict.fromkeys(("land", "wedge"), r"\text{and}"),
    **dict.fromkeys(("lor", "vee"), r"\text{or}"),
    **{name: f"\\mathbb{{{name}}}" for name in "RZNQC"},
    **dict.fromkeys(("%", "percent", "textpercent"), "%"),
    "nless": r"\ge", "ngtr": r"\le", **dict.fromkeys(("nleq", "nleqslant"), ">"), **dict.fromkeys(("ngeq", "ngeqslant"), "<"),
    "lt": "<", "gt": ">", "colon": ":", "div": "/", "lbrack": "[", "rbrack": "]", "prime": "'", "cents": r"\text{cents}",
    "AA": r"\text{angstrom}", "imath": "i", "jmath": "j", "&": r"\text{and}", "_": "_", "mod": r"\mod",
}  # fmt: skip
"""Commands that stand for a sign, a letter or a word."""
ARGUMENTS = {"frac": 2, "binom": 2, "overline": 1, "dot": 1, "ddot": 1, "tilde": 1, "hat": 1}
"""Commands that keep their arguments, in braces."""
TABLES = {
    **dict.fromkeys(listed("matrix pmatrix bmatrix Bmatrix smallmatrix array psmallmatrix bsmallmatrix"), "matrix"),
    **dict.fromkeys(listed("vmatrix Vmatrix"), "vmatrix"),
    **dict.fromkeys(listed("cases dcases rcases"), "cases"),
}
"""Environments with rows and columns, and which kind they are; all others only set lines below each other."""
WITH_COLUMNS = listed("array alignedat alignat tabular")
"""Environments whose first argument describes their columns."""

# --- words ---

FUNCTIONS = listed(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh arccosh arctanh asin "
    "acos atan sgn sign log ln exp lg lb max min gcd lcm det cis arg erf mod lim sup inf abs floor ceil cbrt Re Im trace tr "
    "arsinh arcosh artanh asinh acosh atanh argsinh argcosh argtanh arctg arcctg tg ctg cotg arsh arch arth cth"
)
r"""Names that are functions wherever they stand alone: ``sin`` as well as ``\sin`` and ``\operatorname{sin}``."""
COMMAND_WORDS = {
    **{name: name for name in FUNCTIONS - listed("sup inf Re Im tr arch")},
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
BETWEEN_WORDS = listed("by an it he we on as so be do")
"""Words where they stand behind another one."""

# --- siunitx ---

NUMBERS_WITH_UNIT = {"SI": 2, "qty": 2, "si": 1, "unit": 1}
"""Its commands: a number and a unit, or a unit alone."""
OHMS = {
    name: prefix
    for sign, prefix in (("k", "kilo"), ("M", "mega"), ("m", "milli"))
    for name in (sign, f"\\text{{{sign}}}")
}
"""Prefixes of \\Omega."""
