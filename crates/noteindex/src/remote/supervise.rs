//! Starts the index program on first use, restarts it with a growing delay when it ends, and stops it when it is idle.

use super::{
    connection::Connection,
    launch::{Launch, RunningProgram},
};
use crate::{
    IndexError, IndexResult, ProgramError,
    wire::{OpenIndex, Reply, Request},
};
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

/// Default idle time after which the program is stopped.
pub const IDLE_STOP: Duration = Duration::from_secs(300);
/// The index counts as idle after this time. It is shorter than the interval between two probes, which would otherwise
/// count as use.
const REST_AFTER: Duration = Duration::from_secs(20);
/// Timeout of the handshake and of opening the index.
const START_WITHIN: Duration = Duration::from_secs(20);
/// Delay before the second consecutive restart; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Maximum delay between restarts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A caller waits for at most this delay; for a longer one it gets an error and may retry later.
const PATIENCE: Duration = Duration::from_secs(2);
/// A program that ran this long, or sent this many responses, counts as stable: its next end is treated as the first
/// failure.
const STABLE_AFTER: Duration = Duration::from_secs(30);
const STABLE_ANSWERS: u64 = 20;

/// Keeps one index program running while it is used.
pub(super) struct Supervisor {
    launch: Box<dyn Launch>,
    open: OpenIndex,
    idle: Duration,
    live: Mutex<Option<Arc<Connection>>>,
    /// Serialises program starts.
    starting: tokio::sync::Mutex<StartHistory>,
}

#[derive(Default)]
struct StartHistory {
    epoch: u64,
    /// Number of consecutive ends and failed starts.
    failures: u32,
    last_failure: Option<Instant>,
}

impl StartHistory {
    fn failed(&mut self) {
        self.failures += 1;
        self.last_failure = Some(Instant::now());
    }

    /// The remaining delay before the next start.
    fn pause(&self) -> Duration {
        let Some(at) = self.last_failure else { return Duration::ZERO };
        pause_after(self.failures).saturating_sub(at.elapsed())
    }
}

/// The delay after this many consecutive failures. There is none after the first, which is most likely an accident.
fn pause_after(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => (FIRST_PAUSE * 2u32.saturating_pow(more.min(16) - 2)).min(LONGEST_PAUSE),
    }
}

impl Supervisor {
    pub(super) fn new(launch: Box<dyn Launch>, open: OpenIndex, idle: Duration) -> Self {
        Self { launch, open, idle, live: Mutex::default(), starting: tokio::sync::Mutex::default() }
    }

    pub(super) fn find(&self) -> Result<(), ProgramError> {
        self.launch.find()
    }

    fn live(&self) -> Option<Arc<Connection>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|connection| connection.is_alive())
    }

    /// The running program, marked as used so that it is not idle.
    fn used(&self) -> Option<Arc<Connection>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = live.as_ref().filter(|connection| connection.is_alive())?;
        connection.touch();
        Some(connection.clone())
    }

    pub(super) fn is_running(&self) -> bool {
        self.live().is_some()
    }

    /// Whether the program is stopped, or idle and about to be stopped.
    pub(super) fn is_resting(&self) -> bool {
        self.live().is_none_or(|connection| connection.idle_for().is_some_and(|time| time >= REST_AFTER))
    }

    /// The connection to the running program, which is started if necessary.
    pub(super) async fn connection(self: &Arc<Self>) -> IndexResult<Arc<Connection>> {
        if let Some(connection) = self.used() {
            return Ok(connection);
        }
        let mut starts = self.starting.lock().await;
        if let Some(connection) = self.used() {
            return Ok(connection);
        }
        let ended = self.live.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            if ended.started.elapsed() > STABLE_AFTER || ended.answers() >= STABLE_ANSWERS {
                starts.failures = 0;
            }
            starts.failed();
            tracing::warn!(failures = starts.failures, "the index program ended; it is restarted");
        }
        let pause = starts.pause();
        if pause > PATIENCE {
            let (times, seconds) = (starts.failures, pause.as_secs() + 1);
            let why = format!("it ended {times} times in a row; the next start is in {seconds} s");
            return Err(ProgramError::NotStarted(why).into());
        }
        tokio::time::sleep(pause).await;
        starts.epoch += 1;
        match self.start(starts.epoch).await {
            Ok(connection) => {
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
                tokio::spawn(stop_when_idle(Arc::downgrade(self), self.idle));
                Ok(connection)
            }
            Err(error) => {
                // A missing program is searched again without a delay, because it may be installed at any moment.
                if !matches!(error, IndexError::Program(ProgramError::Missing(_))) {
                    starts.failed();
                }
                Err(error)
            }
        }
    }

    async fn start(&self, epoch: u64) -> IndexResult<Arc<Connection>> {
        let begun = Instant::now();
        self.launch.find()?;
        let running: RunningProgram = self.launch.start()?;
        let started = async {
            let connection = Connection::open(running, epoch).await?;
            match connection.call(&Request::Open(self.open.clone())).await? {
                Reply::Done => Ok(connection),
                _ => Err(IndexError::from(ProgramError::Protocol("it did not open the index".to_owned()))),
            }
        };
        let connection = tokio::time::timeout(START_WITHIN, started).await.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", START_WITHIN.as_secs());
            Err(ProgramError::NotStarted(why).into())
        })?;
        tracing::debug!(ms = begun.elapsed().as_millis() as u64, "the index program is started");
        Ok(connection)
    }

    /// Closes the connection, which makes the program exit.
    pub(super) fn stop(&self) {
        if let Some(connection) = self.live.lock().unwrap_or_else(PoisonError::into_inner).take() {
            connection.close();
        }
    }
}

async fn stop_when_idle(supervisor: Weak<Supervisor>, idle: Duration) {
    loop {
        tokio::time::sleep(idle / 4).await;
        let Some(supervisor) = supervisor.upgrade() else { return };
        let mut live = supervisor.live.lock().unwrap_or_else(PoisonError::into_inner);
        match live.as_ref().filter(|connection| connection.is_alive()) {
            None => return,
            Some(connection) if connection.idle_for().is_some_and(|time| time >= idle) => {
                connection.close();
                *live = None;
                tracing::debug!("the idle index program is stopped");
                return;
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_keeps_ending_is_started_later_and_later() {
        let pauses: Vec<u64> = (0..14).map(|failures| pause_after(failures).as_millis() as u64).collect();
        assert_eq!(pauses[..6], [0, 0, 100, 200, 400, 800]);
        assert_eq!(pauses[13], LONGEST_PAUSE.as_millis() as u64);
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }
}
