//! Notes: quality on a labelled data set, indexing, searching 40,000 chunks in a running server, and a million chunks.

use crate::{
    Setup,
    notes_text::{Dice, question, text, write_vault},
    process::{Running, command, home, program, start_up},
    report::{Good, Report},
    stats::{median, most, quantile},
    usage::{Memory, Whose, cpu_micros},
};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use toolyard_client::local::LocalSecret;
use toolyard_knowledge::{
    embed::{Embedder, Purpose, StaticTable},
    index::{
        ChunkFilter, FileRow, FileState, IndexSpec, NoteIndex, VectorColumns, WriteBatch, WriterStart, file_id, hash64,
    },
    search::{Detail, Library, Query, Weights, answer},
    text::{index_terms, query_terms},
};
use toolyard_noteindex::{
    remote::{IDLE_STOP, Launch, RemoteIndex, RunningProgram as Program},
    wire::{self, OpenIndex},
};
use toolyard_protocol::WorkspaceId;

/// Default location of the labelled data set.
const DATA: &str = "../shared/data/retrieval/scifact";
/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// nDCG@10 of the default configuration.
pub(crate) fn quality(setup: &Setup) -> Result<Report> {
    let report = Report::new("notes-quality", "fusedNdcg10", Good::AtLeast, 0.69);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let data = setup.data.clone().unwrap_or_else(|| DATA.into());
    if !data.join("corpus.jsonl").is_file() {
        return Ok(report.skipped(format!("there is no corpus.jsonl in {}; name a folder with --data", data.display())));
    }
    let home = home(setup)?;
    let mut eval = command(&program, &home);
    eval.args(["eval", "notes", "--json"]);
    for (flag, file) in [("--corpus", "corpus.jsonl"), ("--queries", "queries.jsonl"), ("--qrels", "qrels.tsv")] {
        eval.arg(flag).arg(data.join(file));
    }
    let out = eval.output()?;
    ensure!(out.status.success(), "`toolyard eval notes` ended with {}", out.status);
    let scores: Value = serde_json::from_slice(&out.stdout)?;
    let figure = |way: &str, what: &str| scores[way][what].as_f64().unwrap_or(0.0);
    let mut report = report.also("gainOverFullText", Good::AtLeast, 0.0);
    for (way, name) in [("full_text", "fullText"), ("vector", "vector"), ("fused", "fused")] {
        for (what, suffix) in [("ndcg10", "Ndcg10"), ("recall10", "Recall10"), ("recall100", "Recall100")] {
            report = report.figure(&format!("{name}{suffix}"), figure(way, what));
        }
    }
    Ok(report.figure("gainOverFullText", figure("fused", "ndcg10") - figure("full_text", "ndcg10")))
}

