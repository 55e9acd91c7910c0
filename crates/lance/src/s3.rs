//! Tables in an object store that speaks S3.
//!
//! LanceDB's own `aws` feature does the same with Amazon's SDK, a second HTTP stack and a second crypto library: a minute
//! of every build, for credentials out of profile files. Here they come from the options, the environment, or the machine
//! (web identity, container, instance), as the `object_store` crate reads them.

use lance_io::object_store::{
    DEFAULT_CLOUD_IO_PARALLELISM, ObjectStore, ObjectStoreParams, ObjectStoreProvider, StorageOptions,
};
use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, S3CopyIfNotExists},
};
use std::{sync::Arc, time::Duration};
use url::Url;

/// Bytes read at once: a round trip costs more than they do.
const BLOCK_BYTES: usize = 64 << 10;

/// Options of Lance's own, beside those of the object store.
const OWN_OPTIONS: [&str; 4] = ["block_size", "client_max_retries", "client_retry_timeout", "download_retry_count"];

/// The first of these names that is no option of an object store: a misspelt one would be passed over in silence.
pub fn unknown_storage_option<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_known = |name: &&str| {
        let lower = name.to_ascii_lowercase();
        OWN_OPTIONS.contains(&lower.as_str()) || lower.parse::<AmazonS3ConfigKey>().is_ok()
    };
    names.into_iter().find(|name| !is_known(name))
}

/// Opens buckets.
#[derive(Debug)]
pub(crate) struct S3;

#[async_trait::async_trait]
impl ObjectStoreProvider for S3 {
    async fn new_store(&self, place: Url, params: &ObjectStoreParams) -> lance_core::Result<ObjectStore> {
        // Whichever part of the program comes first sets the crypto library that all use.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let options = StorageOptions::new(params.storage_options().cloned().unwrap_or_default());
        let retries = RetryConfig {
            max_retries: options.client_max_retries(),
            retry_timeout: Duration::from_secs(options.client_retry_timeout()),
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_retry(retries)
            // Two writers must not both believe that they made the same version.
            .with_copy_if_not_exists(S3CopyIfNotExists::Multipart);
        for (key, value) in &options.0 {
            if let Ok(key) = key.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let store = builder.with_url(place.as_str()).build()?;
        Ok(ObjectStore::new(
            Arc::new(store),
            place,
            Some(params.block_size.unwrap_or(BLOCK_BYTES)),
            params.object_store_wrapper.clone(),
            false,
            true,
            DEFAULT_CLOUD_IO_PARALLELISM,
            options.download_retry_count(),
            params.storage_options(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_options_are_found() {
        let good =
            ["endpoint", "Region", "allow_http", "aws_access_key_id", "virtual_hosted_style_request", "block_size"];
        assert_eq!(unknown_storage_option(good), None);
        assert_eq!(unknown_storage_option(["region", "regoin", "endpont"]), Some("regoin"));
    }
}
