//! The files that prove the identity of a server or a client. An error names the faulty file: exit
//! code 66 if it cannot be read, 65 if it cannot be used.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use undertone::job::StateFile;
use undertone::job::disk::{Disk, Local};
use undertone::job::state_file::Kind;
use undertone::kdf::Seed;
use undertone::node::Certificate;
use undertone::node::tls::{self, TlsError};
use undertone::setup::identity::Identity;
use undertone_lab::Failure;
use zeroize::Zeroizing;

use super::{MAX_PEM, text};

/// Warnings about files that can be used. They are shown once logging has been set up.
#[derive(Default)]
pub(super) struct Warnings(Vec<String>);

impl Warnings {
    pub(super) fn log(&self) {
        for warning in &self.0 {
            tracing::warn!("{warning}");
        }
    }

    pub(super) fn into_texts(self) -> Vec<String> {
        self.0
    }

    /// Warns about the file `path`.
    pub(super) fn add(&mut self, path: &Path, why: &str) {
        self.0.push(format!("{}: {why}", path.display()));
    }

    /// Warns if others may read the private key in the file `path`.
    fn check_mode(&mut self, path: &Path) {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let Ok(held) = std::fs::metadata(path) else {
                return;
            };
            let mode = held.permissions().mode() & 0o7777;
            if mode & 0o077 != 0 && !is_systemd_credential(path) {
                let path = path.display();
                self.0.push(format!(
                    "{path}: others may read this private key (mode {mode:04o}); \
                     run: chmod 600 {path}"
                ));
            }
        }
        #[cfg(not(unix))]
        let _ = path;
    }

    /// Warns about the dates of the certificates in the file `path`, which holds `pem`.
    fn check_dates(&mut self, path: &Path, pem: &str) {
        if let Some(warning) = tls::date_warning(pem, SystemTime::now()) {
            self.add(path, &warning);
        }
    }
}

/// Whether systemd made this file for the service alone. Its mode shows the mask of an access list.
#[cfg(unix)]
fn is_systemd_credential(path: &Path) -> bool {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY");
    folder.is_some_and(|folder| !folder.is_empty() && path.starts_with(folder))
}

/// The file with this party's private key.
pub(super) struct Key {
    path: PathBuf,
    pem: Zeroizing<String>,
}

/// This party's certificate, with its key.
pub(super) struct Own {
    pub(super) certificate: Certificate,
    /// SHA-256 of the certificate.
    pub(super) fingerprint: [u8; 32],
}

impl Key {
    pub(super) fn read(path: &Path, warnings: &mut Warnings) -> Result<Self, Failure> {
        let pem = text(path, MAX_PEM)?;
        warnings.check_mode(path);
        Ok(Self {
            path: path.to_owned(),
            pem,
        })
    }

    /// The key as the identity of a client. It must be an Ed25519 key.
    pub(super) fn identity(&self) -> Result<Identity, Failure> {
        Identity::from_pem(&self.pem).map_err(|error| Failure::in_file(&self.path, error))
    }

    /// The certificate in the file `path`, which must be for this key.
    pub(super) fn certificate(&self, path: &Path, warnings: &mut Warnings) -> Result<Own, Failure> {
        let pem = text(path, MAX_PEM)?;
        warnings.check_dates(path, &pem);
        let certificate = Certificate::from_pem(&pem, &self.pem);
        let fingerprint = tls::pem_fingerprint(&pem);
        match (certificate, fingerprint) {
            (Ok(certificate), Ok(fingerprint)) => Ok(Own {
                certificate,
                fingerprint,
            }),
            (Err(error @ TlsError::Key(_)), _) => Err(Failure::in_file(&self.path, error)),
            (Err(error @ TlsError::Mismatch), _) => Err(Failure::data(format!(
                "{} and {}: {error}",
                path.display(),
                self.path.display()
            ))),
            (Err(error), _) | (_, Err(error)) => Err(Failure::in_file(path, error)),
        }
    }
}

/// The file with the secret for labels.
const SECRET: Kind = Kind {
    magic: *b"undertone noise1",
    name: "label secret",
    damaged: "restore it from its backup",
    foreign: "it is no secret for labels; name another file",
};

/// Bytes of the secret for labels. A file of an earlier version holds nothing else.
const SECRET_LEN: usize = 32;

/// The secret in the file `path` from which the noise on labels is drawn. A missing file is made,
/// with 32 bytes from the operating system; only its owner may read it.
pub(super) fn label_secret(path: &Path) -> Result<Seed, Failure> {
    if let Some(held) = held_secret(path)? {
        return Ok(held);
    }
    let fresh = Seed::from_os().map_err(|error| {
        Failure::new(
            71,
            format!("the operating system provides no randomness: {error}"),
        )
    })?;
    let file = StateFile::new(path, SECRET, [0; 32]);
    let created = file.create(0, fresh.expose());
    if created.map_err(|error| Failure::unwritable(path, error.why()))? {
        tracing::info!("made {}; keep it for all further jobs", path.display());
        return Ok(fresh);
    }
    // Another process has made it meanwhile.
    held_secret(path)?.ok_or_else(|| Failure::unwritable(path, "it is a link to nothing"))
}

/// The secret in the file `path`, if there is one.
fn held_secret(path: &Path) -> Result<Option<Seed>, Failure> {
    let unreadable = |error| Failure::new(66, format!("{}: {error}", path.display()));
    let Some(held) = Local.read(path, MAX_PEM as u64).map_err(unreadable)? else {
        return Ok(None);
    };
    let state = if held.starts_with(&SECRET.magic) {
        let file = StateFile::new(path, SECRET, [0; 32]);
        let state = file.read(SECRET_LEN);
        state.map_err(|error| Failure::in_file(path, error.why()))?
    } else {
        None
    };
    let bytes = state.as_ref().map_or(&held, |state| &state.payload);
    let secret = Zeroizing::new(<[u8; SECRET_LEN]>::try_from(&bytes[..]).map_err(|_| {
        let why = format!("it has {} bytes; a secret for labels has 32", bytes.len());
        Failure::in_file(path, why)
    })?);
    let mut warnings = Warnings::default();
    warnings.check_mode(path);
    warnings.log();
    Ok(Some(Seed::from_bytes(*secret)))
}

/// The certificates of authorities in the file `path` (PEM).
pub(super) fn authorities(path: &Path, warnings: &mut Warnings) -> Result<String, Failure> {
    let pem = text(path, MAX_PEM)?;
    warnings.check_dates(path, &pem);
    tls::check_authorities(&pem).map_err(|error| Failure::in_file(path, error))?;
    Ok(pem.to_string())
}
