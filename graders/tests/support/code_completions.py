"""Completions in the styles that models write them: where the program stands, and what stands around it.

CODE is a right program, WRONG a wrong one that must not be taken; INDENTED is CODE four blanks to the right.
"""

from __future__ import annotations

CODE = "def vowels(s):\n    return sum(c in 'aeiou' for c in s.lower())\n"
WRONG = "def vowels(s):\n    return len(s)\n"

STYLES = {
    # a block among prose and other blocks
    "prose around": "Sure! Here it is:\n\n```python\nCODE```\n\nLet me know if you need more!",
    "headings": "### Solution\n**Approach**: iterate.\n```python\nCODE```\n### Complexity\n- Time: `O(n)`\n",
    "corrected": "```python\nWRONG```\nWait, that counts all letters:\n```python\nCODE```",
    "assertions after": "```python\nCODE```\n```python\nassert vowels('hello') == 2\nprint('passed')\n```",
    "unittest after": "```python\nCODE```\n```python\nimport unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertEqual(vowels('a'), 1)\nunittest.main()\n```",
    "test module after": "```python\n# solution.py\nCODE```\n```python\nfrom solution import vowels\ndef test():\n    vowels('')\n```",
    "output after": "```python\nCODE\nprint(vowels('hello'))\n```\nOutput:\n```\n2\n```",
    "shell after": "```python\nCODE```\n```bash\npython solution.py\n```",
    "another language after": "```python\nCODE```\n```javascript\nfunction vowels(s) { return 0; }\n```",
    "stub after": "```python\nCODE```\nSignature:\n```python\ndef vowels(s: str) -> int: ...\n```",
    "unfinished skeleton after": "```python\nCODE```\n```python\ndef vowels(s):\n    raise NotImplementedError()\n```",
    "stub before": "```python\ndef vowels(s):\n    pass\n```\nFilled in:\n```python\nCODE```",
    "important line after": "```python\nCODE```\nThe line\n```python\nreturn sum(c in 'aeiou' for c in s.lower())\n```",
    "another question invented": "```python\nCODE```\n\nHuman: thanks! Reverse a text.\n\n"
    "```python\ndef rev(s):\n    return s[::-1]\n```",
    "second block cut off": "```python\nCODE```\nAlternative:\n```python\ndef other(s):\n    found = [",
    "details": "<details>\n<summary>Solution</summary>\n\n```python\nCODE```\n</details>",
    "chinese": "以下是代码:\n\n```python\nCODE```\n\n时间复杂度为 O(n)。",
    # how it is fenced
    "no language": "```\nCODE```",
    "capital": "```Python\nCODE```",
    "python 3": "```python 3\nCODE```",
    "blank before the language": "``` python\nCODE```",
    "py": "```py\nCODE```",
    "version": "```python3.11\nCODE```",
    "text": "```text\nCODE```",
    "code": "```code\nCODE```",
    "ipython": "```ipython3\nCODE```",
    "braces": "```{python}\nCODE```",
    "braces and options": "```{.python .numberLines}\nCODE```",
    "attribute": '```python title="solution.py"\nCODE```',
    "bare attribute": "```python filename=solution.py\nCODE```",
    "comment behind": "```python # solution.py\nCODE```",
    "path": "```python:src/solution.py\nCODE```",
    "file name": "```solution.py\nCODE```",
    "four backticks": "````python\nCODE````",
    "tildes": "~~~py\nCODE~~~\n",
    "tildes around backticks": "~~~~python\n'''\n```\nvowels('a')\n```\n'''\nCODE~~~~",
    "in a list": "1. Write:\n    ```python\nINDENTED    ```\n2. Done.",
    "bullet": "- ```python\nINDENTED  ```",
    "fence indented alone": "   ```python\nCODE   ```",
    "quoted": "> ```python\n> def vowels(s):\n>     return sum(c in 'aeiou' for c in s.lower())\n> ```",
    "left open": "Here:\n\n```python\nCODE",
    "left open, end token": "```python\nCODE<|endoftext|>",
    "only closed": "CODE```\nThat is it.",
    "closed on the last line": "```python\ndef vowels(s):\n    return sum(c in 'aeiou' for c in s.lower())```",
    "remark behind the close": "```python\nCODE``` That's the answer.",
    "opened on a line of prose": "The function is: ```python\nCODE```",
    "the same without a language": "The function is: ```\nCODE```",
    "code on the fence's line": "```python CODE```",
    "import on the fence's line": "```python import math\nCODE```",
    "one line": "```python vowels = lambda s: sum(c in 'aeiou' for c in s.lower())```",
    "one line, no language": "```vowels = lambda s: sum(c in 'aeiou' for c in s.lower())```",
    "one line between single backticks": "Use `vowels = lambda s: sum(c in 'aeiou' for c in s.lower())`.",
    "language on the next line": "```\npython\nCODE```",
    "not closed between two": "```python\nWRONG\nThat was wrong, so:\n\n```python\nCODE```",
    "markdown around all": "```markdown\nHere:\n```python\nCODE```\nDone\n```",
    "fence in a docstring": "```python\ndef used():\n    '''\n```\nvowels('a')\n```\n    '''\nCODE```",
    "fence in a text": "```python\nFENCE = '```'\nCODE```",
    "triple backticks in prose": "Call ```vowels('a')``` like this.\n\n```python\nCODE```",
    "sample in prose": "In:\n```\n3\n1 2 3\n```\n```python\nCODE```",
    # what happened to its characters
    "zero-width blank": "```python\n\u200bCODE```",
    "byte order mark": "\ufeff```python\nCODE```",
    "typographic quotes": "```python\ndef vowels(s):\n    return sum(c in \u2018aeiou\u2019 for c in s.lower())\n```",
    "no-break blanks": "```python\ndef vowels(s):\n\u00a0\u00a0\u00a0\u00a0return sum(c in 'aeiou' for c in s.lower())\n```",
    "entities": "```python\ndef vowels(s):\n    return sum(c in &quot;aeiou&quot; for c in s.lower() if c &gt;= &#39;a&#39;)\n```",
    "entities that parse": "```python\nCODEdef less(a, b):\n    return a &lt; b\nassert less(1, 2)\n```",
    "code about entities": "```python\nlt, gt = '&lt;', '&gt;'\nassert len(lt) == 4\nCODE```",
    "one line of JSON": "```python\\ndef vowels(s):\\n    return sum(c in 'aeiou' for c in s.lower())\\n```",
    "numbered": "```python\n1  def vowels(s):\n2      return sum(c in 'aeiou' for c in s.lower())\n```",
    "numbered with a bar": "```python\n 9 | def vowels(s):\n10 |     return sum(c in 'aeiou' for c in s.lower())\n```",
    "diff": "```diff\n-def vowels(s): pass\n+def vowels(s):\n+    return sum(c in 'aeiou' for c in s.lower())\n```",
    "session": "```python\n>>> def vowels(s):\n...     return sum(c in 'aeiou' for c in s.lower())\n...\n>>> vowels('hello')\n2\n```",
    "notebook session": "```ipython\nIn [1]: def vowels(s):\n   ...:     return sum(c in 'aeiou' for c in s.lower())\n\n"
    "In [2]: vowels('a')\nOut[2]: 1\n```",
    "notebook commands": "```python\n%load_ext autoreload\n!pip install -q regex\nCODE```",
    "prose in the block": "```python\nHere is the code:\nCODE\nThis counts the vowels.\n```",
    # thoughts
    "thought before": "<think>\nMaybe ```python\nWRONG```\n</think>\n```python\nCODE```",
    "thought without its start": "hm\n```python\nWRONG```\n</think>\n```python\nCODE```",
    "two thoughts": "<think>a</think>\n```python\nWRONG```\n<think>no</think>\n```python\nCODE```",
    "unfinished thought behind the answer": "```python\nCODE```\n<think>\nOr rather\n```python\nWRONG```",
    "reasoning": "<reasoning>\n```python\nWRONG```\n</reasoning>\n```python\nCODE```",
    "answer": "<think>x</think><answer>\n```python\nCODE```\n</answer>",
    "answer without a fence": "<think>x</think>\n<answer>\nCODE</answer>",
    "end of turn": "```python\nCODE```\n<|im_end|>\n<|endoftext|>",
    # without a fence
    "bare": "CODE",
    "bare, prose before": "Here's the function you asked for:\n\nCODE",
    "bare, prose after": "CODE\nThis function lowers the text and counts each vowel.",
    "bare, one word after": "CODE\nDone",
    "bare, complexity after": "CODE\nTime: O(n)\nSpace: O(1)",
    "bare, list after": "CODE\n- simple\n- fast",
    "bare, usage after": "CODE\nprint(vowels('hello'))  # 2\n",
    "bare, rule": "---\n\nCODE\n---\nDone!",
    "bare, heading": "# Solution\n\nCODE\n## Explanation\n\nIt counts.",
    "bare, wrong first": "Here is code\nimport sys\nSorry, let me try again\nimport re\n\nCODEAs you can see from above\n    ",
    "bare, indented": "The code:\n\nINDENTED\nThat is all.",
    "bare, table after": "CODE\n| in | out |\n|---|---|\n| a | 1 |\n",
    "bare, quoted": "> def vowels(s):\n>     return sum(c in 'aeiou' for c in s.lower())\n\nas quoted",
    "[PYTHON]": "[PYTHON]\nCODE[/PYTHON]",
    "[BEGIN]": "[BEGIN]\nCODE[DONE]",
    "LaTeX": "\\begin{lstlisting}[language=Python]\nCODE\\end{lstlisting}",
    "HTML": "<pre><code class='language-python'>\nCODE</code></pre>",
    # several blocks that belong together
    "import apart": "```python\nimport re\n```\nThen\n```python\ndef vowels(s):\n    return len(re.findall('[aeiou]', s, re.I))\n```",
    "helper before": "```python\ndef is_vowel(c):\n    return c in 'aeiouAEIOU'\n```\n"
    "```python\ndef vowels(s):\n    return sum(map(is_vowel, s))\n```",
    "helper after": "```python\ndef vowels(s):\n    return sum(map(is_vowel, s))\n```\nwhere\n```python\nALL = 'aeiouAEIOU'\n\n"
    "def is_vowel(c):\n    return c in ALL\n```",
    "future import": "```python\nfrom __future__ import annotations\nTEXT: str | None = None\nCODE```",
    "future import behind borrowed code": "```python\nALL = 'aeiou'\n```\n```python\nfrom __future__ import annotations\n\n"
    "def vowels(s: Text) -> int:\n    return sum(c in ALL for c in s.lower())\n```",
    # other ways to define it
    "method": "```python\nclass Solution:\n    def vowels(self, s):\n        return sum(c in 'aeiou' for c in s.lower())\n```",
    "assigned": "```python\nimport functools\nvowels = functools.partial(lambda a, s: sum(c in a for c in s.lower()), 'aeiou')\n```",
    "one of two branches": "```python\ntry:\n    from nowhere import vowels\nexcept ImportError:\n    def vowels(s):\n"
    "        return sum(c in 'aeiou' for c in s.lower())\n```",
}
NO_CODE = {
    "prose": "Count the letters a, e, i, o and u.",
    "nothing": "",
    "an empty block": "```python\n```",
    "data": '```json\n{"a": 1}\n```',
    "unfinished thought behind prose": "Hm.\n<think>\n```python\nCODE```\nwait",
    "unfinished thought": "<think>\nLet me see:\n```python\nCODE```\nhmm",
    "answer in the thought alone": "<think>```python\nCODE```</think>\nI cannot.",
}

