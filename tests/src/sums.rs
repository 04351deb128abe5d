//! Secure sums of random inputs, and the clear sums to compare with.

use std::ops::Range;

use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::{PartyId, SessionId};
use undertone::simulate::{SumRun, SumSimulation};
use undertone::sum::Input;
use undertone::sum::{Audience, Rules, Shape, Word};

/// The session of these sums.
pub const SESSION: SessionId = SessionId([0x51; 32]);

/// Rules of a sum over clients with `rows` rows each. Everybody learns the shared words.
pub fn rules(rows: &[usize], width: usize, shared: usize) -> Rules {
    Rules {
        shape: Shape {
            rows: rows.iter().sum(),
            width,
            shared,
        },
        audience: Audience::Everybody,
        min_clients: 2,
        ..Rules::plain(SESSION, 0)
    }
}

/// Random words for clients that own `rows` rows each, one client after the other.
pub fn contributions<W: Word>(rules: &Rules, rows: &[usize], seed: u8) -> Vec<Input<W>> {
    let mut prg = Prg::new(&[seed; 32]);
    let mut start = 0;
    let client = |rows: &usize| {
        let own = start..start + rows;
        start += rows;
        let words = (0..rules.shape.words()).map(|_| W::truncate(prg.next_u64()));
        Input::with_rows(words.collect(), own)
    };
    rows.iter().map(client).collect()
}

/// A sum with fixed seeds.
pub fn simulation<W: Word>(rules: Rules, clients: Vec<Input<W>>) -> SumSimulation<W> {
    SumSimulation {
        rules,
        clients,
        seed: Seed::from_bytes([6; 32]),
    }
}

/// The clear sum of the words of the contributors `who`.
pub fn clear<W: Word>(clients: &[Input<W>], who: &[PartyId]) -> Vec<W> {
    let mut sum = vec![W::default(); clients[0].words.ready().len()];
    for place in who.iter().filter_map(|id| id.index()) {
        for (to, word) in sum.iter_mut().zip(clients[place].words.ready()) {
            *to = to.plus(*word);
        }
    }
    sum
}

/// Compares a run with the clear sum over its contributors, at the server and at every client of
/// `finishing`.
///
/// # Panics
/// When they differ.
pub fn assert_clear<W: Word>(
    rules: &Rules,
    clients: &[Input<W>],
    run: &SumRun<W>,
    finishing: impl IntoIterator<Item = usize>,
) {
    let contributors = &run.total.contributors;
    let sum = clear(clients, contributors);
    let matrix = rules.shape.rows * rules.shape.width;
    assert!(run.total.shared == sum[matrix..], "the server's sum");
    for place in finishing {
        let words =
            |rows: &Range<usize>| rows.start * rules.shape.width..rows.end * rules.shape.width;
        match &run.clients[place] {
            Err(aborted) => panic!("client {place}: {aborted}"),
            Ok(sums) => {
                assert_eq!(&sums.contributors, contributors);
                assert!(
                    sums.own == sum[words(&clients[place].own)],
                    "rows of {place}"
                );
                let is_told = rules.audience == Audience::Everybody;
                let due = if is_told { &sum[matrix..] } else { &[] };
                assert!(sums.shared == due, "shared words at {place}");
            }
        }
    }
}
