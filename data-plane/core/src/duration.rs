//! Lengths of time as people write them in files and flags: `500ms`, `10s`, `2m`, `1h`.

use std::time::Duration;

/// Longer than anything here is ever set to; above it a number is more likely a mistake.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Reads one; fractions such as `1.5s` too. `None`: it is none, or longer than a year.
pub fn parse(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()?;
    Duration::try_from_secs_f64(seconds * scale).ok().filter(|d| *d <= LONGEST)
}

/// Writes one in the largest unit that leaves nothing over; what is finer than a millisecond is left out.
pub fn text(seconds: i64, nanos: i32) -> String {
    let millis = i128::from(seconds) * 1000 + i128::from(nanos) / 1_000_000;
    match millis {
        0 => "0s".to_owned(),
        m if m % 3_600_000 == 0 => format!("{}h", m / 3_600_000),
        m if m % 60_000 == 0 => format!("{}m", m / 60_000),
        m if m % 1000 == 0 => format!("{}s", m / 1000),
        m => format!("{m}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (shown, seconds, nanos) in
            [("0s", 0, 0), ("500ms", 0, 500_000_000), ("90s", 90, 0), ("2m", 120, 0), ("1h", 3600, 0)]
        {
            assert_eq!(text(seconds, nanos), shown);
            assert_eq!(
                parse(shown),
                Duration::try_from_secs_f64(seconds as f64 + f64::from(nanos) / 1e9).ok()
            );
        }
        assert_eq!(parse("1.5s"), Some(Duration::from_millis(1500)));
        for none in ["", "10", "s", "-1s", "1 s", "1.2.3s", "1d", "9000h", "1e9s"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
