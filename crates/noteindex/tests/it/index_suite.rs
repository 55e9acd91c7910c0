//! The contract suite for every index. It runs here over the in-memory index, directly and behind a pipe, and in the
//! LanceDB crate over its index.
#![allow(dead_code, unused_macros, unused_imports)] // each crate uses what it needs

use std::{collections::HashMap, sync::Arc};
use toolyard_noteindex::{
    ChunkFilter, ChunkRow, FileRow, FileState, IndexError, IndexReader, IndexSpec, NoteIndex, VectorColumns,
    WriteBatch, WriterStart, file_id, hash64,
};

/// Expands to one test for each check. The closure creates an empty index, together with whatever must outlive it.
macro_rules! every_check {
    ($make:expr) => {
        $crate::index_suite::checks! { $make;
            nothing_is_there_at_first
            what_is_complete_can_be_read
            readers_keep_their_version
            nothing_half_done_is_seen
            an_interrupted_writer_is_continued
            files_are_replaced_touched_and_removed
            a_large_file_comes_in_several_writes
            filters_admit_what_they_should
            full_text_ranks_by_terms
            nearest_ranks_by_cosine
            chunks_without_vectors_are_found_by_words
            known_vectors_are_found_by_hash
            another_embedder_begins_anew
            one_writer_at_a_time
            rollback_returns_to_the_version_before
            a_change_of_files_alone_is_a_version
            many_small_writes_stay_searchable
            odd_names_and_texts_survive
        }
    };
}
pub(crate) use every_check;

macro_rules! checks {
    ($make:expr; $($check:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let (_keep, index) = ($make)().await;
                $crate::index_suite::$check(index).await;
            }
        )*
    };
}
pub(crate) use checks;

type Index = Arc<dyn NoteIndex>;

pub(crate) fn spec() -> IndexSpec {
    IndexSpec { embedder: "test/a".to_owned(), dimensions: 4, recipe: "r".to_owned() }
}

/// The words of a text; in scripts without spaces, its characters and pairs of characters.
fn index_terms(text: &str, terms: &mut String) {
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if word.is_ascii() {
            terms.push_str(&word.to_lowercase());
            terms.push(' ');
            continue;
        }
        let letters: Vec<char> = word.chars().collect();
        for length in [1, 2] {
            for part in letters.windows(length) {
                terms.extend(part);
                terms.push(' ');
            }
        }
    }
}

pub(crate) fn chunk(path: &str, number: u32, text: &str, vector: Option<[f32; 4]>) -> ChunkRow {
    let mut terms = String::new();
    index_terms(text, &mut terms);
    ChunkRow {
        source_file: path.to_owned(),
        chunk_index: number,
        section: (number > 0).then(|| format!("Section {number}")),
        start: u64::from(number) * 10,
        end: u64::from(number) * 10 + 5,
        text: text.to_owned(),
        opaque: String::new(),
        terms,
        tags: Vec::new(),
        date: None,
        day: 100,
        hash: hash64(&[text.as_bytes()]),
        vector: vector.map(|v| v.to_vec()),
    }
}

pub(crate) fn file(path: &str, chunks: u32) -> FileRow {
    FileRow {
        path: path.to_owned(),
        state: FileState::Indexed,
        reason: String::new(),
        hash: hash64(&[path.as_bytes()]),
        size: 7,
        mtime_ms: 1_700_000_000_123,
        recipe: 1,
        chunks,
        unembedded: 0,
        title: format!("Title of {path}"),
        aliases: vec!["Also".to_owned()],
        tags: vec!["t".to_owned()],
        links: vec!["x".to_owned(), "y".to_owned()],
        day: 100,
    }
}

pub(crate) fn note(path: &str, texts: &[(&str, [f32; 4])]) -> WriteBatch {
    let chunks: Vec<ChunkRow> =
        texts.iter().enumerate().map(|(i, (text, vector))| chunk(path, i as u32, text, Some(*vector))).collect();
    WriteBatch { files: vec![file(path, chunks.len() as u32)], chunks, ..WriteBatch::default() }
}

