//! What a master does in each of its places, as tables; and whatever happens, in any order.

mod bench;
mod failures;
mod fits;
mod places;
mod restores;
mod shuffled;
mod wishes;

use crate::Store;

/// Whether a request is answered.
fn is_answered(what: &Store) -> bool {
    !matches!(what, Store::Tidy | Store::Remove(_))
}
