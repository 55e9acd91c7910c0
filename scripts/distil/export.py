"""Writes a fitted table as the asset of crates/text (the layout is described in its src/embedding/asset.rs).

    python export.py table.npz ../../crates/text/assets/minilm-static.bin

Left out: special and unused pieces, which no text has, and pieces in scripts other than Latin and Greek: the teacher
read English, and knows of other scripts little more than single letters, whose vectors would only mislead. Rows are rounded to 8 bits with a scale each.
"""

import struct
import sys
import unicodedata

import numpy as np

from teacher import tokenizer

LARGEST = 8_000_000
SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}


def is_known_script(piece):
    """Whether its letters are Latin or Greek; marks, digits and signs are always fine."""
    letters = [c for c in piece if unicodedata.category(c).startswith(("L", "M"))]
    return all(unicodedata.name(c, "").startswith(("LATIN", "GREEK", "MICRO", "FEMININE", "MASCULINE", "MODIFIER")) for c in letters)


def quantise(table):
    scales = np.abs(table).max(axis=1) / 127
    values = np.rint(table / np.maximum(scales, 1e-12)[:, None]).astype(np.int8)
    return values, scales.astype("<f4")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    table = np.load(sys.argv[1])["table"]
    # The largest row becomes 1: only proportions matter, and small numbers read better.
    table = table / np.linalg.norm(table, axis=1).max()
    pieces = sorted(tokenizer().get_vocab().items(), key=lambda item: item[1])
    kept = [(piece, row) for piece, row in pieces if piece not in SPECIAL and not piece.startswith("[unused")]
    kept = [(piece, row) for piece, row in kept if is_known_script(piece)]
    values, scales = quantise(table[[row for _, row in kept]])
    vocabulary = "".join(piece + "\n" for piece, _ in kept).encode()
    header = b"TYEMBED1" + struct.pack("<III", len(kept), table.shape[1], len(vocabulary))
    data = header + scales.tobytes() + vocabulary + values.tobytes()
    if len(data) > LARGEST:
        sys.exit(f"{len(data)} bytes are more than {LARGEST}")
    open(sys.argv[2], "wb").write(data)
    print(f"{len(kept)} pieces, {len(data)} bytes")


if __name__ == "__main__":
    main()
