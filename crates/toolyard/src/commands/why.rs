//! `toolyard why`: why something was found, or was not.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{CorpusArg, Global, WhyArgs},
    output::{self, Paint},
    why::{Corpus, RecallWhy, WhyParams},
    wiring::RequiredParts,
};
use std::process::ExitCode;

pub(super) async fn run(global: &Global, args: WhyArgs) -> Outcome {
    let corpus = match args.corpus {
        CorpusArg::Notes => Corpus::Notes,
        CorpusArg::Memory => Corpus::Memory,
        CorpusArg::Tools => Corpus::Tools,
    };
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let params = WhyParams { corpus, query: args.query, expect: args.expect };
    let answer = backend.call::<RecallWhy>(&params, None).await;
    backend.close().await;
    let why = answer?;
    if global.json {
        output::json(&why);
    } else {
        let paint = Paint::stdout();
        for step in &why.steps {
            let word = if step.ok { paint.green("yes") } else { paint.red("no ") };
            output::data(&format!("{word} {:<8} {}", step.check, output::plain(&step.detail)));
        }
        output::data(&output::plain(&why.sentence));
    }
    Ok(if why.found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
