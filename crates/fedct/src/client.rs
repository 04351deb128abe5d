//! A client's side of a job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_garble::{self as garble, Audience, GARBLING};
use undertone_kdf::Seed;
use undertone_kernel::pack::{pack, packed_len};
use undertone_kernel::{BitMatrix, Wiped};
use undertone_party::{Abort, Io, PartyId, Script, SessionId};
use undertone_setup::group::{self, Secrecy};
use undertone_setup::identity::Credentials;
use undertone_setup::seal::Channel;
use undertone_sum::{self as sum, Trust};
use zeroize::Zeroizing;

use crate::ballots::{Labels, labels_len, read_labels};
use crate::data::{Data, Public};
use crate::job::{Job, Votes, derive};
use crate::learner::{Learner, LearnerError};
use crate::memory::{Keep, Memory};
use crate::messages::{Kind, Opening, Plan};
use crate::noise::Noise;
use crate::server::ballot_bits;
use crate::slices::{self, Slices};
use crate::{CONSENSUS, SLICES, VOTES};

const SERVER: PartyId = PartyId::SERVER;

/// A client of a job: its learner, its data, and its memory between sessions.
#[derive(Debug, Clone)]
pub struct Client(Arc<Shared>);

/// The state that the parties of a client's sessions share. A party of an earlier session may still
/// run when the next one begins.
#[derive(Debug)]
struct Shared {
    desk: Mutex<Desk>,
    /// The number of parties created. Only the last one may use the desk.
    parties: AtomicU64,
}

struct Desk {
    learner: Box<dyn Learner>,
    data: Data,
    public: Arc<Public>,
    memory: Memory,
    keep: Keep,
    /// The last two exchanges whose consensus the client has, and the consensus.
    known: Vec<(u32, Labels)>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("data", &self.data)
            .field("public", &self.public)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// A client's place in a session.
#[derive(Debug)]
pub struct Place {
    /// The session.
    pub session: SessionId,
    /// The client.
    pub me: PartyId,
    /// The client's randomness.
    pub seed: Seed,
    /// With credentials the client signs its keys and checks all signatures.
    pub credentials: Option<Credentials>,
    /// Whether the client takes part where a consensus needs all votes and so tells them.
    pub allow_unanimous: bool,
}

/// The result of a session for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An exchange is finished.
    Voted {
        /// Its number, from 1.
        number: u32,
        /// The consensus.
        labels: Labels,
    },
    /// The job is over. The learner has learned from the client's rows and from this consensus.
    Over(Option<Labels>),
}

impl Client {
    /// A client with this learner and these rows. `memory` is what `keep` kept in an earlier
    /// process, or a new one.
    pub fn new(
        learner: Box<dyn Learner>,
        data: Data,
        public: Arc<Public>,
        memory: Memory,
        keep: Keep,
    ) -> Self {
        let desk = Desk {
            learner,
            data,
            public,
            memory,
            keep,
            known: Vec::new(),
        };
        Self(Arc::new(Shared {
            desk: Mutex::new(desk),
            parties: AtomicU64::new(0),
        }))
    }

    /// Checks that the client's rows and the public rows fit a job.
    ///
    /// # Errors
    /// What differs, and what to do.
    pub fn check(&self, job: &Job) -> Result<(), String> {
        lock(&self.0.desk).fits(job)
    }

    /// The number of the last exchange in which the client voted.
    pub fn last(&self) -> u32 {
        lock(&self.0.desk).memory.last
    }

    /// Uses the learner. Waits while a session uses it.
    pub fn with_learner<T>(&self, use_it: impl FnOnce(&mut dyn Learner) -> T) -> T {
        use_it(&mut *lock(&self.0.desk).learner)
    }

    /// The client's party in a session of `job`. Parties of earlier sessions can do nothing more.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the job is impossible, or the client's rows do not fit it.
    pub fn party(&self, job: Job, place: Place) -> Result<Script<'static, Step>, Abort> {
        job.check().map_err(Abort::Misuse)?;
        if job.trust == Trust::MaliciousServer && place.credentials.is_none() {
            return Err(Abort::Misuse(
                "a job against a malicious server needs clients with credentials".into(),
            ));
        }
        let party = self.0.parties.fetch_add(1, Ordering::SeqCst) + 1;
        self.desk(party)?.fits(&job).map_err(Abort::Misuse)?;
        // Boxed: a future that moves leaves no copies of the secrets behind.
        let session = Box::new(Session {
            client: self.clone(),
            party,
            job,
            place,
        });
        Ok(Script::new(CONSENSUS, move |io| session.run(io)))
    }

    /// The desk, for party number `party`.
    fn desk(&self, party: u64) -> Result<MutexGuard<'_, Desk>, Abort> {
        let desk = lock(&self.0.desk);
        if self.0.parties.load(Ordering::SeqCst) == party {
            Ok(desk)
        } else {
            Err(Abort::Misuse("another session has begun".into()))
        }
    }
}