async fn write(index: &Index, batches: Vec<WriteBatch>) {
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    for batch in batches {
        writer.put(batch).await.unwrap();
    }
    writer.complete().await.unwrap();
}

async fn reader(index: &Index) -> Arc<dyn IndexReader> {
    index.current().await.unwrap().expect("a complete version")
}

/// Paths and chunk numbers of full-text hits, in order.
async fn words(reader: &dyn IndexReader, terms: &[&str], filter: &ChunkFilter) -> Vec<String> {
    let terms: Vec<String> = terms.iter().map(|t| (*t).to_owned()).collect();
    let found = reader.full_text(&terms, filter, 100).await.unwrap();
    let rows: Vec<u64> = found.iter().map(|f| f.row).collect();
    let chunks = reader.fetch(&rows).await.unwrap();
    let files: Vec<u64> = chunks.iter().map(|chunk| file_id(&chunk.source_file)).collect();
    assert_eq!(reader.files_of(&rows).await.unwrap(), files);
    chunks.iter().map(|c| format!("{}#{}", c.source_file, c.chunk_index)).collect()
}

async fn all(index: &Index) -> Vec<String> {
    let mut files: Vec<String> = reader(index).await.files().await.unwrap().into_iter().map(|f| f.path).collect();
    files.sort();
    files
}

const X: [f32; 4] = [1.0, 0.0, 0.0, 0.0];
const Y: [f32; 4] = [0.0, 1.0, 0.0, 0.0];
const Z: [f32; 4] = [0.0, 0.0, 1.0, 0.0];

pub(crate) async fn nothing_is_there_at_first(index: Index) {
    assert!(index.current().await.unwrap().is_none());
    assert_eq!(index.generation().await.unwrap(), None);
    assert!(index.versions().await.unwrap().is_empty());
    assert_eq!(index.rollback().await.unwrap_err(), IndexError::NoEarlierVersion);
}

pub(crate) async fn what_is_complete_can_be_read(index: Index) {
    let batch = note("a/n.md", &[("apple pie", X), ("banana bread", Y)]);
    write(&index, vec![batch.clone()]).await;
    let reader = reader(&index).await;
    let info = reader.info();
    assert_eq!((info.chunks, info.files, &info.spec), (2, 1, &spec()));
    assert_eq!(index.generation().await.unwrap(), Some(info.generation));
    assert_eq!(reader.files().await.unwrap(), batch.files);
    let terms = vec!["banana".to_owned()];
    let found = reader.full_text(&terms, &ChunkFilter::default(), 10).await.unwrap();
    let rows: Vec<u64> = found.iter().map(|f| f.row).collect();
    assert_eq!(reader.fetch(&rows).await.unwrap(), [ChunkRow { vector: None, ..batch.chunks[1].clone() }]);
    let mut seen = HashMap::new();
    let mut sink = |row: toolyard_noteindex::VectorRow<'_>| {
        seen.insert(row.hash, (row.row, row.file, row.vector.map(<[f32]>::to_vec)));
    };
    reader.vectors(VectorColumns::All, &mut sink).await.unwrap();
    let (row, file, vector) = seen[&batch.chunks[1].hash].clone();
    assert_eq!((row, file, vector), (rows[0], file_id("a/n.md"), Some(Y.to_vec())));
    assert_eq!(reader.vectors_of(&[row]).await.unwrap(), [Some(Y.to_vec())]);
    assert_eq!(reader.sample(1).await.unwrap(), ["apple pie"]);
    assert_eq!(reader.sample(10).await.unwrap(), ["apple pie", "banana bread"]);
    let mut keys = 0;
    reader.vectors(VectorColumns::KeysOnly, &mut |row| keys += usize::from(row.vector.is_none())).await.unwrap();
    assert_eq!(keys, 2);
    let mut rows = Vec::new();
    reader.vectors(VectorColumns::FilesOnly, &mut |row| rows.push((row.row, row.file))).await.unwrap();
    rows.sort_unstable();
    let files: Vec<u64> = rows.iter().map(|(_, file)| *file).collect();
    assert_eq!(files, [file_id("a/n.md"); 2]);
    assert!(rows.iter().any(|(row, _)| *row == seen[&batch.chunks[1].hash].0), "the same rows as elsewhere");
}

