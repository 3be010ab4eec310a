//! The provider's remote control, under `/control`: JSON in, JSON out.
//!
//! | call | does |
//! |---|---|
//! | `PUT rules` | replaces all rules by a list of [`Rule`]s, oldest first |
//! | `POST rules` | adds one rule, before all others |
//! | `GET rules`, `DELETE rules` | lists them; forgets them, the key states and the holds |
//! | `PUT keys/KEY` | `{"state": "valid" \| "dead" \| "out_of_quota" \| "throttled"}` |
//! | `POST release/NAME` | lets answers held under NAME go |
//! | `GET requests?since=SEQ&wait=N&timeout_ms=T` | the records after SEQ, once there are at least N |
//! | `DELETE requests` | forgets them |
//! | `GET counters` | requests and statuses by key |

use std::{str::FromStr, time::Duration};

use http::{Method, Response};
use serde::Deserialize;
use serde_json::json;

use super::{
    State,
    script::{KeyState, Rule},
    serve::{Outgoing, full},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    state: KeyState,
}

/// Does what a call says.
pub(super) async fn answer(
    state: &State,
    method: &Method,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Response<Outgoing> {
    let done = full(200, &json!({}));
    let bad = |error: serde_json::Error| full(400, &json!({"error": error.to_string()}));
    match (method.as_str(), path.split_once('/').unwrap_or((path, ""))) {
        ("PUT", ("rules", "")) => match serde_json::from_slice(body) {
            Ok(rules) => {
                state.script.replace(rules);
                done
            }
            Err(error) => bad(error),
        },
        ("POST", ("rules", "")) => match serde_json::from_slice::<Rule>(body) {
            Ok(rule) => {
                state.script.add(rule);
                done
            }
            Err(error) => bad(error),
        },
        ("GET", ("rules", "")) => full(200, &state.script.rules()),
        ("DELETE", ("rules", "")) => {
            state.script.clear();
            done
        }
        ("PUT", ("keys", key)) => match serde_json::from_slice::<Key>(body) {
            Ok(wanted) => {
                state.script.set_key(key, wanted.state);
                done
            }
            Err(error) => bad(error),
        },
        ("POST", ("release", name)) => {
            state.script.release(name);
            done
        }
        ("GET", ("requests", "")) => {
            let since = parameter(query, "since").unwrap_or(0_u64);
            let wait = parameter(query, "wait").unwrap_or(0_usize);
            let limit = Duration::from_millis(parameter(query, "timeout_ms").unwrap_or(10_000));
            let after = |all: &[super::Record]| all.iter().filter(|r| r.seq > since).count();
            match state.witness.wait_until(limit, |all| after(all) >= wait).await {
                Ok(all) => full(200, &all.iter().filter(|r| r.seq > since).collect::<Vec<_>>()),
                Err(error) => full(504, &json!({"error": error.to_string()})),
            }
        }
        ("DELETE", ("requests", "")) => {
            state.witness.forget();
            done
        }
        ("GET", ("counters", "")) => full(200, &state.witness.counters()),
        _ => full(404, &json!({"error": "no such control; see the fake provider's documentation"})),
    }
}

fn parameter<T: FromStr>(query: Option<&str>, name: &str) -> Option<T> {
    query?.split('&').find_map(|pair| pair.split_once('=').filter(|(n, _)| *n == name)?.1.parse().ok())
}
