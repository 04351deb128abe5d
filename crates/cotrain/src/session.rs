//! One session of a client: an exchange, or the end of the job.

use std::sync::Arc;

use undertone_garble::{self as garble, Audience, GARBLING};
use undertone_job::record::{self, Claim};
use undertone_job::{Job as _, SessionContext, Turn};
use undertone_kernel::pack::{pack, packed_len};
use undertone_kernel::{BitMatrix, Wiped};
use undertone_party::{Abort, Io, PartyId, SessionId};
use undertone_setup::group::{self, Secrecy};
use undertone_setup::roster::enough;
use undertone_sum as sum;
use zeroize::Zeroizing;

use crate::ballots::{Labels, labels_len, read_labels};
use crate::client::{ClientState, Step};
use crate::job::{Job, Votes, derive};
use crate::learner::LearnerError;
use crate::messages::{Kind, Opening, Plan};
use crate::noise::Noise;
use crate::server::ballot_bits;
use crate::slices::{self, Pairs, Slices};
use crate::{CONSENSUS, SLICES, VOTES};

const SERVER: PartyId = PartyId::SERVER;

fn broken(error: LearnerError) -> Abort {
    Abort::Misuse(error.to_string())
}

fn cheated<T>(fault: &str) -> Result<T, Abort> {
    Err(Abort::cheated(SERVER, fault))
}

/// FEDCT-13: only clients of the opening vote. Counters and quorums are made for them.
fn check_invited(voters: &[PartyId], opening: &Opening) -> Result<(), Abort> {
    let is_invited = |who: &PartyId| opening.members.binary_search(who).is_ok();
    if voters.iter().all(is_invited) {
        return Ok(());
    }
    cheated("a client votes that its opening did not name")
}

/// One session of a client.
pub(crate) struct Session {
    pub(crate) turn: Turn<ClientState>,
    pub(crate) job: Job,
    pub(crate) at: SessionContext,
    pub(crate) allow_unanimous: bool,
}

/// A slice for which this client garbles.
struct Helped {
    slice: usize,
    attempt: u32,
    needed: usize,
    /// The sum of the contributors' masks.
    words: Wiped<u64>,
}

impl Session {
    pub(crate) async fn run(self: Box<Self>, io: Io) -> Result<Step, Abort> {
        // docs/spec/cotraining.md, step 1: what the session is for.
        let message = io.require(SERVER).await?;
        // FEDCT-1.
        let opening = Opening::read(&message, &self.job).map_err(Abort::malformed(SERVER))?;
        // FEDCT-2.
        if opening.members.binary_search(&self.at.me).is_err() {
            return cheated("its set of members leaves this client out");
        }
        self.check_labels(&opening)?;
        let labels = opening.labels.as_ref();
        match opening.kind {
            Kind::Exchange => {
                self.begin(&opening)?;
                let context = self.job.context(self.at.id, &message);
                drop(message);
                let labels = self.exchange(&io, context, &opening).await?;
                let mut state = self.turn.lock()?;
                let oldest = state.known.len().saturating_sub(1);
                state.known.drain(..oldest);
                state.known.push((opening.number, labels.clone()));
                drop(state);
                Ok(Step::Voted {
                    number: opening.number,
                    labels,
                })
            }
            Kind::Over => {
                // Step 11: the final learner.
                self.turn.lock()?.inputs.learn(labels).map_err(broken)?;
                Ok(Step::Over(opening.labels))
            }
        }
    }

    /// FEDCT-11: a client that has the consensus of the exchange before this one gets it again. A
    /// server that was killed may have lost it, and continues from the one before.
    fn check_labels(&self, opening: &Opening) -> Result<(), Abort> {
        let state = self.turn.lock()?;
        let before = match opening.kind {
            Kind::Exchange => opening.number.saturating_sub(1),
            Kind::Over => opening.number,
        };
        let has_it = state
            .known
            .last()
            .is_some_and(|(number, _)| *number == before);
        let mut known = state.known.iter().map(|(_, labels)| Some(labels));
        let is_first = state.known.len() == 1 && opening.labels.is_none();
        if has_it && !is_first && !known.any(|labels| labels == opening.labels.as_ref()) {
            return cheated("its consensus is not that of the last exchange");
        }
        Ok(())
    }

    /// Refuses a quorum that makes a consensus tell all votes (FEDCT-12).
    fn check_quorum(&self, contributors: usize) -> Result<(), Abort> {
        if !self.allow_unanimous && self.job.needs_all(contributors) {
            return Err(Abort::Misuse(format!(
                "{} of {contributors} clients is all of them: every row with a consensus would \
                 tell everybody's vote; lower the quorum, or allow it",
                self.job.consensus
            )));
        }
        Ok(())
    }