pub(crate) async fn readers_keep_their_version(index: Index) {
    write(&index, vec![note("a.md", &[("apple", X)])]).await;
    let old = reader(&index).await;
    write(&index, vec![note("a.md", &[("cherry", Y)]), note("b.md", &[("apple", X)])]).await;
    let new = reader(&index).await;
    let everything = ChunkFilter::default();
    assert_eq!(words(&*old, &["apple"], &everything).await, ["a.md#0"]);
    assert!(words(&*old, &["cherry"], &everything).await.is_empty());
    assert_eq!(words(&*new, &["apple"], &everything).await, ["b.md#0"]);
    assert_eq!(words(&*new, &["cherry"], &everything).await, ["a.md#0"]);
    assert!(new.info().generation > old.info().generation);
    assert_ne!(new.info().version, old.info().version);
}

pub(crate) async fn nothing_half_done_is_seen(index: Index) {
    write(&index, vec![note("a.md", &[("apple", X)])]).await;
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    assert!(!writer.is_changed());
    writer.put(note("b.md", &[("banana", Y)])).await.unwrap();
    writer.put(WriteBatch { removed: vec!["a.md".to_owned()], ..WriteBatch::default() }).await.unwrap();
    assert!(writer.is_changed());
    assert_eq!(all(&index).await, ["a.md"], "while it is written");
    drop(writer);
    assert_eq!(all(&index).await, ["a.md"], "after the writer died");
    assert_eq!(words(&*reader(&index).await, &["banana"], &ChunkFilter::default()).await, Vec::<String>::new());
}

pub(crate) async fn an_interrupted_writer_is_continued(index: Index) {
    write(&index, vec![note("a.md", &[("apple", X)])]).await;
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    writer.put(note("b.md", &[("banana", Y)])).await.unwrap();
    drop(writer);
    let writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    let mut known: Vec<String> = writer.files().await.unwrap().into_iter().map(|f| f.path).collect();
    known.sort();
    assert_eq!(known, ["a.md", "b.md"]);
    assert!(writer.is_changed(), "what was written before it died is still to be completed");
    writer.complete().await.unwrap();
    assert_eq!(all(&index).await, ["a.md", "b.md"]);
    assert_eq!(words(&*reader(&index).await, &["banana"], &ChunkFilter::default()).await, ["b.md#0"]);
}

pub(crate) async fn files_are_replaced_touched_and_removed(index: Index) {
    write(&index, vec![note("a.md", &[("apple", X), ("avocado", Y)]), note("b.md", &[("banana", Y)])]).await;
    let touched = FileRow { mtime_ms: 5, ..file("b.md", 1) };
    let batch = WriteBatch {
        touched: vec![touched.clone()],
        removed: vec!["gone.md".to_owned()],
        ..note("a.md", &[("apricot", Z)])
    };
    let failed = FileRow { state: FileState::Failed, reason: "why".to_owned(), ..file("c.md", 0) };
    write(&index, vec![batch, WriteBatch { files: vec![failed.clone()], ..WriteBatch::default() }]).await;
    let reader = reader(&index).await;
    let files: HashMap<String, FileRow> =
        reader.files().await.unwrap().into_iter().map(|f| (f.path.clone(), f)).collect();
    assert_eq!(files["b.md"], touched);
    assert_eq!(files["c.md"], failed);
    assert_eq!(reader.info().chunks, 2);
    let everything = ChunkFilter::default();
    assert!(words(&*reader, &["avocado"], &everything).await.is_empty());
    assert_eq!(words(&*reader, &["apricot"], &everything).await, ["a.md#0"]);
    assert_eq!(words(&*reader, &["banana"], &everything).await, ["b.md#0"]);
    write(&index, vec![WriteBatch { removed: vec!["b.md".to_owned()], ..WriteBatch::default() }]).await;
    assert_eq!(all(&index).await, ["a.md", "c.md"]);
}

