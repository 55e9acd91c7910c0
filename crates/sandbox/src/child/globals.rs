//! Functions that `globals.js` cannot implement in JavaScript: random bytes, and parsing addresses as browsers do.

use rquickjs::{Ctx, Exception};
use rustix::rand::{GetRandomFlags, getrandom};
use url::{Url, quirks};

/// Random bytes given at once.
const MAX_RANDOM_BYTES: usize = 65_536;

/// Bytes from the system.
pub(super) fn random(ctx: &Ctx<'_>, count: usize) -> rquickjs::Result<Vec<u8>> {
    let mut bytes = vec![0; count.min(MAX_RANDOM_BYTES)];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        filled += getrandom(rest, GetRandomFlags::empty())
            .map_err(|error| Exception::throw_internal(ctx, &format!("no random bytes: {error}")))?;
    }
    Ok(bytes)
}

/// Parses an address, relative to a base if given, and replaces one part if named. Returns its parts in the order of
/// `PARTS` in `globals.js`.
pub(super) fn url(
    ctx: Ctx<'_>,
    address: String,
    base: Option<String>,
    part: Option<String>,
    value: Option<String>,
) -> rquickjs::Result<Vec<String>> {
    let invalid = || Exception::throw_type(&ctx, "Invalid URL");
    let base = base.map(|base| Url::parse(&base)).transpose().map_err(|_| invalid())?;
    let mut url = Url::options().base_url(base.as_ref()).parse(&address).map_err(|_| invalid())?;
    if let (Some(part), Some(value)) = (part, value)
        && set(&mut url, &part, &value).is_err()
    {
        // A value that cannot be that part changes nothing, as in browsers.
    }
    let parts = [
        quirks::href(&url),
        quirks::protocol(&url),
        quirks::username(&url),
        quirks::password(&url),
        quirks::host(&url),
        quirks::hostname(&url),
        quirks::port(&url),
        quirks::pathname(&url),
        quirks::search(&url),
        quirks::hash(&url),
    ];
    Ok(parts.into_iter().map(str::to_owned).chain([quirks::origin(&url)]).collect())
}

/// Replaces one part, if the value is valid for it.
fn set(url: &mut Url, part: &str, value: &str) -> Result<(), ()> {
    match part {
        "protocol" => quirks::set_protocol(url, value),
        "username" => quirks::set_username(url, value),
        "password" => quirks::set_password(url, value),
        "host" => quirks::set_host(url, value),
        "hostname" => quirks::set_hostname(url, value),
        "port" => quirks::set_port(url, value),
        "pathname" => {
            quirks::set_pathname(url, value);
            Ok(())
        }
        "search" => {
            quirks::set_search(url, value);
            Ok(())
        }
        "hash" => {
            quirks::set_hash(url, value);
            Ok(())
        }
        _ => Err(()),
    }
}
