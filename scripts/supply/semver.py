"""Versions and version requirements as Cargo and the RustSec database write them.

A requirement answers one question for the advisory check: is this version surely outside the vulnerable range? Where a
pre-release makes that doubtful, the answer is no:

- `>= 1.2.0` does not contain `1.2.0-rc.1`, which precedes the fix.
- `< 1.2.0` ("not affected before 1.2.0") does not contain `1.2.0-rc.1` either: the first affected release was prepared
  there. A requirement that itself names a pre-release (`< 1.2.0-rc.1`) is taken literally.
- `^1.2.0` and `~1.2.0` do not contain `2.0.0-alpha`.

A pre-release of any other release is ordered as usual: `1.3.0-beta` satisfies `>= 1.2.0`.
"""
import functools
import re

VERSION = re.compile(
    r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(\S+)")


@functools.total_ordering
class Version:
    """A version; build metadata (`+...`) is ignored, as SemVer says."""

    def __init__(self, numbers, pre=None):
        self.numbers = tuple(numbers)
        self.pre = pre

    @classmethod
    def parse(cls, text):
        match = VERSION.fullmatch(text.strip())
        if not match or match[3] is None:
            raise ValueError(f"{text!r} is not a version")
        return cls((int(match[1]), int(match[2]), int(match[3])), match[4])

    def _key(self):
        # A release follows all of its pre-releases; numeric identifiers precede alphanumeric ones.
        if self.pre is None:
            return (self.numbers, 1, ())
        parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in self.pre.split("."))
        return (self.numbers, 0, parts)

    def __eq__(self, other):
        return self._key() == other._key()

    def __lt__(self, other):
        return self._key() < other._key()

    def __hash__(self):
        return hash(self._key())

    def __str__(self):
        return ".".join(map(str, self.numbers)) + (f"-{self.pre}" if self.pre else "")


def _comparator(text):
    """One comparator as a function of a version."""
    match = COMPARATOR.fullmatch(text.strip())
    operator = match and (match[1] or "^")
    parts = match and VERSION.fullmatch(match[2])
    if not parts:
        raise ValueError(f"{text!r} is not a version requirement")
    given = [int(p) for p in parts.groups()[:3] if p is not None]
    low = Version(given + [0] * (3 - len(given)), parts[4])
    # The first version after everything that begins with the given numbers: 1.2 -> 1.3.0, 1.2.3 -> 1.2.4.
    after = _bump(given, len(given) - 1)
    if operator == ">=":
        return lambda v: v >= low
    if operator == ">":
        return (lambda v: v > low) if len(given) == 3 else (lambda v: v >= after)
    if operator == "<":
        return lambda v: _below(v, low)
    if operator == "<=":
        return (lambda v: v <= low) if len(given) == 3 else (lambda v: _below(v, after))
    if operator == "=":
        return (lambda v: v == low) if len(given) == 3 else (lambda v: low <= v and _below(v, after))
    if operator == "~":
        high = _bump(given, min(1, len(given) - 1))
    else:
        # ^ keeps the leftmost number that is not zero.
        significant = next((i for i, n in enumerate(given) if n), len(given) - 1)
        high = _bump(given, significant)
    return lambda v: low <= v and _below(v, high)


def _bump(given, position):
    return Version([*given[:position], given[position] + 1, *[0] * (2 - position)])


def _below(version, bound):
    if version.pre is not None and bound.pre is None and version.numbers == bound.numbers:
        return False
    return version < bound


def requirement(text):
    """The requirement as a function of a version: all comparators must hold."""
    if not text.strip():
        raise ValueError("an empty version requirement")
    comparators = [_comparator(part) for part in text.split(",")]
    return lambda version: all(holds(version) for holds in comparators)
