//! Dates as chat templates ask for them. Owns the calendar; knows no clock: the host gives the time.

use std::fmt::Write;

/// A moment of the civil calendar, without a time zone of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    days: i64,
    seconds: i64,
}

const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl CivilTime {
    /// From seconds since 1970-01-01 00:00:00 of the zone meant.
    pub fn from_seconds(seconds: i64) -> Self {
        Self {
            days: seconds.div_euclid(86_400),
            seconds: seconds.rem_euclid(86_400),
        }
    }

    /// From `2025-01-15T12:30:45` (ISO 8601; the time may be missing, or stand after a space).
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = match text.find(['T', ' ']) {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, "00:00:00"),
        };
        let numbers = |text: &str, sign: char| -> Option<[i64; 3]> {
            let mut parts = text.split(sign).map(|part| {
                let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
                part.parse().ok().filter(|_| digits && part.len() <= 4)
            });
            let numbers = [parts.next()??, parts.next()??, parts.next()??];
            parts.next().is_none().then_some(numbers)
        };
        let [year, month, day] = numbers(date, '-')?;
        let [hour, minute, second] = numbers(time, ':')?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = Self::day_of(year);
        let seconds = hour * 3600 + minute * 60 + second;
        // Found by its date, so that no second calendar stands beside the first.
        (days..days + 366)
            .map(|days| Self { days, seconds })
            .find(|time| time.date() == (year, usize::try_from(month).unwrap_or(0), day))
    }

    /// Year, month 1–12, day 1–31, by counting 400-year cycles from 1 March of year 0.
    /// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    fn date(self) -> (i64, usize, i64) {
        let z = self.days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        // `mp` is 0 to 11, counted from March.
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        (year, month as usize, day)
    }

    /// Formats as Python's `strftime` does, for the directives templates use:
    /// `%Y %y %m %d %e %B %b %A %a %H %I %M %S %p %j %F %T %%`. Others are kept as they are.
    pub fn format(self, format: &str) -> String {
        let (year, month, day) = self.date();
        let (hour, minute, second) = (
            self.seconds / 3600,
            self.seconds / 60 % 60,
            self.seconds % 60,
        );
        let month_name = MONTHS.get(month - 1).copied().unwrap_or_default();
        // 1970-01-01 was a Thursday.
        let weekday = WEEKDAYS
            .get((self.days + 3).rem_euclid(7) as usize)
            .copied()
            .unwrap_or_default();
        let short = |name: &'static str| name.get(..3).unwrap_or(name);
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let directive = chars.next();
            // Python's `%-d` leaves out the padding.
            let (padded, directive) = match directive {
                Some('-') => (false, chars.next()),
                other => (true, other),
            };
            let width = if padded { 2 } else { 1 };
            let written = match directive {
                Some('Y') => write!(out, "{year:04}"),
                Some('y') => write!(out, "{:0width$}", year.rem_euclid(100)),
                Some('m') => write!(out, "{month:0width$}"),
                Some('d') => write!(out, "{day:0width$}"),
                Some('e') => write!(out, "{day:width$}"),
                Some('B') => write!(out, "{month_name}"),
                Some('b') => write!(out, "{}", short(month_name)),
                Some('A') => write!(out, "{weekday}"),
                Some('a') => write!(out, "{}", short(weekday)),
                Some('H') => write!(out, "{hour:0width$}"),
                Some('I') => write!(out, "{:0width$}", (hour + 11) % 12 + 1),
                Some('M') => write!(out, "{minute:0width$}"),
                Some('S') => write!(out, "{second:0width$}"),
                Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
                Some('j') => {
                    let start = Self::day_of(year);
                    write!(out, "{:03}", self.days - start + 1)
                }
                Some('F') => write!(out, "{year:04}-{month:02}-{day:02}"),
                Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
                Some('%') => write!(out, "%"),
                Some(other) => write!(out, "%{other}"),
                None => write!(out, "%"),
            };
            written.expect("writing to a string does not fail");
        }
        out
    }

    /// Days from 1970-01-01 to the first of January of a year.
    fn day_of(year: i64) -> i64 {
        let before = year - 1;
        365 * (year - 1970) + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400)
            - (1969 / 4 - 1969 / 100 + 1969 / 400)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // 2025-01-15 12:30:45, a Wednesday.
        let time = CivilTime::from_seconds(1_736_944_245);
        assert_eq!(time.format("%d %b %Y"), "15 Jan 2025");
        assert_eq!(
            time.format("%A, %B %e %H:%M:%S %p %j %%"),
            "Wednesday, January 15 12:30:45 PM 015 %"
        );
        let leap = CivilTime::from_seconds(951_782_400);
        assert_eq!(
            leap.format("%F %T %a %j %-m/%-d/%y"),
            "2000-02-29 00:00:00 Tue 060 2/29/00"
        );
        assert_eq!(
            CivilTime::from_seconds(-1).format("%F %T"),
            "1969-12-31 23:59:59"
        );
        assert_eq!(CivilTime::from_seconds(0).format("%I %p %Q"), "12 AM %Q");
    }

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for (text, seconds) in [
            ("2025-01-15T12:30:45", 1_736_944_245),
            ("2000-02-29 00:00:00", 951_782_400),
            ("1970-01-01", 0),
            ("1969-12-31T23:59:59", -1),
        ] {
            assert_eq!(
                CivilTime::parse(text),
                Some(CivilTime::from_seconds(seconds)),
                "{text}"
            );
        }
        for wrong in [
            "",
            "2025",
            "2025-13-01",
            "2025-02-29",
            "2025-01-15T25:00:00",
            "2025-01-15T12:30",
            "2025-01-15T+1:00:00",
            "99999-01-01",
            "2025-01-15-01",
            "é025-01-01",
        ] {
            assert_eq!(CivilTime::parse(wrong), None, "{wrong}");
        }
    }
}
