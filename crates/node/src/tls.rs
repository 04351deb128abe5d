//! TLS 1.3: certificates, the peer's identity, and a secret that only one connection has.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};

use crate::wire::EXPORT_LABEL;

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM document does not hold what is expected.
    #[error("{what}: {why}")]
    Pem {
        /// The document.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Certificate and key do not match, or are of a kind that is not supported.
    #[error("certificate and key: {0}")]
    Pair(String),
}

/// A certificate chain with its private key, as PEM. The key is wiped on drop.
#[derive(Clone)]
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<zeroize::Zeroizing<Vec<u8>>>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate({} in the chain, ..)", self.chain.len())
    }
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| TlsError::Pem {
        what,
        why: error.to_string(),
    })?;
    if all.is_empty() {
        return Err(TlsError::Pem {
            what,
            why: "the file has no certificate (PEM)".into(),
        });
    }
    Ok(all)
}

impl Certificate {
    /// Reads a certificate chain, the owner's certificate first, and its private key (PKCS #8).
    ///
    /// # Errors
    /// [`TlsError::Pem`], which reveals nothing of the key.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, TlsError> {
        let chain = certificates("certificate", chain)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| TlsError::Pem {
            what: "key of the certificate",
            why: "the file has no private key (PEM)".into(),
        })?;
        Ok(Self {
            chain,
            key: Arc::new(zeroize::Zeroizing::new(key.secret_der().to_vec())),
        })
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let der = self.key.to_vec();
        PrivateKeyDer::try_from(der).map_err(|why| TlsError::Pair(why.into()))
    }
}

/// Reads certificates of authorities (PEM).
///
/// # Errors
/// [`TlsError::Pem`].
fn roots(what: &'static str, pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        roots.add(certificate).map_err(|error| TlsError::Pem {
            what,
            why: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn provider() -> Arc<crypto::CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

fn pair(error: rustls::Error) -> TlsError {
    TlsError::Pair(error.to_string())
}

/// TLS settings of a server with `certificate`. Clients may present a certificate if
/// `client_authorities` (PEM) are given, one of which must have signed it.
///
/// # Errors
/// A [`TlsError`].
pub(crate) fn server(
    certificate: &Certificate,
    client_authorities: Option<&str>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pair)?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let roots = Arc::new(roots("authorities of clients", pem)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .allow_unauthenticated()
                .build()
                .map_err(|error| TlsError::Pair(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificate.chain.clone(), certificate.key()?)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // No resumption: a client that returns proves again who it is.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// TLS settings of a client. One of `authorities` (PEM) must have signed the server's certificate.
/// The client presents `certificate`, if it has one.
///
/// # Errors
/// A [`TlsError`].
pub(crate) fn client(
    authorities: &str,
    certificate: Option<&Certificate>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pair)?
        .with_root_certificates(roots("authorities of the server", authorities)?);
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(own.chain.clone(), own.key()?)
            .map_err(pair)?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// SHA-256 of a certificate, as it stands in rosters.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// SHA-256 of the first certificate of a PEM document.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn pem_fingerprint(pem: &str) -> Result<[u8; 32], TlsError> {
    Ok(fingerprint(&certificates("certificate", pem)?[0]))
}

/// Exports a secret that the two ends of this connection share, and that no other connection has.
pub(crate) fn export<Data>(connection: &rustls::ConnectionCommon<Data>) -> io::Result<[u8; 32]> {
    connection
        .export_keying_material([0; 32], EXPORT_LABEL, None)
        .map_err(io::Error::other)
}

/// Counters of bytes on sockets, including TLS.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A socket that counts its bytes.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    pub(crate) inner: S,
    pub(crate) traffic: Arc<Traffic>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let count = (buf.filled().len() - before) as u64;
        self.traffic.received.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.traffic.sent.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Reads a text file of at most `max` bytes.
///
/// # Errors
/// When the file cannot be read, is longer, or is not UTF-8.
pub fn read_text(path: &Path, max: usize) -> io::Result<zeroize::Zeroizing<String>> {
    use std::io::Read;
    let mut text = zeroize::Zeroizing::new(String::new());
    let mut file = std::fs::File::open(path)?.take(max as u64 + 1);
    file.read_to_string(&mut text)?;
    if text.len() > max {
        return Err(io::Error::other(format!("longer than {max} bytes")));
    }
    Ok(text)
}