impl Desk {
    fn fits(&self, job: &Job) -> Result<(), String> {
        let (own, public) = (self.data.rows(), self.public.rows());
        let pairs = [
            ("features of the client's rows", own.dim, job.features),
            ("features of the public rows", public.dim, job.features),
            ("public rows", public.len(), job.rows),
        ];
        for (what, have, due) in pairs {
            if have != due {
                return Err(format!("{what}: {have}, the job has {due}"));
            }
        }
        if self.public.digest() != job.public {
            return Err(
                "the public rows differ from the job's, or their order does; ask for the job's \
                 file"
                    .into(),
            );
        }
        Ok(())
    }

    /// Learns from the client's rows and the consensus.
    fn learn(&mut self, labels: Option<&Labels>) -> Result<(), LearnerError> {
        let none = Vec::new();
        let (values, classes) = self.data.with(&self.public, labels.unwrap_or(&none));
        let rows = crate::Rows {
            dim: self.public.rows().dim,
            values: &values,
        };
        self.learner.fit(rows, &classes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(error: LearnerError) -> Abort {
    Abort::Misuse(error.to_string())
}

fn cheated<T>(fault: &str) -> Result<T, Abort> {
    Err(Abort::cheated(SERVER, fault))
}

/// One session of a client.
struct Session {
    client: Client,
    party: u64,
    job: Job,
    place: Place,
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
    fn desk(&self) -> Result<MutexGuard<'_, Desk>, Abort> {
        self.client.desk(self.party)
    }

    async fn run(self: Box<Self>, io: Io) -> Result<Step, Abort> {
        // docs/spec/cotraining.md, step 1: what the session is for.
        let message = io.require(SERVER).await?;
        let opening = Opening::read(&message, &self.job).map_err(Abort::malformed(SERVER))?; // FEDCT-1
        // FEDCT-2.
        if opening.members.binary_search(&self.place.me).is_err() {
            return cheated("its set of members leaves this client out");
        }
        self.check_labels(&opening)?;
        let labels = opening.labels.as_ref();
        match opening.kind {
            Kind::Exchange => {
                self.begin(&opening)?;
                let context = self.job.context(self.place.session, &message);
                drop(message);
                let labels = self.exchange(&io, context, &opening).await?;
                let mut desk = self.desk()?;
                let oldest = desk.known.len().saturating_sub(1);
                desk.known.drain(..oldest);
                desk.known.push((opening.number, labels.clone()));
                drop(desk);
                Ok(Step::Voted {
                    number: opening.number,
                    labels,
                })
            }
            Kind::Over => {
                // Step 11: the final learner.
                self.desk()?.learn(labels).map_err(broken)?;
                Ok(Step::Over(opening.labels))
            }
        }
    }

    /// FEDCT-11: a client that has the consensus of the exchange before this one gets it again. A
    /// server that was killed may have lost it, and continues from the one before.
    fn check_labels(&self, opening: &Opening) -> Result<(), Abort> {
        let desk = self.desk()?;
        let before = match opening.kind {
            Kind::Exchange => opening.number.saturating_sub(1),
            Kind::Over => opening.number,
        };
        let has_it = desk
            .known
            .last()
            .is_some_and(|(number, _)| *number == before);
        let mut known = desk.known.iter().map(|(_, labels)| Some(labels));
        let is_first = desk.known.len() == 1 && opening.labels.is_none();
        if has_it && !is_first && !known.any(|labels| labels == opening.labels.as_ref()) {
            return cheated("its consensus is not that of the last exchange");
        }
        Ok(())
    }

    /// Refuses a quorum that makes a consensus tell all votes (FEDCT-12).
    fn check_quorum(&self, contributors: usize) -> Result<(), Abort> {
        if !self.place.allow_unanimous && self.job.needs_all(contributors) {
            return Err(Abort::Misuse(format!(
                "{} of {contributors} clients is all of them: every row with a consensus would \
                 tell everybody's vote; lower the quorum, or allow it",
                self.job.consensus
            )));
        }
        Ok(())
    }

    /// Notes that the client votes in this exchange.
    fn begin(&self, opening: &Opening) -> Result<(), Abort> {
        let members = opening.members.len();
        // With clear votes and counts the contributors are known too late to refuse.
        let fewest = match self.job.votes {
            Votes::Clear | Votes::Counts => self.job.min_clients.min(members),
            Votes::Winners => members,
        };
        (fewest..=members).try_for_each(|contributors| self.check_quorum(contributors))?;
        let mut desk = self.desk()?;
        let desk = &mut *desk;
        let mut now = desk.memory.clone();
        // FEDCT-5: the noise of a vote protects one vote.
        if !now.takes(&self.job, opening.number) {
            return cheated("it starts an exchange that is over, or that the job does not have");
        }
        (desk.keep)(&now).map_err(Abort::Misuse)?;
        desk.memory = now;
        Ok(())
    }

    /// Step 2: learns, and votes for each public row.
    fn vote(&self, context: SessionId, labels: Option<&Labels>) -> Result<BitMatrix, Abort> {
        let mut desk = self.desk()?;
        desk.learn(labels).map_err(broken)?;
        let votes = desk.learner.predict(desk.public.rows()).map_err(broken)?;
        let votes = Wiped::from(votes);
        let job = &self.job;
        let is_class = |vote: &u16| usize::from(*vote) < job.classes;
        if votes.len() != job.rows || !votes.iter().all(is_class) {
            return Err(Abort::Misuse(format!(
                "the learner must predict one of {} classes for each of {} rows",
                job.classes, job.rows
            )));
        }
        let seed = derive(&self.place.seed, context, "vote noise", self.place.me);
        Ok(job.noise.ballots(&votes, job.classes, &seed))
    }

    async fn exchange(
        &self,
        io: &Io,
        context: SessionId,
        opening: &Opening,
    ) -> Result<Labels, Abort> {
        let (job, me) = (&self.job, self.place.me);
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
                    ..sum::Input::plain(Vec::new()).with_credentials(self.place.credentials.clone())
                };
                let rules = job.sum(context, 0, layout.words());
                let seed = derive(&self.place.seed, context, "vote sum", me);
                io.run(sum::client(rules, me, input, seed)?).await?;
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
        let (job, me, own) = (&self.job, self.place.me, &self.place.seed);

        // Step 4: the clients' pair channels, from which masks come.
        let rules = group::Rules {
            session: context,
            secrecy: Secrecy::Sealed,
            min_clients: job.min_clients,
        };
        let seed = derive(own, context, "pairs", me);
        let credentials = self.place.credentials.clone();
        let setup = group::client(rules, me, Vec::new(), credentials, seed)?;
        let group = io.run(setup).await?;
        let pairs = Pairs {
            context,
            me,
            channels: group.channels,
            own: derive(own, context, "own masks", me),
        };
        let mut voters: Vec<PartyId> = group.members.iter().map(|member| member.id).collect();
        let slices = Slices::new(job.layout(opening.members.len()), voters.len());

        // Step 5: sums of masked votes, until every slice has a helper that is still there.
        let mut helped: Vec<Helped> = Vec::new();
        let mut before: Option<Plan> = None;
        for attempt in 0.. {
            io.phase(SLICES).await;
            let message = io.require(SERVER).await?;
            let plan = Plan::read(&message, slices.count).map_err(Abort::malformed(SERVER))?; // FEDCT-6
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
            if plan.0.is_empty() {
                break;
            }
            let mut words = slices.gather(&plan, &votes);
            pairs.hide(&slices, &plan, attempt, &mut words);
            let input = sum::Input {
                words: sum::Words::Ready(Zeroizing::new(words.into_inner())),
                ..sum::Input::plain(Vec::new()).with_credentials(self.place.credentials.clone())
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
    /// before it, with other helpers that still vote. This client is not replaced while it is there.
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
                    && earlier.is_some_and(|earlier| earlier != *helper && earlier != self.place.me)
            }),
        };
        if !is_possible {
            return cheated("its plan names a slice that has a helper, or a helper that is none");
        }
        Ok(())
    }
}

