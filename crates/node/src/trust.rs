//! What is wrong with a certificate, in words: for a client that does not trust its server, and for
//! a server before any client comes.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, Error, ExtendedKeyPurpose, RootCertStore};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::prelude::X509Certificate;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;

use crate::tls::provider;
use crate::wire::plain;

/// The keys that certificates may have.
pub(crate) const KEYS: &str = "Ed25519, ECDSA on P-256 or P-384, and RSA from 2048 bits";

/// Most names of a certificate that a message lists.
const NAMES: usize = 5;

/// How to make a certificate that clients accept, for a server's operator.
const MAKE: &str = "make one with `undertone keys`, or with the extensions \
                    basicConstraints=critical,CA:FALSE and subjectAltName=DNS:HOST or IP:ADDRESS";

/// What is wrong with a certificate, and what follows for whom.
struct Fault {
    /// What is wrong, after "its certificate" or "the certificate".
    what: Cow<'static, str>,
    /// What a client does about it.
    client: &'static str,
    /// What the server's operator does about it.
    server: &'static str,
}

fn fault(what: impl Into<Cow<'static, str>>) -> Fault {
    Fault {
        what: what.into(),
        client: "tell the server's operator",
        server: MAKE,
    }
}

/// The day of a time, and the hour and minute if `exact`.
fn date(time: UnixTime, exact: bool) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let Ok(time) = ASN1Time::from_timestamp(seconds) else {
        return "a date beyond all calendars".into();
    };
    let time = time.to_datetime();
    if exact {
        let (hour, minute) = (time.hour(), time.minute());
        format!("{} {hour:02}:{minute:02} UTC", time.date())
    } else {
        time.date().to_string()
    }
}

fn dated(what: &str, limit: UnixTime, now: UnixTime) -> Fault {
    Fault {
        what: format!(
            "{what} {}; the clock of this machine says {}",
            date(limit, false),
            date(now, true)
        )
        .into(),
        client: "set the clock if it is wrong, or tell the server's operator",
        server: "set the clock if it is wrong, or make another certificate",
    }
}

/// The names that a certificate presents, as the TLS library writes them.
fn presented(names: &[String]) -> Vec<String> {
    let name = |name: &String| {
        let inner = name
            .split_once('(')
            .and_then(|(_, end)| end.strip_suffix(')'));
        let inner = inner.unwrap_or(name).trim_matches('"');
        match inner.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => plain(inner),
        }
    };
    names.iter().map(name).collect()
}

/// Some names, separated by commas.
fn list(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMES)].join(", ");
    if names.len() > NAMES {
        text += &format!(" and {} more", names.len() - NAMES);
    }
    text
}

const NAMELESS: &str = "names no host: it has no subject alternative names (a common name does not \
                        count)";

fn of_names(expected: &str, names: &[String]) -> Fault {
    let names = presented(names);
    if names.is_empty() {
        return fault(NAMELESS);
    }
    let is_address = expected.parse::<IpAddr>().is_ok();
    if is_address && names.iter().any(|name| name == expected) {
        return Fault {
            client: "tell the server's operator, or give another name with --server-name",
            ..fault(format!(
                "lists {expected} as the name of a host, not as an address"
            ))
        };
    }
    let what = format!("is for {}, not for {expected}", list(&names));
    let is_wild = |name: &String| {
        let end = name.strip_prefix('*');
        end.is_some_and(|end| expected.ends_with(end))
    };
    if names.iter().any(is_wild) {
        // RFC 6125, and no wildcard for all of a top-level domain.
        return Fault {
            client: "a * stands for one part of a name and needs two more parts after it; tell the \
                     server's operator",
            ..fault(what)
        };
    }
    Fault {
        client: "connect under that name, or give it with --server-name",
        ..fault(what)
    }
}

fn of_purpose(presented: &[ExtendedKeyPurpose]) -> Fault {
    let has: Vec<String> = presented
        .iter()
        .map(|purpose| match purpose {
            ExtendedKeyPurpose::Other(_) => "another purpose".to_owned(),
            known => known.to_string(),
        })
        .collect();
    let has = if has.is_empty() {
        "no purpose".to_owned()
    } else {
        list(&has)
    };
    Fault {
        server: "make one with extendedKeyUsage=serverAuth, or without extendedKeyUsage",
        ..fault(format!(
            "is not for servers: its extended key usage has {has}, and lacks serverAuth"
        ))
    }
}

