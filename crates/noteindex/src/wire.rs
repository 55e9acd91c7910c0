//! The protocol between `toolyard` and `toolyard-index`: length-prefixed frames over two pipes.
//!
//! Each side first sends a [`Hello`], whose layout never changes, and refuses another version of the other program.
//! After that a frame is a request or a part of its reply, encoded with postcard. Replies carry the number of their
//! request, so several requests can be in flight at once. A long reply is sent in several frames; the last one is
//! marked.
//!
//! This module knows no processes, and not what an index does with a request.

use crate::{
    ChunkFilter, ChunkRow, FileRow, IndexError, IndexSpec, ProgramError, RowScore, VectorColumns, VersionInfo,
    WriteBatch, WriterStart,
    search::{SearchQuery, SearchResult},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read};

/// Protocol version. It increases with every change to the messages below.
pub const PROTOCOL: u32 = 2;
/// The program's file name.
pub const PROGRAM: &str = "toolyard-index";
/// Maximum size of a frame, in both directions. The largest frames are batches of rows, of at most about 20 MB.
pub const MAX_FRAME_BYTES: usize = 128 << 20;
/// Number of rows in one frame of a long reply.
pub const ROWS_PER_FRAME: usize = 2_000;
/// A longer handshake comes from another program.
const MAX_HELLO_BYTES: usize = 256;
/// The magic bytes of a handshake.
const MAGIC: &[u8; 8] = b"TOOLYIDX";
/// Size of the length field before the body of a frame. The length does not include the field itself.
pub const LENGTH_BYTES: usize = 4;
/// Size of a request number.
const NUMBER_BYTES: usize = 8;

/// The first frame of each side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The protocol version.
    pub protocol: u32,
    /// The program version.
    pub version: String,
}

impl Hello {
    /// The greeting of this program: its version, and a hash of the sources of its messages.
    pub fn own() -> Self {
        let version = concat!(env!("CARGO_PKG_VERSION"), "+", env!("TOOLYARD_INDEX_STAMP"));
        Self { protocol: PROTOCOL, version: version.to_owned() }
    }

    /// Encodes the greeting. The layout is the same in every version, so that two versions can identify each other.
    pub fn frame(&self) -> Vec<u8> {
        let length = MAGIC.len() + 4 + self.version.len();
        let mut frame = Vec::with_capacity(LENGTH_BYTES + length);
        frame.extend_from_slice(&(length as u32).to_le_bytes());
        frame.extend_from_slice(MAGIC);
        frame.extend_from_slice(&self.protocol.to_le_bytes());
        frame.extend_from_slice(self.version.as_bytes());
        frame
    }

    /// Parses the body of a frame.
    pub fn parse(body: &[u8]) -> Result<Self, ProgramError> {
        let other = || ProgramError::Protocol(format!("it does not answer as {PROGRAM} does"));
        let rest = body.strip_prefix(MAGIC).filter(|_| body.len() <= MAX_HELLO_BYTES).ok_or_else(other)?;
        let (protocol, version) = rest.split_first_chunk::<4>().ok_or_else(other)?;
        let version = std::str::from_utf8(version).map_err(|_| other())?.to_owned();
        Ok(Self { protocol: u32::from_le_bytes(*protocol), version })
    }

    /// Refuses the other side unless both have the same version. `own_name` and `other_name` are the programs' names.
    pub fn accept(&self, other: &Hello, own_name: &str, other_name: &str) -> Result<(), ProgramError> {
        if self == other {
            return Ok(());
        }
        Err(ProgramError::OtherVersion(format!(
            "{other_name} is of version {} (index protocol {}) and {own_name} of version {} (index protocol {}); install \
             both programs from one release",
            other.version, other.protocol, self.version, self.protocol
        )))
    }
}

/// How to open an index. Object store secrets are sent in this message and not on the command line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenIndex {
    /// A folder or an object store URL.
    pub uri: String,
    /// Options of the object store.
    pub storage_options: Vec<(String, String)>,
    /// Environment variables of the object store, including credentials.
    pub environment: Vec<(String, String)>,
    /// Size of the index's own caches, in bytes.
    pub cache_bytes: u64,
    /// Number of complete versions to keep.
    pub keep_versions: u32,
    /// Memory for vectors, in bytes. A version whose vectors need more gets a vector index.
    pub vector_memory_bytes: u64,
}

impl OpenIndex {
    /// Default options for this location.
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            storage_options: Vec::new(),
            environment: Vec::new(),
            cache_bytes: 64 << 20,
            keep_versions: 5,
            vector_memory_bytes: 128 << 20,
        }
    }
}

