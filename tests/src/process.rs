//! Real processes: started, listened to, ended. A process dies with its [`Process`].

use std::{
    ffi::OsString,
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
    sync::watch,
};

/// How long a process may take to say that it listens: it may have to start a database first.
pub const START_LIMIT: Duration = Duration::from_secs(60);

/// One line of a process's output.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// When it was read.
    pub at: Instant,
    /// As printed.
    pub text: String,
    /// Null where the line is not JSON.
    json: Value,
}

impl LogLine {
    fn new(text: String) -> Self {
        Self { at: Instant::now(), json: serde_json::from_str(&text).unwrap_or_default(), text }
    }

    /// A field, whether the log nests its fields or not; null if absent.
    pub fn field(&self, name: &str) -> &Value {
        match &self.json[name] {
            Value::Null => &self.json["fields"][name],
            value => value,
        }
    }

    /// A field as text; empty if it is none.
    pub fn str(&self, name: &str) -> &str {
        self.field(name).as_str().unwrap_or_default()
    }

    /// Whether it is of this event.
    pub fn is(&self, event: &str) -> bool {
        self.str("event") == event
    }
}

/// A running process.
pub struct Process {
    name: String,
    child: Child,
    lines: watch::Receiver<Vec<LogLine>>,
}

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// What it is called in messages and in its log file's name.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, over ours.
    pub environment: Vec<(String, String)>,
    /// Where it runs; unset: where we do.
    pub directory: Option<PathBuf>,
}

impl Launch {
    /// One of the product's binaries.
    pub fn product(name: &str, binary: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), program: product(binary)?, ..Self::default() })
    }

    /// With more arguments.
    #[must_use]
    pub fn arguments<A: AsRef<str>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What the caller's shell happens to say must not steer a test.
        for name in [
            "DATABASE_URL",
            "RUST_LOG",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "http_proxy",
            "https_proxy",
            "ALL_PROXY",
        ] {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(n, v)| (n, v))).kill_on_drop(true);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the program is not there.
    pub fn spawn(&self) -> Result<Process> {
        let mut child =
            self.command().spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        let (sender, lines) = watch::channel(Vec::new());
        let file = log_file(&self.name)?;
        let (out, err) = (child.stdout.take().context("stdout")?, child.stderr.take().context("stderr")?);
        tokio::spawn(collect(out, sender.clone(), file.try_clone()?));
        tokio::spawn(collect(err, sender, file));
        Ok(Process { name: self.name.clone(), child, lines })
    }

    /// Runs it to its end: its status, and all it printed to either output.
    ///
    /// # Errors
    /// When it is not there, or does not end within `limit`.
    pub async fn run(&self, limit: Duration) -> Result<(ExitStatus, String)> {
        let output = tokio::time::timeout(limit, self.command().output()).await;
        let output = output.with_context(|| format!("{} did not end within {limit:?}", self.name))??;
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
        Ok((output.status, text))
    }
}

impl Process {
    /// The process id.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }

    /// Everything printed so far.
    pub fn log(&self) -> Vec<LogLine> {
        self.lines.borrow().clone()
    }

    /// Everything printed so far, as text.
    pub fn log_text(&self) -> String {
        self.lines.borrow().iter().map(|l| format!("{}\n", l.text)).collect()
    }

    /// How many lines there are; for [`Self::wait_for_log_after`].
    pub fn mark(&self) -> usize {
        self.lines.borrow().len()
    }

    /// Waits for a line, old or new.
    ///
    /// # Errors
    /// When it does not come within `limit`, or the process ends first; with the log's end.
    pub async fn wait_for_log(&self, limit: Duration, wanted: impl Fn(&LogLine) -> bool) -> Result<LogLine> {
        self.wait_for_log_after(0, limit, wanted).await
    }

