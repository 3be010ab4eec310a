//! From the text of a value to what it means. Problems are phrased to follow the key's name.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::LogFormat;

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix("localhost:")
        && let Ok(port) = port.parse()
    {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| format!("`{text}` is not an address such as 127.0.0.1:7700"))
}

/// Never repeats the text: it may hold a password.
pub(super) fn database_url(text: &str) -> Result<String, String> {
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err("is not a Postgres URL such as postgres://user@host/database".to_owned());
    }
    match sqlx::postgres::PgConnectOptions::from_str(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("is not a usable Postgres URL such as postgres://user@host/database".to_owned()),
    }
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        Err("is not a path".to_owned())
    } else {
        Ok(PathBuf::from(text))
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "json" => Ok(LogFormat::Json),
        "pretty" => Ok(LogFormat::Pretty),
        _ => Err(format!("`{text}` is none of auto, json, pretty")),
    }
}

pub(super) fn log_filter(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(why) => Err(format!("`{text}` is not a filter such as info,spareline_control=debug: {why}")),
    }
}

pub(super) fn word(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=128).contains(&text.len()) && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not 1 to 128 letters, digits, dashes, dots or underscores"))
    }
}

pub(super) fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    text.parse()
        .ok()
        .filter(|n| range.contains(n))
        .ok_or_else(|| format!("`{text}` is not a whole number from {} to {}", range.start(), range.end()))
}

pub(super) fn duration(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    let read = spareline_core::duration::parse(text)
        .ok_or_else(|| format!("`{text}` is not a time such as 500ms, 10s, 2m or 1h"))?;
    if range.contains(&read) {
        Ok(read)
    } else {
        Err(format!("`{text}` is not between {:?} and {:?}", range.start(), range.end()))
    }
}
