//! [`Notifier`]: takes notices, waits for the right moment, and hands messages to the channels.

use crate::{
    ChannelStatus, LastError, Notice, NotifyConfig, NotifyStatus, PUSH_CHANNEL, PushSubscription, Subject, TestResult,
    Timing, VapidKey, channel,
    deliver::{ChannelSender, Destination},
    outgoing::DeliveryError,
    quiet::QuietHours,
    schedule::ChannelQueue,
};
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolyard_engine::{BoxFuture, redact::redactor};
use toolyard_protocol::{ErrorCode, Failure};

/// Notices that wait to be looked at.
const MAX_NOTICES: usize = 256;
/// Messages of one channel that wait to be delivered.
const MAX_BATCHES: usize = 16;
/// Time is looked at again at least this often: clocks are set, and machines sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What notifications need of the process around them.
pub trait NotifyHost: Send + Sync + 'static {
    /// Whether a question is open.
    fn is_open(&self, question: &str) -> bool;
    /// The address at which browsers reach the console, without a slash at its end.
    fn address(&self) -> Option<String>;
    /// Makes a path with which a question can be denied once.
    fn deny_link<'a>(&'a self, question: &'a str, channel: &'a str) -> BoxFuture<'a, Result<String, Failure>>;
    /// The browsers that have switched Web Push on.
    fn subscriptions(&self) -> Vec<PushSubscription>;
    /// Removes a subscription that has ended.
    fn forget<'a>(&'a self, subscription: &'a PushSubscription) -> BoxFuture<'a, ()>;
    /// The key with which this server identifies itself to push services.
    fn key(&self) -> Result<Arc<VapidKey>, Failure>;
}

/// What a notifier is made of.
pub struct NotifyParts {
    /// The settings.
    pub config: NotifyConfig,
    /// The process in which the notifier runs.
    pub host: Arc<dyn NotifyHost>,
    /// The delays of deliveries.
    pub timing: Timing,
}

/// What the tasks of one notifier share.
pub(crate) struct Shared {
    pub(crate) host: Arc<dyn NotifyHost>,
    pub(crate) timing: Timing,
    counts: Mutex<HashMap<String, Counts>>,
}

/// What became of the messages of one channel.
#[derive(Debug, Clone, Default)]
struct Counts {
    sent: u64,
    failed: u64,
    waiting: usize,
    last_sent_at: Option<Timestamp>,
    last_error: Option<LastError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Whether a notice is still worth sending.
    pub(crate) fn is_current(&self, notice: &Notice) -> bool {
        match &notice.subject {
            Subject::Question { id, .. } => self.host.is_open(id),
            _ => true,
        }
    }

    pub(crate) fn sent(&self, channel: &str) {
        let mut counts = lock(&self.counts);
        let own = counts.entry(channel.to_owned()).or_default();
        own.sent += 1;
        own.last_sent_at = Some(Timestamp::now());
        own.last_error = None;
    }

    pub(crate) fn failed(&self, channel: &str, error: &DeliveryError) {
        let message = redactor().text(&error.message).into_owned();
        tracing::warn!(channel, why = message, "a notification was not delivered");
        let mut counts = lock(&self.counts);
        let own = counts.entry(channel.to_owned()).or_default();
        own.failed += 1;
        own.last_error = Some(LastError { at: Timestamp::now(), message });
    }
}

enum Command {
    Tell(Box<Notice>),
    Configure(Arc<NotifyConfig>),
}

/// Takes notices and delivers messages. Cheap to clone.
#[derive(Clone)]
pub struct Notifier {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    config: Mutex<Arc<NotifyConfig>>,
    sender: mpsc::Sender<Command>,
    receiver: Mutex<Option<mpsc::Receiver<Command>>>,
    is_running: AtomicBool,
    dropped: AtomicU64,
}

/// The channels of a configuration that are used, Web Push first.
fn senders(config: &Arc<NotifyConfig>, shared: &Arc<Shared>) -> Vec<ChannelSender> {
    let sender = |name: &str, destination| ChannelSender {
        name: name.to_owned(),
        destination,
        config: config.clone(),
        shared: shared.clone(),
    };
    let push = config.push.enabled.then(|| sender(PUSH_CHANNEL, Destination::Push(config.push.clone())));
    let others = config.channels.iter().filter(|(_, channel)| channel.enabled);
    push.into_iter().chain(others.map(|(name, channel)| sender(name, Destination::Channel(channel.clone())))).collect()
}

