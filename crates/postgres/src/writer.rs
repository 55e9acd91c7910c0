//! The group commit: everything queued becomes one statement. What became of a commit whose answer was lost is read from
//! the heads of the runs concerned.
//!
//! One thread has the writer at a time: the writer's own, or that of a caller who would otherwise only wait
//! ([`Writer::lead`]).

mod columns;

use crate::{
    limits,
    queue::{Append, Op, Part, Queue, Queued},
    rows,
    server::{Line, Server, Trouble, no_answer},
};
use columns::{Columns, Named, not_held};
use std::{
    collections::{BTreeMap, HashSet},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};
use tokio_postgres::{error::SqlState, types::Type};
use toolyard_engine::store::{Head, Owner, StoreError};
use toolyard_protocol::RunId;

/// What a group of changes became.
enum Written {
    Done,
    Fenced,
}

/// A statement on its way: 0 when the node was fenced.
type Sent = Pin<Box<dyn Future<Output = Result<i32, Trouble>> + Send>>;

/// A connection, with its statements if it can have names for them.
struct Session {
    line: Line,
    named: Option<Named>,
}

pub(crate) struct Writer {
    server: Server,
    queue: Arc<Queue>,
    owner: Owner,
    commits: Arc<AtomicU64>,
    session: Option<Session>,
    /// A connection lost a statement that it had a name for: something shares it with others after all.
    is_shared: bool,
    /// A group that a caller's thread sent and whose answer the writer's thread is to wait for.
    handed_over: Option<(Part, Sent)>,
    /// How long the last statement took.
    took: Duration,
    /// Runs that this node is known to hold. Nobody takes one without fencing this node first, so this stays true.
    held: HashSet<RunId>,
    /// Numbers the groups that only set facts.
    mark: i64,
    /// Called after every commit.
    wrote: Box<dyn Fn() + Send + Sync>,
}

/// Starts the writer's thread: what it answers hangs up when the thread has ended.
pub(crate) fn start(writer: Arc<Mutex<Writer>>, queue: Arc<Queue>) -> Result<mpsc::Receiver<()>, StoreError> {
    let (ends, writing) = mpsc::channel();
    let work = move || {
        let _ends: mpsc::Sender<()> = ends;
        run(&writer, &queue);
    };
    std::thread::Builder::new()
        .name("store-commit".to_owned())
        .spawn(work)
        .map_err(|e| StoreError::failed(format!("no thread for the group commit: {e}")))?;
    Ok(writing)
}

/// Writes what is queued until the store is closed or the owner fenced.
fn run(writer: &Mutex<Writer>, queue: &Queue) {
    while queue.wait_for_work() {
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        match writer.handed_over.take() {
            Some((group, sent)) => writer.commit(&group, BTreeMap::new(), Some(sent)),
            None => {
                let mut group = queue.take();
                let refused = keep_blobs(&mut group);
                writer.commit(&group.into_iter().map(Arc::new).collect::<Part>(), refused, None);
            }
        }
    }
}

/// Waits until the large blobs of a group are kept. Batches whose blobs could not be kept are refused.
fn keep_blobs(group: &mut [Queued]) -> BTreeMap<u64, StoreError> {
    let mut refused = BTreeMap::new();
    for Queued { position, op, .. } in group {
        let Op::Append(append) = op else { continue };
        for upload in append.uploads.drain(..) {
            let kept = upload.blocking_recv().unwrap_or_else(|_| Err(StoreError::failed("a large blob was not kept")));
            if let Err(error) = kept {
                refused.insert(*position, error);
            }
        }
    }
    refused
}

