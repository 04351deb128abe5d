//! The ledger says what the documentation predicts.
#![allow(missing_docs, clippy::unwrap_used)]

use undertone::mpc::hamming::Backend;
use undertone::mpc::sum;
use undertone::party::frame::HEADER_LEN;
use undertone::xclp::{Params, phases};
use undertone_tests::{random_clients, simulation};

#[test]
fn bytes_are_the_formulae() {
    let rows_of = [40, 25, 60, 1, 0];
    let (bits, k, classes) = (1000, 4, 2);
    for backend in Backend::ALL {
        let params = Params {
            bits,
            neighbours: k,
            backend,
            ..Params::default()
        };
        let clients = random_clients(&rows_of, bits, 2).unwrap();
        let labelled: Vec<usize> = clients.iter().map(|(_, l)| l.labelled().count()).collect();
        let unlabelled: usize = rows_of.iter().sum::<usize>() - labelled.iter().sum::<usize>();
        let run = simulation(params, clients).run(|_, _| {}).unwrap();
        let mut up = 0;
        let mut down = 0;
        for (client, rows) in rows_of.iter().enumerate() {
            let ledger = &run.ledgers[client + 1].1;
            let sent = |phase| ledger.phase(phase).map_or(0, |cost| cost.bytes_sent);
            let received = |phase| ledger.phase(phase).map_or(0, |cost| cost.bytes_received);
            let frames = |messages: usize, payload: usize| (messages * HEADER_LEN + payload) as u64;

            let near = k.min(rows.saturating_sub(1));
            let own = frames(1, rows * (1 + 6 * near));
            let codes = match backend {
                Backend::Psm => {
                    // Masked codes of 10 bits a number, each row in whole bytes; a tile with every
                    // other client that has rows; 16 bytes each are the seal's.
                    let masked = frames(1, rows * (10 * bits).div_ceil(8) + 16);
                    let other = |(other, columns): (usize, &usize)| match other == client {
                        true => 0,
                        false if rows * columns == 0 => 0,
                        false => frames(1, (10 * rows * columns).div_ceil(8) + 16),
                    };
                    masked + rows_of.iter().enumerate().map(other).sum::<u64>()
                }
                _ => frames(1, rows * bits.div_ceil(8)),
            };
            assert_eq!(sent(phases::DISTANCES), own + codes, "client {client}");
            let sets = match backend {
                Backend::Psm => frames(2, 2 * 4 * rows_of.len()),
                _ => 0,
            };
            assert_eq!(received(phases::DISTANCES), sets);

            let columns = 8 * unlabelled * labelled[client];
            let messages = 1 + usize::from(columns > 0);
            assert_eq!(received(phases::INFLUENCE), frames(messages, 17 + columns));

            let (p, others) = (rows_of.len(), rows_of.len() - 1);
            assert_eq!(sent(sum::KEYS), frames(1, 98));
            assert_eq!(received(sum::KEYS), frames(1, 4 + p * 102));
            assert_eq!(sent(sum::SHARES), frames(1, 80 * others + 32));
            assert_eq!(received(sum::SHARES), frames(1, 80 * others + 1));
            let own_rows = rows - labelled[client];
            let sums = 8 * classes * (unlabelled - own_rows) + 8 * classes;
            assert_eq!(sent(sum::UPLOAD), frames(1, sums), "client {client}");
            assert_eq!(sent(sum::UNMASK), frames(1, 32 + 33 * others));
            let back = 8 * classes * own_rows + 8 * classes;
            assert_eq!(
                received(sum::UNMASK),
                frames(2, 1 + back),
                "client {client}"
            );
            up += ledger
                .phases()
                .map(|(_, cost)| cost.bytes_sent)
                .sum::<u64>();
            down += ledger
                .phases()
                .map(|(_, cost)| cost.bytes_received)
                .sum::<u64>();
        }
        let server = &run.ledgers[0].1;
        assert_eq!(
            server
                .phases()
                .map(|(_, cost)| cost.bytes_received)
                .sum::<u64>(),
            up
        );
        assert_eq!(
            server
                .phases()
                .map(|(_, cost)| cost.bytes_sent)
                .sum::<u64>(),
            down
        );
        let rounds = |phase| server.phase(phase).map_or(0, |cost| cost.rounds());
        assert_eq!(
            [
                phases::SETUP,
                phases::DISTANCES,
                phases::INFLUENCE,
                sum::KEYS,
                sum::SHARES,
                sum::UPLOAD,
                sum::UNMASK
            ]
            .map(rounds),
            [
                4,
                if backend == Backend::Psm { 4 } else { 1 },
                1,
                2,
                2,
                1,
                3
            ]
        );
    }
}
