"""Readers of rows: which fields of known data sets hold the question and the answer."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from delta_rlvr.hints import did_you_mean
from rlvr_graders.extract import hash_line

Row = Mapping[str, Any]

QUESTION_FIELDS = ("problem", "question", "prompt", "input", "Problem", "Question")
ANSWER_FIELDS = ("answer", "final_answer", "gold", "ground_truth", "target", "expected_answer", "Answer")
ID_FIELDS = ("id", "unique_id", "problem_id", "problem_idx", "question_id", "idx", "ID")
ROLES = ("system", "developer", "user", "assistant", "tool")
COLUMNS = frozenset(
    {
        *QUESTION_FIELDS,
        *ANSWER_FIELDS,
        *ID_FIELDS,
        *("Body", "body", "options"),
        *("ability", "data_source", "extra_info", "reward_model"),
    }
)
"""The columns that readers of `SCHEMAS` and templates use. Others (DeepMath's three long solutions) need not be loaded."""


class RowError(ValueError):
    """A row is not a verifiable problem. The loader adds its place, and how to name columns if `names_columns`."""

    def __init__(self, message: str, names_columns: bool = False):
        super().__init__(message)
        self.names_columns = names_columns

    def in_full(self, where: str, source: str) -> str:
        """Return the full message about a row of `source`, a file or data set."""
        remedy = f"; name its columns, as in '{source}?question=COLUMN&answer=COLUMN'"
        return f"{where}: {self}{remedy if self.names_columns else ''}"


@dataclass(frozen=True)
class Fields:
    """The problem in a row."""

    question: str | Sequence[dict[str, str]]
    """The question as text, or chat messages if the data set has its own prompt."""
    answer: str
    """The reference answer as text (for code the tests as JSON)."""
    id: str | None = None
    """The row's id in the data set, if it has one."""
    grader: str = "math"
    meta: dict[str, Any] = field(default_factory=dict)
    """Further data to keep."""


@dataclass(frozen=True)
class FieldNames:
    """The fields to read from a data set without a known schema. None means the usual names."""

    question: str | None = None
    answer: str | None = None
    id: str | None = None


def read_plain(row: Row, names: FieldNames | None = None, graded: bool = True) -> Fields:
    """Read a row with the usual field names or those given. If a custom reward judges (`graded=False`), it needs no answer."""
    names = names or FieldNames()
    question = _question(pick(row, names.question, QUESTION_FIELDS, "question"))
    try:
        answer = answer_text(pick(row, names.answer, ANSWER_FIELDS, "answer"))
    except RowError:
        # A named column that does not exist is a mistake in any case.
        if graded or (names.answer is not None and names.answer not in row):
            raise
        answer = ""
    return Fields(question, answer, _id(row, names.id))


def read_gsm8k(row: Row) -> Fields:
    """GSM8K {question, answer}: the gold answer follows #### at the end of the solution."""
    solution = answer_text(pick(row, "answer", (), "answer"))
    gold = hash_line(solution)
    if gold is None:
        raise RowError("its answer has no '####' before the final number, as GSM8K's have")
    return Fields(_question(pick(row, "question", (), "question")), gold.replace(",", ""), _id(row, None))


def read_eurus2(row: Row) -> Fields:
    """Eurus-2-RL-Data {data_source, prompt, ability, reward_model{ground_truth}, extra_info}."""
    reward_model = pick(row, "reward_model", (), "reward_model")
    if not isinstance(reward_model, Mapping) or reward_model.get("ground_truth") in (None, ""):
        raise RowError("it has no reward_model.ground_truth")
    ability = row.get("ability")
    if ability not in ("math", "code"):
        raise RowError(f"its ability is {ability!r}; only math and code can be graded")
    extra = row.get("extra_info") or {}
    number = extra.get("index")
    own_id = None if number is None else f"{extra.get('split', 'all')}-{number}"
    question = _question(pick(row, "prompt", (), "prompt"))
    meta = {"data_source": row.get("data_source")}
    return Fields(question, answer_text(reward_model["ground_truth"]), own_id, ability, meta)


def read_asdiv(row: Row) -> Fields:
    """ASDiv {body, question, answer}: the answer has its unit in brackets."""
    answer = answer_text(pick(row, "answer", (), "answer")).partition("(")[0].strip()
    return Fields(_joined(row, "body", "question"), answer, _id(row, None))


def read_svamp(row: Row) -> Fields:
    """SVAMP {Body, Question, Answer}."""
    answer = answer_text(pick(row, "Answer", (), "answer"))
    return Fields(_joined(row, "Body", "Question"), answer, _id(row, None))


SCHEMAS: dict[str, Callable[[Row], Fields]] = {
    "plain": read_plain,
    "deepmath": lambda row: read_plain(row, FieldNames("question", "final_answer")),
    "math500": lambda row: read_plain(row, FieldNames("problem", "answer")),
    "gsm8k": read_gsm8k,
    "eurus2": read_eurus2,
    "asdiv": read_asdiv,
    "svamp": read_svamp,
    "mawps": lambda row: read_plain(row, FieldNames("input", "target")),
}
"""Readers by name. "plain" looks for the usual field names."""

KNOWN_SETS = {
    "zwhe99/DeepMath-103K": "deepmath",
    "openai/gsm8k": "gsm8k",
    "HuggingFaceH4/MATH-500": "math500",
    "PRIME-RL/Eurus-2-RL-Data": "eurus2",
}
"""Schemas of data sets on the hub, by their id."""


def reader(schema: str, names: FieldNames | None = None, graded: bool = True) -> Callable[[Row], Fields]:
    """Return the reader of a schema. Only "plain" takes field names and rows without an answer."""
    if schema not in SCHEMAS:
        raise ValueError(f"schema={schema!r} is unknown; use one of {', '.join(SCHEMAS)}")
    if schema == "plain":
        return lambda row: read_plain(row, names, graded)
    if names is None or names == FieldNames():
        return SCHEMAS[schema]
    raise ValueError(f"schema {schema!r} has its own field names: give names with schema 'plain' only")


def answer_text(value: Any) -> str:
    """Return an answer as text: 70, 70.0 and "70" are the same."""
    if isinstance(value, str):
        text = value.strip()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise RowError(
            f"its answer is a {type(value).__name__} ({json.dumps(value, default=str)[:60]}), not text or number"
        )
    elif isinstance(value, float) and value.is_integer():
        text = str(int(value))
    else:
        text = str(value)
    if not text or text.lower() in ("nan", "inf", "-inf"):
        raise RowError(f"its answer is {repr(text) if text else 'empty'}")
    return text


def question_hash(question: str | Sequence[dict[str, str]]) -> str:
    """Return a stable hash of a question: it decides the split, and is the id of a row without one."""
    text = question if isinstance(question, str) else json.dumps(list(question), sort_keys=True)
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).hexdigest()