    /// Claims the client's vote in this exchange.
    fn begin(&self, opening: &Opening) -> Result<(), Abort> {
        let members = opening.members.len();
        enough(members, self.job.min_clients)?;
        self.job.check_clients(members)?;
        self.job
            .possible(members)
            .try_for_each(|contributors| self.check_quorum(contributors))?;
        let number = opening.number;
        let over = "it starts an exchange that is over, or that the job does not have";
        if number > self.job.exchanges {
            return cheated(over);
        }
        // FEDCT-5: the noise of a vote protects one vote.
        let record = &self.at.record;
        let last = record.last_vote().unwrap_or(0);
        let claims = record.session(&record::Place {
            session: self.at.id,
            seed: &self.at.seed,
            job: self.job.digest(),
        });
        match claims.claim(Claim::Vote(number)) {
            Ok(()) => Ok(()),
            Err(refusal) if refusal.what().is_none() && number <= last => cheated(over),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Step 2: learns, and votes for each public row.
    fn vote(&self, context: SessionId, labels: Option<&Labels>) -> Result<BitMatrix, Abort> {
        let mut state = self.turn.lock()?;
        state.inputs.learn(labels).map_err(broken)?;
        let votes = state.inputs.predict().map_err(broken)?;
        let votes = Wiped::from(votes);
        let job = &self.job;
        let is_class = |vote: &u16| usize::from(*vote) < job.classes;
        if votes.len() != job.rows || !votes.iter().all(is_class) {
            return Err(Abort::Misuse(format!(
                "the learner must predict one of {} classes for each of {} rows",
                job.classes, job.rows
            )));
        }
        let seed = derive(&self.at.seed, context, "vote noise", self.at.me);
        Ok(job.noise.ballots(&votes, job.classes, &seed))
    }

    async fn exchange(
        &self,
        io: &Io,
        context: SessionId,
        opening: &Opening,
    ) -> Result<Labels, Abort> {
        let (job, me) = (&self.job, self.at.me);
        io.phase(VOTES).await;
        let ballots = self.vote(context, opening.labels.as_ref())?;

        // Step 3: clear votes, or word that the client has voted.
        match job.votes {
            Votes::Clear => io.send(SERVER, self.clear(&ballots)),
            _ => io.send(SERVER, &[]),
        }
        let layout = job.layout(opening.members.len());
        match job.votes {
            Votes::Clear => {}
            Votes::Counts => {
                // Step 4, for counts: the sum of all votes.
                let words = Zeroizing::new(layout.encode(&ballots).into_inner());
                let input = sum::Input {
                    words: sum::Words::Ready(words),
                    ..sum::Input::plain(Vec::new()).with_credentials(self.at.credentials.clone())
                };
                let rules = job.sum(context, 0, layout.words());
                let seed = derive(&self.at.seed, context, "vote sum", me);
                let sums = io.run(sum::client(rules, me, input, seed)?).await?;
                check_invited(&sums.contributors, opening)?;
            }
            Votes::Winners => {
                self.winners(io, context, layout.encode(&ballots), opening)
                    .await?
            }
        }

        // Step 9: the consensus.
        io.phase(CONSENSUS).await;
        let message = io.require(SERVER).await?;
        // FEDCT-10.
        let malformed = |what| Abort::Malformed { from: SERVER, what };
        let due = labels_len(job.rows, job.classes);
        if message.len() != due {
            let what = format!("a consensus of {} bytes, {due} are due", message.len());
            return Err(malformed(what));
        }
        let labels = read_labels(&message, job.rows, job.classes);
        labels.ok_or_else(|| malformed("a consensus with a label that is no class".into()))
    }

    fn clear(&self, ballots: &BitMatrix) -> Vec<u8> {
        let classes = 0..ballots.columns();
        let bits = |row: usize| classes.clone().map(move |class| ballots.get(row, class));
        let rows = 0..ballots.rows();
        let values: Vec<u16> = match self.job.noise {
            Noise::Xor { .. } => rows.flat_map(bits).map(u16::from).collect(),
            _ => rows
                .map(|row| bits(row).position(|bit| bit).unwrap_or(0) as u16)
                .collect(),
        };
        let width = ballot_bits(&self.job);
        let mut message = Vec::with_capacity(packed_len(width, values.len()));
        pack(width, &values, &mut message);
        message
    }

    async fn winners(
        &self,
        io: &Io,
        context: SessionId,
        votes: Wiped<u64>,
        opening: &Opening,
    ) -> Result<(), Abort> {
        let (job, me, own) = (&self.job, self.at.me, &self.at.seed);

        // Step 4: the clients' pair channels, from which masks come.
        let rules = group::Rules {
            session: context,
            secrecy: Secrecy::Sealed,
            min_clients: job.min_clients,
        };
        let seed = derive(own, context, "pairs", me);
        let credentials = self.at.credentials.clone();
        let setup = group::client(rules, me, Vec::new(), credentials, seed)?;
        let group = io.run(setup).await?;
        let own_masks = derive(own, context, "own masks", me);
        let pairs = Pairs::new(context, me, group.channels, own_masks);
        let mut voters: Vec<PartyId> = group.members.iter().map(|member| member.id).collect();
        check_invited(&voters, opening)?;
        let slices = Slices::new(job.layout(opening.members.len()), voters.len());

        // Step 5: sums of masked votes, until every slice has a helper that is still there.
        let mut helped: Vec<Helped> = Vec::new();
        let mut before: Option<Plan> = None;
        for attempt in 0.. {
            io.phase(SLICES).await;
            let message = io.require(SERVER).await?;
            // FEDCT-6.
            let plan = Plan::read(&message, slices.count).map_err(Abort::malformed(SERVER))?;
            // A helper that is replaced has dropped out: it votes no more, and helps no more.
            if let Some(before) = &before {
                let replaced = plan
                    .0
                    .iter()
                    .map(|(slice, _)| before.helper(*slice as usize));
                let replaced: Vec<PartyId> = replaced.flatten().collect();
                voters.retain(|who| !replaced.contains(who));
            }
            self.check_plan(&plan, before.as_ref(), slices.count, &voters)?;
            let mut words = slices.gather(&plan, &votes);
            pairs.hide(&slices, &plan, attempt, &mut words);
            let input = sum::Input {
                words: sum::Words::Ready(Zeroizing::new(words.into_inner())),
                ..sum::Input::plain(Vec::new()).with_credentials(self.at.credentials.clone())
            };
            let rules = job.sum(plan.context(context, attempt), attempt, slices.len(&plan));
            let seed = own.derive(context, "vote sum", &[me.to_wire(), attempt]);
            let sums = io.run(sum::client(rules, me, input, seed)?).await?;
            // FEDCT-8: the same votes are summed over the same or fewer clients.
            let contributors = sums.contributors;
            if !contributors
                .iter()
                .all(|who| voters.binary_search(who).is_ok())
            {
                return cheated("its set of contributors has grown");
            }
            if plan.0.is_empty() {
                break;
            }
            self.check_quorum(contributors.len())?;
            let needed = job
                .consensus
                .needed(contributors.len(), job.noise, job.classes);
            for (slice, helper) in &plan.0 {
                if *helper == me {
                    let slice = *slice as usize;
                    helped.push(Helped {
                        slice,
                        attempt,
                        needed,
                        words: pairs.masks(&slices, slice, attempt, &contributors),
                    });
                }
            }
            voters = contributors;
            before = Some(plan);

            // Step 6: ready to help.
            io.phase(SLICES).await;
            io.send(SERVER, &[]);
        }
        drop((votes, pairs));

        // Step 7: the circuits of the slices that this client helps with.
        io.phase(GARBLING).await;
        helped.sort_by_key(|helped| helped.slice);
        for Helped {
            slice,
            attempt,
            needed,
            words,
        } in helped
        {
            let inputs = slices.layout.inputs(&words);
            let rules = garble::Rules {
                context: slices::context(context, attempt, slice, me),
                field: slices::field(),
                circuit: Arc::new(slices.layout.circuit(needed)),
                instances: inputs.rows(),
                audience: Audience::Evaluator,
            };
            let seed = own.derive(context, "garbling", &[me.to_wire(), slice as u32, attempt]);
            garble::party::garble(io, rules, SERVER, inputs, seed).await?;
        }
        Ok(())
    }

    /// FEDCT-7: slice i of the first plan is that of voter i. A later plan has slices of the plan
    /// before it, with other helpers that still vote. This client is not replaced while it is
    /// there.
    fn check_plan(
        &self,
        plan: &Plan,
        before: Option<&Plan>,
        slices: usize,
        voters: &[PartyId],
    ) -> Result<(), Abort> {
        let is_possible = match before {
            None => *plan == Plan::first(voters, slices),
            Some(before) => plan.0.iter().all(|(slice, helper)| {
                let earlier = before.helper(*slice as usize);
                voters.binary_search(helper).is_ok()
                    && earlier.is_some_and(|earlier| earlier != *helper && earlier != self.at.me)
            }),
        };
        if !is_possible {
            return cheated("its plan names a slice that has a helper, or a helper that is none");
        }
        Ok(())
    }
}
