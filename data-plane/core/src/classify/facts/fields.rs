//! Single members: codes, statuses, waits.

use super::codes::short;
use super::{Code, Facts, Place, scalar};
use crate::classify::hints;
use crate::classify::json::{Cursor, Raw, Value};

/// A body that has more codes than this means none of them.
const MOST_CODES: usize = 32;

impl Facts {
    /// Members that several objects have: statuses and waits.
    pub(super) fn other(&mut self, key: Raw<'_>, cursor: &mut Cursor<'_>) {
        let name = key.plain();
        match name {
            b"status_code" | b"statusCode" | b"http_code" | b"raw_status_code" | b"httpStatus" => {
                self.http_code |= name == b"http_code";
                match scalar(cursor) {
                    Value::Num(number) => self.number(number),
                    Value::Str(raw) => self.number(&raw.text()),
                    _ => {}
                }
            }
            _ => self.wait(name, cursor),
        }
    }

    /// A member that may say how long to wait, or until when.
    fn wait(&mut self, name: &[u8], cursor: &mut Cursor<'_>) {
        if let Some((field, unit)) = hints::field(name) {
            let number = |text: &str| text.trim().parse::<f64>().ok().map(|value| value * unit);
            let seconds = match scalar(cursor) {
                Value::Num(text) => number(text),
                Value::Str(raw) => number(&raw.text()).or_else(|| hints::duration(&raw.text())),
                _ => None,
            };
            if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0) {
                self.wait.get_or_insert((seconds, field));
            }
        } else if let Some(field) = hints::moment_field(name) {
            let moment = match scalar(cursor) {
                Value::Num(number) => hints::moment(number),
                Value::Str(raw) => hints::moment(&raw.text()),
                _ => None,
            };
            if let Some(moment) = moment {
                self.until.get_or_insert((moment, field));
            }
        } else {
            cursor.skip();
        }
    }

    pub(super) fn code(&mut self, cursor: &mut Cursor<'_>, place: Place) {
        match scalar(cursor) {
            Value::Num(number) => self.numeric(number, place),
            Value::Str(raw) => {
                let text = raw.text();
                let text = text.trim();
                if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.numeric(text, place);
                } else {
                    if self.status.is_none() {
                        self.number(text.split(' ').next().unwrap_or_default());
                    }
                    // `com.amazonaws...#ThrottlingException`
                    self.word(text.rsplit('#').next().unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    fn numeric(&mut self, number: &str, place: Place) {
        let by_http = matches!(place, Place::Error | Place::Top) && number.len() == 3;
        if by_http {
            self.number(number);
        } else if number != "0" && self.codes.len() < MOST_CODES {
            self.codes.push(Code::number(place, number));
        }
    }

    fn number(&mut self, text: &str) {
        if let Some(status) = text.trim().parse::<u16>().ok().filter(|status| (400..600).contains(status)) {
            self.status.get_or_insert(status);
        }
    }

    pub(super) fn word(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() && text != "None" && text != "error" && self.codes.len() < MOST_CODES {
            self.codes.push(Code::word(text));
        }
    }

    pub(super) fn param(&mut self, cursor: &mut Cursor<'_>) {
        if let Value::Str(raw) = scalar(cursor) {
            self.param = short(&raw.text());
        }
    }
}
