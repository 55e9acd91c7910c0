//! Clones a repository over the network with the settings of [`toolyard_sandbox::git`]. Git runs in a sandbox that
//! allows the network and one folder.

use crate::{fetch::NetworkRules, importer::ImportError, limits::Limits, source::GitSource};
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::{
    git,
    launch::ConfinedLauncher,
    tool::{Tool, ToolError},
};

/// Clones a repository into an existing empty folder.
pub(crate) async fn clone(
    source: &GitSource,
    into: &Path,
    rules: &NetworkRules,
    limits: &Limits,
    launcher: &ConfinedLauncher,
    cancel: &CancellationToken,
) -> Result<PathBuf, ImportError> {
    let address = Address::of(&source.url)?;
    let found = rules.resolve(&address.host, address.port).await?;
    if let Some(reference) = &source.reference
        && (reference.starts_with('-') || reference.chars().any(|c| c.is_control() || c.is_whitespace()))
    {
        return Err(ImportError::Invalid(format!("{reference:?} is no branch")));
    }
    // Unencrypted protocols do not authenticate the server, so they are allowed only where private networks are
    // allowed.
    if address.scheme != "https" && !rules.allow_private {
        return Err(ImportError::Invalid(format!("repositories are cloned over https, not {}", address.scheme)));
    }
    let target = into.join("repository");
    let mut settings = vec!["http.followRedirects=false".to_owned()];
    if let Some(first) = found.first()
        && address.scheme.starts_with("http")
        && address.host.parse::<IpAddr>().is_err()
    {
        // Git connects to the address that was checked.
        settings.push(format!("http.curloptResolve={}:{}:{}", address.host, address.port, first.ip()));
    }
    let cloned = git::Clone {
        url: &address.url,
        scheme: &address.scheme,
        reference: source.reference.as_deref(),
        target: &target,
        settings: &settings,
    };
    let mut env = git::environment(into);
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    env.push(("PATH".to_owned(), path));
    let tool = Tool {
        program: "git",
        args: &cloned.arguments(),
        env: &env,
        cwd: into,
        folder: into,
        read: Vec::new(),
        network: true,
        time_limit: Duration::from_millis(limits.clone_ms),
        byte_limit: limits.clone_bytes,
    };
    tool.run(launcher, cancel).await.map_err(|error| match error {
        ToolError::ByteLimit(most) => ImportError::TooLarge(format!("the repository takes more than {most} bytes")),
        ToolError::TimeLimit(_) => ImportError::Git(format!("cloning took longer than {} ms", limits.clone_ms)),
        ToolError::Cancelled => ImportError::Cancelled,
        other => ImportError::Git(other.to_string()),
    })?;
    Ok(target)
}

#[derive(Debug)]
struct Address {
    /// The URL passed to git, rebuilt from its parsed parts so that git cannot see a different host from the one that
    /// was checked. Programs parse URLs such as `https://a\@b/` differently.
    url: String,
    scheme: String,
    host: String,
    port: u16,
}

impl Address {
    fn of(url: &str) -> Result<Self, ImportError> {
        let bad = || ImportError::Invalid(format!("{url} is no repository's address"));
        if url.starts_with('-')
            || url.contains("::") && !url.contains('[')
            || url.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            // Git treats a leading hyphen as an option, and a double colon as a remote helper.
            return Err(bad());
        }
        if let Some((_, rest)) = url.split_once('@').filter(|_| !url.contains("://")) {
            let host = rest.split(':').next().filter(|host| !host.is_empty()).ok_or_else(bad)?;
            return Ok(Self { url: url.to_owned(), scheme: "ssh".to_owned(), host: host.to_owned(), port: 22 });
        }
        let parsed = reqwest::Url::parse(url).map_err(|_| bad())?;
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or_else(bad)?.to_owned();
        let known = match parsed.scheme() {
            "https" => 443,
            "http" => 80,
            "git" => 9_418,
            "ssh" => 22,
            _ => return Err(bad()),
        };
        let (scheme, port) = (parsed.scheme().to_owned(), parsed.port().unwrap_or(known));
        Ok(Self { url: parsed.into(), scheme, host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_git_would_take_for_something_else_are_refused() {
        for bad in ["--upload-pack=x", "ext::sh -c x", "file:///etc", "https://", "a b", "/local/path"] {
            assert!(Address::of(bad).is_err(), "{bad}");
        }
        let address = Address::of("https://e.org:8443/r.git").unwrap();
        assert_eq!((address.scheme.as_str(), address.host.as_str(), address.port), ("https", "e.org", 8443));
        assert_eq!(Address::of("git@e.org:o/r.git").unwrap().host, "e.org");
    }

    #[test]
    fn git_is_given_the_host_that_was_checked() {
        for (written, host, url) in [
            ("https://e.org\\@127.0.0.1/r", "e.org", "https://e.org/@127.0.0.1/r"),
            ("https://e.org#@127.0.0.1/r", "e.org", "https://e.org/#@127.0.0.1/r"),
            ("https:e.org/r", "e.org", "https://e.org/r"),
            ("https://0x7f.1/r", "127.0.0.1", "https://127.0.0.1/r"),
            ("https://2130706433/r", "127.0.0.1", "https://127.0.0.1/r"),
            ("https://\u{ff11}27.0.0.1/r", "127.0.0.1", "https://127.0.0.1/r"),
        ] {
            let address = Address::of(written).unwrap();
            assert_eq!((address.host.as_str(), address.url.as_str()), (host, url), "{written}");
        }
    }
}
