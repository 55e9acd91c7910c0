//! One server, its own prefix for each test. The environment names the server, as an operator would.

use toolyard_bucket::{Bucket, BucketError};

fn name(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bucket(name: &str) -> Bucket {
    assert!(std::env::var("AWS_ENDPOINT_URL").is_ok(), "run it with `make object-store`");
    Bucket::open(&format!("s3://notes/{name}/{}", uuid::Uuid::new_v4().simple())).unwrap()
}

#[test]
#[ignore = "run by `make object-store`"]
fn object_store_keeps_blobs_and_checks_them() {
    let bucket = bucket("blobs");
    bucket.wait(bucket.check()).unwrap();
    bucket.wait(bucket.check()).unwrap();
    let mut names = Vec::new();
    for number in 0..5u8 {
        let bytes = [number].repeat(70_000 + usize::from(number) * 1_000_000);
        let name = name(&bytes);
        assert_eq!(bucket.wait(bucket.get(&name)).unwrap(), None);
        bucket.wait(bucket.put(&name, &bytes)).unwrap();
        bucket.wait(bucket.put(&name, &bytes)).unwrap();
        assert_eq!(bucket.wait(bucket.get(&name)).unwrap().unwrap(), bytes);
        assert!(!bucket.wait(bucket.remove(&name)).unwrap(), "it was written just now");
        names.push(name);
    }
    names.sort();
    assert_eq!(bucket.wait(bucket.hashes("", 100)).unwrap(), names);
    assert_eq!(bucket.wait(bucket.hashes(&names[1], 2)).unwrap(), names[2..4]);
}

#[test]
#[ignore = "run by `make object-store`"]
fn object_store_puts_of_one_blob_at_once_all_succeed() {
    let bucket = bucket("race");
    let bytes = b"the same".repeat(20_000);
    let name = name(&bytes);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| bucket.wait(bucket.put(&name, &bytes)).unwrap());
        }
    });
    assert_eq!(bucket.wait(bucket.get(&name)).unwrap().unwrap(), bytes);
}

#[test]
#[ignore = "run by `make object-store`"]
fn object_store_without_the_bucket_says_so() {
    assert!(std::env::var("AWS_ENDPOINT_URL").is_ok(), "run it with `make object-store`");
    let bucket = Bucket::open("s3://nobody-made-this-one/x").unwrap();
    let missing = |error: &BucketError| matches!(error, BucketError::Missing(place) if place.contains("nobody-made"));
    assert!(bucket.wait(bucket.check()).is_err_and(|error| missing(&error)));
    let bytes = b"x".repeat(70_000);
    assert!(bucket.wait(bucket.put(&name(&bytes), &bytes)).is_err_and(|error| missing(&error)));
    assert!(
        bucket.wait(bucket.get(&name(&bytes))).is_err_and(|error| missing(&error)),
        "a bucket that is gone is no missing blob"
    );
}