impl Writer {
    pub(crate) fn new(
        server: Server,
        queue: Arc<Queue>,
        owner: Owner,
        commits: Arc<AtomicU64>,
        wrote: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            server,
            queue,
            owner,
            commits,
            session: None,
            is_shared: false,
            handed_over: None,
            took: Duration::ZERO,
            held: HashSet::new(),
            mark: 0,
            wrote,
        }
    }

    /// Commits what is queued on the calling thread, if nobody else waits and commits are fast. What takes longer than
    /// expected, or fails, the writer's thread brings to its end.
    pub(crate) fn lead(&mut self, position: u64) {
        let is_ready = self.handed_over.is_none()
            && self.took < limits::LEAD_BELOW
            && self.session.as_ref().is_some_and(|session| session.line.client().is_some());
        if !is_ready {
            return;
        }
        let Some(group) = self.queue.take_for(position) else { return };
        let group: Part = group.into_iter().map(Arc::new).collect();
        let mark = self.mark(&group);
        let sent = self.send(&group, mark);
        let Some(session) = &mut self.session else { return };
        let mut sent = match sent {
            Ok(sent) => sent,
            Err(trouble) => Box::pin(std::future::ready(Err(trouble))),
        };
        let began = Instant::now();
        match session.line.call(sent.as_mut(), began + limits::LEAD_WITHIN) {
            Some(Ok(1..)) => {
                self.took = began.elapsed();
                self.remember(&group);
                self.finish(&group, BTreeMap::new());
                return;
            }
            Some(answer) => sent = Box::pin(std::future::ready(answer)),
            None => {}
        }
        self.handed_over = Some((group, sent));
        self.queue.hand_over();
    }

    /// Writes a group, which a caller's thread may have sent already.
    fn commit(&mut self, group: &Part, mut refused: BTreeMap<u64, StoreError>, sent: Option<Sent>) {
        let whole: Part = group.iter().filter(|queued| !refused.contains_key(&queued.position)).cloned().collect();
        match self.write(&whole, sent) {
            Ok(Written::Done) => {}
            Ok(Written::Fenced) => return self.queue.fence(&self.owner),
            Err(error) if whole.len() <= 1 => {
                whole.first().into_iter().for_each(|queued| drop(refused.insert(queued.position, error.clone())));
            }
            // One of them cannot be written. Each by itself shows which.
            Err(_) => {
                let mut stopped: HashSet<RunId> = HashSet::new();
                for queued in whole {
                    let run_id = match &queued.op {
                        Op::Append(append) => Some(append.run_id),
                        Op::Fact(_) => None,
                    };
                    let after_a_hole = run_id.is_some_and(|run_id| stopped.contains(&run_id));
                    let written = match after_a_hole {
                        true => Err(StoreError::failed("an earlier batch of the run was refused")),
                        false => self.write(&vec![queued.clone()], None),
                    };
                    match written {
                        Ok(Written::Done) => {}
                        Ok(Written::Fenced) => return self.queue.fence(&self.owner),
                        Err(error) => {
                            stopped.extend(run_id);
                            refused.insert(queued.position, error);
                        }
                    }
                }
            }
        }
        for position in refused.keys() {
            let run = group.iter().find(|queued| queued.position == *position);
            if let Some(Op::Append(append)) = run.map(|queued| &queued.op) {
                self.held.remove(&append.run_id);
            }
        }
        self.finish(group, refused);
    }

    fn finish(&self, group: &Part, refused: BTreeMap<u64, StoreError>) {
        self.queue.wrote(group, refused);
        self.commits.fetch_add(1, Ordering::Relaxed);
        (self.wrote)();
    }

    /// Frames show by themselves whether they were written. A group without any needs a mark.
    fn mark(&mut self, group: &Part) -> Option<i64> {
        (!group.iter().any(|queued| has_frames(queued))).then(|| {
            self.mark += 1;
            self.mark
        })
    }

    /// Writes changes in one statement, however often the server goes away meanwhile. An error: one of them is refused.
    fn write(&mut self, group: &Part, mut sent: Option<Sent>) -> Result<Written, StoreError> {
        if group.is_empty() {
            return Ok(Written::Done);
        }
        // What was sent already has the last mark.
        let mark = match sent {
            Some(_) => Some(self.mark).filter(|_| !group.iter().any(|queued| has_frames(queued))),
            None => self.mark(group),
        };
        let mut is_unknown = false;
        loop {
            let trouble = match self.try_write(group, mark, sent.take()) {
                Ok(0) => return Ok(Written::Fenced),
                Ok(_) => break,
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Again(_) => {}
                // Nothing was done.
                Trouble::Refused { state, .. } if state == SqlState::INVALID_SQL_STATEMENT_NAME && !self.is_shared => {
                    self.is_shared = true;
                    self.session = None;
                }
                Trouble::Refused { state, message, detail } => {
                    // The same group may have been written by a connection that was lost.
                    if is_unknown && state == SqlState::UNIQUE_VIOLATION && self.is_written(group)? {
                        break;
                    }
                    return Err(refusal(group, &state, &message, &detail));
                }
                Trouble::Away(why) => {
                    tracing::warn!(error = why, "the database cannot be used; trying again");
                    self.queue.set_away(Some(why));
                    self.session = None;
                    is_unknown = true;
                    std::thread::sleep(limits::RETRY);
                    if self.queue.is_fenced().is_some() {
                        return Ok(Written::Fenced);
                    }
                }
            }
        }
        self.queue.set_away(None);
        self.remember(group);
        Ok(Written::Done)
    }

    fn remember(&mut self, group: &Part) {
        if self.held.len() >= limits::HELD_RUNS {
            self.held.clear();
        }
        for queued in group {
            if let Op::Append(append) = &queued.op {
                match append.ends_hold() {
                    true => self.held.remove(&append.run_id),
                    false => self.held.insert(append.run_id),
                };
            }
        }
    }

    fn try_write(&mut self, group: &Part, mark: Option<i64>, sent: Option<Sent>) -> Result<i32, Trouble> {
        let began = Instant::now();
        let until = began + limits::STATEMENT_TIMEOUT;
        let mut sent = match sent {
            Some(sent) => sent,
            None => {
                let is_open = self.session.as_ref().is_some_and(|session| session.line.client().is_some());
                if !is_open {
                    self.session = Some(self.connect(until)?);
                }
                self.send(group, mark)?
            }
        };
        let session = self.session.as_mut().ok_or_else(no_answer)?;
        let written = session.line.call(sent.as_mut(), until).ok_or_else(no_answer)?;
        self.took = began.elapsed();
        written
    }

    fn connect(&self, until: Instant) -> Result<Session, Trouble> {
        let mut line = Line::open(&self.server)?;
        let may_name = line.is_direct() && !self.is_shared;
        let named = may_name.then(|| Named::prepare(&mut line, until)).transpose()?;
        Ok(Session { line, named })
    }

    /// A statement that writes a group. It is sent when it is first waited for.
    fn send(&self, group: &Part, mark: Option<i64>) -> Result<Sent, Trouble> {
        let session = self.session.as_ref().ok_or_else(no_answer)?;
        let client = session.line.client().ok_or_else(no_answer)?;
        let (named, owner, group) = (session.named.clone(), self.owner.clone(), group.clone());
        let not_held = not_held(&group, &self.held);
        Ok(Box::pin(async move { Columns::of(&group, &not_held).send(&client, named.as_ref(), &owner, mark).await }))
    }

    /// Whether the last frames of every batch are the heads of their runs: then the group was written.
    fn is_written(&self, group: &Part) -> Result<bool, StoreError> {
        let mut last: BTreeMap<RunId, Head> = BTreeMap::new();
        for queued in group {
            if let Op::Append(Append { run_id, frames, .. }) = &queued.op
                && let Some(frame) = frames.last()
            {
                last.insert(*run_id, Head { seq: frame.seq, chain: frame.chain });
            }
        }
        let mut line = Line::open(&self.server)?;
        for (run_id, head) in last {
            let sql = "SELECT seq, chain FROM toolyard.frames WHERE run = $1 ORDER BY seq DESC LIMIT 1";
            let rows = line.query(sql, &[(run_id.as_uuid(), Type::UUID)])?;
            let Some(row) = rows.first() else { return Ok(false) };
            let (seq, chain): (i64, Vec<u8>) = (rows::column(row, 0)?, rows::column(row, 1)?);
            if seq.cast_unsigned() != head.seq || chain != head.chain {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn has_frames(queued: &Queued) -> bool {
    matches!(&queued.op, Op::Append(append) if !append.frames.is_empty())
}

/// The error that a caller receives for a batch that the server refuses.
fn refusal(group: &Part, state: &SqlState, message: &str, detail: &str) -> StoreError {
    if *state == SqlState::UNIQUE_VIOLATION
        && let [only] = group.as_slice()
        && let Op::Append(append) = &only.op
    {
        // "Key (run, seq)=(UUID, NUMBER) already exists."
        let seq = detail.rsplit_once(", ").and_then(|(_, rest)| rest.split_once(')')).map_or("?", |(seq, _)| seq);
        return StoreError::failed(format!("run {} already has a frame {seq}", append.run_id));
    }
    StoreError::failed(format!("the database refuses this: {message}"))
}
