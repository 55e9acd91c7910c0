//! Writes one run's record: numbers, chains and queues each record, tags batches, notifies subscribers, signs
//! checkpoints.

use crate::{
    Blob, EventBus, Store,
    chain::{self, Signer},
    record::{Record, RecordKind},
    secrets::RunSecrets,
    store::{Batch, Durability, Frame, Position, RunRow, StoreError},
    view::RunView,
};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolyard_protocol::{CallId, EventLevel, EventType, ExecutionEvent, RunId, StepId, ToolName};

/// A long run is signed at least this often.
pub(crate) const CHECKPOINT_EVERY: u64 = 1000;

/// Writes one run's record.
pub struct Recorder {
    run_id: RunId,
    session: Option<String>,
    store: Arc<dyn Store>,
    bus: Arc<EventBus>,
    signer: Arc<Signer>,
    /// The life of the store's owner in which this recorder was made.
    epoch: u64,
    secrets: RunSecrets,
    state: Mutex<State>,
}

struct State {
    seq: u64,
    chain: [u8; 32],
    /// The chain value before the first record of the batch that is being made.
    queued_chain: [u8; 32],
    view: RunView,
    /// A reused buffer in which records are serialised.
    scratch: Vec<u8>,
    pending: Vec<Frame>,
    blobs: Vec<Blob>,
    row: Option<RunRow>,
    /// Whether the run has no holder after the next batch.
    release: bool,
    last_checkpoint: u64,
    last_position: Position,
    /// Why the store refused a batch. The record would have a gap from there on, so it is not continued.
    broken: Option<StoreError>,
}

/// The state of a run's record, for resuming it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resumed {
    /// The last record's number.
    pub seq: u64,
    /// Its chain value.
    pub chain: [u8; 32],
}

impl Recorder {
    /// A record that begins now. The first record must be `RunStarted`.
    pub fn begin(
        run_id: RunId,
        session: Option<String>,
        store: Arc<dyn Store>,
        bus: Arc<EventBus>,
        signer: Arc<Signer>,
    ) -> Self {
        let view = RunView::new(run_id);
        Self::with(run_id, session, store, bus, signer, view, Resumed { seq: 0, chain: chain::genesis(run_id) })
    }

    /// Continues a record where it ended.
    #[allow(clippy::too_many_arguments)] // each is a different part of where it stands
    pub(crate) fn resume(
        run_id: RunId,
        session: Option<String>,
        store: Arc<dyn Store>,
        bus: Arc<EventBus>,
        signer: Arc<Signer>,
        view: RunView,
        resumed: Resumed,
    ) -> Self {
        Self::with(run_id, session, store, bus, signer, view, resumed)
    }

