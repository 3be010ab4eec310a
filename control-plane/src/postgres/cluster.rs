//! One server process and its data.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;

use super::place::Place;
use super::user::{User, server_user};
use super::{PostgresError, Result, binaries, io};

/// Runs the server below a shell whose input is a pipe that we hold: when we die, however, the pipe closes and the shell
/// stops the server. The signal is repeated, for one that comes before the server's handler is lost.
const WATCHDOG: &str = r#"
exec 3<&0
rm=$1; shift
"$@" 3<&- </dev/null & p=$!
(read _ <&3; while kill -INT $p 2>/dev/null; do sleep 0.05; done) & c=$!
wait $p; r=$?
kill $c 2>/dev/null
[ -z "$rm" ] || rm -rf "$rm"
exit $r
"#;

/// How long a start may take, a recovery included.
const START: Duration = Duration::from_secs(60);
/// How long failing starts are repeated: after a kill -9 of the server, orphans may still hold its memory.
const RETRY: Duration = Duration::from_secs(8);

/// A running private Postgres. Stops when dropped.
#[derive(Debug)]
pub struct Cluster {
    place: Place,
    shell: Child,
    leash: Option<ChildStdin>,
}

impl Cluster {
    /// Starts the cluster of this state directory, creating it the first time. Blocking: some 30 ms, the first time a second.
    ///
    /// When the server's user may not go there (root's home), the data lies in a directory of `/var/lib` or of the temporary
    /// directory instead, named by a hash of the path and so found again.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub fn start(state_dir: &Path) -> Result<Cluster> {
        let user = server_user()?;
        let place = Place::of(state_dir, user)?;
        Cluster::run(place, user, false)
    }

    /// Starts a throwaway cluster without durability; its data is removed when it ends.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub fn start_temporary() -> Result<Cluster> {
        let user = server_user()?;
        let place = Place::temporary(user)?;
        Cluster::run(place, user, true)
    }

    /// How to connect to one of its databases (`postgres` is there from the start).
    pub fn options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host(&self.place.socket.to_string_lossy())
            .username("postgres")
            .database(database)
    }

    /// The same as a URL, to hand to another process.
    pub fn url(&self, database: &str) -> String {
        let host: String =
            url::form_urlencoded::byte_serialize(self.place.socket.as_os_str().as_encoded_bytes()).collect();
        format!("postgres:///{database}?host={host}&user=postgres")
    }

    /// Where the data lies.
    pub fn dir(&self) -> &Path {
        &self.place.home
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(None))
    }

    /// Stops it and waits for its end. Blocking, normally 30 ms.
    pub fn stop(self) {}

    fn run(place: Place, user: Option<User>, temporary: bool) -> Result<Cluster> {
        let data = place.home.join("data");
        let version = std::fs::read_to_string(data.join("PG_VERSION")).ok().map(|v| v.trim().to_owned());
        let bin = binaries::find(version.as_deref()).map_err(|error| match (&version, error) {
            (Some(version), PostgresError::NoBinaries) if binaries::find(None).is_ok() => {
                PostgresError::OtherVersion { path: data.clone(), version: version.clone() }
            }
            (_, error) => error,
        })?;
        if version.is_none() {
            create(&bin, &place.home, &data, user)?;
        }
        let deadline = Instant::now() + RETRY;
        loop {
            match attempt(&bin, &place, &data, user, temporary) {
                Ok((shell, leash)) => return Ok(Cluster { place, shell, leash: Some(leash) }),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(Duration::from_millis(200)),
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.leash = None; // the shell stops the server
        let _ = self.shell.wait();
        if self.place.socket != self.place.home {
            let _ = std::fs::remove_dir(&self.place.socket); // empty by now
        }
    }
}

/// A command that runs as the server's user, in a directory that user may enter.
fn command(program: &Path, home: &Path, user: Option<User>) -> Command {
    let mut command = Command::new(program);
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    // A group of its own: Ctrl-C is for us, and we stop the server when we are done with it.
    command.current_dir(home).process_group(0).env_remove("PGDATA").env("LC_ALL", "C");
    command
}

/// Makes the data directory: aside first, so that a half-made one is never taken for a whole one.
fn create(bin: &Path, home: &Path, data: &Path, user: Option<User>) -> Result<()> {
    let fresh = home.join("data.new");
    if fresh.exists() {
        io(format!("remove {}", fresh.display()), std::fs::remove_dir_all(&fresh))?;
    }
    let out = io(
        "run initdb",
        command(&bin.join("initdb"), home, user)
            .args([
                "--no-sync",
                "--no-instructions",
                "-A",
                "trust",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                "--locale=C",
            ])
            .arg("-D")
            .arg(&fresh)
            .stdin(Stdio::null())
            .output(),
    )?;
    if !out.status.success() {
        return Err(PostgresError::Start(format!("initdb: {}", String::from_utf8_lossy(&out.stderr).trim())));
    }
    io(format!("rename {}", fresh.display()), std::fs::rename(&fresh, data))
}

fn attempt(
    bin: &Path,
    place: &Place,
    data: &Path,
    user: Option<User>,
    temporary: bool,
) -> Result<(Child, ChildStdin)> {
    let log = place.home.join("postgres.log");
    let out = io(format!("create {}", log.display()), File::create(&log))?;
    let err = io(format!("create {}", log.display()), out.try_clone())?;
    let mut server = command(Path::new("/bin/sh"), &place.home, user);
    server.arg("-c").arg(WATCHDOG).arg("sh");
    server.arg(if temporary { place.home.clone() } else { PathBuf::new() });
    server.arg(bin.join("postgres")).arg("-D").arg(data);
    let socket = format!("unix_socket_directories=\"{}\"", place.socket.display());
    let mut settings =
        vec![socket.as_str(), "listen_addresses=", "unix_socket_permissions=0700", "max_connections=200"];
    if temporary {
        settings.extend(["fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off"]);
    }
    for setting in settings {
        server.arg("-c").arg(setting);
    }
    let mut shell = io("start /bin/sh", server.stdin(Stdio::piped()).stdout(out).stderr(err).spawn())?;
    let Some(leash) = shell.stdin.take() else {
        return Err(PostgresError::Start("no pipe to the server".into()));
    };
    let deadline = Instant::now() + START;
    loop {
        if is_ready(data, shell.id()) {
            return Ok((shell, leash));
        }
        let ended = io("wait for the server", shell.try_wait())?.is_some();
        if ended || Instant::now() > deadline {
            drop(leash);
            let _ = shell.wait();
            return Err(PostgresError::Start(tail(&log)));
        }
        sleep(Duration::from_millis(10));
    }
}

/// The server's own word, of a server that is ours: the file may be another's that was killed.
fn is_ready(data: &Path, shell: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(data.join("postmaster.pid")) else { return false };
    let mut lines = text.lines();
    let Some(pid) = lines.next() else { return false };
    if lines.nth(6).map(str::trim) != Some("ready") {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        // pid (name) state parent ...; the name may hold anything but ends at the last parenthesis
        Ok(stat) => stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1))
            .is_some_and(|parent| parent == shell.to_string()),
        Err(_) => !Path::new("/proc/self").exists(),
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}