/// Indexes 6,500 notes from nothing, then without changes, then with one changed note.
pub(crate) fn indexing(setup: &Setup) -> Result<Report> {
    let report = Report::new("notes-index", "cpuSeconds", Good::Below, 30.0)
        .also("noChangeSyncMs", Good::Below, 300.0)
        .also("changedNoteVisibleMs", Good::Below, 1000.0);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let home = home(setup)?;
    let vault = home.path().join("vault");
    let bytes = write_vault(&vault, 6_500, 2_250, 420)?;
    let index = |arguments: &[&str]| -> Result<(Value, f64, f64)> {
        let (cpu, start) = (cpu_micros(Whose::Children)?, Instant::now());
        let out = command(&program, &home).args(["vault", "index", "--json"]).args(arguments).output()?;
        let wall = start.elapsed().as_secs_f64();
        ensure!(out.status.success(), "`toolyard vault index` ended with {}", out.status);
        Ok((serde_json::from_slice(&out.stdout)?, wall, (cpu_micros(Whose::Children)? - cpu) / 1e6))
    };
    let (first, wall, cpu) = index(&["--full"])?;
    let mut syncs = Vec::new();
    let mut commands = Vec::new();
    for _ in 0..setup.rounds {
        let (nothing, wall, _) = index(&[])?;
        ensure!(nothing["data"]["indexed_files"] == 0, "nothing had changed: {nothing}");
        syncs.push(nothing["data"]["duration_ms"].as_f64().unwrap_or(0.0));
        commands.push(wall * 1e3);
    }
    let server = Server::start(&program, &home)?;
    let mut client = server.client()?;
    let mut seen = Vec::new();
    for round in 0..setup.rounds {
        let word = format!("zyxquark{round}");
        std::fs::write(vault.join("changed.md"), format!("A note about the {word} that nobody wrote before."))?;
        let start = Instant::now();
        loop {
            let answer = client.search(&word)?;
            let found = answer["data"]["results"][0]["chunk_text"].as_str().is_some_and(|t| t.contains(&word));
            if found {
                break;
            }
            ensure!(start.elapsed() < PATIENCE, "the changed note was never found: {answer}");
            std::thread::sleep(Duration::from_millis(10));
        }
        seen.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(report
        .figure("cpuSeconds", cpu)
        .figure("wallSeconds", wall)
        .figure("megabytesOfNotes", bytes as f64 / 1e6)
        .figure("chunks", first["data"]["total_chunks"].as_f64().unwrap_or(0.0))
        .figure("noChangeSyncMs", median(&syncs))
        .figure("noChangeCommandMs", median(&commands))
        .figure("changedNoteVisibleMs", most(&seen))
        .figure("indexMegabytes", folder_bytes(&home.path().join("home/index")) as f64 / 1e6))
}

/// Searches 40,000 chunks in a running server, and from a cold command line.
pub(crate) fn searching(setup: &Setup) -> Result<Report> {
    let report = Report::new("notes-search", "p50Ms", Good::Below, 10.0)
        .also("p99Ms", Good::Below, 40.0)
        .also("privateMegabytes", Good::Below, 250.0)
        .also("coldCommandMs", Good::Below, 300.0);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let home = home(setup)?;
    write_vault(&home.path().join("vault"), 5_720, 2_250, 330)?;
    let out = command(&program, &home).args(["vault", "index", "--full", "--json"]).output()?;
    ensure!(out.status.success(), "`toolyard vault index` ended with {}", out.status);
    let indexed: Value = serde_json::from_slice(&out.stdout)?;
    let mut cold = Vec::new();
    let mut dice = Dice::new(5);
    for _ in 0..setup.rounds {
        let start = Instant::now();
        let status = command(&program, &home)
            .args(["vault", "search", "--json", "--in-process"])
            .arg(question(&mut dice))
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "`toolyard vault search` ended with {status}");
        cold.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let server = Server::start(&program, &home)?;
    let mut client = server.client()?;
    for _ in 0..50 {
        client.search(&question(&mut dice))?;
    }
    let (mut round_trips, mut inside) = (Vec::new(), Vec::new());
    for _ in 0..200 * setup.rounds {
        let asked = question(&mut dice);
        let start = Instant::now();
        let answer = client.search(&asked)?;
        round_trips.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(answer["status"] == "healthy", "{answer}");
        inside.push(answer["meta"]["query_time_ms"].as_f64().unwrap_or(0.0));
    }
    let (private, resident) = Memory::of(server.running.id())?.megabytes();
    Ok(report
        .figure("chunks", indexed["data"]["total_chunks"].as_f64().unwrap_or(0.0))
        .figure("p50Ms", median(&inside))
        .figure("p99Ms", quantile(&inside, 0.99))
        .figure("roundTripP50Ms", median(&round_trips))
        .figure("roundTripP99Ms", quantile(&round_trips, 0.99))
        .figure("privateMegabytes", private)
        .figure("residentMegabytes", resident)
        .figure("coldCommandMs", median(&cold))
        .figure("coldCommandWorstMs", most(&cold)))
}

/// A million chunks whose vectors exceed the memory limit: LanceDB's vector index, compared with an exact scan.
pub(crate) fn million(setup: &Setup) -> Result<Report> {
    let report = Report::new("notes-million", "p50Ms", Good::Below, 30.0).also("recall10", Good::AtLeast, 0.95).also(
        "privateMegabytes",
        Good::Below,
        MILLION_PRIVATE,
    );
    let program = match index_program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure_million(setup, program, report))
}

