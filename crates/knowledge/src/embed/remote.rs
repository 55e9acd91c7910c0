//! [`RemoteEmbedder`]: requests vectors from a server, batch by batch.
//!
//! One text that the server refuses must not prevent the others from getting vectors, so it is shortened and, if that
//! does not help, permanently left without one. A failure of the server must not have this effect: when texts are
//! refused, a word that any model accepts is sent as a test. If that is refused too, the texts are not at fault, and
//! they are retried later.

use super::{
    EmbedError, Purpose, Vectors,
    http::{HttpOutcome, Server},
    unit,
};
use crate::config::EmbeddingConfig;
use reqwest::StatusCode;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};
use toolyard_engine::BoxFuture;

/// Timeout of a query vector: the server may have to load its model first, or finish a batch of a job.
pub(super) const QUERY: Duration = Duration::from_secs(8);
/// Maximum number of times that a rejected text is halved.
const MAX_HALVINGS: u32 = 4;
/// A text that every model accepts.
const WORD: &str = "word";

/// The result of a request for some texts.
pub(super) enum Attempt {
    /// One result for each text; nothing where the server returned no vector.
    Vectors(Vec<Option<Vec<f32>>>),
    /// The server rejected these texts, or cannot process them at the moment.
    Refused(EmbedError),
}

/// The requests of one kind of server.
pub(super) trait Interface: Send + Sync + 'static {
    /// Sends one request for several texts. Returns an error where other texts would fail too.
    fn ask<'a>(
        &'a self,
        server: &'a Server,
        texts: &'a [String],
        patient: bool,
    ) -> BoxFuture<'a, Result<Attempt, EmbedError>>;
}

/// A server with two kinds of requests: passages in batches with retries, and queries with a short timeout.
pub(super) struct RemoteEmbedder<I> {
    pub(super) server: Server,
    pub(super) quick: Server,
    interface: I,
    batch: usize,
    limit: Duration,
    /// The length of the last vector, 0 before the first. A server's statement about its models is not always right.
    length: AtomicUsize,
    /// Whether the last request failed.
    failed: AtomicBool,
}

impl<I: Interface> RemoteEmbedder<I> {
    pub(super) fn new(
        service: &'static str,
        url: &str,
        config: &EmbeddingConfig,
        key: Option<String>,
        interface: I,
    ) -> Result<Self, EmbedError> {
        let timeout = Duration::from_millis(config.timeout_ms);
        let limit = timeout.min(QUERY);
        let server = |timeout| Server::new(service, url, config.allow_remote, timeout, key.clone());
        Ok(Self {
            server: server(timeout)?,
            quick: server(limit)?,
            interface,
            batch: config.batch.max(1),
            limit,
            length: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        })
    }

    /// The length of the vectors; `None` if it must be determined, because there was no vector or the last request
    /// failed.
    pub(super) fn length(&self) -> Option<usize> {
        let length = self.length.load(Ordering::Relaxed);
        (length > 0 && !self.failed.load(Ordering::Relaxed)).then_some(length)
    }

    /// Forgets the length, because the vectors came from another model.
    pub(super) fn forget_length(&self) {
        self.length.store(0, Ordering::Relaxed);
    }

    /// Determines the length of the vectors, which also checks that the server returns any.
    pub(super) async fn measure(&self) -> Result<usize, EmbedError> {
        let measured = match self.interface.ask(&self.quick, &[WORD.to_owned()], false).await {
            Ok(Attempt::Vectors(vectors)) => {
                let vector = vectors.into_iter().next().flatten();
                vector.map(|vector| vector.len()).ok_or_else(|| no_vector(&self.quick))
            }
            Ok(Attempt::Refused(error)) | Err(error) => Err(error),
        };
        self.failed.store(measured.is_err(), Ordering::Relaxed);
        if let Ok(length) = measured {
            self.length.store(length, Ordering::Relaxed);
        }
        measured
    }