    /// Waits for a line after the first `mark` ones.
    ///
    /// # Errors
    /// As [`Self::wait_for_log`].
    pub async fn wait_for_log_after(
        &self,
        mark: usize,
        limit: Duration,
        wanted: impl Fn(&LogLine) -> bool,
    ) -> Result<LogLine> {
        let mut lines = self.lines.clone();
        let find = |all: &Vec<LogLine>| all.iter().skip(mark).find(|l| wanted(l)).cloned();
        let waited = tokio::time::timeout(limit, lines.wait_for(|all| find(all).is_some())).await;
        let what = match waited {
            Ok(Ok(all)) => return find(&all).context("the line was there"),
            Ok(Err(_)) => "ended before it logged what was waited for".to_owned(),
            Err(_) => format!("did not log what was waited for within {limit:?}"),
        };
        let log = self.log();
        let tail: String =
            log[log.len().saturating_sub(30)..].iter().map(|l| format!("\n  {}", l.text)).collect();
        bail!("{} {what}; the end of its log:{tail}", self.name)
    }

    /// Waits for the event `listening` and reads an address from it.
    ///
    /// # Errors
    /// As [`Self::wait_for_log`], and when the line has no such field.
    pub async fn listening(&self, field: &str) -> Result<SocketAddr> {
        let line = self.wait_for_log(START_LIMIT, |l| l.is("listening") && !l.str(field).is_empty()).await?;
        line.str(field).parse().with_context(|| format!("{field} of {}", line.text))
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it without a warning, and waits for that.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.name))
    }

    /// Sends a signal by name, such as `TERM` or `STOP`.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn signal(&self, name: &str) -> Result<()> {
        let script = format!("kill -{name} {}", self.pid()?);
        let status = Command::new("sh").args(["-c", &script]).status().await?;
        ensure!(status.success(), "`{script}` failed for {}", self.name);
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it runs on.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        Ok(ended.with_context(|| format!("{} did not end within {limit:?}", self.name))??)
    }
}

async fn collect(from: impl AsyncRead + Unpin, to: watch::Sender<Vec<LogLine>>, mut file: std::fs::File) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let _ = writeln!(file, "{line}");
        to.send_modify(|all| all.push(LogLine::new(line)));
    }
}

/// Memory of a process in KiB, by its field in `/proc/PID/status`: `VmRSS`, `VmHWM`.
///
/// # Errors
/// When there is no such process or field.
pub fn memory_kib(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|l| l.strip_prefix(field).is_some_and(|rest| rest.starts_with(':')));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).context("no such field")?;
    Ok(kib.parse()?)
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}

/// Where cargo puts what it builds for the running test: `target/debug` or its like.
fn build_directory() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let deps = exe.parent().context("the test has no folder")?;
    Ok(if deps.ends_with("deps") { deps.parent().unwrap_or(deps) } else { deps }.to_owned())
}

/// A file for the log of one process of the running test; kept after the test, for whoever must find out why.
fn log_file(process: &str) -> Result<std::fs::File> {
    let test = std::thread::current().name().unwrap_or("main").replace("::", ".");
    let directory = build_directory()?.join("scenario-logs").join(test);
    std::fs::create_dir_all(&directory)?;
    Ok(std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(directory.join(format!("{process}.log")))?)
}

/// One of the workspace's binaries. Unless `SPARELINE_BIN_DIR` names a folder that has them, they are built first, so
/// that a test never runs yesterday's.
///
/// # Errors
/// When they do not build.
pub fn product(binary: &str) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let directory = BUILT.get_or_init(|| build().map_err(|e| format!("{e:#}")));
    match directory {
        Ok(directory) => {
            let path = directory.join(binary);
            ensure!(path.is_file(), "{} is missing: run `cargo build --workspace --bins`", path.display());
            Ok(path)
        }
        Err(error) => bail!("{error}"),
    }
}

fn build() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("SPARELINE_BIN_DIR") {
        return Ok(directory.into());
    }
    let directory = build_directory()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = std::process::Command::new(cargo);
    command.args(["build", "--bins", "--locked", "--quiet"]).current_dir(workspace());
    // A test's own build has built the tests; anything else needs the product alone.
    let tests = std::env::current_exe()?.parent().is_some_and(|folder| folder.ends_with("deps"));
    command.args(if tests {
        ["--workspace", "--tests"].as_slice()
    } else {
        ["-p", "spareline-control", "-p", "spareline-proxy"].as_slice()
    });
    if directory.ends_with("release") {
        command.arg("--release");
    }
    let output = command.output().context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "the product does not build:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(directory)
}