/// Memory for vectors: an eighth of what a million would take.
const MILLION_BUDGET: u64 = 32 << 20;
/// Maximum memory of the process after writing and searching, in megabytes: the vector budget, LanceDB's caches (64),
/// the records of 100,000 files, and leftovers of writing. The vectors alone would take 280.
const MILLION_PRIVATE: f64 = 350.0;

async fn measure_million(setup: &Setup, program: PathBuf, report: Report) -> Result<Report> {
    let dir = TempDir::with_prefix_in("toolyard-bench-", &setup.dir)?;
    let options = OpenIndex { vector_memory_bytes: MILLION_BUDGET, ..OpenIndex::new(dir.path().display().to_string()) };
    let launch = Unwalled::new(program);
    let process = launch.process.clone();
    let index = RemoteIndex::new(launch, options, IDLE_STOP);
    let embedder: Arc<dyn Embedder> = Arc::new(StaticTable::new());
    let info = embedder.describe().await?;
    let spec = IndexSpec { embedder: info.id, dimensions: info.dimensions, recipe: "bench".to_owned() };
    let chunks = setup.chunks;
    let start = Instant::now();
    let mut writer = index.write(&spec, WriterStart::Fresh).await?;
    let mut dice = Dice::new(3);
    let mut written = 0;
    while written < chunks {
        let mut batch = WriteBatch::default();
        for number in 0..2_000.min((chunks - written).div_ceil(10)) {
            add_file(&mut batch, &mut dice, &*embedder, written / 10 + number).await?;
        }
        written += batch.chunks.len();
        writer.put(batch).await?;
    }
    let wrote = start.elapsed().as_secs_f64();
    writer.complete().await?;
    let completed = start.elapsed().as_secs_f64();
    let reader = index.current().await?.context("there is no version")?;
    let library = Library::load(reader.clone(), None, MILLION_BUDGET).await?;
    let everything = ChunkFilter::default();
    let mut questions = Vec::new();
    for _ in 0..20 * setup.rounds {
        let asked = question(&mut dice);
        let vector =
            embedder.embed(std::slice::from_ref(&asked), Purpose::Query).await?.remove(0).context("no vector")?;
        questions.push((asked, vector));
    }
    // The exact ten best for each question, in one pass over all vectors.
    let mut exact: Vec<Vec<(f32, u64)>> = vec![Vec::new(); questions.len()];
    let mut sink = |row: toolyard_knowledge::index::VectorRow<'_>| {
        let Some(vector) = row.vector else { return };
        for ((_, asked), best) in questions.iter().zip(&mut exact) {
            let score: f32 = asked.iter().zip(vector).map(|(a, b)| a * b).sum();
            if best.len() < 10 || best.last().is_some_and(|worst| score > worst.0) {
                best.push((score, row.row));
                best.sort_by(|a, b| b.0.total_cmp(&a.0));
                best.truncate(10);
            }
        }
    };
    reader.vectors(VectorColumns::All, &mut sink).await?;
    let (mut both, mut vectors, mut texts, mut hits) = (Vec::new(), Vec::new(), Vec::new(), 0usize);
    let weights = Weights { vector: 0.41, links: 0.02 };
    for (number, (asked, vector)) in questions.iter().enumerate() {
        let start = Instant::now();
        let found = reader.nearest(vector, &everything, 10).await?;
        vectors.push(start.elapsed().as_secs_f64() * 1e3);
        // A hit with the same cosine counts, because many generated chunks are alike. The index itself has 8 bits per
        // dimension.
        let least = exact[number].last().map_or(0.0, |worst| worst.0);
        let rows: Vec<u64> = found.iter().map(|found| found.row).collect();
        for own in reader.vectors_of(&rows).await?.iter().flatten() {
            let score: f32 = vector.iter().zip(own).map(|(a, b)| a * b).sum();
            hits += usize::from(score >= least - 1e-4);
        }
        let query = Query {
            text: asked,
            vector: Some(vector.clone()),
            filter: everything.clone(),
            allowed: None,
            limit: 10,
            weights,
        };
        let question = query.question(Detail::Scores);
        let start = Instant::now();
        reader.full_text(&query_terms(asked), &everything, 10).await?;
        texts.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        answer(&library, &question).await?;
        both.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let (private, resident) = Memory::of(process.load(Ordering::Relaxed))?.megabytes();
    Ok(report
        .figure("chunks", written as f64)
        .figure("p50Ms", median(&both))
        .figure("p99Ms", quantile(&both, 0.99))
        .figure("vectorP50Ms", median(&vectors))
        .figure("fullTextP50Ms", median(&texts))
        .figure("recall10", hits as f64 / (questions.len() * 10) as f64)
        .figure("privateMegabytes", private)
        .figure("residentMegabytes", resident)
        .figure("writeSeconds", wrote)
        .figure("completeSeconds", completed - wrote)
        .figure("indexMegabytes", folder_bytes(dir.path()) as f64 / 1e6))
}

