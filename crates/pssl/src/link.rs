//! The protocol of a pair of clients: a script for each end. The channel of the pair seals all
//! messages ([`undertone_setup::sealed`]).
//!
//! The smaller client is the sender of all transfers and the garbler, in both directions.
//! `docs/spec/pssl.md`, *Pairs*.

use std::sync::Arc;

use undertone_garble::party::{evaluate_over, garble_over};
use undertone_garble::{self as garble, Audience, Circuit};
use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_ot::party::{MAX_COUNT, Receiving, Rules, Sending};
use undertone_ot::{Context, Delta, Field, Security};
use undertone_party::{Abort, Io, PartyId, SessionId};
use zeroize::Zeroizing;

use crate::circuits;
use crate::pair::{Course, Edge, End, Fault, Proposal};
use crate::product::{self, Shape};

/// f of the transfers.
pub(crate) fn field() -> Field {
    Field::new(Field::MAX).unwrap_or_else(|| unreachable!("f may be from 1 to 8"))
}

/// The circuits of a run, which all pairs share.
#[derive(Debug, Clone)]
pub(crate) struct Circuits {
    pub(crate) closest: Arc<Circuit>,
    pub(crate) accept: Arc<Circuit>,
}

/// One end of a pair, with its place in the session.
pub(crate) struct Link<'a> {
    pub(crate) context: SessionId,
    pub(crate) me: PartyId,
    pub(crate) peer: PartyId,
    pub(crate) circuits: Circuits,
    pub(crate) end: End<'a>,
    /// The randomness of transfers and circuits.
    pub(crate) seed: Seed,
}

/// What an end does in a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It proposes clusters: i of the specification.
    Proposes,
    /// It learns which of its clusters is the closest to each of the other end's: j.
    Answers,
}

/// The transfers of the pair, at one of its ends.
enum Transfers {
    Sends(Sending),
    Receives(Receiving),
}