pub(crate) async fn a_large_file_comes_in_several_writes(index: Index) {
    write(&index, vec![note("large.md", &[("apple", X), ("avocado", Y)]), note("b.md", &[("banana", Y)])]).await;
    let unfinished = FileRow { state: FileState::Failed, reason: "unfinished".to_owned(), ..file("large.md", 0) };
    let part = |number: u32, text: &str| vec![chunk("large.md", number, text, Some(X))];
    let first = || WriteBatch { files: vec![unfinished.clone()], chunks: part(0, "cherry"), ..WriteBatch::default() };
    let next = |number: u32, text: &str| WriteBatch { chunks: part(number, text), ..WriteBatch::default() };
    let everything = ChunkFilter::default();
    // A writer that dies between two batches leaves the file marked as unfinished.
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    writer.put(first()).await.unwrap();
    writer.put(next(1, "cucumber")).await.unwrap();
    drop(writer);
    assert_eq!(words(&*reader(&index).await, &["avocado"], &everything).await, ["large.md#1"], "nothing is seen of it");
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    let known = writer.files().await.unwrap();
    assert_eq!(known.iter().find(|f| f.path == "large.md"), Some(&unfinished));
    let hash = hash64(&["cucumber".as_bytes()]);
    assert_eq!(writer.known_vectors(&[hash]).await.unwrap().len(), 1, "what was embedded is not lost");
    // The next writer starts the file again.
    writer.put(first()).await.unwrap();
    writer.put(next(1, "coconut")).await.unwrap();
    let done = file("large.md", 3);
    writer.put(WriteBatch { touched: vec![done.clone()], ..next(2, "clementine") }).await.unwrap();
    writer.complete().await.unwrap();
    let now = reader(&index).await;
    assert_eq!(now.info().chunks, 4);
    assert_eq!(now.files().await.unwrap().iter().find(|f| f.path == "large.md"), Some(&done));
    for (term, place) in [("cherry", "large.md#0"), ("coconut", "large.md#1"), ("clementine", "large.md#2")] {
        assert_eq!(words(&*now, &[term], &everything).await, [place], "{term}");
    }
    for gone in ["apple", "avocado", "cucumb"] {
        assert!(words(&*now, &[gone], &everything).await.is_empty(), "{gone}");
    }
    assert_eq!(words(&*now, &["banana"], &everything).await, ["b.md#0"]);
}

