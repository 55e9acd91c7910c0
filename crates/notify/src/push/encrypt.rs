//! The encryption of a message for one browser: RFC 8291 with the content coding aes128gcm of RFC 8188.

use super::{AUTH_BYTES, POINT_BYTES};
use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    hkdf::{HKDF_SHA256, KeyType, Salt},
    rand::{SecureRandom, SystemRandom},
};

/// Bytes of the random salt of a message.
const SALT_BYTES: usize = 16;
/// The record size in the header. A message is one record.
const RECORD_SIZE: u32 = 4096;
/// Bytes of the key of AES-128.
const KEY_BYTES: usize = 16;
/// Bytes of the header: salt, record size, length of the key, key.
const HEADER_BYTES: usize = SALT_BYTES + 4 + 1 + POINT_BYTES;
/// The longest message: a record without header, delimiter and tag.
pub(crate) const MAX_PLAINTEXT: usize = RECORD_SIZE as usize - HEADER_BYTES - 1 - 16;
/// Ends the last record.
const LAST_RECORD: u8 = 2;

/// Why a message is not encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncryptError {
    /// It does not fit into one record.
    #[error("the message is longer than {MAX_PLAINTEXT} bytes")]
    TooLong,
    /// The browser's key is no point of the curve, or the system gives no random numbers.
    #[error("the browser's key cannot be used")]
    Key,
}

/// The body of a request to a push service.
pub struct Encrypted {
    /// The bytes, with the content coding `aes128gcm`.
    pub body: Vec<u8>,
}

/// Length of what HKDF writes.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// Encrypts a message for a browser.
///
/// # Errors
/// A message that is too long, or a key that is no point of the curve.
pub fn encrypt(
    plaintext: &[u8],
    browser: &[u8; POINT_BYTES],
    auth: &[u8; AUTH_BYTES],
) -> Result<Encrypted, EncryptError> {
    let random = SystemRandom::new();
    let unusable = |_| EncryptError::Key;
    let private = EphemeralPrivateKey::generate(&ECDH_P256, &random).map_err(unusable)?;
    let public = private.compute_public_key().map_err(unusable)?;
    let mut salt = [0u8; SALT_BYTES];
    random.fill(&mut salt).map_err(unusable)?;
    let own: [u8; POINT_BYTES] = public.as_ref().try_into().map_err(|_| EncryptError::Key)?;
    let body = agree_ephemeral(private, &UnparsedPublicKey::new(&ECDH_P256, browser), |shared| {
        seal(plaintext, shared, browser, &own, auth, &salt)
    })
    .map_err(unusable)??;
    Ok(Encrypted { body })
}