class RowIds:
    """Unique and stable ids of rows: their own, or a hash of the question, with a number for repeated questions."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._repeats: Counter[str] = Counter()

    def of(self, own: str | None, question: str | Sequence[dict[str, str]], where: str) -> str:
        """Return the id of the row at `where`; refuse one that another row has."""
        if not own:
            digest = question_hash(question)
            self._repeats[digest] += 1
            return digest if self._repeats[digest] == 1 else f"{digest}-{self._repeats[digest]}"
        if own in self._places:
            raise ValueError(f"{where}: the same id as {self._places[own]} ({own}); give each row a unique id")
        self._places[own] = where
        return own


def pick(row: Row, name: str | None, usual: Sequence[str], what: str) -> Any:
    """Return the value of the named field, or of the first of the usual ones in the row."""
    tried = (name,) if name is not None else usual
    for candidate in tried:
        if row.get(candidate) is not None:
            return row[candidate]
    if null := [str(one) for one in tried if one in row]:
        raise RowError(f"its {what} is null ({', '.join(null)})")
    near = did_you_mean(name, map(str, row)) if name is not None else ""
    raise RowError(
        f"it has no {what}{near} (looked for {', '.join(map(str, tried))}; it has {', '.join(map(str, row))})",
        names_columns=name is None,
    )


def _question(value: Any) -> str | list[dict[str, str]]:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if (
        isinstance(value, list)
        and value
        and all(isinstance(m, Mapping) and {"role", "content"} <= set(m) for m in value)
    ):
        messages = [_message(message["role"], message["content"]) for message in value]
        roles = [message["role"] for message in messages]
        if "user" not in roles or roles[-1] == "assistant":
            raise RowError(
                f"its messages are of {', '.join(roles)}: ask as the user, and leave out what the model is to say"
            )
        return messages
    raise RowError("its question is neither text nor a list of chat messages, or is empty")


def _message(role: Any, content: Any) -> dict[str, str]:
    """Return a chat message; parts of text become one text, as `completion_text` reads them."""
    if role not in ROLES:
        raise RowError(f"a message has the role {role!r}: give one of {', '.join(ROLES)}")
    parts = content if isinstance(content, list) else [{"text": content}]
    if any(not isinstance(part, Mapping) or part.get("type", "text") != "text" for part in parts):
        raise RowError(f"the {role}'s message has a part that is not text ({str(content)[:60]}): only text is asked")
    texts = [part.get("text") for part in parts]
    text = "".join(map(str, texts))
    if not all(isinstance(one, str) for one in texts) or not text.strip():
        raise RowError(f"the {role}'s message has the content {str(content)[:60]!r}: give text")
    return {"role": role, "content": text}


def _joined(row: Row, body: str, question: str) -> str:
    parts = [str(pick(row, name, (), name)).strip() for name in (body, question)]
    if parts[0] and parts[0][-1] not in ".!?,":
        parts[0] += "."  # SVAMP leaves out the full stop
    return " ".join(parts).strip()


def _id(row: Row, name: str | None) -> str | None:
    if name is not None:
        return str(pick(row, name, (), "id"))
    return next((str(row[candidate]) for candidate in ID_FIELDS if row.get(candidate) is not None), None)
