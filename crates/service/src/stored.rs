//! The JSON Schemas of the methods as text. A released program checks parameters with them: the code that makes schemas
//! from types has megabytes, and the text has 40 KB. A test compares the text with the types.
//!
//! A debug build makes the schemas from the types, so that a changed type can be tried before `make docs` has written
//! the text.

use flate2::read::ZlibDecoder;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    io::{self, Read as _},
    sync::LazyLock,
};

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/methods.schema.json.z"));

/// The schemas of parameters. They stay packed as text, because most methods are never called in a process.
static PARAMS: LazyLock<Option<Params>> = LazyLock::new(|| {
    Params::read().inspect_err(|error| tracing::error!(%error, "the schemas of the methods cannot be read")).ok()
});

/// Whether this build makes schemas from types.
pub const FROM_TYPES: bool = cfg!(debug_assertions);

/// A text that a build script has compressed with zlib.
pub fn unpack(packed: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    ZlibDecoder::new(packed).read_to_string(&mut text)?;
    Ok(text)
}

/// The schemas of all methods, as `schema/methods.schema.json` has them.
pub fn methods() -> io::Result<String> {
    unpack(PACKED)
}

/// The schema of a method's parameters, and the definitions that it refers to as `#/$defs/params/NAME`.
pub(crate) fn params(method: &str) -> Option<(&'static RawValue, &'static RawValue)> {
    let all = PARAMS.as_ref()?;
    Some((all.methods.get(method)?, &all.definitions))
}

struct Params {
    methods: HashMap<String, Box<RawValue>>,
    definitions: Box<RawValue>,
}

impl Params {
    fn read() -> io::Result<Self> {
        #[derive(Deserialize)]
        struct Document<'a> {
            #[serde(borrow)]
            methods: HashMap<String, Schemas<'a>>,
            #[serde(borrow, rename = "$defs")]
            definitions: Schemas<'a>,
        }
        #[derive(Deserialize)]
        struct Schemas<'a> {
            #[serde(borrow)]
            params: &'a RawValue,
        }
        let text = methods()?;
        let document: Document<'_> = serde_json::from_str(&text)?;
        let methods = document.methods.into_iter().map(|(name, schemas)| (name, schemas.params.to_owned())).collect();
        Ok(Self { methods, definitions: document.definitions.params.to_owned() })
    }
}
