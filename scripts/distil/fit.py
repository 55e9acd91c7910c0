"""Fits the static table to the teacher's vectors.

    python fit.py texts.jsonl vectors.f16 table.npz [--texts N] [--stage start|fit|tune]

1. start: each word piece alone through the teacher, unit length, centred, projected on the first 256 principal
   components of the teacher's sentence vectors, times its weight.
2. fit: least squares. The frequency-weighted (SIF) mean of a text's token vectors shall equal the teacher's vector of
   the text; a ridge holds rarely seen pieces near their start. Conjugate gradients on the normal equations.
3. tune: Adam on what search is about. In batches of texts that are near each other for the teacher, the
   distribution of a text's similarities to the others shall be the teacher's (cross entropy of softmaxes).

The weights are folded into the rows: a text's vector is the sum of its rows at unit length.
"""

import argparse
import json
import sys
import time

import numpy as np
import scipy.sparse as sparse

from teacher import HIDDEN, Teacher, tokenizer

DIMENSIONS = 256
SIF = 1e-3
RIDGE = 0.3
CG_STEPS = 40


def say(*what):
    print(*what, file=sys.stderr, flush=True)


def token_lists(texts):
    made = tokenizer()
    lists = []
    for at in range(0, len(texts), 20_000):
        lists += [e.ids for e in made.encode_batch(texts[at : at + 20_000], add_special_tokens=False)]
    return lists


def count_matrix(lists, size):
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    columns = np.fromiter((t for ids in lists for t in ids), dtype=np.int32, count=int(lengths.sum()))
    matrix = sparse.csr_matrix(
        (np.ones(len(columns), dtype=np.float32), columns, np.concatenate([[0], np.cumsum(lengths)])), shape=(len(lists), size)
    )
    matrix.sum_duplicates()
    return matrix


def principal_components(vectors):
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = axes[:, np.argsort(values)[::-1][:DIMENSIONS]]
    say(f"{DIMENSIONS} components keep {np.sort(values)[::-1][:DIMENSIONS].sum() / values.sum():.3f} of the variance")
    return mean, kept.astype(np.float32)


def unit(matrix):
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)


def start_rows(size, mean, axes):
    teacher = Teacher()
    cls, sep = teacher.tokenizer.token_to_id("[CLS]"), teacher.tokenizer.token_to_id("[SEP]")
    alone = teacher.encode_ids([[cls, t, sep] for t in range(size)])
    # The pieces are centred by their own mean: a piece alone is no sentence.
    return (unit(alone - alone.mean(axis=0)) @ axes).astype(np.float32)


def least_squares(means, targets, start, ridge):
    """Solves (X'X + ridge) D = X'(Y - X start) and returns start + D."""
    transposed = means.T.tocsr()
    residual_of_start = targets - means @ start
    right = transposed @ residual_of_start
    step = np.zeros_like(start)
    residual = right.copy()
    direction = residual.copy()
    energy = (residual * residual).sum(axis=0)
    for number in range(CG_STEPS):
        image = transposed @ (means @ direction) + ridge * direction
        alpha = energy / np.maximum((direction * image).sum(axis=0), 1e-12)
        step += alpha * direction
        residual -= alpha * image
        next_energy = (residual * residual).sum(axis=0)
        direction = residual + (next_energy / np.maximum(energy, 1e-12)) * direction
        energy = next_energy
        if number % 10 == 9:
            say(f"  CG {number + 1}: {np.sqrt(energy.sum() / (right * right).sum()):.4f} of the residual left")
    return start + step


def report(name, counts, table, targets):
    sample = slice(0, 20_000)
    predicted = unit(counts[sample] @ table)
    say(f"{name}: mean cosine with the teacher {(predicted * unit(targets[sample])).sum(axis=1).mean():.4f}")


def neighbourhoods(targets, size, generator):
    """Batches of texts near each other: sorted along random cuts, again and again, until they have the size."""
    def split(rows):
        if len(rows) <= size:
            return [rows]
        a, b = targets[generator.choice(rows, 2, replace=False)]
        order = np.argsort(targets[rows] @ (a - b))
        half = len(rows) // 2
        return split(rows[order[:half]]) + split(rows[order[half:]])

    batches = split(generator.permutation(len(targets)))
    generator.shuffle(batches)
    return batches