impl std::fmt::Debug for OpenIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be secrets, so only names are printed.
        let names = |pairs: &[(String, String)]| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        f.debug_struct("OpenIndex")
            .field("uri", &self.uri)
            .field("storage_options", &names(&self.storage_options))
            .field("environment", &names(&self.environment))
            .field("cache_bytes", &self.cache_bytes)
            .field("keep_versions", &self.keep_versions)
            .field("vector_memory_bytes", &self.vector_memory_bytes)
            .finish()
    }
}

/// Identifies an open reader or writer within one connection.
pub type Handle = u64;

/// A request to the index program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Opens the index of this connection. This is the first request.
    Open(OpenIndex),
    /// Returns the newest complete generation.
    Generation,
    /// Opens a reader of the newest complete version.
    Current,
    /// Returns the complete versions that are kept.
    Versions,
    /// Makes the previous version current again.
    Rollback,
    /// Opens a writer.
    Write(IndexSpec, WriterStart),
    /// A request to an open reader.
    Read(Handle, ReadRequest),
    /// Closes a reader.
    CloseReader(Handle),
    /// A request to an open writer.
    Edit(Handle, EditRequest),
    /// Closes a writer without completing; the next writer continues from what it wrote.
    CloseWriter(Handle),
}

/// A request to a reader: the methods of [`crate::IndexReader`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReadRequest {
    /// All known files.
    Files,
    /// A full-text search.
    FullText(Vec<String>, ChunkFilter, u64),
    /// The file of each row.
    FilesOf(Vec<u64>),
    /// A vector search.
    Nearest(Vec<f32>, ChunkFilter, u64),
    /// All chunks, with these columns.
    Vectors(VectorColumns),
    /// The vectors of the given rows.
    VectorsOf(Vec<u64>),
    /// The texts of at most this many chunks.
    Sample(u64),
    /// The given rows.
    Fetch(Vec<u64>),
    /// Loads files and vectors, up to this many bytes, so that queries are fast.
    Prepare(u64),
    /// A whole query.
    Ask(SearchQuery),
}

/// A request to a writer: the methods of [`crate::IndexWriter`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum EditRequest {
    /// The files as the writer sees them.
    Files,
    /// The stored vectors for these hashes.
    KnownVectors(Vec<u64>),
    /// Writes a batch.
    Put(WriteBatch),
    /// Publishes everything written as a complete version.
    Complete,
}

/// One part of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    /// Whether this is the last part.
    pub is_last: bool,
    /// The content or the error.
    pub reply: Result<Reply, IndexError>,
}

/// A reply of the index program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The request succeeded.
    Done,
    /// The newest complete generation.
    Generation(Option<u64>),
    /// An open reader; `None` when there is no complete version.
    Reader(Option<(Handle, VersionInfo)>),
    /// Complete versions.
    Versions(Vec<VersionInfo>),
    /// One complete version.
    Version(VersionInfo),
    /// An open writer, and whether there are uncompleted changes.
    Writer(Handle, bool),
    /// File records.
    Files(Vec<FileRow>),
    /// Rows with their scores.
    Found(Vec<RowScore>),
    /// File ids.
    Ids(Vec<u64>),
    /// Chunks with vectors.
    VectorRows(Vec<SentVector>),
    /// Vectors of the requested rows.
    Vectors(Vec<Option<Vec<f32>>>),
    /// Vectors by hash.
    Known(Vec<(u64, Vec<f32>)>),
    /// Texts of chunks.
    Texts(Vec<String>),
    /// Chunks.
    Chunks(Vec<ChunkRow>),
    /// The result of a query.
    Answer(SearchResult),
}

/// A [`crate::VectorRow`] in its transferable form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentVector {
    /// Its row.
    pub row: u64,
    /// Its file's id.
    pub file: u64,
    /// Its hash.
    pub hash: u64,
    /// The vector, if it was requested.
    pub vector: Option<Vec<f32>>,
}

/// Encodes a numbered message as a frame.
pub fn frame(number: u64, message: &impl Serialize) -> Result<Vec<u8>, ProgramError> {
    let mut frame = vec![0; LENGTH_BYTES];
    frame.extend_from_slice(&number.to_le_bytes());
    let mut frame = postcard::to_extend(message, frame).map_err(|e| ProgramError::Protocol(e.to_string()))?;
    let length = frame.len() - LENGTH_BYTES;
    if length > MAX_FRAME_BYTES {
        return Err(ProgramError::Protocol(format!("a message of {length} bytes; at most {MAX_FRAME_BYTES} are sent")));
    }
    frame[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// Validates the length of a frame's body.
pub fn body_length(prefix: [u8; LENGTH_BYTES]) -> Result<usize, ProgramError> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(ProgramError::Protocol(format!("a frame of {length} bytes; at most {MAX_FRAME_BYTES} are read")));
    }
    Ok(length)
}

