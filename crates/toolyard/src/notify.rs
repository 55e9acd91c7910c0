//! Notifications in this process: the methods about them, and what they need to know of questions, browsers and keys.

mod sources;
mod subscriptions;

use crate::{config, home::Home};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sources::RunEnds;
use std::sync::{Arc, OnceLock};
use subscriptions::Subscriptions;
use tokio::sync::Notify as Signal;
use tokio_util::sync::CancellationToken;
use toolyard_engine::{
    BoxFuture, RunEndListener,
    authority::{Effect, Scope},
};
use toolyard_mcp::Upstreams;
use toolyard_notify::{
    Notifier, NotifyConfig, NotifyHost, NotifyParts, NotifyStatus, PushSubscription, SubscriptionKeys, TestResult,
    Timing, VapidKey,
};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, MethodError, Methods, NoParams, Service, Terms, methods};

/// Switches notifications of one's own browser. A browser that may answer questions may receive notifications of them.
const OWN_BROWSER: Terms = Terms::new(Some(Scope::Approvals), Effect::State).local();

methods! {
    /// Shows the channels of notifications, with what each has sent and its last error.
    NotifyState = "notify.status", Terms::read().local().of_installation(), NoParams => NotifyStatus;
    /// Sends a test message by one channel or by all.
    NotifyTest = "notify.test", Terms::new(Some(Scope::Admin), Effect::State).local(), TestParams => ChannelTests;
    /// Shows the key for Web Push and whether the calling browser has subscribed.
    NotifyPush = "notify.push", OWN_BROWSER, NoParams => PushState;
    /// Subscribes the calling browser to Web Push.
    NotifySubscribe = "notify.subscribe", OWN_BROWSER, SubscribeParams => Subscribed;
    /// Ends the calling browser's subscription to Web Push.
    NotifyUnsubscribe = "notify.unsubscribe", OWN_BROWSER, NoParams => Unsubscribed;
}

/// Declares the methods; without notifications they cannot be called.
pub(crate) fn declare(methods: &mut Methods, notify: Option<&Notifications>) {
    methods.add::<NotifyState, _>(notify);
    methods.add::<NotifyTest, _>(notify);
    methods.add::<NotifyPush, _>(notify);
    methods.add::<NotifySubscribe, _>(notify);
    methods.add::<NotifyUnsubscribe, _>(notify);
}

/// Which channel is tried.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TestParams {
    /// The channel; all where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) channel: Option<String>,
}

/// The result of a test message for each channel.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ChannelTests {
    pub(crate) results: Vec<TestResult>,
}

/// Web Push for the calling browser.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushState {
    /// Whether browsers may subscribe.
    enabled: bool,
    /// The key for which a browser subscribes (`applicationServerKey`), in base64url.
    public_key: String,
    /// Whether the calling browser has subscribed.
    subscribed: bool,
    /// Why browsers may not subscribe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// A browser's subscription, as `PushSubscription.toJSON()` writes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscribeParams {
    /// The address of the browser's push service.
    endpoint: String,
    /// The browser's keys.
    keys: SubscriptionKeys,
}

/// That a browser has subscribed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Subscribed {
    subscribed: bool,
}

/// Whether there was a subscription to end.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Unsubscribed {
    unsubscribed: bool,
}

/// Notifications of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Notifications {
    notifier: Notifier,
    host: Arc<AppHost>,
    /// Who can be reached may have changed.
    changed: Arc<Signal>,
    ends: RunEnds,
}

struct AppHost {
    service: Service,
    home: Home,
    subscriptions: Subscriptions,
    key: OnceLock<Arc<VapidKey>>,
}

impl NotifyHost for AppHost {
    fn is_open(&self, question: &str) -> bool {
        let engine = self.service.engine();
        let found = engine.approvals().get(question);
        found.is_ok_and(|found| found.is_some_and(|approval| approval.is_open(engine.clock().now())))
    }

    fn address(&self) -> Option<String> {
        self.service.console().address().map(str::to_owned)
    }

