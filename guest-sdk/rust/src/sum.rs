//! Exact sums of decimal numbers that never overflow: what was taken in can always be added, in any order and grouping.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Decimal;

/// Digits after the point.
const SCALE: usize = 9;

/// An exact sum of [`Decimal`]s. Has room for 2^64 of the greatest, so that adding never fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The sum is `low + over * 2^128`, in units of 10^-9.
    low: i128,
    over: i64,
}

impl Sum {
    /// Takes in a number.
    #[inline]
    pub fn add(&mut self, number: Decimal) {
        self.merge(&Sum { low: number.units(), over: 0 });
    }

    /// Takes in another sum.
    #[inline]
    pub fn merge(&mut self, other: &Sum) {
        let (low, has_overflowed) = self.low.overflowing_add(other.low);
        self.over = self.over.wrapping_add(other.over);
        if has_overflowed {
            // Both had the same sign, and the result has the other.
            self.over += if low < 0 { 1 } else { -1 };
        }
        self.low = low;
    }

    /// A share of it: rounded to nine digits, halves away from zero. `None` for no parts, and where a part is no [`Decimal`],
    /// which cannot be if there are as many parts as numbers were added.
    #[must_use]
    pub fn divided_by(self, parts: u64) -> Option<Decimal> {
        if self.over == 0 {
            return Decimal::from_units(self.low).divided_by(parts);
        }
        let (negative, mut limbs) = self.magnitude();
        let rest = (parts > 0).then(|| divide(&mut limbs, parts))?;
        let quotient = u128::from(limbs[0]) | u128::from(limbs[1]) << 64;
        let quotient = i128::try_from(quotient).ok().filter(|_| limbs[2] == 0)?;
        let quotient = quotient.checked_add(i128::from(rest >= parts.div_ceil(2)))?;
        Some(Decimal::from_units(if negative { -quotient } else { quotient }))
    }

    /// Appends it in decimal, without zeros at the end of the fraction.
    pub fn append_to(self, bytes: &mut Vec<u8>) {
        if self.over == 0 {
            return Decimal::from_units(self.low).append_to(bytes);
        }
        let (negative, mut limbs) = self.magnitude();
        let mut digits = Vec::new();
        while limbs != [0; 3] {
            digits.push(b'0' + divide(&mut limbs, 10) as u8);
        }
        if negative {
            bytes.push(b'-');
        }
        // Beyond 128 bits there are digits before the point.
        bytes.extend(digits[SCALE..].iter().rev());
        let zeros = digits[..SCALE].iter().take_while(|&&digit| digit == b'0').count();
        if zeros < SCALE {
            bytes.push(b'.');
            bytes.extend(digits[zeros..SCALE].iter().rev());
        }
    }

    /// Sign, and 192 bits beginning with the lowest.
    fn magnitude(self) -> (bool, [u64; 3]) {
        // In two's complement: the sign of `low` reaches into the upper word.
        let high = self.over.wrapping_add(if self.low < 0 { -1 } else { 0 });
        let low = self.low as u128;
        let mut limbs = [low as u64, (low >> 64) as u64, high as u64];
        if high < 0 {
            let mut carry = true;
            for limb in &mut limbs {
                (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
            }
        }
        (high < 0, limbs)
    }
}

/// Divides in place and gives the rest.
fn divide(limbs: &mut [u64; 3], by: u64) -> u64 {
    let mut rest: u64 = 0;
    for limb in limbs.iter_mut().rev() {
        let part = u128::from(rest) << 64 | u128::from(*limb);
        *limb = (part / u128::from(by)) as u64;
        rest = (part % u128::from(by)) as u64;
    }
    rest
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        f.write_str(&String::from_utf8_lossy(&bytes))
    }
}

