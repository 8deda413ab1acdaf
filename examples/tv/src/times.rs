//! Times of a programme guide in minutes since 1970, UTC.

/// Returns the days since 1970 of a Gregorian date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that a leap day is the last day.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Parses `20260302201500`, with an optional offset like ` +0100`, into minutes.
pub fn minute_of(text: &str) -> Option<u32> {
    let (digits, offset) = text.split_once(' ').unwrap_or((text, "+0000"));
    if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |from: usize, to: usize| digits[from..to].parse::<i64>().ok();
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute) = (part(8, 10)?, part(10, 12)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    let of_day = hour * 60 + minute - offset_minutes(offset)?;
    u32::try_from(days(year, month, day) * 1440 + of_day).ok()
}

fn offset_minutes(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits = &text[1..];
    if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    Some(sign * (number / 100 * 60 + number % 100))
}

/// Formats the time of day: `20:15`.
pub fn clock(minute: u32) -> String {
    format!("{:02}:{:02}", minute / 60 % 24, minute % 60)
}

/// Returns the day of the week: `Monday`.
pub fn weekday(minute: u32) -> &'static str {
    let names = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    names[(minute / 1440 % 7) as usize]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_are_read_with_their_offset() {
        assert_eq!(minute_of("19700101000000 +0000"), Some(0));
        // 20512 days after 1970.
        let evening = minute_of("20260228201500").unwrap();
        assert_eq!(evening, 20_512 * 1440 + 20 * 60 + 15);
        assert_eq!((clock(evening).as_str(), weekday(evening)), ("20:15", "Saturday"));
        assert_eq!(minute_of("20260301000000").unwrap() - evening, 3 * 60 + 45);
        assert_eq!(minute_of("20260228211500 +0100"), Some(evening));
        for wrong in ["", "2026", "20261301000000", "20260101250000", "20260101000000 x", "äääääää"]
        {
            assert_eq!(minute_of(wrong), None, "{wrong}");
        }
    }
}