/// Everything after the key agreement, which RFC 8291 gives an example of in its appendix.
fn seal(
    plaintext: &[u8],
    shared: &[u8],
    browser: &[u8; POINT_BYTES],
    own: &[u8; POINT_BYTES],
    auth: &[u8; AUTH_BYTES],
    salt: &[u8; SALT_BYTES],
) -> Result<Vec<u8>, EncryptError> {
    if plaintext.len() > MAX_PLAINTEXT {
        return Err(EncryptError::TooLong);
    }
    let unusable = |_| EncryptError::Key;
    let mut input = [0u8; 32];
    let key_info: [&[u8]; 3] = [b"WebPush: info\0", browser, own];
    let extracted = Salt::new(HKDF_SHA256, auth).extract(shared);
    extracted.expand(&key_info, Bytes(32)).and_then(|okm| okm.fill(&mut input)).map_err(unusable)?;
    let prk = Salt::new(HKDF_SHA256, salt).extract(&input);
    let (mut key, mut nonce) = ([0u8; KEY_BYTES], [0u8; NONCE_LEN]);
    prk.expand(&[b"Content-Encoding: aes128gcm\0"], Bytes(KEY_BYTES))
        .and_then(|okm| okm.fill(&mut key))
        .map_err(unusable)?;
    prk.expand(&[b"Content-Encoding: nonce\0"], Bytes(NONCE_LEN))
        .and_then(|okm| okm.fill(&mut nonce))
        .map_err(unusable)?;
    let mut record = Vec::with_capacity(plaintext.len() + 17);
    record.extend_from_slice(plaintext);
    record.push(LAST_RECORD);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).map_err(unusable)?);
    // Each message has keys of its own, so the nonce that RFC 8188 derives is used once.
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record).map_err(unusable)?;
    let mut body = Vec::with_capacity(HEADER_BYTES + record.len());
    body.extend_from_slice(salt);
    body.extend_from_slice(&RECORD_SIZE.to_be_bytes());
    body.push(POINT_BYTES as u8);
    body.extend_from_slice(own);
    body.extend_from_slice(&record);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        BASE64URL.decode(text).unwrap().try_into().unwrap()
    }

    /// RFC 8291, section 5 and appendix A.
    #[test]
    fn the_example_of_rfc_8291_has_the_bytes_of_the_rfc() {
        let own: [u8; POINT_BYTES] =
            bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let browser: [u8; POINT_BYTES] =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let body = seal(
            b"When I grow up, I want to be a watermelon",
            &bytes::<32>("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs"),
            &browser,
            &own,
            &bytes("BTBZMqHH6r4Tts7J_aSIgg"),
            &bytes("DGv6ra1nlYgDCS1FRnbzlw"),
        )
        .unwrap();
        let expected = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
        assert_eq!(BASE64URL.encode(body), expected);
    }

    /// A browser's side of RFC 8291, written for this test alone.
    fn decrypt(body: &[u8], private: EphemeralPrivateKey, browser: &[u8], auth: &[u8]) -> Vec<u8> {
        let (salt, rest) = body.split_at(SALT_BYTES);
        let (own, record) = rest[5..].split_at(POINT_BYTES);
        let mut input = [0u8; 32];
        agree_ephemeral(private, &UnparsedPublicKey::new(&ECDH_P256, own), |shared| {
            let prk = Salt::new(HKDF_SHA256, auth).extract(shared);
            prk.expand(&[b"WebPush: info\0", browser, own], Bytes(32)).unwrap().fill(&mut input).unwrap();
        })
        .unwrap();
        let prk = Salt::new(HKDF_SHA256, salt).extract(&input);
        let (mut key, mut nonce) = ([0u8; 16], [0u8; 12]);
        prk.expand(&[b"Content-Encoding: aes128gcm\0"], Bytes(16)).unwrap().fill(&mut key).unwrap();
        prk.expand(&[b"Content-Encoding: nonce\0"], Bytes(12)).unwrap().fill(&mut nonce).unwrap();
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let mut record = record.to_vec();
        let plain = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record).unwrap();
        plain.strip_suffix(&[LAST_RECORD]).unwrap().to_vec()
    }

    #[test]
    fn a_browser_reads_what_was_encrypted_for_it_and_no_two_bodies_are_equal() {
        let random = SystemRandom::new();
        let private = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
        let browser: [u8; POINT_BYTES] = private.compute_public_key().unwrap().as_ref().try_into().unwrap();
        let auth = [7u8; AUTH_BYTES];
        let text = "a".repeat(MAX_PLAINTEXT);
        let first = encrypt(text.as_bytes(), &browser, &auth).unwrap().body;
        let second = encrypt(text.as_bytes(), &browser, &auth).unwrap().body;
        assert_ne!(first, second);
        assert_eq!(first.len(), RECORD_SIZE as usize);
        assert_eq!(decrypt(&first, private, &browser, &auth), text.as_bytes());
    }

    #[test]
    fn a_long_message_and_a_point_beside_the_curve_are_refused() {
        let random = SystemRandom::new();
        let private = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
        let browser: [u8; POINT_BYTES] = private.compute_public_key().unwrap().as_ref().try_into().unwrap();
        let long = vec![0; MAX_PLAINTEXT + 1];
        assert_eq!(encrypt(&long, &browser, &[0; AUTH_BYTES]).err(), Some(EncryptError::TooLong));
        let mut beside = [9u8; POINT_BYTES];
        beside[0] = 4;
        assert_eq!(encrypt(b"x", &beside, &[0; AUTH_BYTES]).err(), Some(EncryptError::Key));
    }
}
