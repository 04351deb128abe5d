//! What the server learns of means and deviations: nothing without the group seed, and with one
//! client's group seed the sums of all columns.

use std::cell::RefCell;

use undertone::kdf::{Seed, simulated};
use undertone::kernel::Prg;
use undertone::kernel::mask::from_bytes;
use undertone::label::{Features, Params};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::sum::UNMASK;
use undertone_tests::scaling::{WORDS, is_possible, numbers, pad, seeds, simulation, sums};

const DIM: usize = 60;
const CLIENTS: usize = 4;

fn tables(seed: u8) -> Vec<Features> {
    let mut prg = Prg::new(&[seed; 32]);
    let mut table = |client: usize| {
        let value = |_| (prg.next_u64() % 1000) as f64 + 1.0;
        let values = (0..DIM * (5 + client)).map(value).collect();
        Features::new(DIM, values).unwrap()
    };
    (0..CLIENTS).map(&mut table).collect()
}

/// The total that the server computes and hands out, in a run with this randomness.
fn total(tables: &[Features], seed: u8) -> Vec<u64> {
    let last = RefCell::new(Vec::new());
    let network = Network::new().intercept(|from, to, frame| {
        if from == PartyId::SERVER && to == PartyId::client(0) && frame[4] == UNMASK.id {
            *last.borrow_mut() = frame[HEADER_LEN..].to_vec();
        }
    });
    let run = simulation(Params::default(), tables.to_vec(), seed);
    let run = run.run_over(network).unwrap();
    assert_eq!(run.contributors.len(), CLIENTS);
    from_bytes(&last.into_inner()).collect()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// For the server totals are uniform, and those of equal rows differ between sessions. No column of
/// a total can be that of rows.
#[test]
fn the_total_tells_the_server_nothing() {
    let (one, other) = (tables(1), tables(2));
    let rows = one.iter().map(Features::rows).sum();
    for seed in 1..5 {
        let (of_one, of_other) = (total(&one, seed), total(&other, seed + 100));
        let again = total(&one, seed + 200);
        crate::assert_uniform(&bytes(&of_one), "a total");
        let difference = |a: &[u64], b: &[u64]| -> Vec<u64> {
            a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b)).collect()
        };
        crate::assert_uniform(&bytes(&difference(&of_one, &of_other)), "other rows");
        crate::assert_uniform(&bytes(&difference(&of_one, &again)), "the same rows");
        for column in of_one.chunks_exact(WORDS) {
            assert!(!is_possible(&numbers(column), rows));
        }
    }
}

/// The server and one client together learn the sums of each column, as every client does. They do
/// not learn which digits carried over between clients: the words differ from the sums' digits.
#[test]
fn with_one_client_the_server_learns_the_sums() {
    let tables = tables(3);
    let seed = Seed::from_bytes([7; 32]);
    let session = simulated::session(&seed);
    let ids = (0..CLIENTS).map(PartyId::client);
    let bound = seeds(&seed, &Params::default(), &tables).bound;
    let mut words = total(&tables, 7);
    for id in ids {
        let pad = pad(&bound, session, id, words.len());
        for (word, pad) in words.iter_mut().zip(pad) {
            *word = word.wrapping_sub(pad);
        }
    }
    let due = sums(DIM, &tables);
    for (column, due) in words.chunks_exact(WORDS).zip(due) {
        assert_eq!(numbers(column), due);
        // A digit without a random multiple is below 2^16 · 4.
        assert!(
            column
                .iter()
                .all(|word| word.wrapping_add(1 << 18) > 1 << 19)
        );
    }
}
