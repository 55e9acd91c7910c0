//! [`Bucket`]: objects by their SHA-256.

use crate::{BucketError, http::Connector, worker::Worker};
use futures_util::StreamExt;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    path::Path,
};
use sha2::{Digest, Sha256};
use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};
use url::Url;

/// An object that was written less than this ago is not removed: a row that names it may be on its way.
pub const REMOVE_AFTER: Duration = Duration::from_secs(24 * 3600);
/// An object that was written more than this ago is written again when it is put: see the crate's comment.
pub const REFRESH_AFTER: Duration = Duration::from_secs(12 * 3600);
/// How often a failed request is sent again.
const RETRIES: usize = 5;
/// How long a request and its repetitions may take.
const RETRY_WITHIN: Duration = Duration::from_secs(60);
/// How long one request may take: the largest blob has 512 MiB.
const REQUEST_WITHIN: Duration = Duration::from_secs(120);
/// Blobs that [`Bucket::put_all`] writes at a time.
const WRITES_AT_ONCE: usize = 8;
/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Largest object that is read: the largest blob of a store.
const MAX_OBJECT_BYTES: u64 = 512 << 20;
/// The object that [`Bucket::check`] writes and reads.
const MARKER: &str = "toolyard-bucket";
const MARKER_TEXT: &[u8] =
    b"Large blobs of a Toolyard cluster. Do not remove objects by age: rows of its store name them.\n";

/// A bucket, or the part of it below a prefix. Its methods answer futures for callers on a runtime, and
/// [`Bucket::wait`] runs one for a caller that blocks.
#[derive(Debug)]
pub struct Bucket {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    /// As it is configured, for messages.
    place: String,
    worker: Arc<Worker>,
}

/// What a request to the bucket answers.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, BucketError>> + Send>>;

