//! The health of the notes (healthy, degraded or unavailable), computed from the probes. A pure function, so that every
//! transition can be tested.

use crate::envelope::{Health, Problem, ProblemCode};

/// The observed state of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexState {
    /// The index can be read.
    Ready,
    /// The index does not exist or is empty.
    Missing(Problem),
    /// The index cannot be read.
    Broken(Problem),
}

/// The results of the probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthProbes {
    /// Whether the vault's folder can be listed.
    pub vault: bool,
    /// The state of the index.
    pub index: IndexState,
    /// Why the in-memory index is used instead of the index program, if it is.
    pub program: Option<Problem>,
    /// Why embedding fails, if it does.
    pub embedder: Option<Problem>,
    /// Why the last indexing job failed, if it did.
    pub indexer: Option<Problem>,
    /// Whether the index is out of date and the vault has changed.
    pub stale: bool,
}

impl HealthProbes {
    /// The health, and the most important problem.
    pub fn health(&self) -> (Health, Option<Problem>) {
        match &self.index {
            // A readable index can answer queries even when the notes themselves are unavailable.
            IndexState::Broken(problem) => return (Health::Unavailable, Some(problem.clone())),
            IndexState::Missing(problem) => {
                let why = if !self.vault {
                    Problem::no_vault()
                } else {
                    // If the program is missing, that is the cause of the failed job.
                    self.program.clone().or_else(|| self.indexer.clone()).unwrap_or_else(|| problem.clone())
                };
                return (Health::Unavailable, Some(why));
            }
            IndexState::Ready => {}
        }
        let problem = if !self.vault { Some(Problem::no_vault()) } else { None };
        let problem = problem
            .or_else(|| self.program.clone())
            .or_else(|| self.embedder.clone())
            .or_else(|| self.indexer.clone())
            .or_else(|| self.stale.then(Problem::stale));
        match problem {
            None => (Health::Healthy, None),
            Some(problem) => (Health::Degraded, Some(problem)),
        }
    }

    /// Logs the result of each probe: on start, and whenever the health changes.
    pub(crate) fn log(&self, health: Health) {
        let code = |problem: &Option<Problem>| problem.as_ref().map_or("ok", |problem| problem.code.as_str());
        let index = match &self.index {
            IndexState::Ready => code(&self.program),
            IndexState::Missing(problem) | IndexState::Broken(problem) => problem.code.as_str(),
        };
        tracing::info!(
            health = health.as_str(),
            vault = if self.vault { "ok" } else { ProblemCode::VaultUnavailable.as_str() },
            index,
            embedder = code(&self.embedder),
            "the notes' health"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{embed::EmbedError, index::IndexError};

    fn good() -> HealthProbes {
        HealthProbes {
            vault: true,
            index: IndexState::Ready,
            program: None,
            embedder: None,
            indexer: None,
            stale: false,
        }
    }
    fn ollama() -> Option<Problem> {
        Some(Problem::of_embedder(&EmbedError::Unreachable { service: "Ollama", url: "x".to_owned(), causes: None }))
    }
    fn broken() -> IndexState {
        IndexState::Broken(Problem::of_index(&IndexError::Corrupted(String::new())))
    }

    /// The transitions of the specification, in sequence on one state.
    #[toolyard_shows::shows("000-1-14", "000-4-02", "000-5-02")]
    #[test]
    fn health_moves_as_the_contract_says() {
        use Health::{Degraded, Healthy, Unavailable};
        let mut seen = good();
        assert_eq!(seen.health().0, Healthy);
        seen.embedder = ollama();
        assert_eq!(seen.health().0, Degraded, "healthy -> degraded: Ollama stops");
        seen.index = broken();
        assert_eq!(seen.health().0, Unavailable, "degraded -> unavailable: the index breaks");
        seen.index = IndexState::Ready;
        assert_eq!(seen.health().0, Degraded, "unavailable -> degraded: the index is back, Ollama is not");
        seen.embedder = None;
        assert_eq!(seen.health(), (Healthy, None), "degraded -> healthy");
        seen.index = IndexState::Missing(Problem::no_index());
        assert_eq!(seen.health().0, Unavailable, "healthy -> unavailable: the index is deleted");
        seen.index = IndexState::Ready;
        assert_eq!(seen.health().0, Healthy, "unavailable -> healthy: a good reindex");
        seen.stale = true;
        let (health, problem) = seen.health();
        assert_eq!((health, problem.map(|p| p.code)), (Degraded, Some(ProblemCode::IndexStale)));
    }

    #[test]
    fn the_problem_that_matters_most_is_told() {
        let mut seen = HealthProbes { stale: true, embedder: ollama(), ..good() };
        assert_eq!(seen.health().1.map(|p| p.code), Some(ProblemCode::OllamaUnreachable));
        seen.index = IndexState::Missing(Problem::no_index());
        assert_eq!(seen.health().1.map(|p| p.code), Some(ProblemCode::IndexNotFound));
        seen.indexer = Some(Problem::indexer("x", true));
        assert_eq!(seen.health().1.map(|p| p.code), Some(ProblemCode::IndexerFailed));
        seen.vault = false;
        assert_eq!(seen.health().1.map(|p| p.code), Some(ProblemCode::VaultUnavailable));
        assert_eq!(seen.health().0, Health::Unavailable, "no notes and no index");
        seen.index = IndexState::Ready;
        let (health, problem) = seen.health();
        assert_eq!(
            (health, problem.map(|p| p.code)),
            (Health::Degraded, Some(ProblemCode::VaultUnavailable)),
            "an index answers without its notes"
        );
    }
}
