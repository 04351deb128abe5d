//! Files, and what a server offers.

use std::io::Cursor;

use undertone::data::{Kind, arrays_from_npz, from_csv, from_npz};
use undertone::kdf::Seed;
use undertone::node::label::Job;
use undertone::node::sum::{self, Sum};
use undertone::node::{Certificate, Deadlines, Roster};
use undertone::phases;
use undertone::setup::identity::Identity;

/// Any bytes as CSV.
pub fn csv(bytes: &[u8]) {
    let _ = from_csv(bytes);
}

/// Any bytes as an archive, of features or of codes.
pub fn npz(bytes: &[u8]) {
    for kind in [Kind::Features, Kind::Codes] {
        let _ = from_npz(Cursor::new(bytes), kind);
    }
    let _ = arrays_from_npz(Cursor::new(bytes));
}

/// Any text as a roster, which is the same when written and read again, and as the job of
/// each application.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(roster) = Roster::parse(text) {
        let again = Roster::parse(&roster.to_toml());
        assert_eq!(again.as_ref().map(Roster::entries), Ok(roster.entries()));
    }
    let _ = Job::parse(text, true);
    let _ = Sum::parse(text, 5, true);
    let _ = Deadlines::parse(text, &phases::ALL);
}

/// Any bytes as a server's offer, which is the same when made and read again.
pub fn offers(bytes: &[u8]) {
    if let Ok(job) = Job::from_offer(bytes) {
        let again = Job::from_offer(&job.to_offer());
        assert_eq!(again.map(|again| again.to_offer()), Ok(job.to_offer()));
    }
    // ROUND-20.
    if let Ok(job) = sum::from_offer(bytes) {
        let again = sum::from_offer(&sum::to_offer(&job));
        assert_eq!(again, Ok(job));
    }
}

/// Any text as a client's key, and as a certificate and its key.
pub fn keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(identity) = Identity::from_pem(text) {
        let again = identity.to_pem().map(|pem| Identity::from_pem(&pem));
        let again = again.ok().and_then(Result::ok);
        assert_eq!(again.map(|again| again.public()), Some(identity.public()));
    }
    let own = Identity::from_seed(&Seed::from_bytes([1; 32]));
    let key = own.to_pem().expect("a key can be written");
    let _ = Certificate::from_pem(text, &key);
    let _ = Certificate::from_pem(text, text);
}
