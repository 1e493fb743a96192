//! Who may ask: the tokens of the cluster, by the SHA-256 of their secrets.
//!
//! Owns which tokens count. The disk is written before memory, so a token that was told to somebody is there after any end of the process,
//! and one that was revoked stays so. Never sees a secret, and decides nothing about requests: which role a request needs is the API's.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use weir_model::Digest;
use weir_protocol::access::{Asker, NewToken, Person, Role, TokenStatus};
use weir_protocol::api::Refusal;

use weir_cluster::{WriteFailure, kinds, refusals};

use super::Inner;
use crate::metadata::{MetadataError, TokenChange, TokenRecord};

/// Name of the one in the coordinator's token file, which `weir cluster init` makes: the first that there is.
const OF_FILE: &str = "init";

/// Tokens of a cluster. They are made by people; more is a program that has gone wrong.
const TOKENS_MAX: usize = 1_000;

/// Characters of a name.
const NAME_MAX: usize = 64;

/// The longest time that a token can be made for; beyond, it may as well have no end.
const VALID_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// How often it is written when tokens were used.
const USE_WRITTEN_MS: u64 = 60_000;

/// All tokens.
pub(super) struct Tokens {
    known: Mutex<TokenTable>,
    /// Held while a change is written. Never while `known` is, which answers requests.
    changes: Mutex<()>,
}

#[derive(Default)]
struct TokenTable {
    records: BTreeMap<Digest, TokenRecord>,
    /// Used since that was written last.
    used: Vec<Digest>,
    used_written_ms: u64,
}

impl TokenRecord {
    /// Whether it counts at a time. The end of its time is outside.
    fn counts(&self, now_ms: u64) -> bool {
        self.revoked_at_ms.is_none() && self.expires_at_ms.is_none_or(|end| now_ms < end)
    }

    fn status(&self) -> TokenStatus {
        TokenStatus {
            name: self.name.clone(),
            role: self.role,
            created_at_ms: self.created_at_ms,
            created_by: self.created_by.clone(),
            expires_at_ms: self.expires_at_ms,
            used_at_ms: self.used_at_ms,
        }
    }
}

impl TokenTable {
    /// Those that were not revoked.
    fn there(&self) -> impl Iterator<Item = (Digest, &TokenRecord)> {
        self.records.iter().filter(|(_, record)| record.revoked_at_ms.is_none()).map(|(digest, record)| (*digest, record))
    }

    fn find(&self, name: &str) -> Option<(Digest, &TokenRecord)> {
        self.there().find(|(_, record)| record.name == name)
    }

    fn who(&mut self, digest: Digest, now_ms: u64) -> Option<Asker> {
        let record = self.records.get_mut(&digest).filter(|record| record.counts(now_ms))?;
        record.used_at_ms = Some(now_ms);
        let asker = Asker { person: Person::Token(record.name.clone()), role: record.role };
        if !self.used.contains(&digest) {
            self.used.push(digest);
        }
        Some(asker)
    }

    fn apply(&mut self, change: &TokenChange<'_>) {
        change.remove.iter().for_each(|digest| drop(self.records.remove(digest)));
        for (digest, record) in &change.put {
            self.records.insert(*digest, (*record).clone());
        }
    }

    /// What is wrong with a new token, and what to do.
    fn objection(&self, token: &NewToken) -> Option<(String, String)> {
        let NewToken { name, valid_ms, .. } = token;
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_letter) {
            let hint = format!("a name is 1 to {NAME_MAX} letters, digits, `-`, `_` and `.`, such as ci or grafana");
            return Some(("that is no name for a token".to_owned(), hint));
        }
        if name == OF_FILE {
            return Some((
                "the token in the coordinator's token file has that name".to_owned(),
                "give it another name".to_owned(),
            ));
        }
        if self.find(name).is_some() {
            return Some(("there is one of that name".to_owned(), format!("`weir token revoke {name}` makes the name free")));
        }
        if valid_ms.is_some_and(|ms| ms == 0 || ms > VALID_MS_MAX) {
            return Some(("it would count for no time, or for more than a hundred years".to_owned(), "such as 90d".to_owned()));
        }
        if self.there().count() >= TOKENS_MAX {
            let hint = "`weir token ls` shows when each was used last; revoke some".to_owned();
            return Some((format!("there are {TOKENS_MAX}, and that is as many as there may be"), hint));
        }
        None
    }

    /// Whether somebody could still make tokens without this one.
    fn is_last_admin(&self, digest: Digest, now_ms: u64) -> bool {
        let is_admin = |record: &TokenRecord| record.role == Role::Admin && record.counts(now_ms);
        self.records.get(&digest).is_some_and(is_admin)
            && !self.records.iter().any(|(other, record)| *other != digest && is_admin(record))
    }
}

impl Tokens {
    pub(super) fn new(stored: Vec<(Digest, TokenRecord)>) -> Tokens {
        let known = TokenTable { records: stored.into_iter().collect(), ..TokenTable::default() };
        Tokens { known: Mutex::new(known), changes: Mutex::new(()) }
    }
}

impl Inner {
    pub(super) fn who(&self, token: Digest) -> Option<Asker> {
        self.tokens.known.lock().who(token, self.clock.now().wall_ms)
    }