    /// Embeds texts batch by batch.
    pub(super) async fn embed(&self, texts: &[String], purpose: Purpose) -> Vectors {
        let vectors = match purpose {
            Purpose::Passage => self.batches(&self.server, texts, true).await,
            Purpose::Query => tokio::time::timeout(self.limit, self.batches(&self.quick, texts, false))
                .await
                .unwrap_or_else(|_| Err(self.quick.unreachable(None))),
        };
        self.failed.store(vectors.is_err(), Ordering::Relaxed);
        vectors
    }

    async fn batches(&self, server: &Server, texts: &[String], patient: bool) -> Vectors {
        let mut out = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.batch) {
            let tried = self.interface.ask(server, batch, patient).await?;
            if let [text] = batch {
                out.push(self.alone(server, text, tried, patient).await?);
                continue;
            }
            let given = match tried {
                Attempt::Vectors(given) if given.len() == batch.len() => given,
                Attempt::Vectors(_) => vec![None; batch.len()],
                Attempt::Refused(error) => {
                    self.measure().await.map_err(|_| error)?;
                    vec![None; batch.len()]
                }
            };
            for (text, vector) in batch.iter().zip(given) {
                out.push(match vector {
                    Some(vector) => self.seen(vector),
                    None => {
                        let tried = self.interface.ask(server, std::slice::from_ref(text), patient).await?;
                        self.alone(server, text, tried, patient).await?
                    }
                });
            }
        }
        Ok(out)
    }

    /// The vector of a single text, shortened until the server accepts it. None if it accepts no part of it but does
    /// accept other texts.
    async fn alone(
        &self,
        server: &Server,
        text: &str,
        mut tried: Attempt,
        patient: bool,
    ) -> Result<Option<Vec<f32>>, EmbedError> {
        let mut part = text;
        for halvings in 0..=MAX_HALVINGS {
            let error = match tried {
                Attempt::Vectors(vectors) => match vectors.into_iter().next().flatten() {
                    Some(vector) => return Ok(self.seen(vector)),
                    None => no_vector(server),
                },
                Attempt::Refused(error) => error,
            };
            self.measure().await.map_err(|_| error)?;
            part = first_half(part);
            if part.is_empty() || halvings == MAX_HALVINGS {
                break;
            }
            tried = self.interface.ask(server, &[part.to_owned()], patient && halvings == 0).await?;
        }
        tracing::warn!(service = server.service, "one text cannot be embedded; only full text finds it");
        Ok(None)
    }

    /// Normalises to unit length; a zero vector gives `None`.
    fn seen(&self, vector: Vec<f32>) -> Option<Vec<f32>> {
        self.length.store(vector.len(), Ordering::Relaxed);
        unit(vector)
    }
}

fn no_vector(server: &Server) -> EmbedError {
    server.refused("it gave no vector")
}

fn first_half(text: &str) -> &str {
    text.char_indices().nth(text.chars().count() / 2).map_or("", |(at, _)| &text[..at])
}

/// The result of a response without vectors that has no special meaning in an interface.
pub(super) fn without_vectors(server: &Server, answer: &HttpOutcome) -> Result<Attempt, EmbedError> {
    let (reason, may_be_the_texts) = match answer {
        HttpOutcome::Ok(_) => ("it gave no vectors".to_owned(), true),
        HttpOutcome::Unusable(reason) => ((*reason).to_owned(), true),
        HttpOutcome::Refused(status, said) => (format!("HTTP {}", status.as_u16()), may_be_texts(*status, said)),
    };
    let error = server.refused(reason);
    if may_be_the_texts { Ok(Attempt::Refused(error)) } else { Err(error) }
}

/// Whether other texts could succeed. Some versions report a text that is too long with a server error status.
fn may_be_texts(status: StatusCode, said: &str) -> bool {
    let too_long = ["context length", "too long", "input length"].iter().any(|words| said.contains(words));
    too_long
        || status.is_server_error()
        || matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY)
}
