//! Digests of whole transcripts. They change if a kernel or a protocol sends other bytes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone::fedgraph::{Cut, Job, Predict};
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::label::Params;
use undertone::ot::{Field, Security};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, Node, PartyId};
use undertone::simulate::{DistanceSimulation, TransferSimulation};
use undertone::sum::{Suite, Trust};

use crate::primitives::Nothing;
use crate::{Error, File, Hex, hex};
use undertone_tests::kept::Kept;
use undertone_tests::{random_clients, simulation, sums};

/// The messages of a run. Messages of different links may come in any order, for instance because
/// more threads do more of them at a time, so each link has its own digest.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Transcript {
    what: String,
    messages: usize,
    bytes: usize,
    /// SHA-256 over each link's sender (4), receiver (4) and SHA-256, in the order of senders and
    /// then of receivers. That of a link is over phase (1), length (8) and payload of its messages.
    sha256: Hex,
}

fn record(
    what: String,
    run: impl FnOnce(Network<'_>) -> Result<(), Error>,
) -> Result<Transcript, Error> {
    let links = Mutex::new(BTreeMap::<_, (Sha256, usize, usize)>::new());
    let network = Network::new().intercept(|from: PartyId, to: PartyId, frame| {
        if let Ok(mut links) = links.lock() {
            let payload = &frame[HEADER_LEN..];
            let (digest, messages, bytes) =
                links.entry((from.to_wire(), to.to_wire())).or_default();
            digest.update([frame[4]]);
            digest.update((payload.len() as u64).to_le_bytes());
            digest.update(payload);
            (*messages, *bytes) = (*messages + 1, *bytes + payload.len());
        }
    });
    run(network)?;
    let links = links
        .into_inner()
        .map_err(|_| Error::Missing("the digest"))?;
    let (mut digest, mut messages, mut bytes) = (Sha256::new(), 0, 0);
    for ((from, to), link) in links {
        digest.update(from.to_le_bytes());
        digest.update(to.to_le_bytes());
        digest.update(link.0.finalize());
        (messages, bytes) = (messages + link.1, bytes + link.2);
    }
    Ok(Transcript {
        what,
        messages,
        bytes,
        sha256: hex(&digest.finalize()),
    })
}

/// Runs that are to be recorded.
#[derive(Default)]
struct Runs(Vec<Box<dyn FnOnce() -> Result<Transcript, Error> + Send>>);

impl Runs {
    fn add(
        &mut self,
        what: String,
        run: impl FnOnce(Network<'_>) -> Result<(), Error> + Send + 'static,
    ) {
        self.0.push(Box::new(move || record(what, run)));
    }
}

/// The file of these digests.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let mut runs = Runs::default();
    for backend in Backend::ALL {
        let params = Params {
            bits: 300,
            neighbours: 3,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        let clients = random_clients(&[21, 33, 0, 18], 300, 1)?;
        runs.add(format!("label propagation, {backend}"), move |network| {
            simulation(params, clients).run_over(network)?;
            Ok(())
        });
    }
    for backend in Backend::ALL {
        let params = Params {
            bits: 70,
            neighbours: 3,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        };
        let what = format!("label propagation with cells, {backend}");
        runs.add(what, move |network| {
            crate::cells::simulation(params)?.run_over(network)?;
            Ok(())
        });
    }
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let rows = [1, 2, 0, 5];
        let rules = undertone::sum::Rules {
            trust,
            ..sums::rules(&rows, 3, 2)
        };
        let clients = sums::contributions::<u64>(&rules, &rows, 1);
        runs.add(format!("sum, {trust:?}"), move |network| {
            sums::simulation(rules, clients).run_over(network)?;
            Ok(())
        });
    }
    runs.add("a graph between pairs".into(), move |network| {
        let mut simulation = undertone_tests::pssl::simulation(4, |_| ());
        simulation.run(network)?;
        Ok(())
    });
    for (cut, predict) in [
        (Cut::Embeddings, Predict::Vote),
        (Cut::Server, Predict::Vote),
        (Cut::Client, Predict::Vote),
        (Cut::Client, Predict::Graph),
    ] {
        let what = format!("a graph network, cut {cut}, predict {predict}");
        runs.add(what, move |network| {
            let change = |job: &mut Job| job.predict = predict;
            undertone_tests::fedgraph::simulation(5, cut, change).run(network)?;
            Ok(())
        });
    }
    for (f, security) in [1, 2, 4, 8]
        .into_iter()
        .flat_map(|f| [Security::SemiHonest, Security::Malicious].map(|security| (f, security)))
    {
        let transfers = TransferSimulation {
            field: Field::new(f).ok_or(Error::Missing("f"))?,
            security,
            count: 20_000,
            seed: Seed::from_bytes([5; 32]),
        };
        let what = format!("20000 transfers, f = {f}, {security:?}");
        runs.add(what, move |mut network| {
            let (mut sender, mut receiver) = transfers.parties(|_| (), |_| ());
            network.run(&mut [&mut sender as &mut dyn Node, &mut receiver])?;
            Ok(())
        });
    }
    for (backend, bits) in [
        (Backend::Psm, 4096usize),
        (Backend::Lwe, 700),
        (Backend::Lwe, 4096),
        (Backend::Shade, 1024),
        (Backend::Shade, 4095),
        (Backend::Phe, 1000),
    ] {
        let mut prg = Prg::new(&[6; 32]);
        let mut random = |rows: usize| {
            let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
            BitMatrix::from_words(rows, bits, words.collect())
        };
        let distances = DistanceSimulation {
            backend,
            suite: Suite::Aes128Ctr,
            phe: Phe::insecure(256),
            codes: [65, 31, 48].map(&mut random).into(),
            min_clients: 2,
            sink: Kept::default(),
            seed: Seed::from_bytes([7; 32]),
        };
        runs.add(
            format!("distances, {backend}, {bits} bits"),
            move |network| {
                distances.run_over(network)?;
                Ok(())
            },
        );
    }
    let place = "none: digests of all that this library sends, to detect changes";
    crate::files(
        "digest",
        place,
        crate::together(runs.0)?,
        Vec::<Nothing>::new(),
    )
}
