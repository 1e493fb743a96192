//! Tokens: what is kept of each, below the SHA-256 of its secret.
//!
//! ```text
//! token/<digest in hexadecimal digits>     TokenRecord
//! ```
//!
//! The secret itself is nowhere. Its digest needs no salt and no slow hash: it is of 256 random bits, which nobody finds by trying.

use serde::{Deserialize, Serialize};
use weir_model::Digest;
use weir_protocol::access::{Person, Role};
use weir_protocol::api::JobEvent;

use super::{Database, MetadataError};

const KEY: &[u8] = b"token/";
const END: &[u8] = b"token0";

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) created_at_ms: u64,
    /// Who made it; none of the one in the token file.
    pub(crate) created_by: Option<Person>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) used_at_ms: Option<u64>,
    /// Set once it was revoked. It is kept, so that it counts no more when its secret is found in the token file at a start.
    pub(crate) revoked_at_ms: Option<u64>,
}

/// One change of the tokens. Everything in it becomes durable together.
#[derive(Default)]
pub(crate) struct TokenChange<'a> {
    pub(crate) put: Vec<(Digest, &'a TokenRecord)>,
    pub(crate) remove: Vec<Digest>,
    pub(crate) event: Option<&'a JobEvent>,
}

fn key(digest: Digest) -> Vec<u8> {
    [KEY, digest.to_string().as_bytes()].concat()
}

impl Database {
    /// All tokens.
    pub(crate) fn tokens(&self) -> Result<Vec<(Digest, TokenRecord)>, MetadataError> {
        let token = |(key, value): (Vec<u8>, Vec<u8>)| {
            let digest = std::str::from_utf8(&key[KEY.len()..]).ok().and_then(|text| text.parse().ok());
            let digest: Digest = digest.ok_or_else(|| self.damaged(&key, "its key is no digest"))?;
            Ok((digest, self.decode(&key, &value)?))
        };
        self.range(KEY, END, None)?.into_iter().map(token).collect()
    }

    /// Changes tokens.
    pub(crate) fn change_tokens(&self, change: &TokenChange<'_>) -> Result<(), MetadataError> {
        self.write(|batch| {
            change.remove.iter().try_for_each(|digest| batch.delete(&key(*digest)))?;
            change.put.iter().try_for_each(|(digest, record)| batch.put(&key(*digest), record))?;
            change.event.map_or(Ok(()), |event| batch.put_cluster_event(event))
        })
    }
}
