//! The gate: accepts TCP connections and performs their TLS handshakes.
//!
//! It limits the callers that have not proved who they are: their number, their time and their
//! bytes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::lock;
use crate::metrics::Metrics;
use crate::tls::{Counted, Traffic, export, fingerprint};

/// Most bytes of a caller that has not proved who it is: enough for HTTP/2's preface and a hello.
const MAX_UNKNOWN: usize = 64 << 10;

/// The facts of a connection before its first message.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) address: SocketAddr,
    /// A secret of this TLS connection, which the hello's signature covers.
    pub(crate) exported: [u8; 32],
    /// SHA-256 of the certificate that it presented, if any.
    pub(crate) certificate: Option<[u8; 32]>,
    /// Its place among the callers at the gate.
    pub(crate) pass: Arc<Pass>,
}

/// A caller's place at the gate. The gate cuts the connection of a caller that takes too long to
/// prove who it is, or when there are too many such callers.
#[derive(Debug)]
pub(crate) struct Pass {
    address: IpAddr,
    cut: Mutex<Option<oneshot::Sender<()>>>,
    known: AtomicBool,
}

impl Pass {
    /// The caller has proved who it is.
    pub(crate) fn grant(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// Cuts the connection.
    pub(crate) fn cut(&self) {
        if let Some(cut) = lock(&self.cut).take() {
            let _ = cut.send(());
        }
    }

    /// Cuts the connection of a caller that has not proved who it is.
    fn expire(&self) {
        if !self.known.load(Ordering::Relaxed) {
            self.cut();
        }
    }
}

/// A TLS connection that the server can cut at any time.
pub(crate) struct Secured {
    stream: TlsStream<Counted<TcpStream>>,
    caller: Caller,
    /// Resolves when the connection is to be cut. `None` once it is.
    cut: Option<oneshot::Receiver<()>>,
    open: Arc<AtomicUsize>,
    /// The number of bytes that came before the caller proved who it is.
    unknown: usize,
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Secured {
    /// Fails once the connection is cut.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        // The other end lives as long as the caller's pass, which `self` holds.
        if let Some(cut) = &mut self.cut
            && Pin::new(cut).poll(cx).is_pending()
        {
            return Ok(());
        }
        self.cut = None;
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if !self.caller.pass.known.load(Ordering::Relaxed) {
            self.unknown += buf.filled().len() - before;
            // NET-3
            if self.unknown > MAX_UNKNOWN {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connected for Secured {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

/// The position of the caller to cut: the oldest one of the most frequent address.
fn greedy(strangers: &VecDeque<Arc<Pass>>) -> usize {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for pass in strangers {
        *counts.entry(pass.address).or_default() += 1;
    }
    let most = counts.values().max().copied().unwrap_or(0);
    let place = strangers
        .iter()
        .position(|pass| counts[&pass.address] == most);
    place.unwrap_or(0)
}

/// Accepts connections.
pub(crate) struct Gate {
    pub(crate) acceptor: TlsAcceptor,
    /// How long a caller may take to prove who it is.
    pub(crate) patience: Duration,
    /// Most connected callers that have not proved who they are.
    pub(crate) strangers: usize,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Gate {
    /// Accepts connections. Never returns.
    pub(crate) async fn run(
        self,
        listener: TcpListener,
        secured: mpsc::Sender<Result<Secured, io::Error>>,
    ) {
        let gate = Arc::new(self);
        let mut strangers: VecDeque<Arc<Pass>> = VecDeque::new();
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely no file descriptor is free. A connection that ends frees one.
                    gate.metrics.refuse("accept", &error.to_string());
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (cut, receiver) = oneshot::channel();
            let pass = Arc::new(Pass {
                address: address.ip(),
                cut: Mutex::new(Some(cut)),
                known: AtomicBool::new(false),
            });
            strangers.retain(|other| {
                Arc::strong_count(other) > 1 && !other.known.load(Ordering::Relaxed)
            });
            // NET-2
            while strangers.len() >= gate.strangers {
                let place = greedy(&strangers);
                if let Some(pass) = strangers.remove(place) {
                    pass.cut();
                    let why = format!(
                        "{}: cut, because more than {} connections have sent no hello",
                        pass.address, gate.strangers
                    );
                    gate.metrics.refuse("flood", &why);
                }
            }
            strangers.push_back(Arc::clone(&pass));
            tokio::spawn(Arc::clone(&gate).admit(stream, address, pass, receiver, secured.clone()));
        }
    }

    /// Performs the TLS handshake and hands the connection over. Cuts the connection if its caller
    /// does not prove in time who it is.
    async fn admit(
        self: Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        pass: Arc<Pass>,
        mut cut: oneshot::Receiver<()>,
        secured: mpsc::Sender<Result<Secured, io::Error>>,
    ) {
        let _ = stream.set_nodelay(true);
        let counted = Counted {
            inner: stream,
            traffic: Arc::clone(&self.traffic),
        };
        let accepting = self.acceptor.accept(counted);
        let accepted = tokio::select! {
            _ = &mut cut => return,
            accepted = tokio::time::timeout(self.patience, accepting) => accepted,
        };
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                let why = format!("{address}: {error}");
                return self.metrics.refuse("tls", &why);
            }
            // NET-1
            Err(_) => {
                let seconds = self.patience.as_secs_f64();
                let why = format!("{address}: no TLS handshake within {seconds} s");
                return self.metrics.refuse("slow", &why);
            }
        };
        let (_, connection) = stream.get_ref();
        let Ok(exported) = export(connection) else {
            return;
        };
        let certificate = connection.peer_certificates().and_then(|all| all.first());
        let certificate = certificate.map(fingerprint);
        self.open.fetch_add(1, Ordering::Relaxed);
        let connection = Secured {
            caller: Caller {
                address,
                exported,
                certificate,
                pass: Arc::clone(&pass),
            },
            stream,
            cut: Some(cut),
            unknown: 0,
            open: Arc::clone(&self.open),
        };
        if secured.send(Ok(connection)).await.is_err() {
            return;
        }
        let weak = Arc::downgrade(&pass);
        drop(pass);
        tokio::time::sleep(self.patience).await;
        if let Some(pass) = weak.upgrade() {
            pass.expire();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NET-2
    #[test]
    fn the_oldest_of_the_most_frequent_address_makes_room() {
        let pass = |last: u8| {
            Arc::new(Pass {
                address: IpAddr::from([127, 0, 0, last]),
                cut: Mutex::new(None),
                known: AtomicBool::new(false),
            })
        };
        let strangers = |addresses: &[u8]| addresses.iter().map(|last| pass(*last)).collect();
        assert_eq!(greedy(&strangers(&[1, 2, 3, 2, 3, 3])), 2);
        assert_eq!(greedy(&strangers(&[1, 2, 2])), 1);
        assert_eq!(greedy(&strangers(&[1, 2])), 0);
        assert_eq!(greedy(&strangers(&[])), 0);
    }
}
