//! Converts rows to Arrow batches and back.

use crate::{errors::index_error, filter::tag_paths};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    UInt64Array,
    builder::{FixedSizeListBuilder, Float32Builder, ListBuilder, StringBuilder},
    cast::AsArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lance::Dataset;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc};
use toolyard_noteindex::{ChunkRow, FileRow, FileState, IndexError, IndexResult, file_id, hash64};

/// The columns from which [`chunks_from`] builds chunks. Reading a row decodes a page of each column, so twelve columns
/// take three times as long as four.
pub(crate) fn chunk_columns(has_details: bool) -> &'static [&'static str] {
    if has_details { &DETAILED_COLUMNS } else { &CHUNK_COLUMNS }
}

/// A column that repeats all short fields of a chunk as one value. Tables created before it was introduced do not have
/// it.
const DETAILS: &str = "details";
const DETAILED_COLUMNS: [&str; 4] = [DETAILS, "chunk_text", "opaque", "terms"];
const CHUNK_COLUMNS: [&str; 12] = [
    "source_file",
    "chunk_index",
    "section",
    "start",
    "end",
    "chunk_text",
    "opaque",
    "terms",
    "tags",
    "date",
    "day",
    "hash",
];

fn list_of_text() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))
}

/// Whether a table of chunks has the column [`DETAILS`].
pub(crate) fn has_details(chunks: &Dataset) -> bool {
    chunks.schema().field(DETAILS).is_some()
}

/// The content of the column [`DETAILS`], as JSON.
#[derive(Serialize, Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    source_file: Cow<'a, str>,
    chunk_index: u32,
    #[serde(borrow)]
    section: Option<Cow<'a, str>>,
    start: u64,
    end: u64,
    tags: Cow<'a, [String]>,
    #[serde(borrow)]
    date: Option<Cow<'a, str>>,
    day: i32,
    hash: u64,
}

fn details(row: &ChunkRow) -> IndexResult<String> {
    let details = Details {
        source_file: (&row.source_file).into(),
        chunk_index: row.chunk_index,
        section: row.section.as_deref().map(Cow::Borrowed),
        start: row.start,
        end: row.end,
        tags: Cow::Borrowed(&row.tags),
        date: row.date.as_deref().map(Cow::Borrowed),
        day: row.day,
        hash: row.hash,
    };
    serde_json::to_string(&details).map_err(index_error)
}

pub(crate) fn chunk_schema(dimensions: usize, has_details: bool) -> SchemaRef {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let long = |name: &str| Field::new(name, DataType::Int64, false);
    let mut fields = vec![
        text("chunk_id", false),
        text("source_file", false),
        long("file_id"),
        Field::new("chunk_index", DataType::Int32, false),
        text("section", true),
        long("start"),
        long("end"),
        text("chunk_text", false),
        text("opaque", false),
        text("terms", false),
        Field::new("tags", list_of_text(), true),
        text("tag_paths", false),
        text("date", true),
        Field::new("day", DataType::Int32, false),
        long("hash"),
    ];
    if has_details {
        fields.push(text(DETAILS, false));
    }
    if dimensions > 0 {
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        fields.push(Field::new("vector", DataType::FixedSizeList(item, dimensions as i32), true));
    }
    Arc::new(Schema::new(fields))
}

pub(crate) fn file_schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let long = |name: &str| Field::new(name, DataType::Int64, false);
    let short = |name: &str| Field::new(name, DataType::Int32, false);
    let list = |name: &str| Field::new(name, list_of_text(), true);
    Arc::new(Schema::new(vec![
        text("path"),
        long("file_id"),
        text("state"),
        text("reason"),
        long("hash"),
        long("size"),
        long("mtime_ms"),
        long("recipe"),
        short("chunks"),
        short("unembedded"),
        text("title"),
        list("aliases"),
        list("tags"),
        list("links"),
        short("day"),
    ]))
}

