//! Assigns vectors to chunks: known ones, and new ones from the embedder.

use super::{
    batch::{Piece, PiecePosition},
    run::{JobError, Progress, Worker},
};
use crate::{embed::Purpose, index::IndexWriter};
use std::{collections::HashMap, time::Instant};

/// Number of texts per request to the embedder; a cancellation is checked between two requests.
const ASK_FOR: usize = 256;

impl Worker {
    /// Assigns a vector to every chunk, or records in the file's row that vectors are missing.
    pub(super) async fn add_vectors(
        &self,
        writer: &dyn IndexWriter,
        pieces: &mut [Piece],
        progress: &mut Progress,
    ) -> Result<(), JobError> {
        let mut hashes: Vec<u64> = pieces.iter().flat_map(|p| &p.prepared.chunks).map(|c| c.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let mut known = writer.known_vectors(&hashes).await?;
        let mut wanted: Vec<(u64, String)> = Vec::new();
        for piece in pieces.iter_mut() {
            for (chunk, input) in piece.prepared.chunks.iter().zip(&mut piece.prepared.inputs) {
                if !known.contains_key(&chunk.hash)
                    && let Some(input) = input.take()
                {
                    known.insert(chunk.hash, Vec::new());
                    wanted.push((chunk.hash, input));
                }
            }
        }
        let start = Instant::now();
        let count = self.embed(&wanted, &mut known, progress).await?;
        progress.pace.embedded(count, start.elapsed());
        for piece in pieces {
            let mut waiting = 0;
            for chunk in &mut piece.prepared.chunks {
                match known.get(&chunk.hash) {
                    Some(vector) if vector.is_empty() => waiting += 1,
                    Some(vector) => chunk.vector = Some(vector.clone()),
                    None => {}
                }
            }
            // The file's record is written with its last piece and covers all pieces.
            if matches!(piece.place, PiecePosition::Middle | PiecePosition::Last) {
                waiting += progress.waiting;
            }
            progress.waiting = waiting;
            let file = &mut piece.prepared.file;
            file.unembedded = waiting;
            if waiting > 0 {
                file.reason = format!("{waiting} chunks wait for the embedding server");
            }
        }
        Ok(())
    }

    /// Embeds as many texts as the embedder accepts and returns their number. A hash whose vector is empty afterwards
    /// is still waiting for one.
    async fn embed(
        &self,
        wanted: &[(u64, String)],
        known: &mut HashMap<u64, Vec<f32>>,
        progress: &mut Progress,
    ) -> Result<usize, JobError> {
        let mut count = 0;
        let (Some(embedder), None) = (&self.embedder, &progress.down) else { return Ok(count) };
        for part in wanted.chunks(ASK_FOR) {
            let texts: Vec<String> = part.iter().map(|(_, text)| text.clone()).collect();
            match self.unless_cancelled(embedder.embed(&texts, Purpose::Passage)).await? {
                Ok(vectors) => {
                    for ((hash, _), vector) in part.iter().zip(vectors) {
                        match vector {
                            Some(vector) if vector.len() != progress.spec.dimensions => {
                                return Err(JobError::DimensionsChanged);
                            }
                            Some(vector) => drop(known.insert(*hash, vector)),
                            // The embedder has answered that this text has no vector, now or later.
                            None => drop(known.remove(hash)),
                        }
                    }
                    count += part.len();
                    self.note(|job| job.embedded_chunks += part.len() as u64);
                }
                Err(error) => {
                    tracing::warn!(%error, "chunks are indexed without vectors");
                    progress.down = Some(error);
                    break;
                }
            }
        }
        Ok(count)
    }
}