impl Link<'_> {
    fn ends(&self) -> [PartyId; 2] {
        [self.me.min(self.peer), self.me.max(self.peer)]
    }

    fn context(&self, purpose: &str) -> Context {
        let [garbler, evaluator] = self.ends();
        Context::new(self.context, purpose, garbler, evaluator)
    }

    /// Both directions. Returns the edges, in an order that both ends have.
    pub(crate) async fn run(mut self: Box<Self>, io: Io) -> Result<Vec<Edge>, Abort> {
        // Step 3: the base transfers of the pair.
        let rules = Rules {
            context: self.context("pairwise graph"),
            field: field(),
            security: Security::Malicious,
            delta: Delta::Odd,
            count: MAX_COUNT,
        };
        let seed = self.seed.derive(self.context, "transfers", &[]);
        let mut transfers = if self.me < self.peer {
            Transfers::Sends(Sending::begin(&io, rules, self.peer, seed).await?)
        } else {
            Transfers::Receives(Receiving::begin(&io, rules, self.peer, seed).await?)
        };
        for direction in 0..2 {
            let is_first = (direction == 0) == (self.me < self.peer);
            let role = if is_first {
                Role::Proposes
            } else {
                Role::Answers
            };
            self.direction(&io, &mut transfers, role, direction).await?;
        }
        Ok(self.end.finish())
    }

    async fn direction(
        &mut self,
        io: &Io,
        transfers: &mut Transfers,
        role: Role,
        direction: u32,
    ) -> Result<(), Abort> {
        // Step 4: the closest cluster of the other end, for each cluster.
        let mut course = self.closest(io, transfers, role, direction).await?;

        // Steps 5 to 7: comparisons, until enough edges are accepted.
        for attempt in 0.. {
            let proposals = self.end.next(&mut course);
            if proposals.is_empty() {
                break;
            }
            let told = self
                .compare(io, transfers, &proposals, [direction, attempt])
                .await?;
            let taken = self.end.take(&mut course, &proposals, &told);
            // PSSL-8.
            taken.map_err(|Fault| {
                Abort::cheated(self.peer, "an edge joins a row that does not exist")
            })?;
        }
        Ok(())
    }

    async fn closest(
        &mut self,
        io: &Io,
        transfers: &mut Transfers,
        role: Role,
        direction: u32,
    ) -> Result<Course, Abort> {
        let job = self.end.job();
        let clusters = job.clusters;
        let order = match role {
            Role::Proposes => self.end.propose(),
            Role::Answers => (0..clusters).collect(),
        };
        let end = &self.end;
        // Product l·L + t is that of the proposer's cluster at place l and the other's cluster t.
        let at = |l: usize, t: usize| match role {
            Role::Proposes => order[l],
            Role::Answers => t,
        };
        let places = (0..clusters).flat_map(|l| (0..clusters).map(move |t| (l, t)));
        let rows: Vec<Option<&[u8]>> = places.map(|(l, t)| Some(end.centre(at(l, t)))).collect();
        let words = self.words(io, transfers, &rows).await?;
        let inputs = circuits::inputs(&words, clusters, job.width(), None);
        let circuit = Arc::clone(&self.circuits.closest);
        // The end that answers learns the outputs.
        let for_garbler = (role == Role::Answers) == (self.me < self.peer);
        let audience = if for_garbler {
            Audience::Garbler
        } else {
            Audience::Evaluator
        };
        let tag = format!("closest clusters {direction}");
        // One cluster is the closest without a circuit.
        let outputs = if clusters == 1 {
            Zeroizing::new(vec![0])
        } else {
            self.garble(io, transfers, &tag, circuit, inputs, audience)
                .await?
        };
        let own = match role {
            Role::Proposes => order,
            Role::Answers => outputs
                .iter()
                .map(|t| usize::try_from(*t).unwrap_or(usize::MAX))
                .collect(),
        };
        // PSSL-9.
        if own.len() != clusters || own.iter().any(|cluster| *cluster >= clusters) {
            return Err(Abort::cheated(
                self.peer,
                "its circuit names a cluster that does not exist",
            ));
        }
        Ok(self.end.course(own))
    }

    async fn compare(
        &self,
        io: &Io,
        transfers: &mut Transfers,
        proposals: &[Proposal],
        [direction, attempt]: [u32; 2],
    ) -> Result<Vec<Option<u64>>, Abort> {
        let rows: Vec<Option<&[u8]>> = proposals
            .iter()
            .map(|(_, row)| row.map(|row| self.end.row(row)))
            .collect();
        let words = self.words(io, transfers, &rows).await?;
        let real: Vec<bool> = rows.iter().map(Option::is_some).collect();
        let inputs = circuits::inputs(&words, 1, self.end.job().width(), Some(&real));
        let circuit = Arc::clone(&self.circuits.accept);
        let tag = format!("edges {direction} {attempt}");
        let outputs = self
            .garble(io, transfers, &tag, circuit, inputs, Audience::Both)
            .await?;
        Ok(outputs
            .iter()
            .map(|output| circuits::told(*output))
            .collect())
    }

    /// This end's words of the squared distances of its rows to the other end's: both ends' words
    /// add up to |x|² + |y|² − 2⟨x, y⟩ modulo 2^w.
    async fn words(
        &self,
        io: &Io,
        transfers: &mut Transfers,
        rows: &[Option<&[u8]>],
    ) -> Result<Wiped<u64>, Abort> {
        let job = self.end.job();
        let shape = Shape::new(job);
        let shares = match transfers {
            Transfers::Sends(sending) => product::send(io, sending, shape, rows).await?,
            Transfers::Receives(receiving) => product::receive(io, receiving, shape, rows).await?,
        };
        let mask = (1u64 << job.width()) - 1;
        let word = |(row, share): (&Option<&[u8]>, &u64)| {
            let squares = row
                .iter()
                .flat_map(|row| row.iter().map(|v| u64::from(*v).pow(2)));
            squares.sum::<u64>().wrapping_sub(2 * share) & mask
        };
        let mut words = Wiped::with_capacity(rows.len());
        words.extend(rows.iter().zip(shares.iter()).map(word));
        Ok(words)
    }

    async fn garble(
        &self,
        io: &Io,
        transfers: &mut Transfers,
        tag: &str,
        circuit: Arc<Circuit>,
        inputs: undertone_kernel::BitMatrix,
        audience: Audience,
    ) -> Result<Zeroizing<Vec<u64>>, Abort> {
        let rules = garble::Rules {
            context: self.context(tag),
            field: field(),
            circuit,
            instances: inputs.rows(),
            audience,
        };
        match transfers {
            Transfers::Sends(sending) => {
                let seed = self.seed.expand(self.context, "garbling", tag.as_bytes());
                garble_over(io, rules, sending, inputs, seed).await
            }
            Transfers::Receives(receiving) => evaluate_over(io, rules, receiving, inputs).await,
        }
    }
}