ECHO = "n = int(input())\nprint(n * 2)\n"
WHOLE_PROGRAMS = {
    "plain": "```python\nCODE```",
    "sample after": "```python\nCODE```\nInput:\n```\n3\n```\nOutput:\n```\n6\n```",
    "assertion after": "```python\nCODE```\n```python\nassert 3 * 2 == 6\n```",
    "a piece explained after": "```python\nCODE```\nHere\n```python\nn = int(input())\n```\nreads n.",
    "another language after": "```python\nCODE```\n```cpp\nint main() { return 0; }\n```",
    "another language before": "```cpp\nint main() { return 0; }\n```\n```python\nCODE```",
    "function and its call": "```python\nX = 2\ndef solve():\n    print(int(input()) * X)\n```\n```python\nsolve()\n```",
    "reading and printing": "```python\nn = int(input())\n```\n```python\nprint(n * 2)\n```",
    "helper and program": "```python\ndef twice(n):\n    return n * 2\n```\n```python\nprint(twice(int(input())))\n```",
    "check with a made-up input after": "```python\ndef solve():\n    print(int(input()) * 2)\nsolve()\n```\n"
    "```python\nimport io, sys\nsys.stdin = io.StringIO('9')\nsolve()\n```",
    "bare in prose": "This doubles the number:\n\nCODE\nFor n = 3 this prints 6.",
}