impl Bucket {
    /// A bucket by its address, `s3://BUCKET/PREFIX`. Endpoint, region and credentials come from the environment
    /// (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, ...) or the identity of the machine. Sends nothing: see
    /// [`Bucket::check`].
    pub fn open(place: &str) -> Result<Self, BucketError> {
        let invalid = |why: String| BucketError::Invalid(format!("store.bucket {place:?} {why}"));
        let url = Url::parse(place).map_err(|error| invalid(format!("is no address: {error}")))?;
        if url.scheme() != "s3" || url.host_str().is_none_or(str::is_empty) {
            return Err(invalid("must be s3://BUCKET or s3://BUCKET/PREFIX".into()));
        }
        if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.port().is_some() {
            return Err(invalid(
                "must be s3://BUCKET/PREFIX and nothing else; credentials and endpoint are AWS_* variables".into(),
            ));
        }
        let prefix =
            Path::parse(url.path().trim_matches('/')).map_err(|error| invalid(format!("has a bad prefix: {error}")))?;
        // The cryptography provider is process-wide; an error means that one is already installed.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let retries = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_WITHIN, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env().with_url(format!("s3://{}", url.host_str().unwrap_or_default()));
        let is_plain = builder
            .get_config_value(&AmazonS3ConfigKey::Endpoint)
            .is_some_and(|endpoint| endpoint.starts_with("http://"));
        let allows_plain = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| value == "true" || value == "1");
        if is_plain && !allows_plain {
            return Err(BucketError::Invalid(
                "the endpoint of store.bucket is http://, which sends data in the clear: use https://, or set AWS_ALLOW_HTTP=true".into(),
            ));
        }
        for (key, value) in [
            (object_store::ClientConfigKey::Timeout, REQUEST_WITHIN),
            (object_store::ClientConfigKey::ConnectTimeout, CONNECT_WITHIN),
        ] {
            builder = builder.with_config(AmazonS3ConfigKey::Client(key), format!("{} seconds", value.as_secs()));
        }
        let objects = builder
            .with_retry(retries)
            .with_http_connector(Connector)
            .build()
            .map_err(|error| invalid(format!("cannot be used: {error}")))?;
        Self::over(Arc::new(objects), prefix, place)
    }

    fn over(objects: Arc<dyn ObjectStore>, prefix: Path, place: &str) -> Result<Self, BucketError> {
        let place = place.to_owned();
        let worker = Worker::start().map_err(|error| BucketError::Unavailable(place.clone(), error.to_string()))?;
        Ok(Self { objects, prefix, place, worker: Arc::new(worker) })
    }

    /// The part of this bucket below a folder, whose blobs have nothing to do with those beside it.
    pub fn below(&self, folder: &str) -> Self {
        let (objects, place, worker) = (self.objects.clone(), self.place.clone(), self.worker.clone());
        let prefix = folder.split('/').fold(self.prefix.clone(), |prefix, part| prefix.join(part));
        Self { objects, prefix, place, worker }
    }

    /// The address as it was given.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether the bucket is there and can be written and read, by writing and reading one small object.
    pub fn check(&self) -> Answer<()> {
        let path = self.prefix.clone().join(MARKER);
        let (objects, place) = (self.objects.clone(), self.place.clone());
        Box::pin(async move {
            match create(&*objects, &path, PutPayload::from_static(MARKER_TEXT)).await {
                Ok(()) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                Err(error) => return Err(failure(&place, error)),
            }
            let read = async { objects.get(&path).await?.bytes().await };
            match read.await {
                Ok(bytes) if bytes.as_ref() == MARKER_TEXT => Ok(()),
                Ok(_) => Err(BucketError::Damaged(path.to_string())),
                Err(error) => Err(failure(&place, error)),
            }
        })
    }

    /// Writes a blob. When this returns, the object is durable.
    pub fn put(&self, sha256: &str, bytes: &[u8]) -> Answer<()> {
        let path = match self.object(sha256) {
            Ok(path) if hash(bytes) == sha256 => path,
            Ok(_) => {
                return refuse(BucketError::Invalid(format!("the bytes given for {sha256:?} have another SHA-256")));
            }
            Err(error) => return refuse(error),
        };
        let payload = PutPayload::from(bytes.to_vec());
        let (objects, place, length) = (self.objects.clone(), self.place.clone(), bytes.len() as u64);
        Box::pin(async move {
            let written = async {
                match create(&*objects, &path, payload.clone()).await {
                    Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                    other => return other,
                }
                // Somebody has written it. It is written again if it is not whole, or so old that it might be removed
                // before a row names it.
                match objects.head(&path).await {
                    Ok(found) if found.size == length && age(found.last_modified.into()) < REFRESH_AFTER => Ok(()),
                    Ok(_) | Err(Error::NotFound { .. }) => objects.put(&path, payload).await.map(drop),
                    Err(error) => Err(error),
                }
            };
            written.await.map_err(|error| failure(&place, error))
        })
    }

    /// Reads a blob and checks that it is the one that its name promises. `None` when there is none.
    pub fn get(&self, sha256: &str) -> Answer<Option<Vec<u8>>> {
        let path = match self.object(sha256) {
            Ok(path) => path,
            Err(error) => return refuse(error),
        };
        let (objects, place, name) = (self.objects.clone(), self.place.clone(), sha256.to_owned());
        Box::pin(async move {
            let found = match objects.get(&path).await {
                Ok(found) => found,
                // A bucket that is gone is not a blob that is missing.
                Err(Error::NotFound { source, .. }) if !names_the_bucket(&source.to_string()) => return Ok(None),
                Err(error) => return Err(failure(&place, error)),
            };
            if found.meta.size > MAX_OBJECT_BYTES {
                return Err(BucketError::Damaged(name));
            }
            let bytes = found.bytes().await.map_err(|error| failure(&place, error))?;
            if hash(&bytes) == name { Ok(Some(bytes.to_vec())) } else { Err(BucketError::Damaged(name)) }
        })
    }

    /// Removes a blob that no row names, unless it was written less than [`REMOVE_AFTER`] ago. Answers whether it did.
    pub fn remove(&self, sha256: &str) -> Answer<bool> {
        let path = match self.object(sha256) {
            Ok(path) => path,
            Err(error) => return refuse(error),
        };
        let (objects, place) = (self.objects.clone(), self.place.clone());
        Box::pin(async move {
            let removed = async {
                match objects.head(&path).await {
                    Ok(found) if age(found.last_modified.into()) < REMOVE_AFTER => return Ok(false),
                    Ok(_) => {}
                    Err(Error::NotFound { .. }) => return Ok(false),
                    Err(error) => return Err(error),
                }
                objects.delete(&path).await.map(|()| true)
            };
            removed.await.map_err(|error| failure(&place, error))
        })
    }

    /// The hashes of the objects after one (empty for the first), in order, at most `limit`.
    pub fn hashes(&self, after: &str, limit: usize) -> Answer<Vec<String>> {
        let folder = self.prefix.clone().join("blobs");
        let offset = match self.object(after) {
            _ if after.is_empty() => folder.clone(),
            Ok(path) => path,
            Err(error) => return refuse(error),
        };
        let (objects, place) = (self.objects.clone(), self.place.clone());
        Box::pin(async move {
            let mut all = Vec::new();
            let mut found = objects.list_with_offset(Some(&folder), &offset);
            // S3 lists in the order of names, which is the order of hashes.
            while all.len() < limit
                && let Some(object) = found.next().await
            {
                let object = object.map_err(|error| failure(&place, error))?;
                all.extend(object.location.filename().filter(|name| is_hash(name)).map(str::to_owned));
            }
            Ok(all)
        })
    }

    /// The object of a blob: in one of 256 folders, because servers spread load by prefix.
    fn object(&self, sha256: &str) -> Result<Path, BucketError> {
        if !is_hash(sha256) {
            return Err(BucketError::Invalid(format!("{sha256:?} is no SHA-256 in lowercase hexadecimal")));
        }
        Ok(self.prefix.clone().join("blobs").join(&sha256[..2]).join(sha256))
    }

    /// Writes several blobs, some of them at a time.
    pub fn put_all(&self, blobs: Vec<(String, Vec<u8>)>) -> Answer<()> {
        let writes: Vec<Answer<()>> = blobs.iter().map(|(sha256, bytes)| self.put(sha256, bytes)).collect();
        Box::pin(async move {
            let mut written = futures_util::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
            while let Some(written) = written.next().await {
                written?;
            }
            Ok(())
        })
    }

    /// Blocks until a request is answered. Not for threads of a runtime.
    pub fn wait<T: Send + 'static>(&self, answer: Answer<T>) -> Result<T, BucketError> {
        let ended = || BucketError::Unavailable(self.place.clone(), "the request ended without an answer".into());
        self.worker.wait(answer).unwrap_or_else(|| Err(ended()))
    }
}