/// Decodes the number and the message of a frame's body.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<(u64, T), ProgramError> {
    let broken = |why: String| ProgramError::Protocol(why);
    let (number, message) =
        body.split_first_chunk::<NUMBER_BYTES>().ok_or_else(|| broken("a frame without a number".to_owned()))?;
    let message = postcard::from_bytes(message).map_err(|e| broken(e.to_string()))?;
    Ok((u64::from_le_bytes(*number), message))
}

/// Reads the body of the next frame; `None` when the other side closed the pipe between two frames.
pub fn read_body(pipe: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut prefix = [0; LENGTH_BYTES];
    match pipe.read(&mut prefix)? {
        0 => return Ok(None),
        read => pipe.read_exact(&mut prefix[read..])?,
    }
    let length = body_length(prefix).map_err(io::Error::other)?;
    let mut body = Vec::new();
    // The buffer grows with the bytes received, not with the announced length.
    pipe.by_ref().take(length as u64).read_to_end(&mut body)?;
    if body.len() == length { Ok(Some(body)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn another_version_is_refused_with_both_versions_named() {
        let own = Hello::own();
        assert_eq!(Hello::parse(&own.frame()[LENGTH_BYTES..]), Ok(own.clone()));
        assert_eq!(own.accept(&Hello::own(), "toolyard", PROGRAM), Ok(()));
        let older = Hello { protocol: 0, version: "0.0.9".to_owned() };
        let Err(ProgramError::OtherVersion(why)) = own.accept(&older, "toolyard", PROGRAM) else { panic!() };
        for part in ["toolyard-index is of version 0.0.9", "toolyard of version", "install both programs"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(Hello::parse(b"HTTP/1.1 400 Bad Request").is_err());
        assert!(Hello::parse(b"").is_err());
    }

    #[test]
    fn secrets_are_not_printed() {
        let mut open = OpenIndex::new("s3://bucket");
        open.environment.push(("AWS_SECRET_ACCESS_KEY".to_owned(), "hush".to_owned()));
        open.storage_options.push(("secret_access_key".to_owned(), "hush".to_owned()));
        let text = format!("{open:?}");
        assert!(text.contains("AWS_SECRET_ACCESS_KEY") && !text.contains("hush"), "{text}");
    }

    #[test]
    fn a_frame_that_is_too_large_or_cut_off_is_an_error() {
        let mut large = (MAX_FRAME_BYTES as u32 + 1).to_le_bytes().to_vec();
        large.push(0);
        assert!(read_body(&mut large.as_slice()).is_err());
        let whole = frame(7, &Request::Generation).unwrap();
        for length in 1..whole.len() {
            assert!(read_body(&mut &whole[..length]).is_err(), "{length}");
        }
        assert!(read_body(&mut [].as_slice()).unwrap().is_none());
    }

    proptest! {
        /// Any input gives an error or a message, never a panic.
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_body(&mut bytes.as_slice());
            let _ = parse::<Request>(&bytes);
            let _ = parse::<Part>(&bytes);
            let _ = Hello::parse(&bytes);
        }

        #[test]
        fn messages_come_back_as_they_were_sent(number: u64, rows in prop::collection::vec(any::<u64>(), 0..50), vector in prop::collection::vec(any::<f32>(), 0..40)) {
            let sent = Reply::VectorRows(rows.iter().map(|row| SentVector { row: *row, file: 1, hash: 2, vector: Some(vector.clone()) }).collect());
            let framed = frame(number, &Part { is_last: true, reply: Ok(sent) }).unwrap();
            let body = read_body(&mut framed.as_slice()).unwrap().unwrap();
            let (read, part): (u64, Part) = parse(&body).unwrap();
            prop_assert_eq!(read, number);
            let Ok(Reply::VectorRows(read)) = part.reply else { panic!() };
            prop_assert_eq!(read.len(), rows.len());
            for row in read {
                let bits: Vec<u32> = row.vector.unwrap().iter().map(|v| v.to_bits()).collect();
                prop_assert_eq!(bits, vector.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
            }
        }
    }
}