/// The id of a chunk: the same position with the same text has the same id.
fn chunk_id(row: &ChunkRow) -> String {
    let part = |salt: &[u8]| {
        let place = row.chunk_index.to_le_bytes();
        hash64(&[salt, row.source_file.as_bytes(), &place, &row.hash.to_le_bytes()])
    };
    uuid::Builder::from_custom_bytes(((u128::from(part(b"a")) << 64) | u128::from(part(b"b"))).to_be_bytes())
        .into_uuid()
        .to_string()
}

pub(crate) fn chunk_batch(rows: &[ChunkRow], dimensions: usize, has_details: bool) -> IndexResult<RecordBatch> {
    let text = |get: &dyn Fn(&ChunkRow) -> String| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(get(row))).collect::<StringArray>())
    };
    let option = |get: &dyn Fn(&ChunkRow) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(get).collect::<StringArray>())
    };
    let long = |get: &dyn Fn(&ChunkRow) -> u64| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(get(row).cast_signed())).collect::<Int64Array>())
    };
    let short = |get: &dyn Fn(&ChunkRow) -> i32| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(get(row))).collect::<Int32Array>())
    };
    let mut columns: Vec<ArrayRef> = vec![
        text(&chunk_id),
        text(&|row| row.source_file.clone()),
        long(&ChunkRow::file_id),
        short(&|row| row.chunk_index.cast_signed()),
        option(&|row| row.section.clone()),
        long(&|row| row.start),
        long(&|row| row.end),
        text(&|row| row.text.clone()),
        text(&|row| row.opaque.clone()),
        text(&|row| row.terms.clone()),
        texts(rows.iter().map(|row| row.tags.as_slice())),
        text(&|row| tag_paths(&row.tags)),
        option(&|row| row.date.clone()),
        short(&|row| row.day),
        long(&|row| row.hash),
    ];
    if has_details {
        let details = rows.iter().map(details).collect::<IndexResult<Vec<_>>>()?;
        columns.push(Arc::new(StringArray::from(details)));
    }
    if dimensions > 0 {
        let mut vectors =
            FixedSizeListBuilder::new(Float32Builder::with_capacity(rows.len() * dimensions), dimensions as i32);
        for row in rows {
            match row.vector.as_ref().filter(|vector| vector.len() == dimensions) {
                Some(vector) => vectors.values().append_slice(vector),
                None => vectors.values().append_nulls(dimensions),
            }
            vectors.append(row.vector.as_ref().is_some_and(|vector| vector.len() == dimensions));
        }
        columns.push(Arc::new(vectors.finish()));
    }
    RecordBatch::try_new(chunk_schema(dimensions, has_details), columns).map_err(index_error)
}

fn texts<'a>(lists: impl Iterator<Item = &'a [String]>) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new());
    for list in lists {
        for item in list {
            builder.values().append_value(item);
        }
        builder.append(true);
    }
    Arc::new(builder.finish())
}

pub(crate) fn file_batch(rows: &[FileRow]) -> IndexResult<RecordBatch> {
    let text = |get: &dyn Fn(&FileRow) -> &str| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(get(row))).collect::<StringArray>())
    };
    let long = |get: &dyn Fn(&FileRow) -> i64| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(get(row))).collect::<Int64Array>())
    };
    let short = |get: &dyn Fn(&FileRow) -> i32| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(get(row))).collect::<Int32Array>())
    };
    let columns: Vec<ArrayRef> = vec![
        text(&|row| &row.path),
        long(&|row| file_id(&row.path).cast_signed()),
        text(&|row| row.state.as_str()),
        text(&|row| &row.reason),
        long(&|row| row.hash.cast_signed()),
        long(&|row| row.size.cast_signed()),
        long(&|row| row.mtime_ms),
        long(&|row| row.recipe.cast_signed()),
        short(&|row| row.chunks.cast_signed()),
        short(&|row| row.unembedded.cast_signed()),
        text(&|row| &row.title),
        texts(rows.iter().map(|row| row.aliases.as_slice())),
        texts(rows.iter().map(|row| row.tags.as_slice())),
        texts(rows.iter().map(|row| row.links.as_slice())),
        short(&|row| row.day),
    ];
    RecordBatch::try_new(file_schema(), columns).map_err(index_error)
}

