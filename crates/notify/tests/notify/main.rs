//! Notifications as a receiver on loopback gets them.

// The helpers of tests fail tests by panicking, just as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod receiver;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jiff::{SignedDuration, Timestamp};
use receiver::Receiver;
use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    hkdf::{HKDF_SHA256, KeyType, Salt},
    rand::SystemRandom,
};
use serde_json::Value;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::BoxFuture;
use toolyard_notify::{
    ChannelConfig, ChannelKind, Notice, Notifier, NotifyConfig, NotifyHost, NotifyParts, PushSubscription, Severity,
    Subject, SubscriptionKeys, Timing, VapidKey,
};
use toolyard_protocol::Failure;

/// Tells "happens" from "never happens".
const PATIENCE: Duration = Duration::from_secs(60);

/// A process in which every question is open that was not answered.
#[derive(Default)]
struct Host {
    answered: Mutex<HashSet<String>>,
    subscriptions: Mutex<Vec<PushSubscription>>,
    links: Mutex<Vec<String>>,
    key: Mutex<Option<Arc<VapidKey>>>,
}

impl NotifyHost for Host {
    fn is_open(&self, question: &str) -> bool {
        !self.answered.lock().unwrap().contains(question)
    }

    fn address(&self) -> Option<String> {
        Some("https://yard.example".to_owned())
    }

    fn deny_link<'a>(&'a self, question: &'a str, channel: &'a str) -> BoxFuture<'a, Result<String, Failure>> {
        let mut links = self.links.lock().unwrap();
        links.push(format!("{channel}:{question}"));
        let page = if links.len() == 1 { "/deny/CODE".to_owned() } else { format!("/deny/CODE{}", links.len()) };
        Box::pin(async { Ok(page) })
    }

    fn subscriptions(&self) -> Vec<PushSubscription> {
        self.subscriptions.lock().unwrap().clone()
    }

    fn forget<'a>(&'a self, gone: &'a PushSubscription) -> BoxFuture<'a, ()> {
        self.subscriptions.lock().unwrap().retain(|known| known != gone);
        Box::pin(async {})
    }

    fn key(&self) -> Result<Arc<VapidKey>, Failure> {
        let mut key = self.key.lock().unwrap();
        let made = || Arc::new(VapidKey::read(&VapidKey::generate().unwrap()).unwrap());
        Ok(key.get_or_insert_with(made).clone())
    }
}

struct Running {
    notifier: Notifier,
    host: Arc<Host>,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    async fn start(config: NotifyConfig) -> Self {
        config.check().unwrap();
        let host = Arc::new(Host::default());
        let timing = Timing {
            asked_after: SignedDuration::from_millis(30),
            attempts: 3,
            first_pause: Duration::from_millis(20),
            longest_pause: Duration::from_millis(40),
        };
        let notifier = Notifier::new(NotifyParts { config, host: host.clone(), timing });
        let stop = CancellationToken::new();
        tokio::spawn({
            let (notifier, stop) = (notifier.clone(), stop.clone());
            async move { notifier.run(stop).await }
        });
        let running = Self { notifier, host, stop };
        running.until(|running| running.notifier.status().running).await;
        running
    }

    fn ask(&self, id: &str) {
        let expires_at = Timestamp::now().saturating_add(SignedDuration::from_mins(2)).unwrap();
        let subject = Subject::Question { id: id.to_owned(), expires_at };
        self.notifier.tell(Notice { subject, is_urgent: false, details: format!("main asks about {id}") });
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let waited = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waited).await.expect("it never happened");
    }
}