/// The secrets of pairs of clients, from which masks come.
struct Pairs {
    context: SessionId,
    me: PartyId,
    channels: BTreeMap<PartyId, Channel>,
    /// For the masks of a client in a slice that it helps with itself.
    own: Seed,
}

impl Pairs {
    /// The seed of the mask of `voter` in a slice of `helper`. This client is one of them.
    fn seed(&self, voter: PartyId, helper: PartyId, slice: usize, attempt: u32) -> Option<Seed> {
        let ids = [voter.to_wire(), helper.to_wire(), slice as u32, attempt];
        let other = if voter == self.me { helper } else { voter };
        if other == self.me {
            return Some(self.own.derive(self.context, "vote mask", &ids));
        }
        let channel = self.channels.get(&other)?;
        Some(channel.export(self.context, "vote mask", &ids))
    }

    /// Takes this client's masks off its words.
    fn hide(&self, slices: &Slices, plan: &Plan, attempt: u32, words: &mut [u64]) {
        let mut words = words.iter_mut();
        for (slice, helper) in &plan.0 {
            let slice = *slice as usize;
            let seed = self.seed(self.me, *helper, slice, attempt);
            let Some(seed) = seed else {
                unreachable!("a plan names members of the group");
            };
            for (mask, word) in slices.mask(slice, &seed).zip(words.by_ref()) {
                *word = word.wrapping_sub(mask);
            }
        }
    }

    /// The sum of the masks of `contributors` in a slice that this client helps with.
    fn masks(
        &self,
        slices: &Slices,
        slice: usize,
        attempt: u32,
        contributors: &[PartyId],
    ) -> Wiped<u64> {
        let mut sum = Wiped::from(vec![0u64; slices.words(slice)]);
        for voter in contributors {
            let seed = self.seed(*voter, self.me, slice, attempt);
            let Some(seed) = seed else {
                unreachable!("contributors are members of the group");
            };
            for (to, mask) in sum.iter_mut().zip(slices.mask(slice, &seed)) {
                *to = to.wrapping_add(mask);
            }
        }
        sum
    }
}
