//! A slow, long link, emulated on loopback: a rate and a delay in each direction.
//!
//! The emulation holds back bytes of a TCP connection; a kernel's emulation holds back packets. The
//! emulation loses nothing. It also has no slow start, which real connections have for their first
//! dozen round trips.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A link between a client and the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bits a second in each direction.
    pub rate: f64,
    /// Time from one end to the other.
    pub delay: Duration,
}

/// Most bytes read from one end at a time.
const CHUNK: usize = 16 << 10;

/// Listens on loopback and forwards each connection to `server` over its own link. Returns the
/// address.
pub(super) async fn start(link: Link, server: SocketAddr) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(server).await else {
                continue;
            };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(link, near_in, far_out));
            tokio::spawn(carry(link, far_in, near_out));
        }
    });
    Ok(address)
}

async fn carry(link: Link, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    // The channel holds the bytes in transit and a queue before the link.
    let held = link.rate / 8.0 * link.delay.as_secs_f64();
    let (put, mut taken) = mpsc::channel::<(Instant, Vec<u8>)>(16 + held as usize / CHUNK);
    tokio::spawn(async move {
        while let Some((due, bytes)) = taken.recv().await {
            tokio::time::sleep_until(due.into()).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut free = Instant::now();
    loop {
        let mut bytes = vec![0; CHUNK];
        let Ok(count @ 1..) = from.read(&mut bytes).await else {
            return;
        };
        bytes.truncate(count);
        free = free.max(Instant::now()) + Duration::from_secs_f64(8.0 * count as f64 / link.rate);
        if put.send((free + link.delay, bytes)).await.is_err() {
            return;
        }
    }
}