def tune(counts, table, targets, epochs, rate, temperature, batch, anchor):
    generator = np.random.default_rng(7)
    table = table.copy()
    origin = table.copy()
    first, second = np.zeros_like(table), np.zeros_like(table)
    scale = np.linalg.norm(table, axis=1).mean()
    targets = unit(targets)
    total = None
    step = 0
    for epoch in range(epochs):
        started, losses = time.time(), []
        batches = neighbourhoods(targets, batch, generator)
        # Every other batch is drawn at random: near texts teach fine differences, random ones the coarse order.
        mixed = [b for b in batches]
        shuffled = generator.permutation(len(targets))
        mixed += [shuffled[i : i + batch] for i in range(0, len(shuffled), batch)]
        generator.shuffle(mixed)
        total = total or len(mixed) * epochs
        for rows in mixed:
            if len(rows) < 8:
                continue
            x = counts[rows]
            used = np.unique(x.indices)
            local = sparse.csr_matrix((x.data, np.searchsorted(used, x.indices).astype(np.int32), x.indptr), shape=(len(rows), len(used)))
            summed = local @ table[used]
            norms = np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-9)
            student = summed / norms
            wanted = targets[rows] @ targets[rows].T
            got = student @ student.T
            np.fill_diagonal(wanted, -9.0)
            np.fill_diagonal(got, -9.0)
            p = np.exp((wanted - wanted.max(axis=1, keepdims=True)) / temperature)
            p /= p.sum(axis=1, keepdims=True)
            q = np.exp((got - got.max(axis=1, keepdims=True)) / temperature)
            q /= q.sum(axis=1, keepdims=True)
            losses.append(float(-(p * np.log(np.maximum(q, 1e-12))).sum(axis=1).mean()))
            slope = (q - p) / (temperature * len(rows))
            # Beside the order, the direction itself: what keeps the table a copy of the teacher's space.
            to_student = (slope + slope.T) @ student - anchor * targets[rows] / len(rows)
            to_summed = (to_student - (to_student * student).sum(axis=1, keepdims=True) * student) / norms
            gradient = local.T @ to_summed
            step += 1
            pace = rate * scale * (1 - step / (total + 1))
            first[used] = 0.9 * first[used] + 0.1 * gradient
            second[used] = 0.99 * second[used] + 0.01 * gradient * gradient
            table[used] -= pace * first[used] / (np.sqrt(second[used]) + 1e-8)
        say(f"  epoch {epoch + 1}: loss {np.mean(losses):.4f}, {time.time() - started:.0f} s")
    say(f"  moved by {np.linalg.norm(table - origin) / np.linalg.norm(origin):.3f} of its length")
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("texts")
    parser.add_argument("vectors")
    parser.add_argument("out")
    parser.add_argument("--texts", dest="count", type=int)
    parser.add_argument("--only", help="keep texts whose source begins with one of these, separated by commas")
    parser.add_argument("--stage", choices=["start", "fit", "tune"], default="tune")
    parser.add_argument("--ridge", type=float, default=RIDGE)
    parser.add_argument("--sif", type=float, default=SIF)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--anchor", type=float, default=1.0)
    parser.add_argument("--from-table", help="a table to tune, in place of a fitted one")
    options = parser.parse_args()

    vectors = np.fromfile(options.vectors, dtype=np.float16).reshape(-1, HIDDEN)
    rows = [json.loads(line) for _, line in zip(range(len(vectors)), open(options.texts))]
    if options.only:
        chosen = [i for i, row in enumerate(rows) if row["source"].startswith(tuple(options.only.split(",")))]
        rows, vectors = [rows[i] for i in chosen], vectors[chosen]
    if options.count:
        rows, vectors = rows[: options.count], vectors[: options.count]
    lists = token_lists([row["text"] for row in rows])
    size = tokenizer().get_vocab_size()
    vectors = vectors.astype(np.float32)
    mean, axes = principal_components(vectors)
    targets = (vectors - mean) @ axes
    del vectors
    counts = count_matrix(lists, size)
    frequency = np.asarray(counts.sum(axis=0)).ravel()
    weight = (SIF if not options.sif else options.sif) / ((options.sif or SIF) + frequency / frequency.sum())
    weight = weight.astype(np.float32)
    say(f"{len(rows)} texts, {int(frequency.sum())} tokens, {(frequency > 0).sum()} of {size} pieces seen")

    start = start_rows(size, mean, axes)
    table = start * weight[:, None]
    report("start", counts, table, targets)
    if options.from_table:
        table = np.load(options.from_table)["table"]
        report("given table", counts, table, targets)
    elif options.stage != "start":
        weighted = counts @ sparse.diags(weight)
        sums = np.asarray(weighted.sum(axis=1)).ravel()
        means = (sparse.diags((1 / np.maximum(sums, 1e-9)).astype(np.float32)) @ weighted).tocsr()
        table = least_squares(means, targets, start, options.ridge) * weight[:, None]
        report("fit", counts, table, targets)
    if options.stage == "tune":
        table = tune(counts, table, targets, options.epochs, options.rate, options.temperature, options.batch, options.anchor)
        report("tune", counts, table, targets)
    np.savez(options.out, table=table, frequency=frequency, mean=mean, axes=axes)


if __name__ == "__main__":
    main()
