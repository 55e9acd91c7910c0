"""Writes a fitted table as the asset of crates/text (the layout is described in its src/embedding/asset.rs).

    python export.py table.npz ../../crates/text/assets/minilm-static.bin

Left out: special and unused pieces, which no text has, and pieces in scripts other than Latin and Greek: the teacher
read English, and knows of other scripts little more than single letters, whose vectors would only mislead. A value has 4 bits on
average, and the bits of its neighbours help to name it (trellis-coded quantisation).
"""

import struct
import sys
import unicodedata

import numpy as np

from teacher import tokenizer

LARGEST = 4_100_000
# Bits of a window into the codebook, and the groups of dimensions: bits of a value, number of dimensions.
WINDOW = 12
GROUPS = [(5, 80), (4, 96), (3, 80)]
# The codebook is fitted to every fifth row, so often; rows are encoded so many at a time.
SAMPLED = 5
ROUNDS = 14
BATCH = 128
SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}


def is_known_script(piece):
    """Whether its letters are Latin or Greek; marks, digits and signs are always fine."""
    letters = [c for c in piece if unicodedata.category(c).startswith(("L", "M"))]
    return all(unicodedata.name(c, "").startswith(("LATIN", "GREEK", "MICRO", "FEMININE", "MASCULINE", "MODIFIER")) for c in letters)


def windows_of(values, codebook, bits):
    """The windows of each row with the least squared error (Viterbi's algorithm)."""
    rows = np.arange(len(values))
    cost, choices = np.zeros((len(values), 1 << WINDOW), np.float32), []
    for t, k in enumerate(bits):
        # Windows that differ in the bits that leave them are followed by the same windows.
        before = cost.reshape(len(values), 1 << k, -1)
        choices.append(before.argmin(axis=1).astype(np.uint8))
        cost = before.min(axis=1).repeat(1 << k, axis=1) + (values[:, t : t + 1] - codebook) ** 2
    windows, window = np.empty(values.shape, np.uint16), cost.argmin(axis=1)
    for t, k in reversed(list(enumerate(bits))):
        windows[:, t], kept = window, window >> k
        window = choices[t][rows, kept].astype(np.int64) << (WINDOW - k) | kept
    return windows


def in_batches(values, codebook, bits):
    return np.concatenate([windows_of(values[at : at + BATCH], codebook, bits) for at in range(0, len(values), BATCH)])


def codebook_for(values, bits):
    """A codebook with small errors, as 8-bit values, and their unit."""
    codebook = np.random.default_rng(1).standard_normal(1 << WINDOW).astype(np.float32)
    for _ in range(ROUNDS):
        windows = in_batches(values, codebook, bits).ravel()
        count = np.bincount(windows, minlength=1 << WINDOW)
        mean = np.bincount(windows, values.ravel(), 1 << WINDOW) / np.maximum(count, 1)
        codebook = np.where(count > 1, mean, codebook).astype(np.float32)
    unit = np.abs(codebook).max() / 127
    return np.rint(codebook / unit).astype(np.int8), unit


def quantise(table):
    """The scales of the groups, the codebook, the scale of each row, and the rows as bytes."""
    bits = np.repeat([k for k, _ in GROUPS], [count for _, count in GROUPS])
    size = np.maximum(np.sqrt((table**2).mean(axis=1, keepdims=True)), 1e-12)
    even = table / size
    parts = np.split(even, np.cumsum([count for _, count in GROUPS])[:-1], axis=1)
    groups = np.array([np.sqrt((part**2).mean()) for part in parts], "<f4")
    even = (even / np.repeat(groups, [count for _, count in GROUPS])).astype(np.float32)
    codebook, unit = codebook_for(even[::SAMPLED], bits)
    windows = in_batches(even, codebook * unit, bits)
    rounded = codebook[windows] * np.repeat(groups, [count for _, count in GROUPS])
    # The scale with the least error for these windows, rounded to the upper half of an f32.
    scales = (table * rounded).sum(axis=1) / np.maximum((rounded**2).sum(axis=1), 1e-12)
    halves = ((scales.astype("<f4").view("<u4") + 0x8000) >> 16).astype("<u2")
    return groups, codebook, halves, packed(windows, bits)


def packed(windows, bits):
    """The bits of each row: the first window, then what each value adds, the highest bit first."""
    columns = [windows[:, 0] >> i & 1 for i in reversed(range(WINDOW))]
    for t, k in list(enumerate(bits))[1:]:
        columns += [windows[:, t] >> i & 1 for i in reversed(range(k))]
    return np.packbits(np.stack(columns, axis=1).astype(np.uint8), axis=1)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    table = np.load(sys.argv[1])["table"]
    # The largest row becomes 1: only proportions matter, and small numbers read better.
    table = table / np.linalg.norm(table, axis=1).max()
    pieces = sorted(tokenizer().get_vocab().items(), key=lambda item: item[1])
    kept = [(piece, row) for piece, row in pieces if piece not in SPECIAL and not piece.startswith("[unused")]
    kept = [(piece, row) for piece, row in kept if is_known_script(piece)]
    groups, codebook, scales, values = quantise(table[[row for _, row in kept]])
    vocabulary = "".join(piece + "\n" for piece, _ in kept).encode()
    header = b"TYEMBED3" + struct.pack("<III", len(kept), table.shape[1], len(vocabulary))
    data = header + groups.tobytes() + codebook.tobytes() + scales.tobytes() + vocabulary + values.tobytes()
    if len(data) > LARGEST:
        sys.exit(f"{len(data)} bytes are more than {LARGEST}")
    open(sys.argv[2], "wb").write(data)
    print(f"{len(kept)} pieces, {len(data)} bytes")


if __name__ == "__main__":
    main()