    pub(super) fn list_tokens(&self) -> Vec<TokenStatus> {
        let mut all: Vec<TokenStatus> = self.tokens.known.lock().there().map(|(_, record)| record.status()).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Writes a change, and then has it count.
    fn change_tokens(
        &self,
        by: Option<&Person>,
        kind: &str,
        message: String,
        change: &TokenChange<'_>,
    ) -> Result<(), MetadataError> {
        self.tell_cluster(by, kind, message, |event| {
            self.database.change_tokens(&TokenChange {
                put: change.put.clone(),
                remove: change.remove.clone(),
                event: Some(event),
            })
        })?;
        self.tokens.known.lock().apply(change);
        Ok(())
    }

    /// The token in the coordinator's token file: an admin's. Another one than at the last start takes that one's place; one that was
    /// revoked stays so.
    pub(super) fn adopt_token(&self, of_file: Option<Digest>) -> Result<(), MetadataError> {
        let _changing = self.tokens.changes.lock();
        let (before, known) = {
            let known = self.tokens.known.lock();
            let known_here = of_file.and_then(|digest| known.records.get(&digest).cloned());
            (known.find(OF_FILE).map(|(digest, _)| digest), known_here)
        };
        if before == of_file {
            return Ok(());
        }
        let remove: Vec<Digest> = before.into_iter().collect();
        let gone = "its token file does not hold it any more";
        match (of_file, known) {
            (Some(_), Some(known)) if known.revoked_at_ms.is_some() => {
                tracing::warn!("the token in the coordinator's token file was revoked, and does not count; put a new one there");
            }
            // Made by somebody, and put into the file: it counts as what it was made.
            (Some(_), Some(_)) | (None, _) => {}
            (Some(digest), None) => {
                let record = TokenRecord {
                    name: OF_FILE.to_owned(),
                    role: Role::Admin,
                    created_at_ms: self.clock.now().wall_ms,
                    created_by: None,
                    expires_at_ms: None,
                    used_at_ms: None,
                    revoked_at_ms: None,
                };
                let instead = if remove.is_empty() { "" } else { ", instead of the one that was there before" };
                let message = format!("the token in the coordinator's token file counts as `{OF_FILE}`, an admin's{instead}");
                let change = TokenChange { put: vec![(digest, &record)], remove, event: None };
                return self.change_tokens(None, kinds::TOKEN_CREATED, message, &change);
            }
        }
        if remove.is_empty() {
            return Ok(());
        }
        let change = TokenChange { remove, ..TokenChange::default() };
        self.change_tokens(None, kinds::TOKEN_REVOKED, format!("token `{OF_FILE}` counts no longer: {gone}"), &change)
    }

    pub(super) fn create_token(&self, by: &Person, token: &NewToken, digest: Digest) -> Result<TokenStatus, Refusal> {
        let _changing = self.tokens.changes.lock();
        let action = format!("create token {}", token.name);
        if let Some((why, hint)) = self.tokens.known.lock().objection(token) {
            return Err(refusals::token(&action, &why, hint));
        }
        let now_ms = self.clock.now().wall_ms;
        let record = TokenRecord {
            name: token.name.clone(),
            role: token.role,
            created_at_ms: now_ms,
            created_by: Some(by.clone()),
            expires_at_ms: token.valid_ms.map(|ms| now_ms.saturating_add(ms)),
            used_at_ms: None,
            revoked_at_ms: None,
        };
        let message = format!("token {} was created, with role {}", token.name, token.role);
        let change = TokenChange { put: vec![(digest, &record)], ..TokenChange::default() };
        let written = self.change_tokens(Some(by), kinds::TOKEN_CREATED, message, &change);
        written.map_err(|error| refusals::disk(&action, &WriteFailure(error.to_string())))?;
        Ok(record.status())
    }

    pub(super) fn revoke_token(&self, by: &Person, name: &str) -> Result<(), Refusal> {
        let _changing = self.tokens.changes.lock();
        let now_ms = self.clock.now().wall_ms;
        let action = format!("revoke token {name}");
        let (digest, mut record) = {
            let known = self.tokens.known.lock();
            let Some((digest, record)) = known.find(name) else {
                return Err(refusals::no_token(&action, name, known.there().map(|(_, record)| record.name.as_str())));
            };
            if known.is_last_admin(digest, now_ms) {
                let hint = "create another one first: weir token create NAME --role admin".to_owned();
                return Err(refusals::token(&action, "it is the last one with which tokens can be made", hint));
            }
            (digest, record.clone())
        };
        let message = format!("token {name} was revoked; its role was {}", record.role);
        record.revoked_at_ms = Some(now_ms);
        // Never removed: its secret may be, or come, in the token file, and would be a new admin's at the next start.
        let change = TokenChange { put: vec![(digest, &record)], ..TokenChange::default() };
        let written = self.change_tokens(Some(by), kinds::TOKEN_REVOKED, message, &change);
        written.map_err(|error| refusals::disk(&action, &WriteFailure(error.to_string())))
    }

    /// Writes when tokens were used, unless that was done within the last minute or `at_once`.
    pub(super) fn write_token_use(&self, at_once: bool) {
        let now_ms = self.clock.now().wall_ms;
        let is_due =
            |known: &TokenTable| !known.used.is_empty() && (at_once || now_ms.abs_diff(known.used_written_ms) >= USE_WRITTEN_MS);
        if !is_due(&self.tokens.known.lock()) {
            return;
        }
        // Where a token is being changed, at the next opportunity: what is revoked meanwhile must not be written again.
        let Some(_changing) = self.tokens.changes.try_lock() else { return };
        let used: Vec<(Digest, TokenRecord)> = {
            let mut known = self.tokens.known.lock();
            known.used_written_ms = now_ms;
            let used = std::mem::take(&mut known.used);
            used.into_iter().filter_map(|digest| Some((digest, known.records.get(&digest)?.clone()))).collect()
        };
        let put = used.iter().map(|(digest, record)| (*digest, record)).collect();
        if let Err(error) = self.database.change_tokens(&TokenChange { put, ..TokenChange::default() }) {
            tracing::warn!(%error, "when tokens were used last is not written");
        }
    }
}
