//! Keys, certificates and a roster for a trial.
//!
//! Not for production: there each client makes its own key and hands out only the public half.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use sha2::{Digest, Sha256};
use undertone_kdf::Seed;
use undertone_setup::identity::Identity;
use zeroize::Zeroizing;

use crate::roster::{Entry, Roster, RosterError};

/// The keys of one client of a trial.
pub struct ClientKeys {
    /// Its name.
    pub name: String,
    /// Its private key (PEM).
    pub key: Zeroizing<String>,
    /// A certificate for that key (PEM).
    pub certificate: String,
}

/// The keys of a trial. Private keys are wiped on drop.
pub struct Trial {
    /// The certificate of the authority that signed all others (PEM). Its key is not kept.
    pub authority: String,
    /// The server's certificate (PEM).
    pub certificate: String,
    /// The server's private key (PEM).
    pub key: Zeroizing<String>,
    /// The clients.
    pub clients: Vec<ClientKeys>,
    /// Their roster.
    pub roster: Roster,
}

impl std::fmt::Debug for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trial({} clients, ..)", self.clients.len())
    }
}

/// Why a trial's keys cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A name cannot be part of a certificate.
    #[error("certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The clients cannot form a roster.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// The operating system provides no randomness.
    #[error("the operating system provides no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    /// A key cannot be encoded as PEM.
    #[error("a key cannot be encoded as PEM")]
    Encoding,
}

/// Makes keys for a server and its clients. `hosts` are the names and addresses of the server,
/// `names` those of the clients.
///
/// # Errors
/// A [`KeysError`].
pub fn trial(hosts: &[String], names: &[String]) -> Result<Trial, KeysError> {
    let named = |name: &str| -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(params)
    };
    let mut authority = named("Undertone trial")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut server = CertificateParams::new(hosts.to_vec())?;
    let host = hosts.iter().find(|host| host.parse::<IpAddr>().is_err());
    let host = host.or(hosts.first()).map_or("undertone", String::as_str);
    server.distinguished_name.remove(DnType::CommonName);
    server.distinguished_name.push(DnType::CommonName, host);
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_key = KeyPair::generate()?;
    let server_certificate = server.signed_by(&server_key, &issuer)?;

    let mut clients = Vec::with_capacity(names.len());
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        let identity = Identity::from_seed(&Seed::from_os()?);
        let key = identity.to_pem().map_err(|_| KeysError::Encoding)?;
        let pair = KeyPair::from_pem(&key)?;
        let mut params = named(name)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&pair, &issuer)?;
        entries.push(Entry {
            name: name.clone(),
            key: Some(identity.public()),
            certificate: Some(Sha256::digest(certificate.der()).into()),
        });
        clients.push(ClientKeys {
            name: name.clone(),
            key,
            certificate: certificate.pem(),
        });
    }
    Ok(Trial {
        authority: authority_certificate.pem(),
        certificate: server_certificate.pem(),
        key: Zeroizing::new(server_key.serialize_pem()),
        clients,
        roster: Roster::new(entries)?,
    })
}
