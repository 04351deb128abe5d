//! One session of the server: an exchange, or the end of the job.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone_garble::{self as garble, Audience, Circuit, GARBLING};
use undertone_job::SessionContext;
use undertone_kernel::BitMatrix;
use undertone_kernel::pack::{packed_len, unpack};
use undertone_party::script::try_join_all;
use undertone_party::{Abort, Io, PartyId, Script, SessionId};
use undertone_setup::group::{self, Secrecy};
use undertone_setup::roster::enough;
use undertone_sum as sum;
use zeroize::Zeroizing;

use crate::ballots::{Labels, write_labels};
use crate::job::{Job, Votes};
use crate::messages::{Kind, Opening, Plan};
use crate::noise::Noise;
use crate::slices::{self, Slices};
use crate::state::{Exchange, Report, State};
use crate::{CONSENSUS, SLICES, VOTES};

/// The server of one session.
pub(crate) struct Session {
    pub(crate) job: Job,
    pub(crate) at: SessionContext,
    /// The clients of the session, in ascending order.
    pub(crate) members: Vec<PartyId>,
}

/// The result of counting.
struct Counted {
    labels: Labels,
    contributors: Vec<PartyId>,
    /// The clients that are still there.
    present: Vec<PartyId>,
    /// The number of rows that lost their helper.
    lost: usize,
}

