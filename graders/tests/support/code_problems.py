"""Small problems of our own, with right and wrong programs, for the default suite."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_graders.code import AssertionTests, Call, CodeTests, FunctionTests, Run, StdioTests


@dataclass(frozen=True)
class Problem:
    tests: CodeTests
    right: tuple[str, ...]
    wrong: tuple[str, ...]


PROBLEMS = {
    "sum of digits": Problem(
        FunctionTests("digits", (Call((0,), 0), Call((907,), 16), Call((10**30 - 1,), 270))),
        (
            "def digits(n):\n    return sum(map(int, str(n)))",
            "def digits(n):\n    s = 0\n    while n:\n        n, d = divmod(n, 10)\n        s += d\n    return s",
        ),
        ("def digits(n):\n    return n % 9", "def digits(n):\n    return str(sum(map(int, str(n))))"),
    ),
    "mean": Problem(
        FunctionTests("mean", (Call(([1, 2],), 1.5), Call(([0.1] * 3,), 0.1)), absolute_tolerance=1e-9),
        ("def mean(x):\n    return sum(x) / len(x)", "import statistics\nmean = statistics.fmean"),
        ("def mean(x):\n    return sum(x) // len(x)", "def mean(x):\n    return sorted(x)[len(x) // 2]"),
    ),
    "group by length": Problem(
        FunctionTests("group", (Call((["a", "bb", "c"],), {1: ["a", "c"], 2: ["bb"]}), Call(([],), {}))),
        (
            "from collections import defaultdict\n"
            "def group(words):\n    d = defaultdict(list)\n    for w in words:\n        d[len(w)].append(w)\n    return d",
        ),
        ("def group(words):\n    return {len(w): [w] for w in words}", "def group(words):\n    return {}"),
    ),
    "two smallest, as LeetCode asks": Problem(
        FunctionTests("twoSmallest", (Call(([3, 1, 2],), [1, 2]),), tuples_as_lists=True),
        (
            "class Solution:\n    def twoSmallest(self, x: List[int]) -> List[int]:\n        return sorted(x)[:2]",
            "class Solution:\n    def twoSmallest(self, x):\n        a, b, *_ = sorted(x)\n        return a, b",
        ),
        ("class Solution:\n    def twoSmallest(self, x):\n        return sorted(x)[-2:]", "class Solution:\n    pass"),
    ),
    "reverse words, by assertions": Problem(
        AssertionTests(
            "reverse",
            source="def check(f):\n    assert f('ab c') == 'c ab'\n    assert f('') == ''\n    assert f('x') == same('x')\n"
            "\ncheck(reverse)\n",
            setup="def same(x):\n    return x\n",
        ),
        ("def reverse(s):\n    return ' '.join(reversed(s.split()))",),
        ("def reverse(s):\n    return s[::-1]", "def reverse(s):\n    return s"),
    ),
    "refuses a negative root, by assertions": Problem(
        AssertionTests(
            "root",
            source="assert abs(root(2.0) ** 2 - 2) < 1e-9\n"
            "try:\n    root(-1.0)\n    raise SystemError('no error')\nexcept ValueError:\n    pass\n",
        ),
        ("import math\ndef root(x):\n    return math.sqrt(x)",),
        ("def root(x):\n    return x ** 0.5", "def root(x):\n    return x / 2"),
    ),
    "sorts in place, by assertions": Problem(
        AssertionTests("order", source="x = [3, 1, 2]\norder(x)\nassert x == [1, 2, 3]\n", in_place=True),
        ("def order(x):\n    x.sort()",),
        ("def order(x):\n    return sorted(x)", "def order(x):\n    x.reverse()"),
    ),
    "echo the sum, from standard input": Problem(
        StdioTests((Run("2\n3 4\n", "7\n"), Run("1\n-5", "-5"), Run("0\n\n", "0"))),
        (
            "n = int(input())\nprint(sum(map(int, input().split())) if n else 0)\nexit()",
            "import sys\ndef main():\n    data = sys.stdin.read().split()\n    print(sum(map(int, data[1:])))\n"
            "if __name__ == '__main__':\n    main()\n",
            "data = open('/dev/stdin').read().split()\nout = open(1, 'w')\nout.write(str(sum(map(int, data[1:]))))",
            "import threading\ndef run():\n    n, *x = open(0).read().split()\n    print(sum(map(int, x)))\n"
            "threading.stack_size(1 << 26)\nthreading.Thread(target=run).start()",
        ),
        (
            "print(7)",
            "n = int(input())\nprint(sum(map(int, input().split())) + (n == 0))",
            "n = int(input())\nprint(sum(map(int, input().split())))\nraise SystemExit(3)",
            "import sys\nn, *x = sys.stdin.read().split()\nprint(sum(map(int, x)), 'extra')",
        ),
    ),
    "average, from standard input": Problem(
        StdioTests((Run("1 2 4", "2.333333"), Run("5", "5.0")), absolute_tolerance=1e-5),
        ("x = list(map(int, input().split()))\nprint(sum(x) / len(x))",),
        ("x = list(map(int, input().split()))\nprint(sum(x) // len(x))",),
    ),
}
