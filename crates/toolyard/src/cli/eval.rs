//! The command `eval`: measures search quality on labelled data.

use clap::Subcommand;
use std::path::PathBuf;

/// `toolyard eval`.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Measure tool search on labelled queries
    Tools {
        /// Tools, one JSON object a line: {"name","description","parameters"}
        #[arg(long, value_name = "FILE")]
        catalog: PathBuf,
        /// Queries, one JSON object a line: {"query","gold":[names],"steps":[queries]}
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Search the steps of a query as a batch and merge the results
        #[arg(long)]
        steps: bool,
        /// Rank by words only, without the built-in embedding
        #[arg(long)]
        words_only: bool,
    },
    /// Measure note search on a labelled corpus: full text, vectors, and the combination that searches use
    Notes {
        /// Documents, one JSON object a line: {"_id","title","text"}
        #[arg(long, value_name = "FILE")]
        corpus: PathBuf,
        /// Questions, one JSON object a line: {"_id","text"}
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Relevant documents, one line each: query, document and grade, separated by tabs; the first line may be a header
        #[arg(long, value_name = "FILE")]
        qrels: PathBuf,
    },
    /// Measure recall of conversations: the share of a question's evidence among the first recalled turns
    Memory {
        /// Turns, one JSON object a line: {"conv","session","session_time","id","speaker","text","image_caption"}
        #[arg(long, value_name = "FILE")]
        turns: PathBuf,
        /// Questions, one JSON object a line: {"conv","qid","category_name","question","evidence":[turn ids]}
        #[arg(long, value_name = "FILE")]
        questions: PathBuf,
    },
}