/// The index program beside the main one.
pub(crate) fn index_program(setup: &Setup) -> Result<PathBuf, String> {
    let path = program(setup)?.with_file_name(wire::PROGRAM);
    if path.is_file() { Ok(path) } else { Err(format!("there is no {}; `make build` builds it", path.display())) }
}

/// Starts the index program without the sandbox, so that it is measured alone.
pub(crate) struct Unwalled {
    program: PathBuf,
    process: Arc<AtomicU32>,
}

impl Unwalled {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, process: Arc::default() }
    }
}

impl Launch for Unwalled {
    fn find(&self) -> Result<(), toolyard_noteindex::ProgramError> {
        Ok(())
    }

    fn start(&self) -> Result<Program, toolyard_noteindex::ProgramError> {
        let running = Program::spawn(tokio::process::Command::new(&self.program))?;
        self.process.store(running.id().unwrap_or(0), Ordering::Relaxed);
        Ok(running)
    }
}

/// Time from the start of the index program to its first response, with an index of a few notes and its files in the
/// page cache.
pub(crate) fn index_start(setup: &Setup) -> Result<Report> {
    let report = Report::new("index-start", "firstAnswerMs", Good::Below, 150.0);
    let program = match index_program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let dir = TempDir::with_prefix_in("toolyard-bench-", &setup.dir)?;
        let embedder = StaticTable::new();
        let info = embedder.describe().await?;
        let spec = IndexSpec { embedder: info.id, dimensions: info.dimensions, recipe: "bench".to_owned() };
        let open = || {
            let place = OpenIndex::new(dir.path().display().to_string());
            RemoteIndex::new(Unwalled::new(program.clone()), place, IDLE_STOP)
        };
        let index = open();
        let mut writer = index.write(&spec, WriterStart::Fresh).await?;
        let (mut batch, mut dice) = (WriteBatch::default(), Dice::new(5));
        for number in 0..100 {
            add_file(&mut batch, &mut dice, &embedder, number).await?;
        }
        writer.put(batch).await?;
        writer.complete().await?;
        index.close().await;
        let (mut answers, mut handshakes) = (Vec::new(), Vec::new());
        for _ in 0..=10 * setup.rounds {
            let index = open();
            let start = Instant::now();
            index.generation().await?;
            handshakes.push(start.elapsed().as_secs_f64() * 1e3);
            let reader = index.current().await?.context("there is no version")?;
            let library = Library::load(reader, None, 128 << 20).await?;
            let asked = question(&mut dice);
            let query = Query {
                text: &asked,
                vector: None,
                filter: ChunkFilter::default(),
                allowed: None,
                limit: 5,
                weights: Weights { vector: 0.41, links: 0.02 },
            };
            answer(&library, &query.question(Detail::Chunks)).await?;
            answers.push(start.elapsed().as_secs_f64() * 1e3);
            drop(library);
            index.close().await;
        }
        // The first start reads the program from disk, so it is not counted.
        let (answers, handshakes) = (&answers[1..], &handshakes[1..]);
        Ok(report
            .figure("firstAnswerMs", median(answers))
            .figure("worstMs", most(answers))
            .figure("handshakeMs", median(handshakes)))
    })
}

