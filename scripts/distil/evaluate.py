"""Measures a table alone, and fused with a plain BM25, on labelled sets given as folders.

    python evaluate.py table.npz --tools DIR... --notes DIR...

A --tools folder has catalog.jsonl and queries.jsonl, a --notes folder corpus.jsonl, queries.jsonl and qrels.tsv.
Prints nDCG@10: table alone, BM25 alone, and both fused by score at a few weights. For orientation while fitting:
the figures that count are those of `toolyard eval`.
"""

import argparse
import json
import math
import pathlib
import re
from collections import Counter

import numpy as np
import scipy.sparse as sparse

from fit import count_matrix, token_lists, unit

STOP = set("a an and are as at be by can do for from i in is it me my of on or that the to with you your what how please want need help".split())


def split_name(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.\-#]+", " ", name)


def load_tools(folder):
    catalog = [json.loads(l) for l in open(folder / "catalog.jsonl")]
    queries = [json.loads(l) for l in open(folder / "queries.jsonl")]
    place = {tool["name"]: i for i, tool in enumerate(catalog)}
    texts = [f"{split_name(t['name'])}. {t.get('description') or ''}" for t in catalog]
    return texts, [q["query"] for q in queries], [{place[g] for g in q["gold"] if g in place} for q in queries]


def load_notes(folder):
    corpus = [json.loads(l) for l in open(folder / "corpus.jsonl")]
    place = {doc["_id"]: i for i, doc in enumerate(corpus)}
    judged = {}
    for line in open(folder / "qrels.tsv").read().splitlines()[1:]:
        query, doc, score = line.split("\t")
        if int(score) > 0:
            judged.setdefault(query, set()).add(place[doc])
    queries = [json.loads(l) for l in open(folder / "queries.jsonl")]
    queries = [q for q in queries if q["_id"] in judged]
    return [f"{d['title']}. {d['text']}" for d in corpus], [q["text"] for q in queries], [judged[q["_id"]] for q in queries]


def stem(word):
    for end in ("ational", "ations", "ation", "ing", "ies", "ed", "es", "s", "ly", "e"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            return word[: -len(end)]
    return word


def bm25(texts, queries, k1=1.2, b=0.75):
    def words(text):
        return [stem(w) for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in STOP]

    docs = [words(t) for t in texts]
    numbers = {}
    for doc in docs:
        for word in doc:
            numbers.setdefault(word, len(numbers))
    average = sum(map(len, docs)) / len(docs)
    frequency = Counter(w for doc in docs for w in set(doc))
    row, column, value = [], [], []
    for i, doc in enumerate(docs):
        for word, count in Counter(doc).items():
            idf = math.log(1 + (len(docs) - frequency[word] + 0.5) / (frequency[word] + 0.5))
            row.append(i), column.append(numbers[word])
            value.append(idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(doc) / average)))
    matrix = sparse.csr_matrix((value, (row, column)), shape=(len(docs), len(numbers)), dtype=np.float32)
    asked = [Counter(numbers[w] for w in words(q) if w in numbers) for q in queries]
    q_row = [i for i, c in enumerate(asked) for _ in c]
    q_col = [w for c in asked for w in c]
    q_val = [min(n, 2) for c in asked for n in c.values()]
    return np.asarray((sparse.csr_matrix((q_val, (q_row, q_col)), shape=(len(queries), len(numbers)), dtype=np.float32) @ matrix.T).todense())


def ndcg(scores, gold):
    total = 0.0
    for row, relevant in zip(scores, gold):
        if not relevant:
            continue
        best = np.argpartition(-row, 10)[:10]
        best = best[np.argsort(-row[best], kind="stable")]
        reached = sum(1 / math.log2(r + 2) for r, doc in enumerate(best) if doc in relevant)
        total += reached / sum(1 / math.log2(r + 2) for r in range(min(10, len(relevant))))
    return total / len(gold)


def fused(words, meaning, weight):
    best = np.maximum(words.max(axis=1, keepdims=True), 1e-6)
    return words / best + weight * np.maximum(meaning, 0)


_SETS = {}


def prepare(folder, load):
    if folder not in _SETS:
        texts, queries, gold = load(folder)
        _SETS[folder] = (token_lists(texts), token_lists(queries), gold, bm25(texts, queries))
    return _SETS[folder]


def measure(table, folder, load, power=0.5):
    doc_ids, query_ids, gold, words = prepare(folder, load)
    docs, asked = count_matrix(doc_ids, len(table)), count_matrix(query_ids, len(table))
    idf = np.log((len(doc_ids) + 1) / (np.asarray((docs > 0).sum(axis=0)).ravel() + 0.5)).clip(0.05) ** power
    idf = idf.astype(np.float32)
    plain = unit(asked @ table) @ unit(docs @ table).T
    both = unit(asked @ (table * idf[:, None])) @ unit(docs @ (table * idf[:, None])).T
    query_only = unit(asked @ (table * idf[:, None])) @ unit(docs @ table).T
    result = {"set": folder.name, "bm25": ndcg(words, gold)}
    for name, meaning in (("plain", plain), ("idf", both), ("idf on query", query_only)):
        result[name] = ndcg(meaning, gold)
        result[f"{name} fused"] = {w: round(ndcg(fused(words, meaning, w), gold), 4) for w in (0.35, 0.5, 0.7, 1.0)}
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("table", nargs="+")
    parser.add_argument("--tools", nargs="*", default=[], type=pathlib.Path)
    parser.add_argument("--notes", nargs="*", default=[], type=pathlib.Path)
    options = parser.parse_args()
    for path in options.table:
        table = np.load(path)["table"]
        print(path)
        for load, folders in ((load_tools, options.tools), (load_notes, options.notes)):
            for folder in folders:
                print(" ", json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in measure(table, folder, load).items()}), flush=True)


if __name__ == "__main__":
    main()