/// Faults that the TLS library does not tell apart.
fn of_rules(error: &webpki::Error) -> Fault {
    use webpki::Error as Wrong;
    fault(match error {
        Wrong::CaUsedAsEndEntity => {
            "is that of an authority (CA:TRUE), which cannot be a server's own"
        }
        Wrong::EndEntityUsedAsCa => "is signed by a certificate that is no authority's (CA:FALSE)",
        Wrong::UnsupportedCertVersion => "has no extensions; X.509 version 3 is needed",
        Wrong::NameConstraintViolation => "has a name for which its authority may not sign",
        Wrong::PathLenConstraintViolated | Wrong::MaximumPathDepthExceeded => {
            "is signed through more intermediate authorities than is allowed"
        }
        Wrong::EmptyEkuExtension => "has an empty extended key usage",
        Wrong::InvalidSerialNumber => "has a serial number that is not allowed",
        Wrong::InvalidCertValidity => "ends before it begins to be valid",
        Wrong::MaximumSignatureChecksExceeded | Wrong::MaximumPathBuildCallsExceeded => {
            "comes with too many other certificates"
        }
        Wrong::UnsupportedNameType | Wrong::MalformedDnsIdentifier => {
            "has a name of a kind that is not supported"
        }
        _ => "breaks the rules of X.509",
    })
}

fn of_error(why: &CertificateError) -> Fault {
    use CertificateError as Wrong;
    match why {
        Wrong::UnknownIssuer => Fault {
            client: "ask the server's operator for the right ca.pem, or whether the server's \
                     certificate lacks that of an intermediate authority",
            server: "put the certificates of intermediate authorities after it, in order",
            ..fault("is not signed by an authority in ca.pem")
        },
        Wrong::BadSignature => Fault {
            client: "ask the server's operator for the right ca.pem",
            server: "put the certificates of its own authorities after it",
            ..fault(
                "is not signed by the authority that it names, though ca.pem has one of that name",
            )
        },
        Wrong::NotValidForName => Fault {
            client: "connect under its name, or give that with --server-name",
            ..fault("is for another name")
        },
        Wrong::NotValidForNameContext {
            expected,
            presented,
        } => of_names(&expected.to_str(), presented),
        Wrong::Expired => Fault {
            client: "set the clock of this machine if it is wrong, or tell the server's operator",
            ..fault("has expired")
        },
        Wrong::ExpiredContext { time, not_after } => dated("expired on", *not_after, *time),
        Wrong::NotValidYet => Fault {
            client: "set the clock of this machine if it is wrong, or tell the server's operator",
            ..fault("is not valid yet")
        },
        Wrong::NotValidYetContext { time, not_before } => {
            dated("is not valid before", *not_before, *time)
        }
        Wrong::InvalidPurpose => of_purpose(&[]),
        Wrong::InvalidPurposeContext { presented, .. } => of_purpose(presented),
        Wrong::Revoked => fault("is revoked"),
        Wrong::UnhandledCriticalExtension => {
            fault("has a critical extension that is not supported")
        }
        Wrong::UnsupportedSignatureAlgorithmContext { .. }
        | Wrong::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Fault {
            server: "use keys of supported kinds, and SHA-256 or better",
            ..fault(format!(
                "or its authority's has a signature that is not supported; supported are {KEYS}, \
                 with SHA-256 or better"
            ))
        },
        Wrong::BadEncoding => fault("cannot be read"),
        Wrong::Other(other) => match other.0.downcast_ref() {
            Some(error) => of_rules(error),
            None => fault("breaks the rules of X.509"),
        },
        _ => fault("cannot be used"),
    }
}

/// What is wrong with the certificate of a server, and what a client does about it.
pub(crate) fn untrusted(why: &CertificateError) -> String {
    let Fault { what, client, .. } = of_error(why);
    format!("its certificate {what}; {client}")
}

