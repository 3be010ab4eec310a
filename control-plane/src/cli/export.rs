//! `export`: the registry as a file that `apply` accepts unchanged. It holds no secret: credentials stand in it by their id.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use super::Failure;
use super::client::{Client, Registry};
use super::{diff, text};

/// What to export.
pub struct Export {
    /// The control plane's admin API.
    pub admin: String,
}

/// Writes the registry to `out`.
///
/// # Errors
/// See [`Failure`].
pub async fn export(what: Export, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let mut client = Client::connect(&what.admin).await?;
    let mut registry = client.registry().await?;
    client.fingerprints(&mut registry).await?;
    out.write_all(document(&registry)?.as_bytes())?;
    Ok(())
}

fn document(registry: &Registry) -> Result<String, Failure> {
    let mut out = String::from(
        "# Written by `spareline-control export`; `spareline-control apply` accepts it unchanged. Secrets are not in it:\n\
         # credentials that the control plane has stand by their id.\n",
    );
    let listed: BTreeMap<i64, String> = registry
        .channels
        .values()
        .flat_map(|c| &c.credential_ids)
        .map(|id| (*id, registry.fingerprints.get(id).cloned().unwrap_or_default()))
        .collect();
    section(&mut out, "credentials", "{}", listed.is_empty());
    for (id, fingerprint) in listed {
        let _ = write!(out, "  credential-{id}: {{credential_id: {id}");
        if !fingerprint.is_empty() {
            let _ = write!(out, ", fingerprint: {}", serde_json::Value::String(fingerprint));
        }
        out.push_str("}\n");
    }
    section(&mut out, "channels", "[]", registry.channels.is_empty());
    for channel in registry.channels.values() {
        let mut item = diff::block(channel, 4)?;
        if !channel.credential_ids.is_empty() {
            let names: Vec<String> =
                channel.credential_ids.iter().map(|id| format!("credential-{id}")).collect();
            let _ = writeln!(item, "    credentials: [{}]", names.join(", "));
        }
        push_item(&mut out, &item);
    }
    section(&mut out, "policies", "[]", registry.policies.is_empty());
    for policy in registry.policies.values() {
        let mut item = diff::block(policy, 4)?;
        if policy.group.is_empty() {
            item.insert_str(0, &format!("    group: {}\n", text::quoted("")));
        }
        push_item(&mut out, &item);
    }
    Ok(out)
}

fn section(out: &mut String, name: &str, nothing: &str, empty: bool) {
    let _ = if empty { writeln!(out, "\n{name}: {nothing}") } else { writeln!(out, "\n{name}:") };
}

/// A block whose first line becomes the list's dash.
fn push_item(out: &mut String, block: &str) {
    out.push_str("  - ");
    out.push_str(block.strip_prefix("    ").unwrap_or(block));
}
