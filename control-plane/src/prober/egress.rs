//! Whether our own way out works, asked only when an upstream gave no answer at all.
//!
//! A connection to any other upstream proves it. Where there is no other upstream to compare with, nothing is proven. A
//! channel with an egress proxy of its own has another way out: only a connection to that proxy proves it.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use url::Url;

/// How long a comparison may take.
const LIMIT: Duration = Duration::from_secs(2);
/// Most upstreams compared with.
const MOST: usize = 8;

/// Whether any upstream other than those at `here` takes a connection.
pub(super) async fn works(here: &[&Url], others: &[Url]) -> bool {
    let silent: BTreeSet<_> = here.iter().filter_map(|url| authority(url)).collect();
    let candidates = others.iter().filter_map(authority).filter(|other| !silent.contains(other));
    let mut tries: FuturesUnordered<_> = candidates
        .take(MOST)
        .map(|(host, port)| async move { TcpStream::connect((host, port)).await.is_ok() })
        .collect();
    let any = async {
        while let Some(connected) = tries.next().await {
            if connected {
                return true;
            }
        }
        false
    };
    tokio::time::timeout(LIMIT, any).await.unwrap_or(false)
}

/// Whether an egress proxy takes a connection from here: then what lies behind it is to blame.
pub(super) async fn takes(proxy: &Url) -> bool {
    let Some((host, port)) = authority(proxy) else { return false };
    matches!(tokio::time::timeout(LIMIT, TcpStream::connect((host, port))).await, Ok(Ok(_)))
}

fn authority(url: &Url) -> Option<(String, u16)> {
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn at(port: u16) -> Url {
        Url::parse(&format!("http://127.0.0.1:{port}/v1")).unwrap()
    }

    #[tokio::test]
    async fn part8_another_upstream_that_takes_a_connection_proves_our_way_out() {
        let living = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (living_at, gone_at) =
            (at(living.local_addr().unwrap().port()), at(gone.local_addr().unwrap().port()));
        drop(gone);
        assert!(works(&[&gone_at], &[gone_at.clone(), living_at.clone()]).await);
        assert!(
            !works(&[&gone_at], std::slice::from_ref(&gone_at)).await,
            "nothing to compare with proves nothing"
        );
        assert!(takes(&living_at).await && !takes(&gone_at).await);
        assert!(!works(&[&living_at], &[gone_at, living_at.clone()]).await, "itself is no comparison");
    }
}