/// Says that the public key of a certificate is of a kind or a size that is not supported.
pub(crate) fn unsupported_key(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let key = certificate.public_key();
    let says = |what: String| Some(format!("{what}; supported are {KEYS}"));
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => {
            let bits = rsa.key_size();
            let usable = (2048..=8192).contains(&bits);
            (!usable).then(|| says(format!("an RSA key of {bits} bits")))?
        }
        Ok(PublicKey::EC(_)) => {
            let curve = key.algorithm.parameters.as_ref();
            let curve = curve.and_then(|curve| curve.as_oid().ok())?;
            let known = match curve.to_id_string().as_str() {
                "1.2.840.10045.3.1.7" | "1.3.132.0.34" => return None,
                "1.3.132.0.35" => "P-521",
                "1.3.132.0.10" => "secp256k1",
                _ => "another curve",
            };
            says(format!("an ECDSA key on {known}"))
        }
        _ if key.algorithm.algorithm.to_id_string() == "1.3.101.112" => None,
        _ => says("a key of another kind".into()),
    }
}

/// What clients will say of a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, unless they have other authorities.
    Good,
    /// A fault that may pass, or that only some clients mind.
    Doubtful(String),
    /// Every client refuses it, at any time.
    Useless(String),
}

/// Looks at a server's chain as a client would, at the time `now`. The authority that clients trust
/// is not known here.
pub(crate) fn verdict(chain: &[CertificateDer<'static>], now: SystemTime) -> Verdict {
    let useless = |fault: Fault| {
        Verdict::Useless(format!(
            "every client will refuse it: it {}; {}",
            fault.what, fault.server
        ))
    };
    for (index, certificate) in chain.iter().enumerate() {
        if let Some(why) = unsupported_key(certificate) {
            return Verdict::Useless(format!(
                "every client will refuse it: certificate {} of {} has {why}",
                index + 1,
                chain.len()
            ));
        }
    }
    let [own, others @ ..] = chain else {
        return Verdict::Good;
    };
    let Ok(parsed) = ParsedCertificate::try_from(own) else {
        return useless(of_error(&CertificateError::BadEncoding));
    };
    let mut anchors = RootCertStore::empty();
    anchors.add_parsable_certificates(if others.is_empty() { chain } else { others }.to_vec());
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = UnixTime::since_unix_epoch(since.unwrap_or(Duration::ZERO));
    let algorithms = provider().signature_verification_algorithms.all;
    let verified =
        verify_server_cert_signed_by_trust_anchor(&parsed, &anchors, others, now, algorithms);
    use CertificateError as Wrong;
    match verified {
        Ok(()) => {}
        Err(Error::InvalidCertificate(Wrong::UnknownIssuer)) if others.is_empty() => {}
        Err(Error::InvalidCertificate(why @ (Wrong::UnknownIssuer | Wrong::BadSignature))) => {
            let Fault { server, .. } = of_error(&why);
            return Verdict::Doubtful(format!(
                "none of the other certificates in the file has signed the first; {server}"
            ));
        }
        // Its dates are told apart from what no time cures.
        Err(Error::InvalidCertificate(
            Wrong::Expired
            | Wrong::ExpiredContext { .. }
            | Wrong::NotValidYet
            | Wrong::NotValidYetContext { .. },
        )) => {}
        Err(Error::InvalidCertificate(why)) => return useless(of_error(&why)),
        Err(_) => return useless(fault("cannot be used")),
    }
    match parse_x509_certificate(own) {
        Ok((_, own)) => names(&own),
        Err(_) => useless(of_error(&CertificateError::BadEncoding)),
    }
}

/// Whether a certificate names a host or an address.
fn names(own: &X509Certificate<'_>) -> Verdict {
    let nameless = Verdict::Useless(format!(
        "every client will refuse it: it {NAMELESS}; {MAKE}"
    ));
    let Ok(Some(names)) = own.subject_alternative_name() else {
        return nameless;
    };
    let (mut some, mut wrong) = (false, None);
    for name in &names.value.general_names {
        match name {
            GeneralName::DNSName(name) if name.parse::<IpAddr>().is_ok() => {
                wrong = Some(plain(name));
            }
            GeneralName::DNSName(_) | GeneralName::IPAddress(_) => some = true,
            _ => {}
        }
    }
    match wrong {
        Some(address) => {
            let why = format!(
                "it lists {address} as the name of a host, not as an address; clients that connect \
                 to {address} need subjectAltName=IP:{address}"
            );
            if some {
                Verdict::Doubtful(why)
            } else {
                Verdict::Useless(why)
            }
        }
        None if some => Verdict::Good,
        None => nameless,
    }
}

#[cfg(test)]
mod tests;
