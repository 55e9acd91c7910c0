"""Writes a fitted table as the asset of crates/text (the layout is described in its src/embedding/asset.rs).

    python export.py table.npz ../../crates/text/assets/minilm-static.bin

Left out: special and unused pieces, which no text has, and pieces in scripts other than Latin and Greek: the teacher
read English, and knows of other scripts little more than single letters, whose vectors would only mislead. A value has one of 16
levels, which are chosen for the whole table, times the scale of its row: 4 bits each.
"""

import struct
import sys
import unicodedata

import numpy as np

from teacher import tokenizer

LARGEST = 4_100_000
LEVELS = 16
# Values from which the levels are chosen, and how often they are improved.
SAMPLED = 400_000
ROUNDS = 60
SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}


def is_known_script(piece):
    """Whether its letters are Latin or Greek; marks, digits and signs are always fine."""
    letters = [c for c in piece if unicodedata.category(c).startswith(("L", "M"))]
    return all(unicodedata.name(c, "").startswith(("LATIN", "GREEK", "MICRO", "FEMININE", "MASCULINE", "MODIFIER")) for c in letters)


def levels_of(values):
    """The levels with the least squared error (Lloyd's algorithm)."""
    values = np.random.default_rng(1).choice(values.ravel(), min(SAMPLED, values.size), replace=False)
    levels = np.quantile(values, (np.arange(LEVELS) + 0.5) / LEVELS)
    for _ in range(ROUNDS):
        nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, values)
        levels = np.bincount(nearest, values, LEVELS) / np.maximum(np.bincount(nearest, minlength=LEVELS), 1)
    return levels.astype("<f4")


def quantise(table):
    """The levels, the scale of each row, and the rows with two values in each byte."""
    size = np.maximum(np.sqrt((table**2).mean(axis=1, keepdims=True)), 1e-12)
    levels = levels_of(table / size)
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, table / size).astype(np.uint8)
    rounded = levels[nearest]
    # The scale with the least error for these levels.
    scales = (table * rounded).sum(axis=1) / np.maximum((rounded**2).sum(axis=1), 1e-12)
    return levels, scales.astype("<f4"), nearest[:, 0::2] | nearest[:, 1::2] << 4


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    table = np.load(sys.argv[1])["table"]
    # The largest row becomes 1: only proportions matter, and small numbers read better.
    table = table / np.linalg.norm(table, axis=1).max()
    pieces = sorted(tokenizer().get_vocab().items(), key=lambda item: item[1])
    kept = [(piece, row) for piece, row in pieces if piece not in SPECIAL and not piece.startswith("[unused")]
    kept = [(piece, row) for piece, row in kept if is_known_script(piece)]
    levels, scales, values = quantise(table[[row for _, row in kept]])
    vocabulary = "".join(piece + "\n" for piece, _ in kept).encode()
    header = b"TYEMBED2" + struct.pack("<III", len(kept), table.shape[1], len(vocabulary))
    data = header + levels.tobytes() + scales.tobytes() + vocabulary + values.tobytes()
    if len(data) > LARGEST:
        sys.exit(f"{len(data)} bytes are more than {LARGEST}")
    open(sys.argv[2], "wb").write(data)
    print(f"{len(kept)} pieces, {len(data)} bytes")


if __name__ == "__main__":
    main()
