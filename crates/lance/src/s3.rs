//! Tables in an S3-compatible object store.
//!
//! LanceDB's own `aws` feature does the same with Amazon's SDK, which brings a second HTTP stack and a second
//! cryptography library and adds a minute to every build, only to read credentials from profile files. Here credentials
//! come from the options, the environment or the machine (web identity, container, instance), as the `object_store`
//! crate reads them.

use lance_io::object_store::{
    DEFAULT_CLOUD_IO_PARALLELISM, ObjectStore, ObjectStoreParams, ObjectStoreProvider, StorageOptions,
};
use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, S3CopyIfNotExists},
};
use std::{sync::Arc, time::Duration};
use url::Url;

/// Read block size: a round trip costs more than reading this many bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// The canonical name of an option, so that `region` and `AWS_REGION` are the same option.
pub(crate) fn canonical(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    lower.parse::<AmazonS3ConfigKey>().map_or(lower, |key| key.as_ref().to_owned())
}

/// Opens buckets.
#[derive(Debug)]
pub(crate) struct S3;

#[async_trait::async_trait]
impl ObjectStoreProvider for S3 {
    async fn new_store(&self, place: Url, params: &ObjectStoreParams) -> lance_core::Result<ObjectStore> {
        // The cryptography provider is process-wide; an error means that one is already installed.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let options = StorageOptions::new(params.storage_options().cloned().unwrap_or_default());
        let retries = RetryConfig {
            max_retries: options.client_max_retries(),
            retry_timeout: Duration::from_secs(options.client_retry_timeout()),
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_retry(retries)
            // Two writers must not both succeed in creating the same version.
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
    use toolyard_noteindex::storage::OPTIONS;

    /// Lance's own options, which the object store does not know.
    const OWN_OPTIONS: [&str; 4] = ["block_size", "client_max_retries", "client_retry_timeout", "download_retry_count"];

    #[test]
    fn every_option_that_may_be_configured_is_known_to_the_object_store() {
        for name in OPTIONS {
            let is_known = OWN_OPTIONS.contains(&name) || name.parse::<AmazonS3ConfigKey>().is_ok();
            assert!(is_known, "{name}");
        }
    }

    #[test]
    fn an_option_has_one_name_however_it_is_spelled() {
        assert_eq!(canonical("AWS_REGION"), canonical("region"));
        assert_eq!(canonical("Endpoint"), canonical("aws_endpoint"));
        assert_eq!(canonical("block_size"), "block_size");
    }
}
