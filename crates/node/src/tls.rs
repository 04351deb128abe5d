//! TLS 1.3: certificates, settings, and a secret that a connection exports.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_rustls::rustls::{Error, InconsistentKeys};
use x509_parser::certificate::Validity;
use x509_parser::parse_x509_certificate;

use crate::trust::{self, Verdict};
use crate::wire::EXPORT_LABEL;

/// The byte-order mark that some editors put in front of a text.
const MARK: char = '\u{feff}';

/// Why certificates or keys cannot be used. No error reveals any part of a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate chain cannot be used.
    #[error("certificate: {0}")]
    Certificate(String),
    /// The private key cannot be used.
    #[error("private key: {0}")]
    Key(String),
    /// The certificate is for another key.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    /// The certificates of authorities cannot be used.
    #[error("authorities: {0}")]
    Authorities(String),
    /// The TLS library refuses the settings.
    #[error("TLS: {0}")]
    Settings(String),
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

/// Reads all certificates of a PEM document. There is at least one.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = pem.trim_start_matches(MARK);
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() {
        return Err("no PEM block CERTIFICATE".into());
    }
    Ok(all)
}

impl Certificate {
    /// Reads a certificate chain, the owner's certificate first, and its private key. Checks that
    /// they belong together.
    ///
    /// # Errors
    /// [`TlsError::Certificate`], [`TlsError::Key`] or [`TlsError::Mismatch`].
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, TlsError> {
        let chain = certificates(chain).map_err(TlsError::Certificate)?;
        let missing = |_| TlsError::Key("no PEM block PRIVATE KEY".into());
        let key = PrivateKeyDer::from_pem_slice(key.trim_start_matches(MARK).as_bytes())
            .map_err(missing)?;
        let own = Self {
            chain,
            key: Arc::new(zeroize::Zeroizing::new(key.secret_der().to_vec())),
        };
        // A certificate says which key it is.
        let other = trust::unsupported_key(&own.chain[0]);
        let unusable = |_| {
            let what = other.unwrap_or_else(|| {
                format!(
                    "no key that a server can use; supported are {}, to 4096",
                    trust::KEYS
                )
            });
            TlsError::Key(what)
        };
        let key = provider().key_provider.load_private_key(key);
        let pair = CertifiedKey::new(own.chain.clone(), key.map_err(unusable)?);
        match pair.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(own),
            Err(Error::InconsistentKeys(_)) => Err(TlsError::Mismatch),
            Err(error) => Err(TlsError::Certificate(error.to_string())),
        }
    }

    /// What clients will say of it at the time `now`, if it is a server's.
    pub fn as_server(&self, now: SystemTime) -> Verdict {
        trust::verdict(&self.chain, now)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let der = self.key.to_vec();
        PrivateKeyDer::try_from(der).map_err(|why| TlsError::Key(why.into()))
    }
}