/// As a [`Decimal`] where it is one, so that state with decimals can be read as state with sums.
impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.over == 0 { serializer.serialize_i128(self.low) } else { (self.low, self.over).serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sum, D::Error> {
        struct SumVisitor;
        impl<'de> Visitor<'de> for SumVisitor {
            type Value = Sum;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sum")
            }
            fn visit_i64<E>(self, low: i64) -> Result<Sum, E> {
                Ok(Sum { low: i128::from(low), over: 0 })
            }
            fn visit_u64<E>(self, low: u64) -> Result<Sum, E> {
                Ok(Sum { low: i128::from(low), over: 0 })
            }
            fn visit_i128<E>(self, low: i128) -> Result<Sum, E> {
                Ok(Sum { low, over: 0 })
            }
            fn visit_u128<E: serde::de::Error>(self, low: u128) -> Result<Sum, E> {
                i128::try_from(low).map(|low| Sum { low, over: 0 }).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Sum, A::Error> {
                let missing = || serde::de::Error::custom("a sum of two words has two");
                let low = words.next_element()?.ok_or_else(missing)?;
                let over = words.next_element()?.ok_or_else(missing)?;
                Ok(Sum { low, over })
            }
        }
        deserializer.deserialize_any(SumVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GREATEST: &str = "170141183460469231731687303715.884105727";

    fn sum(numbers: &[&str]) -> Sum {
        let mut sum = Sum::default();
        numbers.iter().for_each(|number| sum.add(Decimal::parse(number).unwrap()));
        sum
    }

    #[test]
    fn sums_of_the_greatest_numbers_are_exact() {
        assert_eq!(sum(&["1e29", "1e29"]).to_string(), "200000000000000000000000000000");
        assert_eq!(sum(&["-1e29", "-1e29", "0.5"]).to_string(), "-199999999999999999999999999999.5");
        assert_eq!(sum(&[GREATEST; 4]).to_string(), "680564733841876926926749214863.536422908");
        assert_eq!(sum(&["1e29", "1e29", "-1e29", "-1e29", "0.25"]).to_string(), "0.25");
        assert_eq!(sum(&[GREATEST, GREATEST]).divided_by(2).unwrap().to_string(), GREATEST);
        assert_eq!(sum(&["1e29", "1e29", "1e29"]).divided_by(3).unwrap().to_string(), "100000000000000000000000000000");
        assert_eq!(
            sum(&["-1e29", "-1e29", "-1e29"]).divided_by(7).unwrap().to_string(),
            "-42857142857142857142857142857.142857143"
        );
        assert_eq!(sum(&["1e29", "1e29"]).divided_by(0), None);
    }

    #[test]
    fn as_many_as_can_be_counted_have_room() {
        // Doubling 63 times adds 2^63 of the greatest; the least is one further from zero.
        for number in [GREATEST, "-170141183460469231731687303715.884105727"] {
            let mut sum = sum(&[number]);
            for _ in 0..63 {
                let other = sum;
                sum.merge(&other);
            }
            assert_eq!(sum.divided_by(1 << 63).unwrap().to_string(), number);
            let digits = sum.to_string();
            assert!(digits.trim_start_matches('-').starts_with("15692754338466701909589473558"), "{digits}");
        }
    }

    #[test]
    fn the_order_of_adding_does_not_matter() {
        let numbers = ["1e29", "-1e29", "0.1", GREATEST, GREATEST, "-3", "-1e29", "7e28"];
        let all = sum(&numbers);
        for at in 0..numbers.len() {
            let mut merged = sum(&numbers[at..]);
            merged.merge(&sum(&numbers[..at]));
            assert_eq!(merged, all);
        }
    }

    #[test]
    fn sums_are_saved_and_those_of_earlier_versions_are_read() {
        for sum in [Sum::default(), sum(&["-2.5"]), sum(&[GREATEST]), sum(&[GREATEST; 3]), sum(&["-1e29", "-1e29"])] {
            let mut bytes = Vec::new();
            ciborium::into_writer(&sum, &mut bytes).unwrap();
            assert_eq!(ciborium::from_reader::<Sum, _>(bytes.as_slice()).unwrap(), sum);
        }
        for number in ["0", "-2.5", "1e29", "-1e29"] {
            let mut bytes = Vec::new();
            ciborium::into_writer(&Decimal::parse(number).unwrap(), &mut bytes).unwrap();
            assert_eq!(ciborium::from_reader::<Sum, _>(bytes.as_slice()).unwrap(), sum(&[number]));
        }
    }
}
