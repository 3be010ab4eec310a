//! Where single providers put what they have to say: Google's details, aggregators' metadata, gateways' faults.

use super::{Code, Facts, MESSAGE, Messages, Place, Rank, scalar, text};
use crate::classify::hints;
use crate::classify::json::{Cursor, Value};

impl Facts {
    /// `error.details` of Google's APIs, or a relay's account of its upstream.
    pub(super) fn details(&mut self, cursor: &mut Cursor<'_>) {
        let opened = cursor.value();
        if opened == Value::Object {
            while let Some(key) = cursor.key() {
                self.relayed |= key.plain().starts_with(b"upstream");
                match key.plain() {
                    b"error_code" => self.code(cursor, Place::Error),
                    _ => self.other(key, cursor),
                }
            }
            return;
        }
        if opened != Value::Array {
            cursor.finish(opened);
            return;
        }
        while cursor.item() {
            let value = cursor.value();
            if value != Value::Object {
                cursor.finish(value);
                continue;
            }
            // Without a type a reason is taken for what it says.
            let (mut reason, mut info) = (None, true);
            while let Some(key) = cursor.key() {
                match key.plain() {
                    b"@type" => {
                        if let Value::Str(raw) = scalar(cursor) {
                            info = raw.text().ends_with("google.rpc.ErrorInfo");
                        }
                    }
                    b"reason" => {
                        if let Value::Str(raw) = scalar(cursor) {
                            reason = Some(raw.text().into_owned());
                        }
                    }
                    b"violations" => self.violations(cursor),
                    b"metadata" => self.metadata(cursor),
                    _ => self.other(key, cursor),
                }
            }
            if let Some(reason) = reason.filter(|_| info) {
                self.codes.insert(0, Code::word(&reason));
            }
        }
    }

    /// `QuotaFailure.violations`.
    fn violations(&mut self, cursor: &mut Cursor<'_>) {
        let opened = cursor.value();
        if opened != Value::Array {
            cursor.finish(opened);
            return;
        }
        while cursor.item() {
            let value = cursor.value();
            if value != Value::Object {
                cursor.finish(value);
                continue;
            }
            while let Some(key) = cursor.key() {
                if key.plain() == b"quotaId"
                    && let Value::Str(raw) = scalar(cursor)
                {
                    let id = raw.text();
                    self.per_day |= id.contains("PerDay");
                    self.per_model |= id.contains("PerModel");
                } else if key.plain() == b"quotaValue" {
                    self.quota_zero |= matches!(scalar(cursor), Value::Str(raw) if raw.plain() == b"0");
                } else if key.plain() != b"quotaId" {
                    cursor.skip();
                }
            }
        }
    }

    /// An aggregator's account of what happened, or Google's.
    pub(super) fn metadata(&mut self, cursor: &mut Cursor<'_>) {
        let opened = cursor.value();
        if opened != Value::Object {
            cursor.finish(opened);
            return;
        }
        while let Some(key) = cursor.key() {
            match key.plain() {
                b"raw" => {
                    self.aggregated = true;
                    match cursor.value() {
                        Value::Str(raw) => self.quoted = Some(raw.start(MESSAGE).text().into_owned()),
                        value => cursor.finish(value),
                    }
                }
                b"reasons" | b"flagged_input" => {
                    self.flagged = true;
                    cursor.skip();
                }
                b"error_type" | b"limit_source" => self.code(cursor, Place::Error),
                b"headers" => self.headers(cursor),
                _ => self.other(key, cursor),
            }
        }
    }

    /// The headers of limits, as OpenRouter repeats them in a body: until when, where nothing remains.
    fn headers(&mut self, cursor: &mut Cursor<'_>) {
        let opened = cursor.value();
        if opened != Value::Object {
            cursor.finish(opened);
            return;
        }
        let (mut used_up, mut reset) = (false, None);
        while let Some(key) = cursor.key() {
            let name = key.text().to_ascii_lowercase();
            let value = match scalar(cursor) {
                Value::Num(number) => Some(number.to_owned()),
                Value::Str(raw) => Some(raw.text().into_owned()),
                _ => None,
            };
            match name.as_str() {
                "x-ratelimit-remaining" => used_up = value.as_deref() == Some("0"),
                "x-ratelimit-reset" => reset = value.as_deref().and_then(hints::moment),
                _ => {}
            }
        }
        if let Some(moment) = reset.filter(|_| used_up) {
            self.until.get_or_insert((moment, "x-ratelimit-reset"));
        }
    }

    /// `{"fault": {"faultstring", "detail": {"errorcode"}}}` of API gateways.
    pub(super) fn fault(&mut self, cursor: &mut Cursor<'_>, found: &mut Messages) {
        let opened = cursor.value();
        if opened != Value::Object {
            cursor.finish(opened);
            return;
        }
        while let Some(key) = cursor.key() {
            match key.plain() {
                b"faultstring" => text(cursor, found, Rank::Error),
                b"detail" => match cursor.value() {
                    Value::Object => {
                        while let Some(key) = cursor.key() {
                            if key.plain() == b"errorcode" {
                                self.code(cursor, Place::Error)
                            } else {
                                cursor.skip()
                            }
                        }
                    }
                    value => cursor.finish(value),
                },
                _ => cursor.skip(),
            }
        }
    }

    /// The first of several errors.
    pub(super) fn errors(&mut self, cursor: &mut Cursor<'_>, found: &mut Messages) {
        let mut first = true;
        while cursor.item() {
            match cursor.value() {
                Value::Object if first => self.error(cursor, found, Place::Errors, 0),
                Value::Str(raw) if first => found.push(Rank::Error, raw.start(MESSAGE).text().into_owned()),
                value => cursor.finish(value),
            }
            first = false;
        }
    }

    /// An object with a number that is zero when all is well.
    pub(super) fn numbered(&mut self, cursor: &mut Cursor<'_>, found: &mut Messages, place: Place) {
        let opened = cursor.value();
        if opened != Value::Object {
            cursor.finish(opened);
            return;
        }
        while let Some(key) = cursor.key() {
            match key.plain() {
                b"status_code" | b"code" => self.code(cursor, place),
                b"status_msg" | b"message" => text(cursor, found, Rank::Error),
                _ => cursor.skip(),
            }
        }
    }

    /// `Response.Error` of Tencent's, `response.error` of a failed response.
    pub(super) fn response(&mut self, cursor: &mut Cursor<'_>, found: &mut Messages) {
        let opened = cursor.value();
        if opened != Value::Object {
            cursor.finish(opened);
            return;
        }
        while let Some(key) = cursor.key() {
            match key.plain() {
                b"Error" | b"error" | b"ErrorMsg" => match cursor.value() {
                    Value::Object => self.error(cursor, found, Place::Error, 1),
                    value => cursor.finish(value),
                },
                _ => cursor.skip(),
            }
        }
    }
}

/// Zhipu's number and message in brackets, as its Anthropic endpoint has them: `[1113][Insufficient balance][2026...]`.
pub(super) fn bracketed_number(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.strip_prefix('[')?.split_once("][")?;
    if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((number, rest.split_once(']').map_or(rest, |(message, _)| message)))
}
