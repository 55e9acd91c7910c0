//! Measuring on one's own data.

use clap::Subcommand;
use std::path::PathBuf;

/// `toolyard eval`.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Measure tool search on a labelled set
    Tools {
        /// Tools, one JSON object a line: {"name","description","parameters"}
        #[arg(long, value_name = "FILE")]
        catalog: PathBuf,
        /// Queries, one JSON object a line: {"query","gold":[names],"steps":[queries]}
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Search a query's steps as a batch and merge
        #[arg(long)]
        steps: bool,
        /// Rank by words alone, without the built-in embedding
        #[arg(long)]
        words_only: bool,
    },
    /// Measure note search on a labelled corpus: full text, vectors, and both as searches use them
    Notes {
        /// Documents, one JSON object a line: {"_id","title","text"}
        #[arg(long, value_name = "FILE")]
        corpus: PathBuf,
        /// Questions, one JSON object a line: {"_id","text"}
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Which document answers which question: query, document and grade, with tabs between, after a header
        #[arg(long, value_name = "FILE")]
        qrels: PathBuf,
    },
    /// Measure recall of conversations: how much of the evidence is among the first turns recalled
    Memory {
        /// Turns, one JSON object a line: {"conv","session","session_time","id","speaker","text","image_caption"}
        #[arg(long, value_name = "FILE")]
        turns: PathBuf,
        /// Questions, one JSON object a line: {"conv","qid","category_name","question","evidence":[turn ids]}
        #[arg(long, value_name = "FILE")]
        questions: PathBuf,
    },
}
