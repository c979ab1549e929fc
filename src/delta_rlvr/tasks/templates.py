r"""Prompt templates, each with the place of the answer in a response.

The two belong together: a grader that looks for ``\boxed{}`` fails every model that was asked for "Answer: X".
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_graders.extract import EXTRACTORS, extractor

LETTERS = string.ascii_uppercase


@dataclass(frozen=True)
class Template:
    """A prompt with placeholders, and where the final answer stands in a response."""

    name: str
    """The name in settings and logs."""
    text: str
    """The prompt, with the placeholders {question} and, for choices, {options}. Braces of LaTeX are doubled."""
    grader: str
    """The grader of its responses: "math", "choice" or "code"."""
    extract: str
    """Where the final answer stands: a name known to `rlvr_graders.extract`, or "code_block"."""
    plain: bool = False
    """Whether it is the full text for a base model, to which no chat template is applied."""

    def __post_init__(self) -> None:
        places = {place for _, place, _, _ in string.Formatter().parse(self.text) if place is not None}
        if not {"question"} <= places <= {"question", "options"}:
            raise ValueError(
                f"template {self.name!r} has the placeholders {sorted(places)}: it needs {{question}}, may have {{options}}, "
                "and literal braces must be doubled"
            )
        if self.grader not in ("math", "choice", "code"):
            raise ValueError(f'template {self.name!r}: grader={self.grader!r} is not "math", "choice" or "code"')

    def fill(self, question: str, options: Sequence[str] = ()) -> str:
        """Return the prompt for a question. Options get letters in their order."""
        asks = "{options}" in self.text
        if asks and not 2 <= len(options) <= len(LETTERS):
            raise ValueError(f"template {self.name!r} needs 2 to {len(LETTERS)} options, not {len(options)}")
        if options and not asks:
            raise ValueError(f"template {self.name!r} has no placeholder for options: use a choice template")
        listed = "\n".join(f"({letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))
        return self.text.format(question=question, options=listed)

    def messages(self, question: str, options: Sequence[str] = ()) -> list[dict[str, str]]:
        """Return the prompt as a chat of one message."""
        return [{"role": "user", "content": self.fill(question, options)}]


MATH = Template(
    "math",
    "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
    grader="math",
    extract="boxed",
)
"""The instruction of the paper's authors as a user message. Their own prompt, a plain text, is `PAPER_MATH`."""
PAPER_MATH = Template(
    "paper_math",
    "User:\n{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}.\n\nAssistant:\n",
    grader="math",
    extract="boxed",
    plain=True,
)
"""The prompt of the paper's authors for base models, in training and evaluation (from their code; the paper has no prompt)."""
MATH_ANSWER_LINE = Template(
    "math_answer_line",
    '{question}\n\nReason step by step, then end with a line of the form "Answer: X", where X is your final answer.',
    grader="math",
    extract="answer_line",
)
"""Ours, for models that do not write LaTeX."""
MATH_HASH_LINE = Template(
    "math_hash_line",
    '{question}\n\nReason step by step, then end with a line of the form "#### X", where X is your final answer.',
    grader="math",
    extract="hash_line",
)
"""The format of GSM8K's solutions."""
MATH_DIRECT = Template(
    "math_direct", "{question}\n\nGive the final answer and nothing else.", grader="math", extract="whole"
)
"""Ours, for models too small to reason."""
MATH_BRIEF = Template(
    "math_brief",
    "{question}\n\nThink step by step, briefly. End with 'The answer is N.'",
    grader="math",
    extract="last_number",
)
"""Ours, for small chat models on problems whose answer is a number."""
CHOICE = Template(
    "choice",
    "{question}\n\n{options}\n\nPlease reason step by step, and put the letter of your final answer, and only the letter, "
    "within \\boxed{{}}.",
    grader="choice",
    extract="boxed",
)
"""Ours, after the authors' for mathematics; none is known for GPQA and MMLU-Pro."""
CHOICE_ANSWER_LINE = Template(
    "choice_answer_line",
    '{question}\n\n{options}\n\nReason step by step, then end with a line of the form "Answer: X", where X is the letter '
    "of the right option.",
    grader="choice",
    extract="answer_line",
)
"""Ours."""
CODE = Template(
    "code",
    "{question}\n\nWrite a Python program that solves the problem: it reads standard input and writes standard output. "
    "Think step by step, and give the whole program in one ```python code block at the end.",
    grader="code",
    extract="code_block",
)
"""Ours; the paper gives none."""
CODE_FUNCTION = Template(
    "code_function",
    "Complete this Python function so that it does what its docstring says.\n\n```python\n{question}\n```\n\n"
    "Think step by step, and give the whole function with its imports in one ```python code block at the end.",
    grader="code",
    extract="code_block",
)
"""Ours; the paper gives none."""

TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        *(MATH, PAPER_MATH, MATH_ANSWER_LINE, MATH_HASH_LINE, MATH_DIRECT, MATH_BRIEF),
        *(CHOICE, CHOICE_ANSWER_LINE, CODE, CODE_FUNCTION),
    )
}


def template(name: str) -> Template:
    if name not in TEMPLATES:
        raise ValueError(f"there is no template {name!r}; there are {', '.join(TEMPLATES)}")
    return TEMPLATES[name]


def chosen_template(
    name: str | None, text: str | None, extract: str | None, graded: bool = True, default: Template = MATH
) -> Template:
    """Return the template with this name or text; the default if neither is given."""
    if name is not None and text is not None:
        raise ValueError("give template or template_text, not both")
    if text is not None:
        return own_template(text, extract, graded)
    if extract is not None:
        raise ValueError("extract goes with template_text: a named template has its own place of the answer")
    return default if name is None else template(name)


_SIGNS = {"\\boxed": "boxed", "####": "hash_line", "Answer:": "answer_line"}


def own_template(text: str, extract: str | None = None, graded: bool = True) -> Template:
    """Return a template of a custom prompt. `{question}` (and `{options}`, for choices) is a placeholder; other braces are literal.

    `extract` says where the answer stands in a response. The default is what the text asks for: a box, an "Answer:" line or a "####"
    line. `graded=False`: a custom reward judges and finds the answer itself."""
    if "{question}" not in text:
        raise ValueError(f"template_text {text!r} has no place for the question: write {{question}} in it")
    if extract is None:
        extract = next((name for sign, name in _SIGNS.items() if sign in text), None if graded else "whole")
    if extract is None:
        raise ValueError(
            f"template_text {text!r} does not say where the answer stands: ask for \\boxed{{}}, 'Answer: X' or '#### X' in it, "
            f"or give extract, one of {', '.join(EXTRACTORS)}"
        )
    extractor(extract)  # refuses an unknown name
    literal = text.replace("{", "{{").replace("}", "}}")
    for place in ("question", "options"):
        literal = literal.replace(f"{{{{{place}}}}}", f"{{{place}}}")
    grader = "choice" if "{options}" in text else "math"
    return Template("own", literal, grader, extract)