async fn add_file(batch: &mut WriteBatch, dice: &mut Dice, embedder: &dyn Embedder, number: usize) -> Result<()> {
    let path = format!("folder {}/note {number}.md", number % 100);
    let topic = dice.below(1_000);
    let texts: Vec<String> = (0..10).map(|_| text(dice, topic, 300)).collect();
    for (place, (text, vector)) in texts.iter().zip(embedder.embed(&texts, Purpose::Passage).await?).enumerate() {
        let mut terms = String::new();
        index_terms(text, &mut terms);
        batch.chunks.push(toolyard_knowledge::index::ChunkRow {
            source_file: path.clone(),
            chunk_index: place as u32,
            section: None,
            start: 0,
            end: text.len() as u64,
            text: text.clone(),
            opaque: String::new(),
            terms,
            tags: Vec::new(),
            date: None,
            day: (number % 3_650) as i32,
            hash: hash64(&[text.as_bytes()]),
            vector,
        });
    }
    batch.files.push(FileRow {
        state: FileState::Indexed,
        reason: String::new(),
        hash: file_id(&path),
        size: 3_000,
        mtime_ms: 0,
        recipe: 0,
        chunks: 10,
        unembedded: 0,
        title: format!("note {number}"),
        aliases: Vec::new(),
        tags: Vec::new(),
        links: Vec::new(),
        day: (number % 3_650) as i32,
        path,
    });
    Ok(())
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// A running server with a home folder.
struct Server {
    running: Running,
    socket: std::path::PathBuf,
}

impl Server {
    fn start(program: &std::path::PathBuf, home: &TempDir) -> Result<Self> {
        let (running, _) = start_up(program, home)?;
        Ok(Self { running, socket: home.path().join("home/state/toolyard.sock") })
    }

    fn client(&self) -> Result<Client> {
        let mut stream = UnixStream::connect(&self.socket).context("the server has no socket")?;
        stream.write_all(LocalSecret::of_socket(&self.socket)?.first_line(&WorkspaceId::default())?.as_bytes())?;
        Ok(Client { out: stream.try_clone()?, lines: BufReader::new(stream), id: 0 })
    }
}

/// A client of the local socket.
struct Client {
    out: UnixStream,
    lines: BufReader<UnixStream>,
    id: u64,
}

impl Client {
    fn search(&mut self, query: &str) -> Result<Value> {
        self.id += 1;
        let params = json!({"name": "obsidian_rag_search", "args": {"query": query}});
        let request = json!({"id": self.id, "method": "tools.call", "params": params});
        writeln!(self.out, "{request}")?;
        // The events of the run come first.
        let mut answer = loop {
            let mut line = String::new();
            ensure!(self.lines.read_line(&mut line)? > 0, "the server hung up");
            let message: Value = serde_json::from_str(&line)?;
            if message.get("event").is_none() {
                break message;
            }
        };
        ensure!(answer["ok"] == true, "the search failed: {answer}");
        Ok(answer["result"]["result"]["data"].take())
    }
}