/// Reads certificates of authorities (PEM).
///
/// # Errors
/// [`TlsError::Authorities`].
fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let all = certificates(pem).map_err(TlsError::Authorities)?;
    let count = all.len();
    for (index, certificate) in all.into_iter().enumerate() {
        if let Some(what) = trust::unsupported_key(&certificate) {
            let place = index + 1;
            let why = format!("certificate {place} of {count} has {what}");
            return Err(TlsError::Authorities(why));
        }
        let unusable = |error: Error| TlsError::Authorities(error.to_string());
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

/// Checks that certificates of authorities (PEM) can be used.
///
/// # Errors
/// [`TlsError::Authorities`].
pub fn check_authorities(pem: &str) -> Result<(), TlsError> {
    roots(pem).map(drop)
}

pub(crate) fn provider() -> Arc<crypto::CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

fn settings(error: Error) -> TlsError {
    TlsError::Settings(error.to_string())
}

/// TLS settings of a server with `certificate`. With `client_authorities` (PEM), clients may
/// present a certificate that one of these authorities has signed.
///
/// # Errors
/// A [`TlsError`].
pub(crate) fn server(
    certificate: &Certificate,
    client_authorities: Option<&str>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(settings)?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let roots = Arc::new(roots(pem)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .allow_unauthenticated()
                .build()
                .map_err(|error| TlsError::Settings(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificate.chain.clone(), certificate.key()?)
        .map_err(settings)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // No resumption: a client that returns proves its name again.
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
        .map_err(settings)?
        .with_root_certificates(roots(authorities)?);
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(own.chain.clone(), own.key()?)
            .map_err(settings)?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// SHA-256 of a certificate, as in rosters.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// SHA-256 of the first certificate of a PEM document.
///
/// # Errors
/// [`TlsError::Certificate`].
pub fn pem_fingerprint(pem: &str) -> Result<[u8; 32], TlsError> {
    let all = certificates(pem).map_err(TlsError::Certificate)?;
    Ok(fingerprint(&all[0]))
}

/// How long before a certificate expires [`date_warning`] says so.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// Says at the time `now` that one of these certificates (PEM) has expired, is not valid yet, or
/// expires within 14 days. `None` if none is so, or if they cannot be read.
pub fn date_warning(pem: &str, now: SystemTime) -> Option<String> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let soon = now + SOON;
    let [now, soon] = [now, soon].map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let all = certificates(pem).ok()?;
    all.iter().enumerate().find_map(|(index, certificate)| {
        let (_, certificate) = parse_x509_certificate(certificate).ok()?;
        let Validity {
            not_before,
            not_after,
        } = certificate.validity();
        let (what, date) = if not_after.timestamp() < now {
            ("expired on", not_after)
        } else if now < not_before.timestamp() {
            ("is not valid before", not_before)
        } else if not_after.timestamp() < soon {
            ("expires on", not_after)
        } else {
            return None;
        };
        let which = if all.len() > 1 {
            format!("certificate {} of {}", index + 1, all.len())
        } else {
            "the certificate".into()
        };
        let mut warning = format!("{which} {what} {}", date.to_datetime().date());
        if what != "expires on" {
            warning += ", or the clock of this machine is wrong";
        }
        Some(warning)
    })
}

/// Exports a secret that the two ends of this connection share and no other connection has.
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
    let file = std::fs::File::open(path)?;
    // No copy of a secret is left behind by a buffer that grows.
    let len = file
        .metadata()
        .map_or(0, |about| about.len())
        .min(max as u64);
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(len as usize + 1));
    file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        return Err(io::Error::other(format!("longer than {max} bytes")));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(zeroize::Zeroizing::new(
            text.trim_start_matches(MARK).to_owned(),
        )),
        Err(_) => Err(io::Error::other(match &bytes[..] {
            // The two lengths that the first element of a certificate or key has.
            [0x30, 0x81 | 0x82, ..] | [0x30, 0x2e, ..] => {
                "it is binary (DER or PKCS #12); PEM is needed, as `openssl x509 -inform der` or \
                 `openssl pkey -inform der` write it"
            }
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it is text in UTF-16; save it as UTF-8",
            _ => "it is no text in UTF-8",
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_is_in_the_right_file() {
        let names = ["a".into(), "b".into()];
        let trial = crate::keys::trial(&["localhost".into()], &names).unwrap();
        let (certificate, key) = (&trial.certificate, &trial.key);
        let fault = |chain: &str, key: &str| Certificate::from_pem(chain, key).unwrap_err();
        assert!(Certificate::from_pem(certificate, key).is_ok());
        assert!(matches!(fault("", key), TlsError::Certificate(_)));
        assert!(matches!(fault(key, key), TlsError::Certificate(_)));
        assert!(matches!(fault(certificate, ""), TlsError::Key(_)));
        assert!(matches!(fault(certificate, certificate), TlsError::Key(_)));
        let other = &trial.clients[0];
        assert!(matches!(fault(certificate, &other.key), TlsError::Mismatch));
        assert!(Certificate::from_pem(&other.certificate, &other.key).is_ok());
        let junk = "-----BEGIN NAME-----\nAAAA\n-----END NAME-----\n";
        let junk = |name: &str| junk.replace("NAME", name);
        let (no_certificate, no_key) = (junk("CERTIFICATE"), junk("PRIVATE KEY"));
        assert!(matches!(
            fault(&no_certificate, key),
            TlsError::Certificate(_)
        ));
        assert!(matches!(fault(certificate, &no_key), TlsError::Key(_)));
        assert!(check_authorities(&trial.authority).is_ok());
        for wrong in ["", &no_certificate] {
            let error = check_authorities(wrong).unwrap_err();
            assert!(matches!(error, TlsError::Authorities(_)), "{error}");
        }
    }

    /// What editors and other tools make of a PEM file.
    #[test]
    fn a_byte_order_mark_is_read_and_other_encodings_are_named() {
        let trial = crate::keys::trial(&["localhost".into()], &["a".into()]).unwrap();
        let (certificate, key) = (&trial.certificate, &trial.key);
        let folder = tempfile::tempdir().unwrap();
        let read = |bytes: &[u8]| {
            let path = folder.path().join("file");
            std::fs::write(&path, bytes).unwrap();
            read_text(&path, 1 << 16).map_err(|error| error.to_string())
        };
        let marked = |text: &str| format!("\u{feff}{}", text.replace('\n', "\r\n"));
        let own = Certificate::from_pem(&marked(certificate), &marked(key)).unwrap();
        assert!(check_authorities(&marked(&trial.authority)).is_ok());
        let text = read(marked(certificate).as_bytes()).unwrap();
        assert!(text.starts_with("-----BEGIN"));
        let utf16: Vec<u8> = marked(certificate)
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        for (bytes, why) in [
            (&own.chain[0][..], "it is binary (DER"),
            (&own.key[..], "it is binary (DER"),
            (&utf16, "it is text in UTF-16"),
            (b"caf\xe9", "it is no text in UTF-8"),
        ] {
            let error = read(bytes).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(read(&[b'a'; (1 << 16) + 1]).unwrap_err().contains("longer"));
    }

    #[test]
    fn dates_are_watched() {
        let day = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * 24 * 3600);
        let pem = |from: u64, until: u64| {
            let mut params = rcgen::CertificateParams::new(vec!["host".into()]).unwrap();
            params.not_before = day(from).into();
            params.not_after = day(until).into();
            let key = rcgen::KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().pem()
        };
        let says = |pem: &str, days| date_warning(pem, day(days));
        let one = pem(365, 730);
        assert_eq!(
            says(&one, 364).unwrap(),
            "the certificate is not valid before 1971-01-01, or the clock of this machine is wrong"
        );
        assert_eq!(says(&one, 365), None);
        assert_eq!(says(&one, 716), None);
        assert_eq!(
            says(&one, 717).unwrap(),
            "the certificate expires on 1972-01-01"
        );
        assert_eq!(
            says(&one, 731).unwrap(),
            "the certificate expired on 1972-01-01, or the clock of this machine is wrong"
        );
        let two = pem(365, 7300) + &one;
        assert_eq!(
            says(&two, 731).unwrap(),
            "certificate 2 of 2 expired on 1972-01-01, or the clock of this machine is wrong"
        );
        assert_eq!(says("", 0), None);
    }
}
