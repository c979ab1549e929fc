"""The algebra of `compare.judge` by values: what a worker brings."""

from __future__ import annotations

from collections.abc import Sequence

from . import numeric
from .exact import rounds_to
from .expression import Expression, symbols
from .leaves import Algebra, Sides
from .parts import whole
from .sets import real_set
from .structure import Node


class ValueAlgebra(Algebra):
    """Decides by exact fractions, and by the values at fixed points where there are variables or irrational numbers."""

    def equal(self, reference: Expression, prediction: Expression) -> bool:
        return numeric.equal(reference, prediction)

    def rounds(self, value: Expression, decimal: str, least_digits: int, cut: bool) -> bool:
        known = None if symbols(value) else numeric.real_value(value)
        return known is not None and rounds_to(known, decimal, least_digits=least_digits, cut=cut)

    def equations(self, reference: Sides, prediction: Sides) -> bool:
        """One is a multiple of the other, or one is solved for a name and the other is not."""
        if not symbols(_difference(reference)) and not symbols(_difference(prediction)):
            return any(self._same_sides(reference, sides) for sides in (prediction, prediction[::-1]))
        if numeric.proportional(_difference(reference), _difference(prediction), positive=False):
            return True
        for (name, value), other in ((reference, prediction), (prediction, reference)):
            if name[0] == "symbol" and symbols(value) and numeric.solves(name[1], value, _difference(other)):
                return True
        return False

    def inequalities(self, reference: Sides, prediction: Sides) -> bool:
        if not symbols(_difference(reference)) and not symbols(_difference(prediction)):
            return self._same_sides(reference, prediction)
        return numeric.proportional(_difference(reference), _difference(prediction), positive=True)

    def _same_sides(self, reference: Sides, prediction: Sides) -> bool:
        """Numbers are always multiples of each other: e = 2, the eccentricity, and e = 3."""
        return self.equal(reference[0], prediction[0]) and self.equal(reference[1], prediction[1])

    def sets(self, reference: Node, prediction: Node) -> bool:
        one, other = real_set(reference), real_set(prediction)
        return one is not None and one == other

    def families(self, reference: Sequence[Expression], prediction: Sequence[Expression], parameter: str) -> bool:
        return numeric.same_family(reference, prediction, parameter)


def _difference(sides: Sides) -> Expression:
    for side, other in (sides, sides[::-1]):  # \sqrt{x^2 + y^2} = 5
        if side[0] == "root" and other[0] == "number" and other[1] >= 0 and side[2] == whole(2):
            sides = side[1], ("^", other, side[2])
    return ("+", sides[0], ("-", sides[1]))
