//! The known options of an object store. A misspelt option is rejected when the configuration is read, and not when the
//! index program is first used. `toolyard-lance` tests that the object store knows each of them.

/// Every option that is allowed in `knowledge.index.storageOptions`. The first four are Lance's own.
pub const OPTIONS: [&str; 27] = [
    "block_size",
    "client_max_retries",
    "client_retry_timeout",
    "download_retry_count",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "token",
    "region",
    "default_region",
    "bucket",
    "bucket_name",
    "endpoint",
    "endpoint_url",
    "imdsv1_fallback",
    "virtual_hosted_style_request",
    "unsigned_payload",
    "checksum_algorithm",
    "metadata_endpoint",
    "skip_signature",
    "allow_http",
    "timeout",
    "connect_timeout",
    "allow_invalid_certificates",
    "proxy_url",
    "user_agent",
    "server_side_encryption",
];

/// Prefix of the environment variables that hold object store credentials.
pub const ENVIRONMENT_PREFIX: &str = "AWS_";

/// The first name that is not a known option. A misspelt option would otherwise be ignored silently.
pub fn unknown_option<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_known = |name: &&str| {
        let lower = name.to_ascii_lowercase();
        OPTIONS.contains(&lower.strip_prefix("aws_").unwrap_or(&lower))
    };
    names.into_iter().find(|name| !is_known(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_options_are_found() {
        let good =
            ["endpoint", "Region", "allow_http", "aws_access_key_id", "virtual_hosted_style_request", "block_size"];
        assert_eq!(unknown_option(good), None);
        assert_eq!(unknown_option(["region", "regoin", "endpont"]), Some("regoin"));
    }
}
