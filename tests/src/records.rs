//! Records of answers for tests.

use std::path::PathBuf;
use std::sync::Arc;

use undertone::job::Record;
use undertone::job::record::{Peer, Volatile};
use undertone::job::testing::PowerCut;
use undertone::party::PartyId;

/// The only record on `disk`, as another process opens it. It is made at first. The client brings
/// one row, and knows a hundred clients.
///
/// # Panics
/// When the disk does not work.
#[allow(clippy::unwrap_used)]
pub fn on_disk(disk: &PowerCut) -> Record {
    let (folder, name) = (PathBuf::from("/records"), "ward-7");
    let open = |make: bool| {
        let (disk, clock) = (Arc::new(disk.clone()), || 1_772_539_200);
        if make {
            Record::create_on(disk, clock, &folder, name, Volatile::Refused)
        } else {
            Record::open_on(disk, clock, &folder, name, Volatile::Refused)
        }
    };
    let record = open(false).or_else(|_| open(true)).unwrap();
    record.bring("rows.csv", [[0; 32]]).unwrap();
    let peer = |client: usize| {
        let name = format!("ward-{client}");
        let key = [client as u8; 32];
        (PartyId::client(client), Peer { key, name })
    };
    record.know(Arc::new((0..100).map(peer).collect()));
    record
}