impl Session {
    /// The server's party in the session that has [begun](State::begin). `is_over` says whether all
    /// exchanges were over before it began.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the job is impossible.
    pub(crate) fn party(
        self,
        state: &State,
        is_over: bool,
    ) -> Result<Script<'static, Report>, Abort> {
        self.job.check().map_err(Abort::Final)?;
        if !is_over {
            self.job.check_clients(self.members.len())?;
        }
        let opening = Opening {
            kind: if is_over { Kind::Over } else { Kind::Exchange },
            number: state.begun,
            members: self.members.clone(),
            labels: state.labels.clone(),
        };
        let this = Box::new(self);
        Ok(Script::new(CONSENSUS, move |io| async move {
            // docs/spec/cotraining.md, step 1: what the session is for.
            let message = opening.write(&this.job);
            io.send_to_all(&this.members, message.clone());
            match opening.kind {
                Kind::Over => Ok(Report::Over),
                Kind::Exchange => this.exchange(io, opening.number, &message).await,
            }
        }))
    }

    async fn exchange(&self, io: Io, number: u32, opening: &[u8]) -> Result<Report, Abort> {
        let job = &self.job;
        let context = job.context(self.at.id, opening);

        // Step 3: the clients have learned, and voted. With clear votes their messages are votes.
        io.phase(VOTES).await;
        let heard = io.recv_all(&self.members).await;
        let voted = heard
            .into_iter()
            .filter_map(|(who, message)| Some((who, message?)));
        let voted: BTreeMap<PartyId, _> = voted.collect();
        enough(voted.len(), job.min_clients)?;
        let counted = match job.votes {
            Votes::Clear => {
                let mut sum = vec![0u64; job.layout(self.members.len()).words()];
                for (who, message) in &voted {
                    let words = self.read_ballots(*who, message)?;
                    sum.iter_mut().zip(words).for_each(|(to, word)| *to += word);
                }
                self.count(&sum, voted.into_keys().collect())
            }
            Votes::Counts | Votes::Winners => {
                for (who, message) in &voted {
                    // FEDCT-4.
                    if !message.is_empty() {
                        let what = "a message that is not empty after its votes".into();
                        return Err(Abort::Malformed { from: *who, what });
                    }
                }
                let voters = voted.into_keys().collect();
                match job.votes {
                    Votes::Counts => self.counts(&io, context, voters).await?,
                    _ => self.winners(&io, context, voters).await?,
                }
            }
        };

        // Step 9: the consensus, to all.
        io.phase(CONSENSUS).await;
        let labels = counted.labels;
        io.send_to_all(&counted.present, write_labels(&labels, job.classes));
        let exchange = Exchange {
            number,
            covered: labels.iter().flatten().count(),
            contributors: counted.contributors,
            lost: counted.lost,
        };
        Ok(Report::Voted(exchange, labels))
    }

    /// FEDCT-3: the words of a client's clear votes.
    fn read_ballots(&self, from: PartyId, message: &[u8]) -> Result<Vec<u64>, Abort> {
        let job = &self.job;
        let malformed = |what: String| Abort::Malformed { from, what };
        let votes = job.rows
            * if matches!(job.noise, Noise::Xor { .. }) {
                job.classes
            } else {
                1
            };
        let width = ballot_bits(job);
        if message.len() != packed_len(width, votes) {
            return Err(malformed(format!(
                "votes of {} bytes, {} are due",
                message.len(),
                packed_len(width, votes)
            )));
        }
        let mut values = vec![0u16; votes];
        unpack(width, message, &mut values);
        let mut ballots = BitMatrix::zero(job.rows, job.classes);
        for (at, value) in values.into_iter().enumerate() {
            match job.noise {
                Noise::Xor { .. } => {
                    ballots.set(at / job.classes, at % job.classes, value == 1);
                }
                _ if usize::from(value) < job.classes => ballots.set(at, value.into(), true),
                _ => return Err(malformed(format!("row {at}: a vote for class {value}"))),
            }
        }
        Ok(job.layout(self.members.len()).encode(&ballots).into_inner())
    }

    /// The labels of the sum of all words.
    fn count(&self, words: &[u64], contributors: Vec<PartyId>) -> Counted {
        let needed = self.needed(&contributors);
        let layout = self.job.layout(self.members.len());
        Counted {
            labels: layout.labels(words, needed),
            present: contributors.clone(),
            contributors,
            lost: 0,
        }
    }

    fn needed(&self, contributors: &[PartyId]) -> usize {
        let job = &self.job;
        job.consensus
            .needed(contributors.len(), job.noise, job.classes)
    }

    async fn counts(
        &self,
        io: &Io,
        context: SessionId,
        voters: Vec<PartyId>,
    ) -> Result<Counted, Abort> {
        // Step 4, for counts: the sum of all votes.
        let layout = self.job.layout(self.members.len());
        let rules = self.job.sum(context, 0, layout.words());
        let total = io.run(sum::server::<u64>(rules, voters)?).await?;
        Ok(self.count(&total.shared, total.contributors))
    }

    async fn winners(
        &self,
        io: &Io,
        context: SessionId,
        voters: Vec<PartyId>,
    ) -> Result<Counted, Abort> {
        let job = &self.job;

        // Step 4: the clients' pair channels, from which masks come.
        let rules = group::Rules {
            session: context,
            secrecy: Secrecy::Sealed,
            min_clients: job.min_clients,
        };
        let seed = self.at.seed.derive(context, "pairs", &[]);
        let admitted = io.run(group::server(rules, voters, seed)?).await?;
        let mut present: Vec<PartyId> = admitted.members.iter().map(|member| member.id).collect();
        drop(admitted);

        // Step 5: sums of masked votes, until every slice has a helper that is still there.
        let slices = Slices::new(job.layout(self.members.len()), present.len());
        let mut plan = Plan::first(&present, slices.count);
        let mut contributors = Vec::new();
        let mut ready: BTreeMap<PartyId, Vec<Slice>> = BTreeMap::new();
        for attempt in 0.. {
            io.phase(SLICES).await;
            io.send_to_all(&present, plan.write());
            let rules = job.sum(plan.context(context, attempt), attempt, slices.len(&plan));
            let total = io.run(sum::server::<u64>(rules, present)?).await?;
            if plan.0.is_empty() {
                present = total.contributors;
                break;
            }
            let needed = self.needed(&total.contributors);

            // Step 6: who is ready to help.
            io.phase(SLICES).await;
            present = Vec::with_capacity(total.contributors.len());
            for (who, message) in io.recv_all(&total.contributors).await {
                let Some(message) = message else { continue };
                // FEDCT-9.
                if !message.is_empty() {
                    let what = "a message that is not empty after a sum".into();
                    return Err(Abort::Malformed { from: who, what });
                }
                present.push(who);
            }
            enough(present.len(), job.min_clients)?;
            let mut orphans = Vec::new();
            for (number, helper, words) in slices.split(&plan, &total.shared) {
                if present.binary_search(&helper).is_err() {
                    orphans.push((number as u32, next_helper(&present, helper)));
                    continue;
                }
                ready.entry(helper).or_default().push(Slice {
                    number,
                    attempt,
                    needed,
                    words: words.to_vec(),
                });
            }
            plan = Plan(orphans);
            if attempt == 0 {
                contributors = total.contributors;
            }
        }

        // Steps 7 and 8: the circuits, of all helpers side by side.
        io.phase(GARBLING).await;
        let mut circuits: BTreeMap<usize, Arc<Circuit>> = BTreeMap::new();
        for slice in ready.values().flatten() {
            let circuit = || Arc::new(slices.layout.circuit(slice.needed));
            circuits.entry(slice.needed).or_insert_with(circuit);
        }
        let evaluated = ready.into_iter().map(|(helper, mine)| {
            let circuits = &circuits;
            self.evaluate(io, context, slices, circuits, helper, mine)
        });
        let (mut labels, mut lost) = (vec![None; job.rows], 0);
        for (slice, outputs) in try_join_all(evaluated).await?.into_iter().flatten() {
            for (i, block) in slices.blocks(slice).enumerate() {
                let output = outputs.as_ref().map(|outputs| outputs[i]);
                for (row, label) in slices.layout.decode(block, output.unwrap_or(0)) {
                    match output {
                        Some(_) => labels[row] = label,
                        None => lost += 1,
                    }
                }
            }
        }
        Ok(Counted {
            labels,
            contributors,
            present,
            lost,
        })
    }

    /// The outputs of the circuits of a helper's slices. None from where it drops out.
    async fn evaluate(
        &self,
        io: &Io,
        context: SessionId,
        slices: Slices,
        circuits: &BTreeMap<usize, Arc<Circuit>>,
        helper: PartyId,
        mut mine: Vec<Slice>,
    ) -> Result<Vec<Evaluated>, Abort> {
        mine.sort_by_key(|slice| slice.number);
        let mut evaluated = Vec::with_capacity(mine.len());
        let mut is_there = true;
        for slice in mine {
            if !is_there {
                evaluated.push((slice.number, None));
                continue;
            }
            let inputs = slices.layout.inputs(&slice.words);
            let rules = garble::Rules {
                context: slices::context(context, slice.attempt, slice.number, helper),
                field: slices::field(),
                circuit: Arc::clone(&circuits[&slice.needed]),
                instances: inputs.rows(),
                audience: Audience::Evaluator,
            };
            let ids = [slice.number as u32, slice.attempt];
            let seed = self.at.seed.derive(context, "evaluation", &ids);
            match garble::party::evaluate(io, rules, helper, inputs, seed).await {
                Ok(outputs) => evaluated.push((slice.number, Some(outputs))),
                Err(Abort::Left { who }) if who == helper => {
                    is_there = false;
                    evaluated.push((slice.number, None));
                }
                Err(abort) => return Err(abort),
            }
        }
        Ok(evaluated)
    }
}

/// A slice, and the outputs of its blocks unless its helper dropped out.
type Evaluated = (usize, Option<Zeroizing<Vec<u64>>>);

/// A slice whose helper is ready.
struct Slice {
    number: usize,
    attempt: u32,
    needed: usize,
    words: Vec<u64>,
}

/// The first of `present` after `helper`, in a circle.
fn next_helper(present: &[PartyId], helper: PartyId) -> PartyId {
    let after = present.partition_point(|who| *who <= helper);
    present[after % present.len()]
}

/// Bits of a value of clear votes: a class, or with bits flipped a bit.
pub(crate) fn ballot_bits(job: &Job) -> u32 {
    match job.noise {
        Noise::Xor { .. } => 1,
        _ => garble::index_bits(job.classes) as u32,
    }
}
