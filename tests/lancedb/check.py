"""LanceDB's view of an index that Toolyard made. Usage: check.py <folder of the tables> <a search's JSON>"""
import json
import sys

import lancedb

place, answer = sys.argv[1], json.load(open(sys.argv[2]))
results = answer["data"]["results"]
assert results, "Toolyard found nothing to compare with"
db = lancedb.connect(place)
names = sorted(db.list_tables().tables)
assert names == ["obsidian_chunks", "obsidian_files"], names
chunks, files = db.open_table("obsidian_chunks"), db.open_table("obsidian_files")
rows = chunks.count_rows()
assert rows > 0 and files.count_rows() > 0
print(f"ok      LanceDB opens both tables: {rows} chunks of {files.count_rows()} files")

tags = [tag for tag in chunks.tags.list() if tag.startswith("complete-")]
assert tags and all(tag in files.tags.list() for tag in tags), tags
print("ok      LanceDB sees the tags of complete versions")

indexes = {tuple(index.columns): index.index_type for index in chunks.list_indices()}
assert indexes.get(("terms",)) == "FTS", indexes
best = results[0]
row = chunks.search().where(f"source_file = '{best['source_file']}' AND chunk_index = {best['chunk_index']}").to_list()[0]
assert row["chunk_text"] == best["chunk_text"]
found = chunks.search(row["terms"], query_type="fts", fts_columns="terms").limit(3).to_list()
assert found[0]["chunk_id"] == row["chunk_id"], [f["source_file"] for f in found]
print("ok      LanceDB's full text finds a chunk by its terms")

found = chunks.search(row["vector"], vector_column_name="vector").distance_type("cosine").limit(1).to_list()
assert found[0]["hash"] == row["hash"] and found[0]["_distance"] < 1e-5, found[0]["_distance"]
print("ok      LanceDB's vector search finds a chunk by its vector")

before = chunks.version
chunks.delete("chunk_index = 0")
chunks.restore(before)
chunks.optimize()
assert chunks.version > before and chunks.count_rows() == rows
print("ok      LanceDB deletes rows, restores a version and puts the table in order")
