//! `TOOLYARD_HOME`: the paths of everything in it, the signing key, the token, and the address of the running process.

use anyhow::{Context, Result};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};
use toolyard_engine::{chain::Signer, redact::redactor};
use toolyard_postgres::ClusterKeys;

/// Tokens that gateways gave this machine's device, by URL.
const DEVICE_TOKENS: &str = "device-tokens.json";

/// The name in signatures.
const SIGNER: &str = "toolyard";
const CONFIG_KEY: &str = "config.key";
const PUSH_KEY: &str = "push.key";
const SIGNING_KEY: &str = "signing.key";
/// Makes the HMACs that are kept of secret arguments.
const SECRETS_KEY: &str = "secrets.key";
const NEXT_SIGNING_KEY: &str = "signing.key.next";

/// A Toolyard that serves a home.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Instance {
    /// Where it listens.
    pub url: String,
    /// Its process.
    pub pid: u32,
}

/// The folder that holds everything Toolyard keeps.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

impl Home {
    /// The folder named, else `~/.toolyard`.
    pub fn resolve(given: Option<&Path>) -> Result<Self> {
        let path = match given {
            Some(path) => {
                std::path::absolute(path).with_context(|| format!("cannot make {} absolute", path.display()))?
            }
            None => {
                let user =
                    std::env::var_os("HOME").filter(|h| !h.is_empty()).context("HOME is not set; pass --home DIR")?;
                PathBuf::from(user).join(".toolyard")
            }
        };
        Ok(Self(path))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// `config.toml`.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }
    /// Durable state.
    pub fn state(&self) -> PathBuf {
        self.0.join("state")
    }
    /// What agents remember: plain files.
    pub fn context(&self) -> PathBuf {
        self.path().join("context")
    }
    /// This node's copy of what agents remember, in a cluster. It can be made again from the shared store.
    pub fn context_copy(&self) -> PathBuf {
        self.path().join("context-copy")
    }
    /// The notes' indexes, one folder for each vault.
    pub fn index(&self) -> PathBuf {
        self.0.join("index")
    }
    /// The four files of each run.
    pub fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }
    /// The command line's socket.
    pub fn socket(&self) -> PathBuf {
        self.state().join("toolyard.sock")
    }
    /// Installed plugins and their data.
    pub fn plugins(&self) -> PathBuf {
        self.path().join("plugins")
    }
    /// The socket of `toolyard mcp`.
    pub fn mcp_socket(&self) -> PathBuf {
        self.state().join("mcp.sock")
    }
    /// Tokens for upstream MCP servers, one private file each.
    pub fn tokens(&self) -> PathBuf {
        self.state().join("mcp-tokens")
    }
    /// Variables and headers of imported MCP servers, one private file for each server.
    pub fn mcp_secrets(&self) -> PathBuf {
        self.state().join("mcp-secrets")
    }
    /// Snapshots of projects in which coding agents run commands.
    pub fn snapshots(&self) -> PathBuf {
        self.state().join("snapshots")
    }
    /// Lock files of vaults.
    pub fn locks(&self) -> PathBuf {
        self.state().join("locks")
    }
    /// The vault used when none is configured.
    pub fn default_vault(&self) -> PathBuf {
        self.0.join("vault")
    }

    fn instance_file(&self) -> PathBuf {
        self.state().join("instance.json")
    }

    /// Stores the address of the running Toolyard, so that commands find it whatever its port is.
    pub fn announce(&self, instance: &Instance) -> Result<()> {
        let path = self.instance_file();
        self.retract()?;
        write_private(&path, &serde_json::to_string(instance)?)
    }

