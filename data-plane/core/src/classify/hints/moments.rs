//! Moments, as numbers and as dates.

/// Seconds since 1970 of `1767225660`, `1767225660000` (milliseconds) or a date; small numbers are none.
pub(in crate::classify) fn moment(text: &str) -> Option<f64> {
    let text = text.trim();
    match text.parse::<f64>() {
        Ok(number) if (1e11..1e14).contains(&number) => Some(number / 1000.0),
        Ok(number) if (1e9..1e11).contains(&number) => Some(number),
        Ok(_) => None,
        Err(_) => date(text).map(|(moment, _)| moment),
    }
}

/// Seconds since 1970 of the date at the start of `text`, and its length: `2026-01-01T00:02:00Z`,
/// `2026-01-01 00:02:00.5+08:00`, `2026-01-01 00:02 UTC`. Without a zone it may be any hour of the provider's, and is none;
/// fractions are dropped.
pub(super) fn date(text: &str) -> Option<(f64, usize)> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse::<i64>().ok() } else { None }
    };
    let mark = |at: usize, marks: &[u8]| text.as_bytes().get(at).is_some_and(|byte| marks.contains(byte));
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute) = (number(11..13)?, number(14..16)?);
    let marked = mark(4, b"-") && mark(7, b"-") && mark(10, b"T ") && mark(13, b":");
    if !marked || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut used = 16;
    let mut second = 0;
    if mark(used, b":") {
        second = number(17..19)?;
        used = 19;
        if mark(used, b".") {
            used += 1;
            used += text.bytes().skip(used).take_while(u8::is_ascii_digit).count();
        }
    }
    let (zone, zoned) = zone(text.get(used..).unwrap_or_default())?;
    // Days since 1970, counting years from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - zone;
    Some((seconds as f64, used + zoned))
}

/// Seconds east of Greenwich, and the length of what says so.
fn zone(text: &str) -> Option<(i64, usize)> {
    for utc in ["Z", " UTC", "UTC", " GMT"] {
        if text.starts_with(utc) {
            return Some((0, utc.len()));
        }
    }
    let blank = usize::from(text.starts_with(' '));
    let text = text.get(blank..)?;
    let digits = |range: std::ops::Range<usize>| text.get(range).and_then(|text| text.parse::<i64>().ok());
    let sign = match text.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return None,
    };
    let colon = usize::from(text.as_bytes().get(3) == Some(&b':'));
    let (hours, minutes) = (digits(1..3)?, digits(3 + colon..5 + colon)?);
    Some((sign * (hours * 3600 + minutes * 60), blank + 5 + colon))
}
