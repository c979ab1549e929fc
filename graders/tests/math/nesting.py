r"""Every construct nested in every other, to the depth allowed: what a hostile answer would be made of.

    python graders/tests/math/nesting.py            # each alone, each in each other: about 7,000 pairs
    python graders/tests/math/nesting.py --three 5000

prints the longest times of the calling process and of whole calls, with the answers that took them.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Iterator

LIMIT = 2000
"""Characters of an answer."""
_TABLE = r"""
(@)   [@]   {@}   \{@\}   \{@,1\}   \{1,@\}   \{@,@\}   (@,1)   (@,@)   [1,@)   |@|   \left|@\right|   \lfloor @\rfloor
f(@)   f(f(@))   f^{-1}(@)   C(@)   C(@,1)   h(h+@)   g_{@}(x)   x_{@}   x^{@}   {@}^{2}   (@)^{-1}   @!   -@   @+1   1-@
2@   @\cdot x   @/2   2/@   @\%   @^\circ   @'   \frac{@}{2}   \frac{1}{@}   \frac{@}{@}   \dfrac1{@}   \sqrt{@}
\sqrt[@]{2}   √(@)   \binom{@}{1}   {@ \choose 2}   {@ \over 2}   \sin(@)   \sin @   \sin^{-1}(@)   \sin^{@} x   \log_{@}(2)
\ln @   \max(@,1)   \gcd(@,@)   \sum_{k=1}^{@} k   \sum_{k=@}^{9} k   \sum_{k=1}^{9} (@)   \prod_{i=1}^{3} @
\int_0^{@} x dx   \lim_{x\to 0} @   \overline{@}   \overline{AB}@   \tilde{@}   \vec{@}   \hat{@}   \underbrace{@}_{2}
\overset{@}{=}   \begin{pmatrix}@\end{pmatrix}   \begin{pmatrix}@&1\\2&@\end{pmatrix}
\left[\begin{matrix}@\end{matrix}\right]   [\begin{matrix}@\end{matrix}]   \begin{vmatrix}@&1\\2&3\end{vmatrix}
\begin{cases}@&x>0\\1&x<0\end{cases}   \begin{cases}@\\1\end{cases}   \begin{aligned}@\end{aligned}
\begin{array}{c}@\end{array}   \text{@}   \text{if }@   \mathrm{@}   \mathbf{@}   \boxed{@}   \textcolor{red}{@}
\operatorname{@}   \mathbb{@}   @,1   @;1   @\text{ and }1   @\text{ or }1   @\pm 1   \pm @   @=1   x=@   x=y=@   @<x<1
x\in @   @\le 1   x\ne @   @\cup(1,2)   (0,1)\cup @   @\cap\{1\}   @\setminus\{1\}   \mathbb{R}\setminus @   \{x\mid @\}
\{x : x>@\}   \{@\mid k\in\mathbb{Z}\}   \{2k+@ : k \in \mathbb{Z}\}   @, k\in\mathbb{Z}
@\text{ where }k\text{ is an integer}   @\text{ for }x>@   @\text{ except }1   @\pmod 7   1\pmod{@}   @:1   @\text{ to }1
@\approx 1   @\Rightarrow @   @ cm   @\text{ million}   \$@   @\text{ is the answer}   \text{The answer is }@
(\text{since }@)   @(\approx 1)   1.@   0.\overline{@}   @_{8}   1,000@   @\dots   @\text{ where }x=@   x\text{ is at least }@
@\text{ if }x>0, 1\text{ if }x<0   n\text{ is even}@   @, x\ne @   \sum_{k=1}^{\infty} @   A(@,@)   x_1=@, x_2=1
C_5^{@}   C_{@}^2   {}_5C_2 @   @\text{ since }@   [@]   \sin 2(@)   \sum_{n=0}^\infty @   @+@+@+\dots   \text{mean }@, r=@
\text{odd }@   \text{all integers }n > @   \text{@}_{16}   (A)(@)   \text{local maximum }@\text{ at }@
x=@, y=1\text{ or }x=1, y=@   \forall @   \angle @   @\quad=@   \ce{@}   C(@)_{2}   [@]^{2+}   @\to @   @ (one dozen)
@\text{ if }n\text{ is odd and }@\text{ otherwise}   (@,1) \text{ m/s}
"""
CONSTRUCTS = re.split(r"\n|   ", _TABLE.strip())
CORES = ["1", "x", "h", "\\sqrt{2}", "\\{1,2\\}", "1,000", "f", "AB", "(1,2)"]
DEPTHS = (3, 7, 15, 28, 60)


def nest(constructs: list[str], depth: int, core: str, limit: int = LIMIT) -> str:
    """The constructs in turn, each in the next, as deep as the limit on the length allows; only one hole of each grows."""
    text = core
    for level in range(depth):
        before, *rest = constructs[level % len(constructs)].split("@")
        wider = before + text + "".join(part if not at else core + part for at, part in enumerate(rest))
        if len(wider) > limit:
            break
        text = wider
    return text


def full(construct: str, core: str, limit: int = LIMIT) -> str:
    """With every hole filled alike: trees that double at each level."""
    text = core
    while len(wider := construct.replace("@", text)) <= limit and len(wider) > len(text):
        text = wider
    return text


def pairs(generator: random.Random, three: int = 0) -> Iterator[tuple[str, str]]:
    """(reference, prediction): the same nest around the same core and around another."""
    for construct in CONSTRUCTS:
        for core in CORES[:5]:
            for depth in DEPTHS:
                text = nest([construct], depth, core)
                yield text, nest([construct], depth, "2")
                yield "5+\\sqrt{3}", text
            yield full(construct, core, 300), full(construct, "2", 300)
            yield full(construct, core), full(construct, core + "+0")
    for one in CONSTRUCTS:
        for other in CONSTRUCTS:
            core, depth = generator.choice(CORES), generator.choice(DEPTHS[1:])
            text = nest([one, other], depth, core, generator.choice([190, 390, LIMIT]))
            yield generator.choice(
                [(text, text.replace(core, "2", 1)), ("\\frac{1}{2}", text), (text, nest([other, one], depth, core))]
            )
    for _ in range(three):
        chosen = generator.sample(CONSTRUCTS, generator.randint(3, 6))
        core = generator.choice(CORES)
        text = nest(chosen, generator.choice(DEPTHS[1:]), core, generator.choice([190, 390, LIMIT]))
        other = nest([chosen[0], *chosen[:0:-1]], 28, core)
        yield generator.choice([(text, text.replace(core, "2", 1)), ("7", text), (text, other)])


def main() -> None:
    from rlvr_graders import grade_math

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--three", type=int, default=0, help="nests of three to six constructs, as many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=1.0, help="the limit of each call, in seconds")
    parser.add_argument("--share", type=float, default=1.0, help="the share of the pairs that is run")
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    grade_math(r"\boxed{\sqrt{8}+x}", r"x+2\sqrt{2}")
    rows, reasons = [], 0
    for reference, prediction in pairs(generator, arguments.three):
        if generator.random() > arguments.share:
            continue
        cpu, wall = time.thread_time(), time.monotonic()
        verdict = grade_math(f"\\boxed{{{prediction}}}", reference, timeout=arguments.timeout)
        rows.append((time.thread_time() - cpu, time.monotonic() - wall, reference, prediction, verdict.reason))
        reasons += verdict.failed and "reference" not in verdict.reason
    print(f"{len(rows)} pairs, {reasons} that the grader could not judge within {arguments.timeout} s")
    for name, at in (("of the calling process", 0), ("of the whole call", 1)):
        print(f"longest times {name}:")
        for row in sorted(rows, key=lambda row: -row[at])[:6]:
            print(f"  {row[at] * 1000:8.1f} ms  {row[4][:40]:40} {row[2][:50]!r} ||| {row[3][:90]!r}")


if __name__ == "__main__":
    main()