    /// Removes what [`Home::announce`] wrote.
    pub fn retract(&self) -> Result<()> {
        let path = self.instance_file();
        remove_if_there(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// The address that was announced last. The process may have ended since; connecting to its socket shows whether it runs.
    pub fn announced(&self) -> Option<Instance> {
        serde_json::from_str(&fs::read_to_string(self.instance_file()).ok()?).ok()
    }

    /// Paths that a sandboxed program never sees, even if it is granted a folder above them: keys and tokens, the
    /// configuration, and the plugins with their grants.
    pub fn hidden_from_programs(&self) -> [PathBuf; 3] {
        [self.state(), self.config(), self.plugins()]
    }

    /// Makes the folders, private to the user.
    pub fn create(&self) -> Result<()> {
        for dir in [self.0.clone(), self.state(), self.locks()] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(())
    }

    /// The key that signs records, made at first use. The public key is in a file beside it, for verifiers.
    pub fn signer(&self) -> Result<Signer> {
        let signer =
            Signer::from_secret(SIGNER, &self.secret(SIGNING_KEY)?).with_secrets_key(&self.secret(SECRETS_KEY)?);
        self.publish(&signer)?;
        Ok(signer)
    }

    /// Signs with the keys that the nodes of a cluster share.
    pub fn cluster_signer(&self, keys: &ClusterKeys) -> Result<Signer> {
        let signer = Signer::from_secret(SIGNER, &keys.signing).with_secrets_key(&keys.secrets);
        self.publish(&signer)?;
        Ok(signer)
    }

    /// The keys of this home, made at first use.
    pub fn own_keys(&self) -> Result<ClusterKeys> {
        Ok(ClusterKeys { signing: self.secret(SIGNING_KEY)?, secrets: self.secret(SECRETS_KEY)? })
    }

    /// Makes other keys those of this home. The ones before stay beside them.
    pub fn set_keys(&self, keys: &ClusterKeys) -> Result<()> {
        if self.own_keys()? == *keys {
            return Ok(());
        }
        for (name, secret) in [(SIGNING_KEY, &keys.signing), (SECRETS_KEY, &keys.secrets)] {
            let path = self.state().join(name);
            let before = self.state().join(format!("{name}.before"));
            fs::rename(&path, &before).with_context(|| format!("cannot rename {}", path.display()))?;
            write_private(&path, &toolyard_protocol::canonical::hex(secret))?;
        }
        self.signer().map(drop)
    }

    /// The id of this home.
    pub fn node_id(&self) -> Result<String> {
        Ok(toolyard_protocol::canonical::hex(&self.secret("node.id")?)[..32].to_owned())
    }

    /// A secret of 32 bytes that an operator keeps in a file, in hexadecimal.
    pub fn secret_file(path: &Path) -> Result<[u8; 32]> {
        let text = read_private(path)?.with_context(|| format!("{} is not there", path.display()))?;
        parse_hex(text.trim()).with_context(|| format!("{} does not hold 64 hexadecimal digits", path.display()))
    }

    /// Writes the public half of the signing key beside it.
    fn publish(&self, signer: &Signer) -> Result<()> {
        let public = self.state().join("signing.pub");
        let text = signer.verifier().to_text() + "\n";
        if fs::read_to_string(&public).is_ok_and(|kept| kept == text) {
            return Ok(());
        }
        fs::write(&public, text).with_context(|| format!("cannot write {}", public.display()))
    }

    /// Makes the next signing key and keeps it apart until the ledger names it.
    pub fn make_next_key(&self) -> Result<[u8; 32]> {
        let path = self.state().join(NEXT_SIGNING_KEY);
        remove_if_there(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        let secret = random()?;
        write_private(&path, &toolyard_protocol::canonical::hex(&secret))?;
        fs::File::open(&path)
            .and_then(|file| file.sync_all())
            .with_context(|| format!("cannot sync {}", path.display()))?;
        Ok(secret)
    }

    /// Makes the next signing key the one in use.
    pub fn use_next_key(&self) -> Result<()> {
        let (next, present) = (self.state().join(NEXT_SIGNING_KEY), self.state().join(SIGNING_KEY));
        fs::rename(&next, &present).with_context(|| format!("cannot rename {}", next.display()))?;
        fs::File::open(self.state())
            .and_then(|folder| folder.sync_all())
            .with_context(|| format!("cannot sync {}", self.state().display()))?;
        self.publish(&Signer::from_secret(SIGNER, &self.secret(SIGNING_KEY)?))
    }

    /// Completes or reverts the replacement of the signing key after a process was killed during it: completes it if
    /// the ledger names the next key, and otherwise deletes that key.
    pub fn settle_next_key(&self, names: impl Fn(&Signer) -> Result<bool>) -> Result<()> {
        let path = self.state().join(NEXT_SIGNING_KEY);
        let Some(text) = read_private(&path)? else { return Ok(()) };
        let named = match parse_hex(text.trim()) {
            Some(secret) => names(&Signer::from_secret(SIGNER, &secret))?,
            None => false,
        };
        if named {
            return self.use_next_key();
        }
        remove_if_there(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// The signed heads of the ledger, one a line, in a file outside the database.
    pub fn heads(&self) -> PathBuf {
        self.state().join("heads.jsonl")
    }

    /// The key with which this machine signs as a device of a gateway elsewhere, made at first use.
    pub fn device_key(&self) -> Result<[u8; 32]> {
        self.secret("device.key")
    }

    /// 32 secret bytes, made at first use.
    fn secret(&self, name: &str) -> Result<[u8; 32]> {
        let path = self.state().join(name);
        let text = match read_private(&path)? {
            Some(text) => text,
            None => {
                let secret = random()?;
                if write_new(&path, &toolyard_protocol::canonical::hex(&secret))? {
                    return Ok(secret);
                }
                // Another process made it meanwhile.
                read_private(&path)?.unwrap_or_default()
            }
        };
        parse_hex(text.trim()).with_context(|| format!("{} is not a key", path.display()))
    }

    /// The key of the hash of the configuration file, made at first use.
    pub fn config_key(&self) -> Result<[u8; 32]> {
        self.secret(CONFIG_KEY)
    }

    /// The key with which this server identifies itself to push services, in PKCS #8, made at first use.
    pub fn push_key(&self, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let path = self.state().join(PUSH_KEY);
        let text = match read_private(&path)? {
            Some(text) => text,
            None => {
                let made = toolyard_protocol::canonical::hex(&make()?);
                if write_new(&path, &made)? { made } else { read_private(&path)?.unwrap_or_default() }
            }
        };
        let digits = text.trim();
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
        let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
        bytes.filter(|bytes| !bytes.is_empty()).with_context(|| format!("{} is not a key", path.display()))
    }

    /// The token that the gateway at a URL gave this machine's device.
    pub fn device_token(&self, url: &str) -> Result<Option<String>> {
        let token = self.device_tokens()?.remove(url);
        token.iter().for_each(|token| redactor().learn(token));
        Ok(token)
    }

    /// Keeps the token that the gateway at a URL gave this machine's device.
    pub fn keep_device_token(&self, url: &str, token: &str) -> Result<()> {
        let mut tokens = self.device_tokens()?;
        if tokens.get(url).is_some_and(|kept| kept == token) {
            return Ok(());
        }
        tokens.insert(url.to_owned(), token.to_owned());
        let path = self.state().join(DEVICE_TOKENS);
        let beside = self.state().join(format!("{DEVICE_TOKENS}.{}", std::process::id()));
        remove_if_there(&beside).with_context(|| format!("cannot remove {}", beside.display()))?;
        write_new(&beside, &serde_json::to_string(&tokens)?)?;
        fs::rename(&beside, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    fn device_tokens(&self) -> Result<BTreeMap<String, String>> {
        let path = self.state().join(DEVICE_TOKENS);
        match read_private(&path)? {
            Some(text) => serde_json::from_str(&text).with_context(|| format!("{} cannot be read", path.display())),
            None => Ok(BTreeMap::new()),
        }
    }

    /// The token clients must show, made at first use.
    pub fn token(&self) -> Result<String> {
        let path = self.state().join("token");
        if let Some(text) = read_private(&path)? {
            redactor().learn(&text);
            return Ok(text.trim().to_owned());
        }
        let token = toolyard_protocol::canonical::hex(&random()?);
        redactor().learn(&token);
        if write_new(&path, &token)? {
            Ok(token)
        } else {
            Ok(read_private(&path)?.unwrap_or_default().trim().to_owned())
        }
    }
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .context("the system has no randomness")?;
    }
    Ok(bytes)
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0u8; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

/// Reads a secret, and refuses one that others could read.
fn read_private(path: &Path) -> Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        anyhow::bail!("{} can be read by others; make it private with: chmod 600 {}", path.display(), path.display());
    }
    Ok(Some(fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?))
}

/// Writes a new file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    if write_new(path, text)? { Ok(()) } else { anyhow::bail!("{} is there already", path.display()) }
}

/// Removes a file, if it is there.
pub(crate) fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a new secret whole or not at all. False when it is there already.
fn write_new(path: &Path, text: &str) -> Result<bool> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .with_context(|| format!("cannot write {}", temporary.display()))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", temporary.display()))?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary).with_context(|| format!("cannot remove {}", temporary.display()))?;
    match linked {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e).with_context(|| format!("cannot write {}", path.display())),
    }
}

/// The user's name, for records.
pub fn user_name() -> String {
    ["USER", "LOGNAME"]
        .iter()
        .find_map(|key| std::env::var(key).ok().filter(|v| !v.is_empty()))
        .unwrap_or_else(|| format!("uid:{}", rustix::process::getuid().as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_tokens_are_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(dir.path())).unwrap();
        home.create().unwrap();
        let first = home.signer().unwrap().verifier().to_text();
        assert_eq!(home.signer().unwrap().verifier().to_text(), first);
        assert_eq!(home.token().unwrap(), home.token().unwrap());
        let mode = fs::metadata(home.state().join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(home.state().join("signing.key"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(home.signer().err().unwrap().to_string().contains("chmod 600"));
    }
}
