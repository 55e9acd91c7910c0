//! The person's door: one-use pairing codes, the browsers that were paired with them, and tickets for downloads.
//!
//! A browser becomes a device of a person with a code that only the owner of this machine can get. The rights of the device
//! are those of the code. The device proves itself with three things: a cookie that no script can read, its key that no
//! script can copy, and an origin that is ours; the gateway checks all of them. *Has no* sockets, headers or cookies.

mod codes;
mod deny;
mod feed;
mod methods;
mod paired;
mod tickets;

pub use codes::{CodeProblem, PairingCode};
pub use deny::DenyOutcome;
pub(crate) use feed::Feed;
pub use methods::{ConsoleCode, ConsoleCodeParams, ConsoleSubscribe, DownloadsTicket, NewCode};
pub use paired::{CLIENT_ID, ConsoleDevice, PairedBrowser, Pairing, ShownConsole};
pub use tickets::{Download, DownloadForm};

use crate::devices::Devices;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};
use tickets::Tickets;
use toolyard_engine::{Clock, Store, authority::Scope};
use toolyard_protocol::canonical;

/// What a paired browser may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// Everything that the person at this machine may do, except naming its paths.
    #[default]
    Owner,
    /// Reads, and answers questions.
    Approver,
    /// May read, and nothing else.
    Viewer,
}

impl Rights {
    /// The scopes of a device with these rights.
    pub fn scopes(self) -> Vec<String> {
        let scopes: &[Scope] = match self {
            Self::Owner => &[Scope::Admin],
            Self::Approver => &[Scope::Read, Scope::Approvals],
            Self::Viewer => &[Scope::Read],
        };
        scopes.iter().map(|scope| scope.as_str().to_owned()).collect()
    }

    /// Whether a request of the device is a person's own act. A viewer decides nothing.
    pub fn is_person(self) -> bool {
        self != Self::Viewer
    }

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Approver => "approver",
            Self::Viewer => "viewer",
        }
    }
}

/// Codes, paired browsers and tickets.
pub struct Console {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    devices: Arc<Devices>,
    tickets: Tickets,
    address: OnceLock<String>,
    instance: String,
}

impl Console {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, devices: Arc<Devices>, home: &str) -> Self {
        let instance = canonical::sha256_hex(home.as_bytes()).chars().take(8).collect();
        Self { store, clock, devices, tickets: Tickets::default(), address: OnceLock::new(), instance }
    }

    /// Sets the address at which browsers reach the console, `http://HOST:PORT`; the first to be set stays.
    pub fn set_address(&self, address: impl Into<String>) {
        if self.address.set(address.into()).is_err() {
            tracing::error!("the console has an address already");
        }
    }

    /// The address at which browsers reach the console; absent where no network door is open.
    pub fn address(&self) -> Option<&str> {
        self.address.get().map(String::as_str)
    }

    /// A name for this home: eight hexadecimal digits. Cookies of two Toolyards on one machine differ in it, because
    /// browsers send a cookie to every port of a host.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Whether a secret is the one whose hash is kept, in constant time.
fn is_secret(kept_hash: &str, shown: &str) -> bool {
    use subtle::ConstantTimeEq;
    kept_hash.as_bytes().ct_eq(hash_of(shown).as_bytes()).into()
}

/// A secret of this many random bytes, in base64url.
fn new_secret<const BYTES: usize>() -> Result<String, toolyard_engine::store::StoreError> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let mut bytes = [0u8; BYTES];
    crate::devices::fill_random(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The hash under which a secret is kept.
fn hash_of(secret: &str) -> String {
    canonical::sha256_hex(secret.as_bytes())
}
