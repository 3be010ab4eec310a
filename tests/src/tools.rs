//! The programs that operators and applications really use: `grpcurl`, the Python SDKs, the Node SDK.
//!
//! `deploy/setup` installs them into `target/tools`; `SPARELINE_TOOLS` may name another folder like it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::process::workspace;

/// No call of a test takes longer.
const LIMIT: Duration = Duration::from_secs(90);

/// The folder with the tools.
pub fn directory() -> PathBuf {
    std::env::var_os("SPARELINE_TOOLS").map_or_else(|| workspace().join("target/tools"), PathBuf::from)
}

fn tool(relative: &str) -> Result<PathBuf> {
    let path = directory().join(relative);
    ensure!(
        path.exists(),
        "{} is missing: ./deploy/setup installs it (./tests/run does so by itself)",
        path.display()
    );
    Ok(path)
}

/// What a program answered.
#[derive(Debug)]
pub struct Answer {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Answer {
    /// Standard output as JSON.
    ///
    /// # Errors
    /// When the program failed or printed something else.
    pub fn json(&self) -> Result<Value> {
        ensure!(self.code == 0, "exit code {}: {}{}", self.code, self.out, self.err);
        serde_json::from_str(&self.out).with_context(|| format!("not JSON: {}", self.out))
    }

    /// Both outputs.
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

async fn run(mut command: Command, what: &str) -> Result<Answer> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await;
    let output =
        output.with_context(|| format!("{what} did not end within {LIMIT:?}"))?.context(what.to_owned())?;
    Ok(Answer {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The real grpcurl, over reflection.
#[derive(Clone, Copy, Debug)]
pub struct Grpcurl(pub SocketAddr);

impl Grpcurl {
    /// Runs it with these arguments before the address and these after it.
    ///
    /// # Errors
    /// When it is not installed or hangs; a failing call is no error.
    pub async fn run(self, before: &[&str], after: &[&str]) -> Result<Answer> {
        let mut command = Command::new(tool("venv/bin/grpcurl")?);
        command.arg("-plaintext").args(before).arg(self.0.to_string()).args(after);
        run(command, "grpcurl").await
    }

    /// Calls a method of `spareline.admin.v1`, such as `ChannelAdminService/GetChannel`.
    ///
    /// # Errors
    /// When the call fails or the answer is not JSON.
    pub async fn call(self, method: &str, request: &Value) -> Result<Value> {
        self.try_call(method, request).await?.json().with_context(|| method.to_owned())
    }

    /// As [`Self::call`], for calls that may fail.
    ///
    /// # Errors
    /// When grpcurl is not installed or hangs.
    pub async fn try_call(self, method: &str, request: &Value) -> Result<Answer> {
        self.run(&["-d", &request.to_string()], &[&format!("spareline.admin.v1.{method}")]).await
    }
}

/// Runs one of `tests/clients/*.py` with the SDKs' Python; it prints one JSON document.
///
/// # Errors
/// When the SDKs are not installed, or the script fails.
pub async fn python(script: &str, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(tool("venv/bin/python")?);
    command.arg("-B").arg(client(script)).args(arguments);
    run(no_proxies(&mut command, script)?, script).await?.json().with_context(|| script.to_owned())
}

/// Runs one of `tests/clients/*.mjs`; `None` where the machine has no Node or no SDK for it.
///
/// # Errors
/// When the script fails.
pub async fn node(script: &str, arguments: &[&str]) -> Result<Option<Value>> {
    let modules = directory().join("node_modules");
    if !modules.join("openai").exists() {
        return Ok(None);
    }
    let mut command = Command::new("node");
    command.arg(client(script)).args(arguments).env("SPARELINE_NODE_MODULES", modules);
    Ok(Some(run(no_proxies(&mut command, script)?, script).await?.json().with_context(|| script.to_owned())?))
}

fn client(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script)
}

fn no_proxies(command: &mut Command, script: &str) -> Result<Command> {
    if !client(script).is_file() {
        bail!("there is no client {script}");
    }
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name);
    }
    let program = command.as_std().get_program().to_owned();
    Ok(std::mem::replace(command, Command::new(program)))
}