pub(crate) async fn filters_admit_what_they_should(index: Index) {
    let mut batches = Vec::new();
    for (path, tags, day) in [
        ("work/a.md", vec!["project/x", "open"], 10),
        ("work/deep/b.md", vec!["project"], 20),
        ("working/c.md", vec!["projects"], 30),
        ("it's.md", vec![], 40),
        ("100%_x/d.md", vec!["o'clock"], 50),
    ] {
        let tags: Vec<String> = tags.into_iter().map(str::to_owned).collect();
        let mut batch = note(path, &[("same words", X)]);
        batch.files[0].tags.clone_from(&tags);
        batch.files[0].day = day;
        batch.chunks[0].tags = tags;
        batch.chunks[0].day = day;
        batches.push(batch);
    }
    write(&index, batches).await;
    let reader = reader(&index).await;
    let folders = |list: &[&str]| ChunkFilter {
        folders: list.iter().map(|f| (*f).to_owned()).collect(),
        ..ChunkFilter::default()
    };
    let tags =
        |list: &[&str]| ChunkFilter { tags: list.iter().map(|t| (*t).to_owned()).collect(), ..ChunkFilter::default() };
    let days = |from, to| ChunkFilter { days: Some((from, to)), ..ChunkFilter::default() };
    for (filter, wanted) in [
        (folders(&["work"]), vec!["work/a.md", "work/deep/b.md"]),
        (folders(&["work/deep", "it's.md"]), vec!["it's.md", "work/deep/b.md"]),
        (folders(&["100%_x"]), vec!["100%_x/d.md"]),
        (folders(&["%"]), vec![]),
        (tags(&["project"]), vec!["work/a.md", "work/deep/b.md"]),
        (tags(&["o'clock", "open"]), vec!["100%_x/d.md", "work/a.md"]),
        (days(20, 40), vec!["it's.md", "work/deep/b.md", "working/c.md"]),
        (days(i32::MIN, 10), vec!["work/a.md"]),
        (ChunkFilter { days: Some((0, 15)), ..folders(&["work"]) }, vec!["work/a.md"]),
    ] {
        let terms = vec!["same".to_owned()];
        for found in
            [reader.full_text(&terms, &filter, 10).await.unwrap(), reader.nearest(&X, &filter, 10).await.unwrap()]
        {
            let rows: Vec<u64> = found.iter().map(|f| f.row).collect();
            let mut paths: Vec<String> =
                reader.fetch(&rows).await.unwrap().into_iter().map(|c| c.source_file).collect();
            paths.sort();
            assert_eq!(paths, wanted, "{filter:?}");
        }
    }
}

pub(crate) async fn full_text_ranks_by_terms(index: Index) {
    let filler = |i: usize| (format!("f{i}.md"), format!("filler note number {i} about common things"));
    let mut batches: Vec<WriteBatch> = (0..40)
        .map(|i| {
            let (path, text) = filler(i);
            note(&path, &[(&text, X)])
        })
        .collect();
    batches.push(note("both.md", &[("rare zebra and common quagga", X)]));
    batches.push(note("one.md", &[("only the zebra here", X)]));
    batches.push(note("ja.md", &[("黒い猫が好き", X)]));
    write(&index, batches).await;
    let reader = reader(&index).await;
    let everything = ChunkFilter::default();
    assert_eq!(words(&*reader, &["zebra", "quagga"], &everything).await, ["both.md#0", "one.md#0"]);
    assert_eq!(words(&*reader, &["猫"], &everything).await, ["ja.md#0"]);
    assert_eq!(words(&*reader, &["黒い", "い猫"], &everything).await, ["ja.md#0"]);
    assert!(words(&*reader, &["unheard"], &everything).await.is_empty());
    let terms = vec!["common".to_owned()];
    let found = reader.full_text(&terms, &everything, 5).await.unwrap();
    assert_eq!(found.len(), 5);
    assert!(found.windows(2).all(|pair| pair[0].score >= pair[1].score) && found[0].score > 0.0);
}

pub(crate) async fn nearest_ranks_by_cosine(index: Index) {
    write(
        &index,
        vec![note("x.md", &[("ex", X)]), note("y.md", &[("why", Y)]), note("xy.md", &[("both", [0.8, 0.6, 0.0, 0.0])])],
    )
    .await;
    let reader = reader(&index).await;
    let found = reader.nearest(&X, &ChunkFilter::default(), 2).await.unwrap();
    let rows: Vec<u64> = found.iter().map(|f| f.row).collect();
    let paths: Vec<String> = reader.fetch(&rows).await.unwrap().into_iter().map(|c| c.source_file).collect();
    assert_eq!(paths, ["x.md", "xy.md"]);
    assert!((found[0].score - 1.0).abs() < 1e-3 && (found[1].score - 0.8).abs() < 1e-3, "{found:?}");
}

