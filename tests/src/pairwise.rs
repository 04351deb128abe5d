//! Rows of several clients for tests of pairwise graphs.

use std::sync::Arc;

use undertone::kdf::Seed;
use undertone::pssl::{Data, Job};
use undertone::simulate::PairwiseSimulation;

/// Rows of each client.
pub const ROWS: usize = 30;

/// Features of a row.
pub const FEATURES: usize = 12;

/// The largest value.
pub const SCALE: u8 = 16;

/// Rows of one of three classes around centres, every fifth with a label. The centres are far from
/// each other, and rows of a class are near to each other.
///
/// # Panics
/// When there are no rows.
pub fn data(client: usize, rows: usize) -> Arc<Data> {
    let session = undertone::party::SessionId([0; 32]);
    let mut prg = Seed::from_bytes([9; 32])
        .derive(session, "rows", &[client as u32])
        .prg();
    let mut values = Vec::new();
    let mut labels = Vec::new();
    for row in 0..rows {
        let class = row % 3;
        for feature in 0..FEATURES {
            let centre = if feature % 3 == class { 12 } else { 3 };
            values.push(centre + (prg.next_u64() % 5) as u8 - u8::from(feature % 2 == 0));
        }
        labels.push((row % 5 == client % 5).then_some(class as u16));
    }
    Arc::new(Data::new(FEATURES, values, labels).unwrap_or_else(|error| panic!("{error}")))
}

/// A job for these rows.
pub fn job() -> Job {
    Job::new(FEATURES, SCALE, 3, ROWS).with_range(0.1, 0.8)
}

/// Clients with [`ROWS`] rows each, or a few more.
pub fn simulation(clients: usize, change: impl FnOnce(&mut Job)) -> PairwiseSimulation {
    let mut job = job();
    change(&mut job);
    let clients = (0..clients)
        .map(|client| data(client, ROWS + client))
        .collect();
    PairwiseSimulation::new(job, clients, Seed::from_bytes([7; 32]))
}
