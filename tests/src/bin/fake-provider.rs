//! A scriptable model provider on a port: the demo's and the tests' upstream.
//!
//! It speaks OpenAI's and Anthropic's APIs and is told what to do under `/control`. Its only log line is the event
//! `listening`, on stderr, with the address.

use std::{io::Write as _, net::SocketAddr, time::Duration};

use clap::Parser;
use spareline_tests::provider::{Options, Provider};

#[derive(Parser)]
#[command(about = "A scriptable model provider")]
struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Close idle keep-alive connections after so many milliseconds.
    #[arg(long)]
    idle_close_ms: Option<u64>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let idle_close = arguments.idle_close_ms.map(Duration::from_millis);
    let provider = Provider::start_with(Options { listen: Some(arguments.listen), idle_close }).await?;
    let line = serde_json::json!({"event": "listening", "http_addr": provider.addr().to_string()});
    writeln!(std::io::stderr(), "{line}")?;
    tokio::select! {
        () = provider.finished() => {}
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