/// Typed access to the columns of a batch.
pub(crate) struct Columns<'a>(pub(crate) &'a RecordBatch);

impl<'a> Columns<'a> {
    fn column(&self, name: &str) -> IndexResult<&'a ArrayRef> {
        self.0.column_by_name(name).ok_or_else(|| IndexError::Corrupted(format!("the column {name} is missing")))
    }
    fn typed<T>(name: &str, array: Option<&'a T>) -> IndexResult<&'a T> {
        array.ok_or_else(|| IndexError::Corrupted(format!("the column {name} has another type")))
    }
    pub(crate) fn text(&self, name: &str) -> IndexResult<&'a StringArray> {
        Self::typed(name, self.column(name)?.as_string_opt::<i32>())
    }
    pub(crate) fn long(&self, name: &str) -> IndexResult<&'a Int64Array> {
        Self::typed(name, self.column(name)?.as_any().downcast_ref())
    }
    pub(crate) fn short(&self, name: &str) -> IndexResult<&'a Int32Array> {
        Self::typed(name, self.column(name)?.as_any().downcast_ref())
    }
    pub(crate) fn float(&self, name: &str) -> IndexResult<&'a Float32Array> {
        Self::typed(name, self.column(name)?.as_any().downcast_ref())
    }
    pub(crate) fn row_ids(&self) -> IndexResult<&'a UInt64Array> {
        Self::typed("_rowid", self.column("_rowid")?.as_any().downcast_ref())
    }
    pub(crate) fn vectors(&self) -> IndexResult<&'a FixedSizeListArray> {
        Self::typed("vector", self.column("vector")?.as_fixed_size_list_opt())
    }
    fn list(&self, name: &str) -> IndexResult<&'a ListArray> {
        Self::typed(name, self.column(name)?.as_list_opt::<i32>())
    }
    fn texts_at(list: &ListArray, row: usize) -> Vec<String> {
        let items = list.value(row);
        items.as_string_opt::<i32>().map_or_else(Vec::new, |items| items.iter().flatten().map(str::to_owned).collect())
    }
}

/// The values of one vector; `None` where the row has none.
pub(crate) fn vector_at(vectors: &FixedSizeListArray, row: usize) -> Option<&[f32]> {
    if vectors.is_null(row) {
        return None;
    }
    let width = vectors.value_length() as usize;
    let values: &Float32Array = vectors.values().as_any().downcast_ref()?;
    values.values().get(row * width..(row + 1) * width)
}

/// Chunks without vectors, from either set of [`chunk_columns`].
pub(crate) fn chunks_from(batch: &RecordBatch) -> IndexResult<Vec<ChunkRow>> {
    let columns = Columns(batch);
    if batch.column_by_name(DETAILS).is_some() {
        return detailed_chunks(&columns);
    }
    let (source, section, text) = (columns.text("source_file")?, columns.text("section")?, columns.text("chunk_text")?);
    let (opaque, terms, date) = (columns.text("opaque")?, columns.text("terms")?, columns.text("date")?);
    let (number, day, tags) = (columns.short("chunk_index")?, columns.short("day")?, columns.list("tags")?);
    let (start, end, hash) = (columns.long("start")?, columns.long("end")?, columns.long("hash")?);
    let option = |array: &StringArray, row: usize| (!array.is_null(row)).then(|| array.value(row).to_owned());
    let rows = (0..batch.num_rows()).map(|row| ChunkRow {
        source_file: source.value(row).to_owned(),
        chunk_index: number.value(row).cast_unsigned(),
        section: option(section, row),
        start: start.value(row).cast_unsigned(),
        end: end.value(row).cast_unsigned(),
        text: text.value(row).to_owned(),
        opaque: opaque.value(row).to_owned(),
        terms: terms.value(row).to_owned(),
        tags: Columns::texts_at(tags, row),
        date: option(date, row),
        day: day.value(row),
        hash: hash.value(row).cast_unsigned(),
        vector: None,
    });
    Ok(rows.collect())
}

