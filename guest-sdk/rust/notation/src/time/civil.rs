//! The calendar: days and seconds since 1970 of a date, and back. Proleptic Gregorian, UTC.
//!
//! Method: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms" (years begin in March, 400-year eras).

/// A date and time of day with its offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// 1..=12
    pub(super) month: u32,
    /// 1..=31
    pub(super) day: u32,
    pub(super) hour: u32,
    pub(super) minute: u32,
    /// 0..=60; a leap second is the second after.
    pub(super) second: u32,
    pub(super) offset_minutes: i64,
}

impl Civil {
    /// Seconds since 1970, if there is such a date and time.
    #[inline]
    pub(super) fn seconds(self) -> Option<i64> {
        let valid = (1..=12).contains(&self.month)
            && self.day >= 1
            && self.day <= days_in_month(self.year, self.month)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        let of_day = i64::from(self.hour) * 3_600 + i64::from(self.minute) * 60 + i64::from(self.second);
        valid.then(|| days_since_1970(self.year, self.month, self.day) * 86_400 + of_day - self.offset_minutes * 60)
    }
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = i64::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day since 1970.
pub(super) fn date_of_day(day: i64) -> (i64, u32, u32) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u32, day_of_month as u32)
}

/// The number that two digits are.
#[inline]
pub(super) fn two_digits(text: &[u8], at: usize) -> Option<u32> {
    let (tens, ones) = (text.get(at)?.wrapping_sub(b'0'), text.get(at + 1)?.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| u32::from(tens) * 10 + u32::from(ones))
}

/// The number that four digits are.
#[inline]
pub(super) fn four_digits(text: &[u8], at: usize) -> Option<i64> {
    Some(i64::from(two_digits(text, at)? * 100 + two_digits(text, at + 2)?))
}

/// `+hhmm`, `+hh:mm` or `+hh` at the beginning of a text: the minutes, and how long it is.
pub(super) fn offset_minutes(text: &[u8]) -> Option<(i64, usize)> {
    let negative = match text.first()? {
        b'+' => false,
        b'-' => true,
        _ => return None,
    };
    let hours = two_digits(text, 1)?;
    let (minutes, length) = match text.get(3) {
        Some(b':') => (two_digits(text, 4)?, 6),
        Some(b'0'..=b'9') => (two_digits(text, 3)?, 5),
        _ => (0, 3),
    };
    let total = i64::from(hours * 60 + minutes);
    (hours < 24 && minutes < 60).then_some((if negative { -total } else { total }, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days_in_year(year: i64) -> i64 {
        (1..=12).map(|month| i64::from(days_in_month(year, month))).sum()
    }

    #[test]
    fn every_day_of_seven_centuries_is_where_counting_puts_it() {
        let mut expected = -(1600..1970).map(days_in_year).sum::<i64>();
        for year in 1600..2300 {
            let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
            assert_eq!(days_in_year(year), if is_leap { 366 } else { 365 });
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    assert_eq!(days_since_1970(year, month, day), expected, "{year}-{month}-{day}");
                    assert_eq!(date_of_day(expected), (year, month, day));
                    expected += 1;
                }
            }
        }
    }

    #[test]
    fn there_is_no_such_date() {
        let date = |year, month, day| Civil { year, month, day, hour: 0, minute: 0, second: 0, offset_minutes: 0 }.seconds();
        assert!(date(2000, 2, 29).is_some() && date(2024, 2, 29).is_some());
        for (year, month, day) in
            [(1900, 2, 29), (2023, 2, 29), (2023, 4, 31), (2023, 0, 1), (2023, 13, 1), (2023, 1, 0), (2023, 1, 32)]
        {
            assert_eq!(date(year, month, day), None, "{year}-{month}-{day}");
        }
    }
}
