//! Which columns rows have, or somebody wants: `types.columns` of the WIT.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Serialize};

/// A set of columns. The bits are those of the flags in the WIT, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Columns(u8);

impl Columns {
    /// None.
    pub const NONE: Columns = Columns(0);
    /// Event times.
    pub const TIMESTAMPS: Columns = Columns(1);
    /// Keys.
    pub const KEYS: Columns = Columns(1 << 1);
    /// Values.
    pub const VALUES: Columns = Columns(1 << 2);
    /// 64-bit hashes of the keys.
    pub const HASHES: Columns = Columns(1 << 3);
    /// Headers.
    pub const HEADERS: Columns = Columns(1 << 4);
    /// Bits of rows without a key.
    pub const ABSENT_KEYS: Columns = Columns(1 << 5);
    /// Bits of rows without a value.
    pub const ABSENT_VALUES: Columns = Columns(1 << 6);
    /// What every row has: times, keys, values.
    pub const ROWS: Columns = Columns(0b111);
    /// What an operator may ask for.
    pub const WANTED: Columns = Columns(0b1_1111);

    const NAMES: [&'static str; 7] = ["timestamps", "keys", "values", "hashes", "headers", "absent-keys", "absent-values"];

    /// The set with these bits; `None` if there are bits that no column has.
    pub const fn from_bits(bits: u8) -> Option<Columns> {
        if bits < 1 << 7 { Some(Columns(bits)) } else { None }
    }

    /// Its bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether it has all of some columns.
    pub const fn has(self, columns: Columns) -> bool {
        self.0 & columns.0 == columns.0
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that another set does not have.
    #[must_use]
    pub const fn without(self, columns: Columns) -> Columns {
        Columns(self.0 & !columns.0)
    }

    /// These and others.
    #[must_use]
    pub const fn with(self, columns: Columns) -> Columns {
        Columns(self.0 | columns.0)
    }
}

impl BitOr for Columns {
    type Output = Columns;

    fn bitor(self, other: Columns) -> Columns {
        self.with(other)
    }
}

impl BitAnd for Columns {
    type Output = Columns;

    fn bitand(self, other: Columns) -> Columns {
        Columns(self.0 & other.0)
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no columns");
        }
        let names = Columns::NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_name_their_columns_in_the_order_of_the_contract() {
        assert_eq!((Columns::KEYS | Columns::HEADERS | Columns::ABSENT_VALUES).to_string(), "keys, headers, absent-values");
        assert_eq!(Columns::NONE.to_string(), "no columns");
        assert_eq!(Columns::from_bits(0b1000_0000), None);
        assert!(Columns::WANTED.has(Columns::ROWS) && !Columns::ROWS.has(Columns::HASHES));
        assert_eq!(Columns::WANTED.without(Columns::ROWS), Columns::HASHES | Columns::HEADERS);
    }
}
