//! Targets for files and for a server's offers.

use std::io::Cursor;

use undertone::data::{Kind, arrays_from_npz, from_csv, from_npz};
use undertone::job::{Job, Known, Record, from_offer, offer};
use undertone::kdf::Seed;
use undertone::node::{Certificate, Deadlines, Roster, jobs};
use undertone::setup::identity::Identity;
use undertone::{label, phases, rounds};

/// Reads any bytes as CSV.
pub fn csv(bytes: &[u8]) {
    for kind in [Kind::Features, Kind::Table] {
        let _ = from_csv(bytes, kind, None);
    }
}

/// Reads any bytes as an archive of features, of codes, or of arrays.
pub fn npz(bytes: &[u8]) {
    for kind in [Kind::Features, Kind::Table, Kind::Codes] {
        let _ = from_npz(Cursor::new(bytes), kind, None);
    }
    let _ = arrays_from_npz(Cursor::new(bytes));
}

/// Reads any text as a roster, as the job of each application, and as deadlines. A roster that is
/// written and read again is the same.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(roster) = Roster::parse(text) {
        let again = Roster::parse(&roster.to_toml());
        assert_eq!(again.as_ref().map(Roster::entries), Ok(roster.entries()));
    }
    let known = Known {
        clients: Some(5),
        ..Known::new(true)
    };
    let _ = jobs::parse::<label::Job>(text, known);
    let _ = jobs::parse::<rounds::Job>(text, known);
    let _ = Deadlines::parse(text, &phases::ALL);
}

/// Reads any bytes as a server's offer. An offer that is written and read again is the same.
pub fn offers(bytes: &[u8]) {
    fn read<J: Job + std::fmt::Debug>(bytes: &[u8]) {
        if let Ok(job) = from_offer::<J>(bytes) {
            assert_eq!(from_offer(&offer(&job)), Ok(job));
        }
    }
    read::<label::Job>(bytes);
    // ROUND-20.
    read::<rounds::Job>(bytes);
}

/// Reads any text as a client's key, and as a certificate and its key.
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

/// Reads any bytes as a record of answers. A record that is written and read again is the same.
pub fn records(bytes: &[u8]) {
    let Ok(record) = Record::from_bytes(bytes) else {
        return;
    };
    let written = |record: &Record| record.to_bytes().expect("a record can be written");
    let kept = written(&record).expect("a record in memory");
    let again = Record::from_bytes(&kept).expect("what was written can be read");
    assert_eq!(written(&again), Some(kept));
    let _ = (record.shown(), record.census(), record.last_vote());
    let _ = record.was_sent(&[0; 32]);
}
