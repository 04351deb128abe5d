//! A garbled circuit between two parties of one process.

use std::sync::Arc;

use undertone_garble::party::{evaluator, garbler};
use undertone_garble::{Audience, Circuit, Rules};
use undertone_kdf::Seed;
use undertone_kernel::BitMatrix;
use undertone_ot::{Context, Field};
use undertone_party::{Aborted, Endpoint, Ledger, Limits, PartyId, Script};
use zeroize::Zeroizing;

use super::{duplex, party_seed, session};

/// The garbler.
pub const GARBLER: PartyId = PartyId::client(0);

/// The evaluator.
pub const EVALUATOR: PartyId = PartyId::client(1);

/// The outputs of each instance, as the bits of a word.
pub type Outputs = Zeroizing<Vec<u64>>;

/// A run of a garbled circuit.
#[derive(Debug)]
pub struct GarbleSimulation {
    /// The circuit.
    pub circuit: Arc<Circuit>,
    /// The garbler's bits: a row for each instance.
    pub garbler: BitMatrix,
    /// The evaluator's bits: a row for each instance.
    pub evaluator: BitMatrix,
    /// Who learns the outputs.
    pub audience: Audience,
    /// The parameter f of the transfers.
    pub field: Field,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

impl GarbleSimulation {
    /// Garbler and evaluator.
    pub fn parties(self) -> [Endpoint<Script<'static, Outputs>>; 2] {
        let session = session(&self.seed);
        let rules = Rules {
            context: Context::new(session, "garbled circuits", GARBLER, EVALUATOR),
            field: self.field,
            circuit: self.circuit,
            instances: self.evaluator.rows(),
            audience: self.audience,
        };
        let seed = |id| party_seed(&self.seed, session, id);
        let first = garbler(rules.clone(), EVALUATOR, self.garbler, seed(GARBLER));
        let second = evaluator(rules, GARBLER, self.evaluator, seed(EVALUATOR));
        let node = |me, script| Endpoint::new(me, session, Limits::default(), script);
        [node(GARBLER, first), node(EVALUATOR, second)]
    }

    /// Runs both parties, each on a thread of its own. Returns their outputs and what they spent.
    ///
    /// # Errors
    /// [`Aborted`] of the party that aborted first.
    pub fn run(self) -> Result<[(Outputs, Ledger); 2], Aborted> {
        let [garbler, evaluator] = self.parties();
        let ends = duplex::run(garbler, evaluator);
        Ok([ends.0?, ends.1?])
    }
}