fn config(kind: ChannelKind, url: String) -> NotifyConfig {
    let channel = ChannelConfig { kind, url: Some(url), ..ChannelConfig::default() };
    NotifyConfig {
        coalesce_seconds: 0,
        private_hosts: vec!["127.0.0.1".to_owned()],
        channels: [("team".to_owned(), channel)].into(),
        ..NotifyConfig::default()
    }
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

#[tokio::test]
async fn a_question_that_stays_open_is_sent_and_one_that_was_answered_is_not() {
    let mut receiver = Receiver::start().await;
    let running = Running::start(config(ChannelKind::Webhook, format!("{}/hook", receiver.address))).await;
    running.host.answered.lock().unwrap().insert("policy:1".to_owned());
    running.ask("policy:1");
    running.ask("policy:2");
    let received = receiver.next().await;
    assert_eq!(received.path(), "/hook");
    let body = json(&received.body);
    assert_eq!(body["url"], "https://yard.example/approve/policy:2");
    assert_eq!(body["text"], "A question waits for your answer.", "nothing is named unless it is configured");
    assert_eq!(body["denyUrl"], Value::Null, "no link to deny unless it is configured");
    running.until(|running| running.notifier.status().channels.iter().any(|channel| channel.sent == 1)).await;
    assert!(receiver.is_empty());
}

#[tokio::test]
async fn a_message_may_carry_a_link_to_deny_and_nothing_that_allows() {
    let mut receiver = Receiver::start().await;
    let mut config = config(ChannelKind::Webhook, receiver.address.clone());
    let channel = config.channels.get_mut("team").unwrap();
    (channel.deny_link, channel.details) = (true, true);
    let running = Running::start(config).await;
    receiver.answer_with(&[503, 500]);
    running.ask("policy:7");
    for _ in 0..2 {
        receiver.next().await;
    }
    let received = receiver.next().await;
    let text = String::from_utf8(received.body).unwrap();
    assert!(text.contains("https://yard.example/deny/CODE") && text.contains("main asks about policy:7"), "{text}");
    assert!(!text.to_lowercase().contains("allow"), "{text}");
    assert_eq!(*running.host.links.lock().unwrap(), ["team:policy:7"], "two retries send the first link again");
}

#[tokio::test]
async fn a_failure_is_retried_a_few_times_and_then_shown_in_the_status() {
    let mut receiver = Receiver::start().await;
    let running = Running::start(config(ChannelKind::Slack, format!("{}/services/SECRETPATH", receiver.address))).await;
    receiver.answer_with(&[503, 429]);
    running.ask("a");
    for _ in 0..3 {
        receiver.next().await;
    }
    let team = |running: &Running| running.notifier.status().channels.into_iter().find(|c| c.name == "team").unwrap();
    running.until(|running| team(running).sent == 1).await;
    assert_eq!(team(&running).last_error, None);

    receiver.answer_with(&[500, 500, 500]);
    running.ask("b");
    running.until(|running| team(running).failed == 1).await;
    let error = team(&running).last_error.unwrap();
    assert_eq!(error.message, "127.0.0.1 answered 500");
    assert!(!format!("{:?}", running.notifier.status()).contains("SECRETPATH"));

    receiver.answer_with(&[400]);
    running.ask("c");
    running.until(|running| team(running).failed == 2).await;
    let mut requests = 0;
    while !receiver.is_empty() {
        requests += 1;
    }
    assert_eq!(requests, 4, "three times 500, and 400 is not tried again");
}

#[tokio::test]
async fn a_question_that_is_answered_between_two_tries_is_not_tried_again() {
    let mut receiver = Receiver::start().await;
    let running = Running::start(config(ChannelKind::Ntfy, format!("{}/topic", receiver.address))).await;
    receiver.answer_with(&[500]);
    running.ask("a");
    receiver.next().await;
    running.host.answered.lock().unwrap().insert("a".to_owned());
    running.ask("b");
    let received = receiver.next().await;
    assert_eq!(received.header("click"), Some("https://yard.example/approve/b"));
    assert!(receiver.is_empty());
}

#[tokio::test]
async fn a_test_says_per_channel_what_happened() {
    let receiver = Receiver::start().await;
    let running = Running::start(config(ChannelKind::Webhook, receiver.address.clone())).await;
    receiver.answer_with(&[401]);
    let results = running.notifier.test(Some("team")).await.unwrap();
    let error = results[0].error.as_ref().unwrap();
    assert_eq!(error.message, "127.0.0.1 answered 401");
    assert!(error.suggestion.as_ref().unwrap().contains("token"));
    let results = running.notifier.test(None).await.unwrap();
    let named = |name: &str| results.iter().find(|result| result.channel == name).unwrap();
    assert!(named("team").ok);
    assert!(!named("push").ok, "no browser has subscribed");
    let unknown = running.notifier.test(Some("nobody")).await.unwrap_err();
    assert!(unknown.suggestion.unwrap().contains("push, team"));
}

#[tokio::test]
async fn other_settings_are_used_at_once() {
    let mut receiver = Receiver::start().await;
    let first = config(ChannelKind::Webhook, format!("{}/old", receiver.address));
    let running = Running::start(first).await;
    let mut second = config(ChannelKind::Webhook, format!("{}/new", receiver.address));
    second.channels.get_mut("team").unwrap().min_severity = Severity::Warn;
    running.notifier.configure(second).await;
    let subject = Subject::RunFailed { run: "r".to_owned() };
    running.notifier.tell(Notice { subject, is_urgent: false, details: String::new() });
    assert_eq!(receiver.next().await.path(), "/new");
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// What a browser does with the body of a push message.
fn decrypt(body: &[u8], private: EphemeralPrivateKey, browser: &[u8], auth: &[u8]) -> Value {
    let expand = |prk: &ring::hkdf::Prk, info: &[&[u8]], length: usize| {
        let mut out = vec![0; length];
        prk.expand(info, Length(length)).unwrap().fill(&mut out).unwrap();
        out
    };
    let (salt, rest) = body.split_at(16);
    let (sender, record) = rest[5..].split_at(65);
    let input = agree_ephemeral(private, &UnparsedPublicKey::new(&ECDH_P256, sender), |shared| {
        let prk = Salt::new(HKDF_SHA256, auth).extract(shared);
        expand(&prk, &[b"WebPush: info\0", browser, sender], 32)
    })
    .unwrap();
    let prk = Salt::new(HKDF_SHA256, salt).extract(&input);
    let key = expand(&prk, &[b"Content-Encoding: aes128gcm\0"], 16);
    let nonce: [u8; 12] = expand(&prk, &[b"Content-Encoding: nonce\0"], 12).try_into().unwrap();
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
    let mut record = record.to_vec();
    let plain = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record).unwrap();
    json(plain.strip_suffix(&[2]).unwrap())
}

#[tokio::test]
async fn a_browser_reads_its_push_message_and_a_dead_subscription_is_removed() {
    let mut receiver = Receiver::start().await;
    let mut settings = config(ChannelKind::Webhook, receiver.address.clone());
    settings.channels.clear();
    let running = Running::start(settings).await;
    let private = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
    let public = private.compute_public_key().unwrap();
    let auth = [5u8; 16];
    let subscription = PushSubscription {
        device: "phone".to_owned(),
        endpoint: format!("{}/push/1", receiver.address),
        keys: SubscriptionKeys { p256dh: BASE64URL.encode(public.as_ref()), auth: BASE64URL.encode(auth) },
    };
    subscription.check().unwrap();
    running.host.subscriptions.lock().unwrap().push(subscription);
    running.ask("policy:9");
    let received = receiver.next().await;
    assert_eq!((received.path(), received.header("content-encoding")), ("/push/1", Some("aes128gcm")));
    assert_eq!(received.header("urgency"), Some("high"));
    let ttl: u64 = received.header("ttl").unwrap().parse().unwrap();
    assert!((60..=120).contains(&ttl), "until the question expires: {ttl}");
    let key = running.host.key().unwrap().public();
    assert!(received.header("authorization").unwrap().ends_with(&format!(", k={key}")));
    let message = decrypt(&received.body, private, public.as_ref(), &auth);
    assert_eq!(message["url"], "/approve/policy:9");
    assert_eq!(message["body"], "A question waits for your answer.");

    receiver.answer_with(&[410]);
    running.ask("policy:10");
    receiver.next().await;
    running.until(|running| running.notifier.status().subscriptions == 0).await;
    assert!(!running.notifier.reaches_a_person());
}

#[tokio::test]
async fn a_push_service_in_the_private_network_is_refused() {
    let running = Running::start(NotifyConfig::default()).await;
    for endpoint in ["https://127.0.0.1/x", "https://[::1]/x", "https://10.0.0.7/x", "https://169.254.169.254/x"] {
        let failure = running.notifier.check_endpoint(endpoint).await.unwrap_err();
        assert!(failure.suggestion.unwrap().contains("notify.privateHosts"), "{endpoint}");
    }
    let failure = running.notifier.check_endpoint("http://push.example/x").await.unwrap_err();
    assert!(failure.message.contains("https://"), "{}", failure.message);
}
