//! The source of a ClawHub package (OpenClaw's registry): a folder that mirrors it, or its address.

use super::source::name_and_version;
use std::path::{Path, PathBuf};
use toolyard_protocol::{ErrorCode, Failure};

/// The location of a package.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PackageLocation {
    Folder(PathBuf),
    Tarball(PathBuf),
    /// The address of a tarball.
    Address(String),
}

/// Finds a package. `configured` is `plugins.clawhub`; the spec was checked when it was typed.
pub(super) fn locate(configured: Option<&str>, spec: &str) -> Result<PackageLocation, Failure> {
    let (name, version) = name_and_version(spec);
    let Some(configured) = configured else {
        return Err(Failure::new(
            ErrorCode::PreconditionFailed,
            format!("clawhub:{spec} is a package of ClawHub, the registry of OpenClaw, and plugins.clawhub is not set"),
        )
        .suggest(format!(
            "Set plugins.clawhub in config.toml to ClawHub's address or to a folder with its packages. Or install the same \
             plugin from elsewhere: `toolyard plugins install npm:{name}`, git:URL or a folder."
        ))
        .retryable(false));
    };
    if configured.starts_with("https://") || configured.starts_with("http://") {
        return address(configured, name, version);
    }
    in_mirror(Path::new(configured), name, version)
}

/// ClawHub hands out tarballs by version only.
fn address(base: &str, name: &str, version: Option<&str>) -> Result<PackageLocation, Failure> {
    let Some(version) = version else {
        return Err(Failure::new(ErrorCode::UsageError, format!("clawhub:{name} names no version"))
            .suggest(format!("Name one: `toolyard plugins install clawhub:{name}@VERSION`.")));
    };
    let encoded = name.replace('@', "%40").replace('/', "%2F");
    let base = base.trim_end_matches('/');
    Ok(PackageLocation::Address(format!("{base}/api/v1/packages/{encoded}/versions/{version}/artifact/download")))
}

/// A mirror holds `NAME` as a folder, `NAME.tgz`, or both with `-VERSION` behind the name.
fn in_mirror(mirror: &Path, name: &str, version: Option<&str>) -> Result<PackageLocation, Failure> {
    let file = match version {
        Some(version) => format!("{name}-{version}"),
        None => name.to_owned(),
    };
    let (folder, tarball) = (mirror.join(&file), mirror.join(format!("{file}.tgz")));
    if tarball.is_file() {
        return Ok(PackageLocation::Tarball(tarball));
    }
    if folder.is_dir() {
        return Ok(PackageLocation::Folder(folder));
    }
    let why = format!("{} has neither a folder {file} nor a file {file}.tgz", mirror.display());
    Err(Failure::new(ErrorCode::NotFound, why).suggest("plugins.clawhub in config.toml names the folder."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_version_and_a_mirror_may_have_one() {
        let found = locate(Some("https://hub.example/"), "@a/b@1.2.0").unwrap();
        let expected = "https://hub.example/api/v1/packages/%40a%2Fb/versions/1.2.0/artifact/download";
        assert_eq!(found, PackageLocation::Address(expected.to_owned()));
        assert_eq!(locate(Some("https://hub.example"), "b").unwrap_err().code, ErrorCode::UsageError);
        let mirror = tempfile::tempdir().unwrap();
        std::fs::create_dir(mirror.path().join("b")).unwrap();
        std::fs::write(mirror.path().join("b-1.0.tgz"), "").unwrap();
        let configured = mirror.path().to_str();
        assert_eq!(locate(configured, "b").unwrap(), PackageLocation::Folder(mirror.path().join("b")));
        assert_eq!(locate(configured, "b@1.0").unwrap(), PackageLocation::Tarball(mirror.path().join("b-1.0.tgz")));
        assert_eq!(locate(configured, "c").unwrap_err().code, ErrorCode::NotFound);
        let unknown = locate(None, "b").unwrap_err();
        assert_eq!(unknown.code, ErrorCode::PreconditionFailed);
        assert!(unknown.suggestion.unwrap().contains("npm:b"));
    }
}