impl Notifier {
    /// Made, and not yet running.
    pub fn new(parts: NotifyParts) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_NOTICES);
        let NotifyParts { config, host, timing } = parts;
        Self {
            inner: Arc::new(Inner {
                shared: Arc::new(Shared { host, timing, counts: Mutex::default() }),
                config: Mutex::new(Arc::new(config)),
                sender,
                receiver: Mutex::new(Some(receiver)),
                is_running: AtomicBool::new(false),
                dropped: AtomicU64::new(0),
            }),
        }
    }

    /// Takes a notice. Never waits: with too many waiting, the notice is dropped and counted.
    pub fn tell(&self, notice: Notice) {
        if !self.inner.is_running.load(Ordering::Acquire) {
            return;
        }
        if self.inner.sender.try_send(Command::Tell(Box::new(notice))).is_err() {
            self.drop_one();
        }
    }

    fn drop_one(&self) {
        let before = self.inner.dropped.fetch_add(1, Ordering::Relaxed);
        // Only the first dropped notice is logged; the status has the number.
        if before.is_power_of_two() || before == 0 {
            tracing::warn!(dropped = before + 1, "too many notifications are waiting; one was dropped");
        }
    }

    /// The settings in use.
    pub fn config(&self) -> Arc<NotifyConfig> {
        lock(&self.inner.config).clone()
    }

    /// Uses other settings from now on. What waits is kept.
    pub async fn configure(&self, config: NotifyConfig) {
        let config = Arc::new(config);
        *lock(&self.inner.config) = config.clone();
        if self.inner.is_running.load(Ordering::Acquire)
            && self.inner.sender.send(Command::Configure(config)).await.is_err()
        {
            tracing::error!("the settings of notifications are not used: their task has ended");
        }
    }

    /// Whether a person can be reached by a channel that receives questions.
    pub fn reaches_a_person(&self) -> bool {
        senders(&self.config(), &self.inner.shared).iter().any(|sender| match &sender.destination {
            Destination::Push(_) => !self.inner.shared.host.subscriptions().is_empty(),
            Destination::Channel(channel) => channel::problem(channel).is_none(),
        })
    }

    /// Waits for notices and delivers them until told to stop. A second call does nothing.
    pub async fn run(&self, stop: CancellationToken) {
        let Some(mut commands) = lock(&self.inner.receiver).take() else { return };
        self.inner.is_running.store(true, Ordering::Release);
        let mut rounds = ChannelQueues::new(self, self.config(), &stop);
        loop {
            let now = Timestamp::now();
            rounds.send_due(now);
            let sleep = rounds.next(now).map_or(LONGEST_SLEEP, |at| {
                Duration::try_from(at.duration_since(now)).unwrap_or_default().min(LONGEST_SLEEP)
            });
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Tell(notice)) => rounds.add(&notice, Timestamp::now()),
                    Some(Command::Configure(config)) => rounds = rounds.configured(config, &stop),
                    None => return,
                },
                () = tokio::time::sleep(sleep) => {}
                () = stop.cancelled() => {
                    self.inner.is_running.store(false, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Sends a test message by a channel, or by all, whatever the hour.
    ///
    /// # Errors
    /// There is no such channel, or none at all.
    pub async fn test(&self, channel: Option<&str>) -> Result<Vec<TestResult>, Failure> {
        let all = senders(&self.config(), &self.inner.shared);
        let known: Vec<&str> = all.iter().map(|sender| sender.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let wanted: Vec<&ChannelSender> =
            all.iter().filter(|sender| channel.is_none_or(|channel| channel == sender.name)).collect();
        if wanted.is_empty() {
            let what =
                channel.map_or_else(|| "there is no channel".to_owned(), |name| format!("there is no channel {name}"));
            return Err(Failure::new(ErrorCode::NotFound, what)
                .suggest(format!("Configure one in [notify.channels.NAME]; channels in use: {known}.")));
        }
        let mut results = Vec::new();
        for sender in wanted {
            let began = Instant::now();
            let notice = Notice { subject: Subject::Test, is_urgent: true, details: String::new() };
            let outcome = sender.try_once(notice).await;
            let error = outcome.err().map(|error| {
                let failure = Failure::new(ErrorCode::Unavailable, redactor().text(&error.message).into_owned());
                error.suggestion.iter().fold(failure, |failure, suggestion| failure.suggest(suggestion.clone()))
            });
            results.push(TestResult {
                channel: sender.name.clone(),
                kind: sender.kind(),
                ok: error.is_none(),
                took_ms: began.elapsed().as_millis() as u64,
                error,
            });
        }
        Ok(results)
    }

    /// Whether messages may be sent to a push service: its address must be a public one.
    ///
    /// # Errors
    /// What is wrong with the address, without quoting it.
    pub async fn check_endpoint(&self, endpoint: &str) -> Result<(), Box<Failure>> {
        let config = self.config();
        let refuse = |why: String| Box::new(Failure::new(ErrorCode::ValidationError, why));
        let url = config.address(endpoint).map_err(refuse)?;
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(443);
        config.rules().resolve(host, port).await.map(|_| ()).map_err(|error| {
            let failure = Failure::new(ErrorCode::ValidationError, format!("the push service cannot be used: {error}"));
            Box::new(failure.suggest("Add the host to notify.privateHosts if messages may go to a private address."))
        })
    }

    /// How notifications are doing.
    pub fn status(&self) -> NotifyStatus {
        let config = self.config();
        let subscriptions = self.inner.shared.host.subscriptions().len();
        let counts = lock(&self.inner.shared.counts).clone();
        let channels = senders(&config, &self.inner.shared).into_iter().map(|sender| {
            let own = counts.get(&sender.name).cloned().unwrap_or_default();
            let (to, problem) = match &sender.destination {
                Destination::Push(_) => {
                    let word = if subscriptions == 1 { "browser" } else { "browsers" };
                    (format!("{subscriptions} {word}"), None)
                }
                Destination::Channel(channel) => (channel::shown_target(channel), channel::problem(channel)),
            };
            ChannelStatus {
                kind: sender.kind(),
                min_severity: sender.min_severity(),
                details: sender.with_details(),
                name: sender.name,
                to,
                sent: own.sent,
                failed: own.failed,
                waiting: own.waiting,
                last_sent_at: own.last_sent_at,
                last_error: own.last_error,
                problem,
            }
        });
        NotifyStatus {
            channels: channels.collect(),
            quiet: QuietHours::read(&config.quiet).ok().flatten().map(|quiet| quiet.status(Timestamp::now())),
            coalesce_seconds: config.coalesce_seconds,
            asked_after_seconds: self.inner.shared.timing.asked_after.as_secs().unsigned_abs() as u32,
            subscriptions,
            running: self.inner.is_running.load(Ordering::Acquire),
            dropped: self.inner.dropped.load(Ordering::Relaxed),
        }
    }
}

/// The channels with their queued notices.
struct ChannelQueues {
    notifier: Notifier,
    config: Arc<NotifyConfig>,
    quiet: Option<QuietHours>,
    queues: Vec<(String, ChannelQueue, mpsc::Sender<Vec<Notice>>)>,
}

impl ChannelQueues {
    fn new(notifier: &Notifier, config: Arc<NotifyConfig>, stop: &CancellationToken) -> Self {
        let quiet = QuietHours::read(&config.quiet).unwrap_or_else(|why| {
            tracing::error!(why, "quiet hours are not kept");
            None
        });
        let queues = senders(&config, &notifier.inner.shared).into_iter().map(|sender| {
            let (batch_sender, batches) = mpsc::channel(MAX_BATCHES);
            let (name, queue) = (sender.name.clone(), ChannelQueue::new(sender.min_severity()));
            tokio::spawn(sender.run(batches, stop.clone()));
            (name, queue, batch_sender)
        });
        Self { queues: queues.collect(), notifier: notifier.clone(), config, quiet }
    }

    /// The same notices under other settings. Messages that are on their way are delivered by the former ones.
    fn configured(self, config: Arc<NotifyConfig>, stop: &CancellationToken) -> Self {
        let mut rounds = Self::new(&self.notifier, config, stop);
        for (name, older, _) in self.queues {
            if let Some((_, queue, _)) = rounds.queues.iter_mut().find(|(own, ..)| *own == name) {
                queue.inherit(older);
            }
        }
        rounds
    }

    fn add(&mut self, notice: &Notice, now: Timestamp) {
        let pause = self.notifier.inner.shared.timing.asked_after;
        for (_, queue, _) in &mut self.queues {
            if queue.add(notice, now, pause) {
                self.notifier.drop_one();
            }
        }
    }

    fn send_due(&mut self, now: Timestamp) {
        let coalesce = SignedDuration::from_secs(i64::from(self.config.coalesce_seconds));
        let shared = self.notifier.inner.shared.clone();
        for (name, queue, sender) in &mut self.queues {
            let due = queue.take_due(now, coalesce, self.quiet.as_ref(), &|notice| shared.is_current(notice));
            if !due.is_empty() && sender.try_send(due).is_err() {
                shared.failed(name, &DeliveryError::never("too many messages wait for this channel"));
            }
            lock(&shared.counts).entry(name.clone()).or_default().waiting = queue.len();
        }
    }

    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.queues.iter().filter_map(|(_, queue, _)| queue.next(now, self.quiet.as_ref())).min()
    }
}
