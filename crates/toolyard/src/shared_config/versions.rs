//! The numbered versions of a cluster's shared configuration, as facts of the store that the nodes share.
//!
//! One fact holds the version in use and is replaced by compare-and-set, so that of two changes at once one is refused.
//! The version before is copied to a fact of its own first: a process that dies between the two leaves a copy and nothing
//! else. The text may hold secrets (tokens, variables of MCP servers), so it is encrypted with a key that is derived from
//! the cluster's secret. With `store.secretFile` the database alone does not tell it.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use jiff::Timestamp;
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use toolyard_engine::{Store, derive_shared, store::Swap};
use toolyard_protocol::{ErrorCode, Failure};

/// The space of the facts. The ledger names their changes.
const SPACE: &str = "config";
/// The fact with the version in use.
const CURRENT: &str = "current";
/// Earlier versions that are kept.
const MAX_EARLIER: u64 = 200;
/// Most bytes of a shared configuration.
const MAX_BYTES: usize = 1 << 20;
/// What the key is derived for.
const PURPOSE: &str = "the shared configuration";

/// About a version of the shared configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionInfo {
    /// Its number, counted from 1.
    pub(crate) version: u64,
    /// When it was made.
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
    /// Who made it.
    pub(crate) by: String,
    /// The node at which it was made.
    pub(crate) node: String,
    /// The settings that differ from the version before.
    pub(crate) changed: Vec<String>,
    /// The earlier version whose settings it has, if it was made by `config rollback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restores: Option<u64>,
}

/// A version with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) info: VersionInfo,
    /// The shared settings, as TOML.
    pub(crate) text: String,
}

/// A version as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(flatten)]
    info: VersionInfo,
    nonce: String,
    text: String,
}

/// The versions of a cluster.
#[derive(Clone)]
pub(crate) struct Versions {
    store: Arc<dyn Store>,
    key: Arc<LessSafeKey>,
}

fn broken(what: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::StoreUnavailable, format!("the cluster's configuration cannot be used: {what}"))
}

fn key_of(version: u64) -> String {
    format!("v{version:010}")
}

impl Versions {
    /// The versions in a store; `None` if one machine uses the store alone.
    pub(crate) fn of(store: Arc<dyn Store>) -> Result<Option<Self>, Failure> {
        let Some(secret) = store.shared_secret().filter(|_| store.is_shared()) else { return Ok(None) };
        let key = UnboundKey::new(&CHACHA20_POLY1305, &derive_shared(&secret, PURPOSE)).map_err(broken)?;
        Ok(Some(Self { store, key: Arc::new(LessSafeKey::new(key)) }))
    }

    /// The name of this node.
    pub(crate) fn node(&self) -> String {
        self.store.owner().node
    }

    /// The version in use as stored bytes, to see whether it changed without opening it. May block.
    pub(crate) fn current_bytes(&self) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.store.get(SPACE, CURRENT)?)
    }

    /// The version in use. May block.
    pub(crate) fn current(&self) -> Result<Option<Version>, Failure> {
        self.current_bytes()?.map(|bytes| self.open(&bytes)).transpose()
    }

    /// Reads a version from its stored bytes.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Version, Failure> {
        let Stored { info, nonce, text } = serde_json::from_slice(bytes).map_err(broken)?;
        let nonce = BASE64.decode(nonce).map_err(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(&nonce).map_err(broken)?;
        let mut text = BASE64.decode(text).map_err(broken)?;
        let about = info.version.to_string();
        let wrong_key = |_| {
            broken("it was encrypted with another secret")
                .suggest("store.secretFile must be the same on every node, and must not change.")
        };
        let plain = self.key.open_in_place(nonce, Aad::from(about.as_bytes()), &mut text).map_err(wrong_key)?;
        let text = std::str::from_utf8(plain).map_err(broken)?.to_owned();
        Ok(Version { info, text })
    }

    fn seal(&self, version: &Version) -> Result<Vec<u8>, Failure> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(broken)?;
        let mut text = version.text.clone().into_bytes();
        let about = version.info.version.to_string();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(about.as_bytes()), &mut text).map_err(broken)?;
        let stored = Stored { info: version.info.clone(), nonce: BASE64.encode(nonce), text: BASE64.encode(text) };
        serde_json::to_vec(&stored).map_err(broken)
    }

    /// Makes the next version after the one that was looked at. May block.
    pub(crate) fn add(&self, before: Option<&Version>, mut version: Version) -> Result<Version, Failure> {
        if version.text.len() > MAX_BYTES {
            return Err(Failure::new(
                ErrorCode::LimitExceeded,
                format!("the shared configuration has {} bytes, and may have {MAX_BYTES}", version.text.len()),
            ));
        }
        let found = self.current_bytes()?;
        let known = found.as_deref().map(|bytes| self.open(bytes)).transpose()?;
        if known.as_ref().map(|known| known.info.version) != before.map(|before| before.info.version) {
            return Err(outdated());
        }
        version.info.version = known.as_ref().map_or(0, |known| known.info.version) + 1;
        if let (Some(known), Some(bytes)) = (&known, &found) {
            self.store.put_if_absent(SPACE, &key_of(known.info.version), bytes.clone(), None)?;
        }
        match self.store.compare_and_set(SPACE, CURRENT, found.as_deref(), Some((self.seal(&version)?, None)))? {
            Swap::Differs(_) => Err(outdated()),
            Swap::Done => {
                if let Some(old) = version.info.version.checked_sub(MAX_EARLIER + 1) {
                    self.store.remove(SPACE, &key_of(old))?;
                }
                Ok(version)
            }
        }
    }

    /// All versions that are kept, the newest first. May block.
    pub(crate) fn all(&self) -> Result<Vec<Version>, Failure> {
        let mut all: Vec<Version> = Vec::new();
        for (_, bytes) in self.store.list(SPACE)? {
            let version = self.open(&bytes)?;
            // The copy of a version whose replacement was interrupted.
            if all.iter().all(|known| known.info.version != version.info.version) {
                all.push(version);
            }
        }
        all.sort_by_key(|version| std::cmp::Reverse(version.info.version));
        Ok(all)
    }

    /// A version by its number. May block.
    pub(crate) fn get(&self, number: u64) -> Result<Version, Failure> {
        let current = self.current()?.filter(|current| current.info.version == number);
        let version = match current {
            Some(version) => Some(version),
            None => self.store.get(SPACE, &key_of(number))?.map(|bytes| self.open(&bytes)).transpose()?,
        };
        version.ok_or_else(|| {
            Failure::new(ErrorCode::NotFound, format!("there is no version {number} of the configuration"))
                .suggest("`toolyard config versions` lists them.")
        })
    }
}

fn outdated() -> Failure {
    Failure::new(ErrorCode::Conflict, "the configuration has changed since it was looked at")
        .detail("reason", "CONFIG_CHANGED")
        .suggest("Look at it again, and make the change anew.")
}
