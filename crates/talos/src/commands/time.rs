//! Points in time on the command line: `2h` (ago), a date with or without time (UTC unless it says
//! otherwise), or milliseconds since the Unix epoch.

use talos_common::Period;

const DAY_MS: i64 = 86_400_000;

/// Parses a point in time into milliseconds since the Unix epoch; `now_ms` is the present.
///
/// # Errors
/// What would be right.
pub fn parse(text: &str, now_ms: i64) -> Result<i64, String> {
    let text = text.trim();
    if let Ok(ago) = text.parse::<Period>() {
        let ago = i64::try_from(ago.0.as_millis()).unwrap_or(i64::MAX);
        return Ok(now_ms.saturating_sub(ago).max(0));
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text.len() > 4 {
        return text.parse().map_err(|_| expected());
    }
    parse_date(text).ok_or_else(expected)
}

fn expected() -> String {
    "must be a duration ago (2h), a date (2026-11-30 or 2026-11-30T08:00:00Z), or milliseconds since 1970"
        .into()
}

fn parse_date(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, ""),
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) =
        (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    if !(1970..=9999).contains(&year)
        || !(1..=12).contains(&month)
        || day < 1
        || day > days_in(year, month)
    {
        return None;
    }
    let (clock, offset_ms) = split_zone(time)?;
    let ms = days_from_civil(year, month, day) * DAY_MS + parse_clock(clock)? - offset_ms;
    (ms >= 0).then_some(ms)
}

fn number(text: &str, width: usize) -> Option<i64> {
    let digits = text.len() == width && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// Cuts `Z` or `+02:00` off; its offset in milliseconds.
fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let (clock, zone) = time.split_at(at);
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    if hours > 18 || minutes > 59 {
        return None;
    }
    let ms = (hours * 60 + minutes) * 60_000;
    Some((clock, if zone.starts_with('-') { -ms } else { ms }))
}

/// `HH:MM[:SS[.fff]]`, or nothing, in milliseconds.
fn parse_clock(clock: &str) -> Option<i64> {
    if clock.is_empty() {
        return Some(0);
    }
    let mut parts = clock.splitn(3, ':');
    let (hours, minutes) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let (seconds, ms) = match parts.next() {
        None => (0, 0),
        Some(text) => match text.split_once('.') {
            None => (number(text, 2)?, 0),
            Some((seconds, fraction)) => {
                if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                let padded: String = fraction.chars().chain("00".chars()).take(3).collect();
                (number(seconds, 2)?, number(&padded, 3)?)
            }
        },
    };
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + ms)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar. Years count from March, so that the
/// leap day is the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    before + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// Milliseconds since the Unix epoch as `2026-11-30T08:00:00.123Z`; out of range as a number.
pub fn format(ms: i64) -> String {
    let days = ms.div_euclid(DAY_MS);
    if !(0..2_932_897).contains(&days) {
        return ms.to_string();
    }
    // The year by a first guess that is never too small, then down.
    let mut year = 1970 + days / 365;
    while days_from_civil(year, 1, 1) > days {
        year -= 1;
    }
    let mut month = 12;
    while days_from_civil(year, month, 1) > days {
        month -= 1;
    }
    let day = days - days_from_civil(year, month, 1) + 1;
    let rest = ms.rem_euclid(DAY_MS);
    let (hours, minutes) = (rest / 3_600_000, rest / 60_000 % 60);
    let (seconds, ms) = (rest / 1_000 % 60, rest % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_read() {
        let now = 1_796_025_600_000;
        for (text, ms) in [
            ("2h", now - 7_200_000),
            ("0ms", now),
            ("1700000000000", 1_700_000_000_000),
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400_000),
            ("2026-11-30T08:00:00Z", 1_796_025_600_000),
            ("2026-11-30 10:00:00.5+02:00", 1_796_025_600_500),
            ("2026-11-30T07:30-00:30", 1_796_025_600_000),
        ] {
            assert_eq!(parse(text, now), Ok(ms), "{text}");
        }
        for bad in [
            "",
            "yesterday",
            "2026",
            "2026-13-01",
            "2025-02-29",
            "2026-11-30T24:00",
            "2026-11-30T08",
            "1.5h",
        ] {
            assert!(parse(bad, now).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_day_of_five_centuries_round_trips() {
        for day in 0..182_000 {
            let ms = day * DAY_MS + 45_296_789;
            let text = format(ms);
            assert_eq!(parse(&text, 0), Ok(ms), "{text}");
        }
        assert_eq!(format(-1), "-1");
        assert_eq!(format(i64::MAX), i64::MAX.to_string());
    }
}