fn refuse<T: Send + 'static>(error: BucketError) -> Answer<T> {
    Box::pin(std::future::ready(Err(error)))
}

/// Writes an object that must not exist (`If-None-Match: *`).
async fn create(objects: &dyn ObjectStore, path: &Path, payload: PutPayload) -> Result<(), Error> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    objects.put_opts(path, payload, options).await.map(drop)
}

/// How long ago something was written. A server whose clock is ahead of ours has written it now.
fn age(written: SystemTime) -> Duration {
    SystemTime::now().duration_since(written).unwrap_or_default()
}

fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a server's "not found" is about the bucket itself.
fn names_the_bucket(reason: &str) -> bool {
    reason.contains("NoSuchBucket")
}

fn failure(place: &str, error: Error) -> BucketError {
    match error {
        Error::NotFound { source, .. } if names_the_bucket(&source.to_string()) => BucketError::Missing(place.into()),
        Error::PermissionDenied { source, .. } | Error::Unauthenticated { source, .. } => {
            BucketError::Refused(place.into(), first_line(&source.to_string()))
        }
        other => BucketError::Unavailable(place.into(), first_line(&other.to_string())),
    }
}

/// A server's message without the page that may follow it.
fn first_line(text: &str) -> String {
    const LONGEST: usize = 300;
    text.lines().next().unwrap_or_default().chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    fn bucket() -> (Arc<InMemory>, Bucket) {
        let objects = Arc::new(InMemory::new());
        let bucket = Bucket::over(objects.clone(), Path::from("a/prefix"), "s3://test/a/prefix").unwrap();
        (objects, bucket)
    }

    fn on_the_server<T: Send + 'static>(bucket: &Bucket, work: impl Future<Output = T> + Send + 'static) -> T {
        bucket.worker.wait(work).unwrap()
    }

    #[test]
    fn what_is_put_comes_back_and_putting_it_again_changes_nothing() {
        let (_, bucket) = bucket();
        let bytes = b"large ".repeat(50_000);
        let name = hash(&bytes);
        assert_eq!(bucket.wait(bucket.get(&name)).unwrap(), None);
        bucket.wait(bucket.put(&name, &bytes)).unwrap();
        bucket.wait(bucket.put(&name, &bytes)).unwrap();
        assert_eq!(bucket.wait(bucket.get(&name)).unwrap().unwrap(), bytes);
        assert_eq!(bucket.wait(bucket.hashes("", 10)).unwrap(), std::slice::from_ref(&name));
        assert!(bucket.wait(bucket.hashes(&name, 10)).unwrap().is_empty());
    }

    #[test]
    fn an_object_that_is_not_what_its_name_says_is_never_answered() {
        let (objects, bucket) = bucket();
        let name = hash(b"right");
        let path = bucket.object(&name).unwrap();
        let other = objects.clone();
        let at = path.clone();
        on_the_server(&bucket, async move { other.put(&at, PutPayload::from_static(b"wrong")).await.unwrap() });
        assert_eq!(bucket.wait(bucket.get(&name)), Err(BucketError::Damaged(name.clone())));
        on_the_server(&bucket, async move { objects.put(&path, PutPayload::from_static(b"rig")).await.unwrap() });
        // A shortened object is replaced when somebody puts the blob again.
        bucket.wait(bucket.put(&name, b"right")).unwrap();
        assert_eq!(bucket.wait(bucket.get(&name)).unwrap().unwrap(), b"right");
    }

    #[test]
    fn bytes_under_a_wrong_name_are_refused() {
        let (_, bucket) = bucket();
        assert!(matches!(bucket.wait(bucket.put(&hash(b"one"), b"two")), Err(BucketError::Invalid(_))));
        for name in ["", "../../x", &"A".repeat(64), &"0".repeat(63)] {
            assert!(matches!(bucket.wait(bucket.get(name)), Err(BucketError::Invalid(_))), "{name}");
        }
    }

    #[test]
    fn what_was_written_just_now_is_not_removed() {
        let (_, bucket) = bucket();
        let name = hash(b"new");
        bucket.wait(bucket.put(&name, b"new")).unwrap();
        assert!(!bucket.wait(bucket.remove(&name)).unwrap());
        assert!(bucket.wait(bucket.get(&name)).unwrap().is_some());
        assert!(!bucket.wait(bucket.remove(&hash(b"never there"))).unwrap());
    }

    #[test]
    fn an_address_that_is_not_a_bucket_is_refused_with_what_it_should_be() {
        for place in ["", "bucket", "file:///tmp", "s3://", "s3://key:secret@bucket/x", "s3://bucket?x=1", "gs://b"] {
            let error = Bucket::open(place).err().unwrap();
            assert!(matches!(&error, BucketError::Invalid(why) if why.contains("store.bucket")), "{place}: {error}");
        }
    }
}
