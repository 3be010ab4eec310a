//! A Postgres of a test's own, as real as it gets: durable, restarted at will, dumped, restored, set back.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use spareline_control::{
    postgres::Cluster,
    store::{Head, Store, StoreOptions},
};
use spareline_core::items::{Item, Items};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{chaos::Target, stack::directory};

/// The database of a private cluster.
const NAME: &str = "postgres";
/// No tool takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It ends its connections and writes everything down.
    Fast,
    /// It drops everything, and recovers at its next start.
    Immediate,
}

/// A cluster in a folder of its own.
pub struct Database {
    cluster: Option<Cluster>,
    options: PgConnectOptions,
    socket: PathBuf,
    home: PathBuf,
    state: TempDir,
}

impl Database {
    /// Makes and starts one. It is empty: the first control plane migrates it.
    ///
    /// # Errors
    /// When there is no Postgres here.
    pub async fn start() -> Result<Self> {
        let state = directory()?;
        let cluster = run(state.path().join("db")).await?;
        let options = cluster.options(NAME);
        let (home, host) = (cluster.dir().to_owned(), options.get_host().to_owned());
        let socket = options.get_socket().cloned().unwrap_or_else(|| PathBuf::from(host));
        Ok(Self { cluster: Some(cluster), options, socket, home, state })
    }

    /// For a chaos proxy in front of it.
    pub fn target(&self) -> Target {
        Target::Unix(self.socket.join(".s.PGSQL.5432"))
    }

    /// Its URL through a chaos proxy.
    pub fn url(through: std::net::SocketAddr) -> String {
        format!("postgres://postgres@{through}/{NAME}")
    }

    /// Its URL without one.
    pub fn plain_url(&self) -> String {
        format!("postgres:///{NAME}?host={}&user=postgres", self.socket.display())
    }

    /// Ends the server.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn stop(&mut self, how: Stop) -> Result<()> {
        let cluster = self.cluster.take().context("the database does not run")?;
        if how == Stop::Immediate {
            let pid = std::fs::read_to_string(self.home.join("data/postmaster.pid"))?;
            let pid = pid.lines().next().context("no pid of the postmaster")?.to_owned();
            let status = Command::new("kill").args(["-QUIT", &pid]).status().await?;
            ensure!(status.success(), "kill -QUIT {pid}");
            // Until then the fast stop below must not come in between.
            while Path::new("/proc").join(&pid).exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        tokio::task::spawn_blocking(move || cluster.stop()).await?;
        Ok(())
    }

    /// Starts the server again.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn run(&mut self) -> Result<()> {
        self.cluster = Some(run(self.state.path().join("db")).await?);
        Ok(())
    }

    /// A connection past every proxy.
    ///
    /// # Errors
    /// When the server is down.
    pub async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.options).await?)
    }

    /// Runs statements.
    ///
    /// # Errors
    /// As the database says.
    pub async fn sql(&self, statements: &str) -> Result<()> {
        self.connect().await?.execute(AssertSqlSafe(statements.to_owned())).await?;
        Ok(())
    }

    /// One number.
    ///
    /// # Errors
    /// As the database says.
    pub async fn number(&self, query: &str) -> Result<i64> {
        let query = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
        Ok(query.fetch_one(&mut self.connect().await?).await?)
    }

    /// Everything it holds, of one group.
    ///
    /// # Errors
    /// As the store.
    pub async fn registry(&self, group: &str) -> Result<(Head, Items)> {
        let store = Store::connect(StoreOptions::new(self.options.clone())).await?;
        let snapshot = store.load().await?;
        store.close().await;
        let channels = snapshot.channels.into_iter().map(|m| Item::Channel(m.into()));
        let credentials = snapshot.credentials.into_iter().map(|m| Item::Credential(m.into()));
        let statuses = snapshot.statuses.into_iter().map(|m| Item::Status(m.into()));
        let policies = snapshot.policies.into_iter().map(|m| Item::Policy(m.into()));
        let items: Items = policies.chain(credentials).chain(channels).chain(statuses).collect();
        Ok((snapshot.head, items.for_groups(&[group])))
    }

    /// `pg_dump`, as an operator makes one.
    ///
    /// # Errors
    /// When it fails.
    pub async fn dump(&self) -> Result<PathBuf> {
        let file = self.state.path().join("dump.sql");
        self.tool("pg_dump", &["--format=plain", "--no-owner", "--file", &text(&file)?, NAME]).await?;
        Ok(file)
    }

    /// Drops everything there is, running connections included, and reads a dump, in one transaction.
    ///
    /// # Errors
    /// When it fails.
    pub async fn restore(&self, dump: &Path) -> Result<()> {
        let drop = "DROP SCHEMA public CASCADE; CREATE SCHEMA public;";
        let quiet = ["--quiet", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-d", NAME];
        let dump = text(dump)?;
        let all = [&quiet[..], &["-c", drop, "-f", &dump]].concat();
        self.tool("psql", &all).await
    }

    /// The whole data folder as it is now, put aside; the server must be down.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub async fn put_aside(&self) -> Result<PathBuf> {
        ensure!(self.cluster.is_none(), "the database still runs");
        let copy = self.home.join("aside");
        copy_folder(&self.home.join("data"), &copy).await?;
        Ok(copy)
    }

    /// Puts a data folder back in place of the current one, as a promoted replica that lagged would be.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub async fn put_back(&self, copy: &Path) -> Result<()> {
        ensure!(self.cluster.is_none(), "the database still runs");
        let data = self.home.join("data");
        std::fs::remove_dir_all(&data)?;
        copy_folder(copy, &data).await
    }

    async fn tool(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(tool(name));
        command.args(["-h", &text(&self.socket)?, "-U", "postgres"]).args(arguments);
        command.env_remove("PGDATABASE").stdin(Stdio::null());
        let output = tokio::time::timeout(LIMIT, command.output()).await.with_context(|| name.to_owned())?;
        let output = output.with_context(|| format!("cannot run {name}"))?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

async fn run(state: PathBuf) -> Result<Cluster> {
    Ok(tokio::task::spawn_blocking(move || Cluster::start(&state)).await??)
}

async fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").args(["-a", &text(from)?, &text(to)?]).status().await?;
    ensure!(status.success(), "cannot copy {} to {}", from.display(), to.display());
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("a path that is not UTF-8")
}

/// One of Postgres' own programs: of the newest version installed, else by its name.
fn tool(name: &str) -> OsString {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin").join(name))))
        .filter(|(_, path)| path.is_file())
        .collect();
    found.sort();
    found.pop().map_or_else(|| OsString::from(name), |(_, path)| path.into_os_string())
}