pub(crate) async fn chunks_without_vectors_are_found_by_words(index: Index) {
    let mut batch = note("a.md", &[("apple", X)]);
    batch.chunks.push(chunk("a.md", 1, "no vector here", None));
    write(&index, vec![batch]).await;
    let reader = reader(&index).await;
    assert_eq!(words(&*reader, &["vector"], &ChunkFilter::default()).await, ["a.md#1"]);
    assert_eq!(reader.nearest(&X, &ChunkFilter::default(), 10).await.unwrap().len(), 1);
    let found = reader.full_text(&["vector".to_owned()], &ChunkFilter::default(), 5).await.unwrap();
    assert_eq!(reader.vectors_of(&[found[0].row]).await.unwrap(), [None]);
    let mut count = 0;
    reader.vectors(VectorColumns::All, &mut |_| count += 1).await.unwrap();
    assert_eq!(count, 1);
}

pub(crate) async fn known_vectors_are_found_by_hash(index: Index) {
    write(&index, vec![note("a.md", &[("apple", X), ("banana", Y)])]).await;
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    // The vector of a replaced chunk stays available for chunks with the same text.
    writer.put(note("a.md", &[("cherry", Z)])).await.unwrap();
    let hash = |text: &str| hash64(&[text.as_bytes()]);
    let known = writer.known_vectors(&[hash("banana"), hash("apple"), hash("none")]).await.unwrap();
    assert_eq!(known, HashMap::from([(hash("banana"), Y.to_vec()), (hash("apple"), X.to_vec())]));
}

pub(crate) async fn another_embedder_begins_anew(index: Index) {
    write(&index, vec![note("a.md", &[("apple", X)])]).await;
    let other = IndexSpec { embedder: "test/b".to_owned(), dimensions: 2, recipe: "r".to_owned() };
    let mut writer = index.write(&other, WriterStart::Continue).await.unwrap();
    assert!(writer.files().await.unwrap().is_empty());
    assert_eq!(all(&index).await, ["a.md"], "the old one answers meanwhile");
    let mut batch = note("a.md", &[("apple", X)]);
    batch.chunks[0].vector = Some(vec![0.6, 0.8]);
    writer.put(batch).await.unwrap();
    drop(writer);
    let writer = index.write(&other, WriterStart::Continue).await.unwrap();
    assert_eq!(writer.files().await.unwrap().len(), 1, "and is gone on with");
    writer.complete().await.unwrap();
    let reader = reader(&index).await;
    assert_eq!(reader.info().spec, other);
    assert_eq!(reader.nearest(&[0.6, 0.8], &ChunkFilter::default(), 1).await.unwrap().len(), 1);
    let text_only = IndexSpec { embedder: String::new(), dimensions: 0, recipe: "r".to_owned() };
    let mut writer = index.write(&text_only, WriterStart::Fresh).await.unwrap();
    let mut batch = note("a.md", &[("apple", X)]);
    batch.chunks[0].vector = None;
    writer.put(batch).await.unwrap();
    writer.complete().await.unwrap();
    assert_eq!(words(&*self::reader(&index).await, &["apple"], &ChunkFilter::default()).await, ["a.md#0"]);
}

pub(crate) async fn one_writer_at_a_time(index: Index) {
    let writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    assert_eq!(index.write(&spec(), WriterStart::Continue).await.err(), Some(IndexError::Busy));
    drop(writer);
    assert!(index.write(&spec(), WriterStart::Continue).await.is_ok());
}

pub(crate) async fn rollback_returns_to_the_version_before(index: Index) {
    for text in ["first", "second", "third"] {
        write(&index, vec![note("a.md", &[(text, X)])]).await;
    }
    assert_eq!(index.versions().await.unwrap().len(), 3);
    let everything = ChunkFilter::default();
    let back = index.rollback().await.unwrap();
    assert_eq!(reader(&index).await.info().generation, back.generation);
    assert_eq!(words(&*reader(&index).await, &["second"], &everything).await, ["a.md#0"]);
    assert!(words(&*reader(&index).await, &["third"], &everything).await.is_empty());
    index.rollback().await.unwrap();
    assert_eq!(words(&*reader(&index).await, &["first"], &everything).await, ["a.md#0"]);
    assert_eq!(index.rollback().await.unwrap_err(), IndexError::NoEarlierVersion);
    // The next write is based on the version that is current after the rollback.
    let writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    assert!(!writer.is_changed());
    drop(writer);
    write(&index, vec![note("b.md", &[("fourth", Y)])]).await;
    assert_eq!(all(&index).await, ["a.md", "b.md"]);
    assert_eq!(words(&*reader(&index).await, &["first"], &everything).await, ["a.md#0"]);
}

