//! The token that a client shows: a secret that is made here, and kept in a file that only its owner can read. A cluster knows only its SHA-256.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use weir_model::Digest;

use crate::ApiError;

/// Characters a token may have.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=256;

/// A secret that a client shows.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new one of 256 random bits.
    ///
    /// # Errors
    /// If the operating system has none.
    pub fn generate() -> Result<Token, ApiError> {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| ApiError::Random)?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// A token as somebody gave it; none if it cannot be one.
    pub fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        (LENGTHS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Token(text.to_owned()))
    }

    /// Reads a token file.
    ///
    /// # Errors
    /// If it cannot be read, holds no token, or others than its owner may read it.
    pub fn read(path: &Path) -> Result<Token, ApiError> {
        let wrong = |reason: String| ApiError::Token { action: "read", path: path.to_owned(), reason };
        let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.mode();
        if mode & 0o077 != 0 {
            return Err(wrong(format!("its mode is {:o}, so others than its owner have access; chmod 600 it", mode & 0o777)));
        }
        let mut text = String::new();
        file.take(1_024).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        Token::new(&text).ok_or_else(|| wrong("there is no token in it".to_owned()))
    }

    /// Writes a new token file that only its owner may read. Never replaces a file.
    ///
    /// # Errors
    /// If there is one already, or the disk does not take it.
    pub fn create(&self, path: &Path) -> Result<(), ApiError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{}", self.0).and_then(|()| file.sync_all()));
        written.map_err(|error| ApiError::Token { action: "create", path: path.to_owned(), reason: error.to_string() })
    }

    /// The text to show.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// SHA-256 of it: what a cluster knows it by.
    pub fn digest(&self) -> Digest {
        let mut digest = Digest([0; 32]);
        digest.0.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, self.0.as_bytes()).as_ref());
        digest
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_survives_its_file_which_only_its_owner_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::generate().unwrap();
        token.create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::read(&path).unwrap().digest(), token.digest());
        assert!(matches!(Token::generate().unwrap().create(&path), Err(ApiError::Token { action: "create", .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = Token::read(&path).unwrap_err().to_string();
        assert!(error.contains("its mode is 640"), "{error}");
    }

    #[test]
    fn only_the_same_token_has_its_digest_and_it_is_not_printed() {
        let token = Token::generate().unwrap();
        assert_eq!(Token::new(&format!(" {}\n", token.secret())).map(|same| same.digest()), Some(token.digest()));
        assert_ne!(Token::new(&token.secret()[..63]).map(|other| other.digest()), Some(token.digest()));
        let known = Token::new(&"0".repeat(64)).map(|token| token.digest().to_string());
        assert_eq!(
            known.as_deref(),
            Some("60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55"),
            "SHA-256 of the text"
        );
        assert!(!format!("{token:?}").contains(token.secret()));
        assert!(Token::new("short").is_none() && Token::new(&"a b".repeat(20)).is_none());
    }
}
