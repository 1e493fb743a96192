//! Which columns of its input an operator wants: `types.columns` of the contract.

use std::fmt;
use std::ops::BitOr;

/// A set of columns. What an operator does not ask for never comes into its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns(u8);

impl Columns {
    /// None: only that there are rows, and how many.
    pub const NONE: Columns = Columns(0);
    /// Event times.
    pub const TIMESTAMPS: Columns = Columns(1);
    /// Keys, and which are absent.
    pub const KEYS: Columns = Columns(1 << 1);
    /// Values, and which are absent.
    pub const VALUES: Columns = Columns(1 << 2);
    /// 64-bit hashes of the keys.
    pub const HASHES: Columns = Columns(1 << 3);
    /// Headers.
    pub const HEADERS: Columns = Columns(1 << 4);
    /// Times, keys and values.
    pub const ROWS: Columns = Columns(0b111);
    pub(crate) const ABSENT_KEYS: Columns = Columns(1 << 5);
    pub(crate) const ABSENT_VALUES: Columns = Columns(1 << 6);

    const NAMES: [&'static str; 7] = ["timestamps", "keys", "values", "hashes", "headers", "absent keys", "absent values"];

    /// Its bits, in the order of the contract.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set with these bits; those that no column has are left out.
    pub const fn from_bits(bits: u8) -> Columns {
        Columns(bits & 0x7F)
    }

    /// Whether it has all of some columns.
    #[inline]
    pub const fn has(self, columns: Columns) -> bool {
        self.0 & columns.0 == columns.0
    }

    /// Those that another set does not have.
    #[must_use]
    pub const fn without(self, columns: Columns) -> Columns {
        Columns(self.0 & !columns.0)
    }

    /// Panics if a column is read that was not asked for: what is not there must not look like what is empty.
    #[inline]
    pub(crate) fn expect(self, column: Columns) {
        if !self.has(column) {
            refuse(column);
        }
    }
}

#[cold]
#[inline(never)]
fn refuse(column: Columns) -> ! {
    panic!("the operator reads {column} of its input, but did not ask for them: Operator::columns says which it gets");
}

impl BitOr for Columns {
    type Output = Columns;

    fn bitor(self, other: Columns) -> Columns {
        Columns(self.0 | other.0)
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Columns::NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| *name);
        let names: Vec<&str> = names.collect();
        if names.is_empty() { f.write_str("no columns") } else { f.write_str(&names.join(", ")) }
    }
}