fn detailed_chunks(columns: &Columns<'_>) -> IndexResult<Vec<ChunkRow>> {
    let (details, text) = (columns.text(DETAILS)?, columns.text("chunk_text")?);
    let (opaque, terms) = (columns.text("opaque")?, columns.text("terms")?);
    (0..columns.0.num_rows())
        .map(|row| {
            let details: Details<'_> = serde_json::from_str(details.value(row)).map_err(index_error)?;
            Ok(ChunkRow {
                source_file: details.source_file.into_owned(),
                chunk_index: details.chunk_index,
                section: details.section.map(Cow::into_owned),
                start: details.start,
                end: details.end,
                text: text.value(row).to_owned(),
                opaque: opaque.value(row).to_owned(),
                terms: terms.value(row).to_owned(),
                tags: details.tags.into_owned(),
                date: details.date.map(Cow::into_owned),
                day: details.day,
                hash: details.hash,
                vector: None,
            })
        })
        .collect()
}

pub(crate) fn files_from(batch: &RecordBatch) -> IndexResult<Vec<FileRow>> {
    let columns = Columns(batch);
    let (path, state, reason, title) =
        (columns.text("path")?, columns.text("state")?, columns.text("reason")?, columns.text("title")?);
    let (hash, size, mtime, recipe) =
        (columns.long("hash")?, columns.long("size")?, columns.long("mtime_ms")?, columns.long("recipe")?);
    let (chunks, unembedded, day) = (columns.short("chunks")?, columns.short("unembedded")?, columns.short("day")?);
    let (aliases, tags, links) = (columns.list("aliases")?, columns.list("tags")?, columns.list("links")?);
    (0..batch.num_rows())
        .map(|row| {
            let state = FileState::from_word(state.value(row))
                .ok_or_else(|| IndexError::Corrupted("a file has an unknown state".to_owned()))?;
            Ok(FileRow {
                path: path.value(row).to_owned(),
                state,
                reason: reason.value(row).to_owned(),
                hash: hash.value(row).cast_unsigned(),
                size: size.value(row).cast_unsigned(),
                mtime_ms: mtime.value(row),
                recipe: recipe.value(row).cast_unsigned(),
                chunks: chunks.value(row).cast_unsigned(),
                unembedded: unembedded.value(row).cast_unsigned(),
                title: title.value(row).to_owned(),
                aliases: Columns::texts_at(aliases, row),
                tags: Columns::texts_at(tags, row),
                links: Columns::texts_at(links, row),
                day: day.value(row),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_back_from_either_set_of_columns() {
        let chunk = |section: Option<&str>, tags: &[&str]| ChunkRow {
            source_file: "Täglich/\"a\" \u{1f600}.md".to_owned(),
            chunk_index: 3,
            section: section.map(str::to_owned),
            start: 7,
            end: u64::from(u32::MAX) + 9,
            text: "text".to_owned(),
            opaque: "let x = \"\\n\";".to_owned(),
            terms: "text let x".to_owned(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            date: section.map(|_| "2024-03-05".to_owned()),
            day: -4,
            hash: u64::MAX - 1,
            vector: None,
        };
        let rows = [chunk(Some("A > \tB"), &["x/y", "é"]), chunk(None, &[])];
        for has_details in [true, false] {
            let batch = chunk_batch(&rows, 0, has_details).unwrap();
            let columns = chunk_columns(has_details).iter().map(|name| batch.schema().index_of(name).unwrap());
            let read = batch.project(&columns.collect::<Vec<_>>()).unwrap();
            assert_eq!(chunks_from(&read).unwrap(), rows, "{has_details}");
        }
    }
}