pub(crate) async fn a_change_of_files_alone_is_a_version(index: Index) {
    write(&index, vec![note("a.md", &[("first", X)])]).await;
    let mut generations = vec![reader(&index).await.info().generation];
    for mtime_ms in [1_111, 2_222, 3_333] {
        let touched = vec![FileRow { mtime_ms, ..file("a.md", 1) }];
        write(&index, vec![WriteBatch { touched, ..WriteBatch::default() }]).await;
        generations.push(reader(&index).await.info().generation);
    }
    assert!(generations.is_sorted_by(|a, b| a < b), "{generations:?}");
    index.rollback().await.unwrap();
    assert_eq!(reader(&index).await.files().await.unwrap()[0].mtime_ms, 2_222);
    index.rollback().await.unwrap();
    let now = reader(&index).await;
    assert_eq!((now.files().await.unwrap()[0].mtime_ms, now.info().chunks), (1_111, 1));
    assert_eq!(index.versions().await.unwrap().len(), 2);
}

/// Enough writes that an index on disk compacts them.
pub(crate) async fn many_small_writes_stay_searchable(index: Index) {
    write(&index, vec![note("all.md", &[("start", X)])]).await;
    for number in 0..30 {
        write(&index, vec![note(&format!("n{number}.md"), &[(&format!("word{number} start"), Y)])]).await;
        write(&index, vec![note("all.md", &[(&format!("start changed{number}"), X)])]).await;
    }
    let everything = ChunkFilter::default();
    let now = reader(&index).await;
    assert_eq!(now.info().chunks, 31);
    for number in [0, 12, 29] {
        assert_eq!(words(&*now, &[&format!("word{number}")], &everything).await, [format!("n{number}.md#0")]);
    }
    assert_eq!(words(&*now, &["changed29"], &everything).await, ["all.md#0"]);
    assert!(words(&*now, &["changed28"], &everything).await.is_empty());
    assert_eq!(now.nearest(&X, &everything, 1).await.unwrap().len(), 1);
    index.rollback().await.unwrap();
    assert_eq!(words(&*reader(&index).await, &["changed28"], &everything).await, ["all.md#0"]);
}

pub(crate) async fn odd_names_and_texts_survive(index: Index) {
    let odd = "we'ird \"name\" \u{1F642} %_; DROP TABLE x --.md";
    let mut batch = note(odd, &[("text\nwith\u{0}nul and 'quotes' 日本", X)]);
    batch.chunks[0].section = Some("A > B's".to_owned());
    batch.chunks[0].opaque = "```\ncode\n```".to_owned();
    batch.chunks[0].date = Some("2024-03-05".to_owned());
    batch.chunks[0].day = -5;
    batch.chunks[0].hash = u64::MAX;
    batch.files[0].mtime_ms = -1;
    write(&index, vec![batch.clone()]).await;
    let reader = reader(&index).await;
    assert_eq!(reader.files().await.unwrap(), batch.files);
    let filter = ChunkFilter { folders: vec![odd.to_owned()], ..ChunkFilter::default() };
    let found = reader.full_text(&["日本".to_owned()], &filter, 5).await.unwrap();
    assert_eq!(reader.fetch(&[found[0].row]).await.unwrap(), [ChunkRow { vector: None, ..batch.chunks[0].clone() }]);
    write(&index, vec![WriteBatch { removed: vec![odd.to_owned()], ..WriteBatch::default() }]).await;
    assert!(all(&index).await.is_empty());
}
