//! Trying again what the storage could not do at once.

use std::time::Duration;

use crate::{ErrorKind, StorageError};

/// A store that is down is asked this often.
const ATTEMPTS_MAX: u32 = 4;

/// Tries an operation again as long as the storage says that this may help, a few times, each time after a longer wait: `delay`,
/// twice, three times that. Blocks meanwhile.
///
/// # Errors
/// What the storage said last.
pub fn again<T>(delay: Duration, operation: impl Fn() -> Result<T, StorageError>) -> Result<T, StorageError> {
    let mut attempt = 1;
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::Retry && attempt < ATTEMPTS_MAX => {
                tracing::warn!(%error, attempt, "storage: trying again");
                std::thread::sleep(delay * attempt);
                attempt += 1;
            }
            result => return result,
        }
    }
}