    fn with(
        run_id: RunId,
        session: Option<String>,
        store: Arc<dyn Store>,
        bus: Arc<EventBus>,
        signer: Arc<Signer>,
        view: RunView,
        at: Resumed,
    ) -> Self {
        let state = State {
            seq: at.seq,
            chain: at.chain,
            queued_chain: at.chain,
            view,
            scratch: Vec::new(),
            pending: Vec::new(),
            blobs: Vec::new(),
            row: None,
            release: false,
            last_checkpoint: at.seq,
            last_position: Position::default(),
            broken: None,
        };
        let epoch = store.epoch();
        let secrets = RunSecrets::new(signer.clone());
        Self { run_id, session, store, bus, signer, epoch, secrets, state: Mutex::new(state) }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The secrets of the run, which no record holds.
    pub(crate) fn secrets(&self) -> &RunSecrets {
        &self.secrets
    }

    /// Adds a record to the batch that the next [`Recorder::flush`] queues, and notifies subscribers.
    pub fn push(&self, record: &Record) {
        let hidden = self.secrets.hide_record(record);
        let record = hidden.as_ref().unwrap_or(record);
        let mut state = self.lock();
        self.push_locked(&mut state, record);
        if state.seq - state.last_checkpoint >= CHECKPOINT_EVERY {
            self.checkpoint_locked(&mut state);
        }
    }

    fn push_locked(&self, state: &mut State, record: &Record) {
        state.scratch.clear();
        record.encode_into(&mut state.scratch);
        let payload = state.scratch.clone();
        let kind = record.kind() as u8;
        state.seq += 1;
        state.chain = chain::link(&state.chain, state.seq, kind, &payload);
        let frame = Frame { seq: state.seq, kind, payload, chain: state.chain };
        state.pending.push(frame);
        // The view would keep a copy of the whole plan, which is needed only to build envelopes from the record.
        if !matches!(record, Record::RunStarted(_)) {
            state.view.note(record);
        }
        if self.bus.is_watched() {
            for event in state.view.events(record) {
                self.bus.publish(self.session.as_deref(), event);
            }
        } else {
            state.view.skip_events(record);
        }
        if let Record::Result(r) = record {
            state.view.forget(r.call_id);
        }
    }

    fn checkpoint_locked(&self, state: &mut State) {
        let checkpoint = self.signer.checkpoint(self.run_id, state.seq, &state.chain);
        self.push_locked(state, &Record::Checkpoint(checkpoint));
        state.last_checkpoint = state.seq;
    }

    /// Signs everything recorded so far.
    pub fn checkpoint(&self) {
        self.checkpoint_locked(&mut self.lock());
    }

    /// Adds a blob that the next batch must carry.
    pub fn push_blobs(&self, blobs: impl IntoIterator<Item = Blob>) {
        self.lock().blobs.extend(blobs);
    }

    /// Sets the run's row with the next batch.
    pub fn set_row(&self, mut row: RunRow) {
        row.title = self.secrets.hide_string(row.title);
        self.lock().row = Some(row);
    }

    /// Releases the run with the next batch: any owner may resume it afterwards.
    pub fn release(&self) {
        self.lock().release = true;
    }

    /// Queues the pushed records, in the order of `push`.
    pub fn flush(&self, durability: Durability) -> Result<Position, StoreError> {
        let mut state = self.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        if state.pending.is_empty() && state.blobs.is_empty() && state.row.is_none() && !state.release {
            return Ok(state.last_position);
        }
        self.tag_last(&mut state);
        let batch = Batch {
            run_id: self.run_id,
            frames: std::mem::take(&mut state.pending),
            blobs: std::mem::take(&mut state.blobs),
            row: state.row.take(),
            epoch: self.epoch,
            release: std::mem::take(&mut state.release),
            durability,
        };
        // The lock is held so that batches of one run are queued in the order of their numbers.
        match self.store.append(batch) {
            Ok(position) => {
                state.last_position = position;
                Ok(position)
            }
            Err(error) => {
                state.broken = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Tags the last record of the batch, which proves all of it. A checkpoint needs no tag: it carries a signature.
    fn tag_last(&self, state: &mut State) {
        let previous = match state.pending.len() {
            0 => return,
            1 => state.queued_chain,
            n => state.pending[n - 2].chain,
        };
        if let Some(last) = state.pending.last_mut()
            && last.kind != RecordKind::Checkpoint as u8
        {
            self.signer.tag(self.run_id, last.seq, &previous, &mut last.payload);
            last.chain = chain::link(&previous, last.seq, last.kind, &last.payload);
            state.chain = last.chain;
        }
        state.queued_chain = state.chain;
    }

    /// Queues the pushed records and returns when they are durable.
    pub async fn sync(&self) -> Result<(), StoreError> {
        let position = self.flush(Durability::Sync)?;
        self.store.durable(position).await
    }

    /// As [`Recorder::sync`]; the store may perform the sync on this thread, see [`Store::durable_here`].
    pub async fn sync_here(&self) -> Result<(), StoreError> {
        let position = self.flush(Durability::Sync)?;
        self.store.durable_here(position).await
    }

    /// Returns when a position is durable.
    pub async fn durable(&self, position: Position) -> Result<(), StoreError> {
        self.store.durable(position).await
    }

    /// Number and chain value of the last record. To be read after [`Recorder::flush`], which may tag that record.
    pub fn head(&self) -> (u64, [u8; 32]) {
        let state = self.lock();
        (state.seq, state.chain)
    }

    /// Sends the progress of a call to subscribers. It is not part of the record.
    pub fn progress(
        &self,
        call_id: CallId,
        step_id: &StepId,
        tool: &ToolName,
        message: String,
        payload: Option<Map<String, Value>>,
    ) {
        if !self.bus.is_watched() {
            return;
        }
        let message = self.secrets.hide_string(message);
        let payload = payload.map(|mut payload| {
            self.secrets.hide_map(&mut payload);
            payload
        });
        let seq = self.lock().view.last_event();
        let event = ExecutionEvent {
            seq,
            run_id: self.run_id,
            event_type: EventType::StepProgress,
            timestamp: jiff::Timestamp::now(),
            level: EventLevel::Info,
            message,
            call_id: Some(call_id),
            step_id: Some(step_id.clone()),
            tool: Some(tool.clone()),
            payload,
        };
        self.bus.publish(self.session.as_deref(), event);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