    fn deny_link<'a>(&'a self, question: &'a str, channel: &'a str) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(async move {
            let found = self.service.engine().approvals().get(question)?;
            let expires_at = found
                .map(|approval| approval.request.expires_at)
                .ok_or_else(|| Failure::new(ErrorCode::NotFound, "the question is gone"))?;
            let code = self.service.console().make_deny_code(question, channel, expires_at).await?;
            Ok(format!("/deny/{code}"))
        })
    }

    fn subscriptions(&self) -> Vec<PushSubscription> {
        self.subscriptions.all(&self.service)
    }

    fn forget<'a>(&'a self, subscription: &'a PushSubscription) -> BoxFuture<'a, ()> {
        Box::pin(self.subscriptions.forget(subscription))
    }

    fn key(&self) -> Result<Arc<VapidKey>, Failure> {
        if let Some(key) = self.key.get() {
            return Ok(key.clone());
        }
        let unusable = |why: String| Failure::new(ErrorCode::StoreUnavailable, why);
        let make = || VapidKey::generate().map_err(anyhow::Error::from);
        let bytes = self.home.push_key(make).map_err(|error| unusable(format!("{error:#}")))?;
        let key = VapidKey::read(&bytes).map_err(|error| unusable(error.to_string()))?;
        Ok(self.key.get_or_init(|| Arc::new(key)).clone())
    }
}

/// The settings with the user's home in place of `~`.
pub(crate) fn expanded(mut settings: NotifyConfig) -> NotifyConfig {
    for channel in settings.channels.values_mut() {
        for file in [&mut channel.token_file, &mut channel.secret_file].into_iter().flatten() {
            *file = config::expand(file);
        }
    }
    settings
}

impl Notifications {
    /// Made, and not yet running: methods answer, and nothing is sent without being asked for.
    pub(crate) fn new(settings: NotifyConfig, home: Home, service: Service) -> Self {
        let subscriptions = Subscriptions::new(service.engine().store().clone());
        let host = Arc::new(AppHost { service, home, subscriptions, key: OnceLock::new() });
        let parts = NotifyParts { config: expanded(settings), host: host.clone(), timing: Timing::default() };
        Self { notifier: Notifier::new(parts), host, changed: Arc::default(), ends: RunEnds::default() }
    }

    /// The ends of runs, as the engine reports them.
    pub(crate) fn listener(&self) -> RunEndListener {
        self.ends.listener()
    }

    /// Uses other settings from now on.
    pub(crate) async fn configure(&self, settings: NotifyConfig) {
        self.notifier.configure(expanded(settings)).await;
        self.changed.notify_one();
    }

    /// Sends notifications until told to stop.
    pub(crate) async fn run(self, upstreams: Upstreams, stop: CancellationToken) {
        let sending = self.notifier.run(stop.clone());
        let watching = sources::watch(&self, &upstreams, &stop);
        tokio::join!(sending, watching);
    }
}

/// The paired browser that calls.
fn browser(call: &Call<'_>) -> Result<String, Failure> {
    let client = call.client.as_ref().filter(|client| client.connection.is_console());
    client.and_then(|client| client.connection.device.clone()).ok_or_else(|| {
        Failure::new(ErrorCode::PreconditionFailed, "only a paired browser subscribes to Web Push")
            .suggest("Open the console, then Settings, Notifications.")
    })
}

impl Handle<NotifyState> for Notifications {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<NotifyStatus, MethodError> {
        Ok(self.notifier.status())
    }
}

impl Handle<NotifyTest> for Notifications {
    async fn handle(&self, _: &Call<'_>, params: TestParams) -> Result<ChannelTests, MethodError> {
        Ok(ChannelTests { results: self.notifier.test(params.channel.as_deref()).await? })
    }
}

impl Handle<NotifyPush> for Notifications {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<PushState, MethodError> {
        let device = browser(call)?;
        let enabled = self.notifier.config().push.enabled;
        let why = (!enabled).then(|| "notify.push.enabled is false in config.toml".to_owned());
        let subscribed = self.host.subscriptions().iter().any(|known| known.device == device);
        Ok(PushState { enabled, public_key: self.host.key()?.public(), subscribed, why })
    }
}

impl Handle<NotifySubscribe> for Notifications {
    async fn handle(&self, call: &Call<'_>, params: SubscribeParams) -> Result<Subscribed, MethodError> {
        let device = browser(call)?;
        let invalid = |why: String| Failure::new(ErrorCode::ValidationError, why);
        let subscription = PushSubscription { device, endpoint: params.endpoint, keys: params.keys };
        subscription.check().map_err(invalid)?;
        self.notifier.check_endpoint(&subscription.endpoint).await.map_err(|failure| *failure)?;
        self.host.subscriptions.keep(&subscription).await?;
        self.changed.notify_one();
        Ok(Subscribed { subscribed: true })
    }
}

impl Handle<NotifyUnsubscribe> for Notifications {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<Unsubscribed, MethodError> {
        let unsubscribed = self.host.subscriptions.remove(&browser(call)?).await?;
        self.changed.notify_one();
        Ok(Unsubscribed { unsubscribed })
    }
}
