//! Payloads of frames in the database: plain, or compressed if that is shorter.
//!
//! Records are short and alike: names of fields, codes and tools repeat in each. So they are compressed with a
//! dictionary of such records (`packing/records-1.dict`, made by `zstd --train` from records with their ids, hashes and
//! times replaced). It belongs to the format: a store that was written with it can only be read with it. A new
//! dictionary would get a flag of its own.
//!
//! The writer's thread compresses payloads when it writes them to the database, so no caller waits for it, and the
//! chain covers the uncompressed payload.

use crate::{blob_files, failed, limits};
use std::{
    borrow::Cow,
    sync::{LazyLock, Mutex, PoisonError},
};
use toolyard_engine::store::StoreError;
use zstd::{
    bulk::{Compressor, Decompressor},
    dict::{DecoderDictionary, EncoderDictionary},
};

/// Added to a frame's kind when its payload is zstd. The first four bytes are then its real length.
const ZSTD: i64 = 256;
/// Added to a frame's kind when its payload is zstd with the dictionary. The first two bytes are then its real length, and
/// zstd's own first four, which are always the same, are left out.
const WITH_DICTIONARY: i64 = 512;
/// The bits of a frame's kind with both of these.
pub(crate) const KIND_BITS: u32 = 10;
const DICTIONARY: &[u8] = include_bytes!("packing/records-1.dict");
const LEVEL: i32 = 3;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Shorter payloads are kept as they are.
const MIN_BYTES: usize = 48;

static TO_PACK: LazyLock<EncoderDictionary<'static>> = LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, LEVEL));
static TO_UNPACK: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| DecoderDictionary::copy(DICTIONARY));
/// Compressors are reused, because creating one takes longer than compressing a record.
static PACKERS: Mutex<Vec<Compressor<'static>>> = Mutex::new(Vec::new());
static UNPACKERS: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());
/// Idle ones that are kept.
const IDLE: usize = 2;

/// Takes an idle one, or makes one, and puts it back.
fn with<T, R>(
    idle: &Mutex<Vec<T>>,
    make: impl FnOnce() -> std::io::Result<T>,
    work: impl FnOnce(&mut T) -> std::io::Result<R>,
) -> std::io::Result<R> {
    let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut one = match taken {
        Some(one) => one,
        None => make()?,
    };
    let done = work(&mut one)?;
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() < IDLE {
        idle.push(one);
    }
    Ok(done)
}

fn packer() -> std::io::Result<Compressor<'static>> {
    let mut packer = Compressor::with_prepared_dictionary(&TO_PACK)?;
    packer.include_checksum(false)?;
    packer.include_dictid(false)?;
    packer.include_contentsize(false)?;
    Ok(packer)
}

/// A frame's kind and payload as they are written.
pub(crate) fn pack(kind: i64, payload: &[u8]) -> (i64, Cow<'_, [u8]>) {
    let plain = (kind, Cow::Borrowed(payload));
    if payload.len() < MIN_BYTES || payload.len() > limits::COMPRESS_FRAME_TO {
        return plain;
    }
    if let Ok(length) = u16::try_from(payload.len()) {
        // A payload that cannot be compressed is stored unchanged.
        let packed = with(&PACKERS, packer, |packer| packer.compress(payload)).unwrap_or_default();
        return match packed.strip_prefix(&ZSTD_MAGIC) {
            Some(rest) if rest.len() + 2 < payload.len() => {
                (kind | WITH_DICTIONARY, Cow::Owned([length.to_le_bytes().as_slice(), rest].concat()))
            }
            _ => plain,
        };
    }
    match blob_files::compress(payload) {
        None => plain,
        Some(packed) => {
            // Lossless: what is compressed is far below four gigabytes.
            let length = (payload.len() as u32).to_le_bytes();
            (kind | ZSTD, Cow::Owned([length.as_slice(), &packed].concat()))
        }
    }
}

/// The payload as it was recorded.
pub(crate) fn unpack(flagged: i64, stored: &[u8]) -> Result<Vec<u8>, StoreError> {
    let cut_short = || StoreError::failed("the store holds a damaged frame: it is cut short");
    if flagged & WITH_DICTIONARY != 0 {
        let (length, rest) = stored.split_first_chunk::<2>().ok_or_else(cut_short)?;
        let length = usize::from(u16::from_le_bytes(*length));
        let packed = [ZSTD_MAGIC.as_slice(), rest].concat();
        let make = || Decompressor::with_prepared_dictionary(&TO_UNPACK);
        let payload = with(&UNPACKERS, make, |unpacker| unpacker.decompress(&packed, length))
            .map_err(|e| failed("the store holds a damaged frame", e))?;
        return if payload.len() == length { Ok(payload) } else { Err(cut_short()) };
    }
    if flagged & ZSTD == 0 {
        return Ok(stored.to_vec());
    }
    let (length, packed) = stored.split_first_chunk::<4>().ok_or_else(cut_short)?;
    blob_files::expand(packed, u32::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let record = br#"{"runId":"01a1ece4-85d9-71db-890c-5f80773e807c","kind":"call","executorVersion":"0.1.0","caller":{"door":"cli"}}"#;
        let (kind, packed) = pack(1, record);
        assert_eq!(kind, 1 | WITH_DICTIONARY);
        assert!(packed.len() < record.len() * 2 / 3, "{} of {}", packed.len(), record.len());
        for size in [0, 1, 47, 48, 100, 2047, 2048, 65_535, 65_536, 262_144, 262_145] {
            let payload = b"again ".repeat(size / 6 + 1)[..size].to_vec();
            let (kind, packed) = pack(255, &payload);
            assert!(packed.len() <= payload.len(), "{size}");
            assert_eq!(unpack(kind, &packed).unwrap(), payload, "{size}");
        }
    }

    #[test]
    fn damage_is_an_error_or_shows_in_the_chain() {
        let payload = b"{\"kind\":\"call\",\"caller\":{\"door\":\"cli\"},\"executorVersion\":\"0.1.0\"}".to_vec();
        let (kind, packed) = pack(1, &payload);
        for at in 0..packed.len() {
            assert!(unpack(kind, &packed[..at]).is_err(), "{at}");
        }
        assert!(unpack(ZSTD, b"abc").is_err());
    }
}
