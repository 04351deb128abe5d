use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, danger::ServerCertVerifier};
use tokio_rustls::rustls::pki_types::ServerName;

use super::*;

const YEAR: u64 = 365 * 24 * 3600;

fn year(years: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(years * YEAR)
}

/// A certificate for `names` that is valid in the years 1 to 10, changed by `change`.
fn params(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = year(1).into();
    params.not_after = year(10).into();
    change(&mut params);
    params
}

fn authority() -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
    let params = params(&[], |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "authority");
    });
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.der().clone(), Issuer::new(params, key))
}

fn signed(
    names: &[&str],
    issuer: &Issuer<'static, KeyPair>,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let signed = params(names, change).signed_by(&key, issuer).unwrap();
    signed.der().clone()
}

fn self_signed(
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    params(names, change)
        .self_signed(&key)
        .unwrap()
        .der()
        .clone()
}

/// What a client that connects to `host` says in a year, if it trusts `anchors`.
fn client(
    chain: &[CertificateDer<'static>],
    anchors: &[CertificateDer<'static>],
    host: &str,
    when: u64,
) -> String {
    let mut roots = RootCertStore::empty();
    anchors
        .iter()
        .for_each(|anchor| roots.add(anchor.clone()).unwrap());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(when * YEAR));
    let verified =
        verifier
            .build()
            .unwrap()
            .verify_server_cert(&chain[0], &chain[1..], &name, &[], now);
    match verified {
        Ok(_) => "good".into(),
        Err(Error::InvalidCertificate(why)) => untrusted(&why),
        Err(other) => panic!("{other}"),
    }
}

fn server(chain: &[CertificateDer<'static>], when: u64) -> String {
    match verdict(chain, year(when)) {
        Verdict::Good => "good".into(),
        Verdict::Doubtful(why) => format!("doubtful: {why}"),
        Verdict::Useless(why) => format!("useless: {why}"),
    }
}

/// A text for people has none of the names of the libraries.
fn assert_plain(text: &str) {
    for word in [
        "Other",
        "DnsName",
        "IpAddress",
        "UnixTime",
        "Error",
        "::",
        "\"",
        "{",
    ] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let longest = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::len)
        .max();
    assert!(longest < Some(6), "seconds: {text}");
}

/// What no client accepts is refused by the server, with the same words.
#[test]
fn server_and_clients_see_the_same_faults() {
    let not_for_servers = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let ca = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    let address_as_name = |params: &mut CertificateParams| {
        let name = "127.0.0.1".try_into().unwrap();
        params.subject_alt_names = vec![SanType::DnsName(name)];
    };
    for (certificate, host, what, then) in [
        (
            self_signed(&[], |_| {}),
            "host",
            "names no host",
            "subjectAltName",
        ),
        (
            self_signed(&["host"], ca),
            "host",
            "is that of an authority (CA:TRUE), which cannot be a server's own",
            "CA:FALSE",
        ),
        (
            self_signed(&["host"], not_for_servers),
            "host",
            "is not for servers: its extended key usage has client authentication",
            "serverAuth",
        ),
        (
            self_signed(&[], address_as_name),
            "127.0.0.1",
            "lists 127.0.0.1 as the name of a host, not as an address",
            "subjectAltName=IP:127.0.0.1",
        ),
    ] {
        let chain = [certificate];
        let says = client(&chain, &chain, host, 5);
        assert!(
            says.starts_with(&format!("its certificate {what}")),
            "{says}"
        );
        assert!(says.contains("tell the server's operator"), "{says}");
        assert_plain(&says);
        let says = server(&chain, 5);
        assert!(says.starts_with("useless") && says.contains(what), "{says}");
        assert!(says.contains(then), "{says}");
        assert_plain(&says);
    }
}

#[test]
fn good_certificates_are_good() {
    let (anchor, issuer) = authority();
    let own = self_signed(&["host", "10.0.0.1"], |_| {});
    let leaf = signed(&["host"], &issuer, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    for (chain, anchors, host) in [
        (vec![own.clone()], [own.clone()], "host"),
        (vec![own.clone()], [own], "10.0.0.1"),
        (vec![leaf.clone()], [anchor.clone()], "host"),
        (vec![leaf, anchor.clone()], [anchor], "host"),
    ] {
        assert_eq!(client(&chain, &anchors, host, 5), "good");
        assert_eq!(server(&chain, 5), "good");
    }
}

#[test]
fn a_client_says_what_is_wrong_and_what_to_do() {
    let (anchor, issuer) = authority();
    let (other, other_issuer) = authority();
    let leaf = signed(&["one", "two", "10.0.0.1", "::1"], &issuer, |_| {});
    let says = |anchors: &[CertificateDer<'static>], host: &str, when: u64| {
        let says = client(std::slice::from_ref(&leaf), anchors, host, when);
        let address = says.replace("::1", "");
        assert_plain(&address);
        says
    };
    let right = [anchor.clone()];
    assert_eq!(
        says(&right, "three", 5),
        "its certificate is for one, two, 10.0.0.1, ::1, not for three; \
         connect under that name, or give it with --server-name"
    );
    let wild = of_names("fl.example", &["DnsName(\"*.example\")".into()]);
    assert!(wild.client.contains("needs two more"), "{}", wild.client);
    assert!(says(&right, "10.0.0.2", 5).contains("not for 10.0.0.2"));
    assert_eq!(
        says(&right, "one", 11),
        "its certificate expired on 1979-12-30; the clock of this machine says 1980-12-29 00:00 \
         UTC; set the clock if it is wrong, or tell the server's operator"
    );
    assert_eq!(
        says(&right, "one", 0),
        "its certificate is not valid before 1971-01-01; the clock of this machine says 1970-01-01 \
         00:00 UTC; set the clock if it is wrong, or tell the server's operator"
    );
    // Both authorities have one name.
    assert!(says(std::slice::from_ref(&other), "one", 5).contains("ca.pem"));
    let stranger = [self_signed(&["stranger"], |_| {})];
    assert!(says(&stranger, "one", 5).contains("is not signed by an authority in ca.pem"));
    // The server sees only that its own chain does not fit together.
    let foreign = signed(&["one"], &other_issuer, |_| {});
    let says = server(&[foreign, anchor], 5);
    assert!(says.starts_with("doubtful: none of the other"), "{says}");
    assert_plain(&says);
}

/// Names in a certificate are bytes of a peer.
#[test]
fn names_are_listed_plainly() {
    let names = |count: usize| {
        let names = (0..count).map(|at| format!("DnsName(\"host-{at}\u{202e}\")"));
        names.collect::<Vec<_>>()
    };
    let says = of_names("other", &names(7)).what;
    assert_eq!(
        says,
        "is for host-0 , host-1 , host-2 , host-3 , host-4  and 2 more, not for other"
    );
}

/// Every error has a sentence.
#[test]
#[allow(deprecated)]
fn no_error_is_shown_as_the_library_writes_it() {
    use CertificateError as Wrong;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let other =
        |error: webpki::Error| Wrong::Other(tokio_rustls::rustls::OtherError(Arc::new(error)));
    for why in [
        Wrong::BadEncoding,
        Wrong::Expired,
        Wrong::ExpiredContext {
            time,
            not_after: time,
        },
        Wrong::NotValidYet,
        Wrong::NotValidYetContext {
            time,
            not_before: time,
        },
        Wrong::Revoked,
        Wrong::UnhandledCriticalExtension,
        Wrong::UnknownIssuer,
        Wrong::UnknownRevocationStatus,
        Wrong::ExpiredRevocationListContext {
            time,
            next_update: time,
        },
        Wrong::BadSignature,
        Wrong::UnsupportedSignatureAlgorithm,
        Wrong::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: vec![1, 2],
            supported_algorithms: Vec::new(),
        },
        Wrong::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![1, 2],
            public_key_algorithm_id: vec![3],
        },
        Wrong::NotValidForName,
        Wrong::InvalidPurpose,
        Wrong::InvalidPurposeContext {
            required: ExtendedKeyPurpose::ServerAuth,
            presented: vec![ExtendedKeyPurpose::Other(vec![1, 3, 6])],
        },
        Wrong::InvalidOcspResponse,
        Wrong::ApplicationVerificationFailure,
        other(webpki::Error::CaUsedAsEndEntity),
        other(webpki::Error::EndEntityUsedAsCa),
        other(webpki::Error::UnsupportedCertVersion),
        other(webpki::Error::NameConstraintViolation),
        other(webpki::Error::PathLenConstraintViolated),
        other(webpki::Error::ExtensionValueInvalid),
        Wrong::Other(tokio_rustls::rustls::OtherError(Arc::new(
            std::io::Error::other("x"),
        ))),
    ] {
        let says = untrusted(&why);
        assert!(
            says.starts_with("its certificate ") && says.contains("; "),
            "{says}"
        );
        assert_plain(&says);
    }
}

/// Certificates with keys that no party of ours can check.
#[test]
fn unsupported_keys_are_called_that() {
    // `openssl req -x509 -newkey rsa:1024 -nodes -days 36500 -subj /CN=host -keyout - -out -`, and
    // the same with `-newkey ec -pkeyopt ec_paramgen_curve:P-521`.
    for (pem, what) in [
        (include_str!("rsa1024.pem"), "an RSA key of 1024 bits"),
        (include_str!("p521.pem"), "an ECDSA key on P-521"),
    ] {
        let error = crate::tls::check_authorities(pem).unwrap_err().to_string();
        assert!(
            error.contains(&format!("certificate 1 of 1 has {what}; supported are")),
            "{error}"
        );
        let error = crate::tls::Certificate::from_pem(pem, pem).unwrap_err();
        let is_key = matches!(&error, crate::tls::TlsError::Key(why) if why.contains(what));
        assert!(is_key, "{error}");
    }
}
