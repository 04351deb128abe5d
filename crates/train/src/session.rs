//! One session of a client: the census, a round, or the end of the job.

use std::sync::Arc;

use undertone_job::record::{self, Answering, Claim, Claims};
use undertone_job::{Job as _, SessionContext, Turn};
use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_label as label;
use undertone_label::input::names_digest;
use undertone_party::{Abort, Io, PartyId, SessionId};
use undertone_setup::group::{self, Secrecy};
use undertone_setup::identity::Credentials;
use undertone_sum::{self as sum, Audience, Rules, Shape, Wiring};
use zeroize::Zeroizing;

use crate::client::{ClientState, Step, Trained};
use crate::data::Data;
use crate::groups::{Counted, are_whole, deal};
use crate::job::{Job, PseudoLabels, Sampling};
use crate::messages::{
    Advertisement, Kind, Opening, digest, receive_model, same_names, write_groups,
};
use crate::model::{Examples, ModelError, Schedule, Target};
use crate::pseudo::{self, Directed};
use crate::state::{Census, Kept};
use crate::{MODEL, UPDATE};

const SERVER: PartyId = PartyId::SERVER;

const OTHER_JOB: &str = "it names another job than this client's, or gives it another number";

/// The number of the sum of class counts among the sums of a session.
pub(crate) const COUNTS: u32 = 0;

/// The number of the sum of updates. Label propagation has the sum before it.
pub(crate) const UPDATES: u32 = 1;

/// A client's update, ready to be added up.
struct Update {
    words: Zeroizing<Vec<u32>>,
    trained: Trained,
}

/// What peers read. The record keeps the reason for its owner.
fn refused() -> Abort {
    Abort::Misuse(record::TOLD.into())
}

fn broken(error: ModelError) -> Abort {
    Abort::Misuse(error.to_string())
}

/// One session of a client.
pub(crate) struct Session {
    pub(crate) turn: Turn<ClientState>,
    pub(crate) job: Job,
    pub(crate) at: SessionContext,
    /// Most rows that another client may bring to label propagation.
    pub(crate) max_peer_rows: Option<usize>,
}

impl Session {
    pub(crate) async fn run(self: Box<Self>, io: Io) -> Result<Step, Abort> {
        // docs/spec/training.md, step 1: what the session is for.
        let opening = Opening::read(&io.require(SERVER).await?);
        let opening = opening.map_err(Abort::malformed(SERVER))?; // TRAIN-1
        // TRAIN-2.
        if opening.members.binary_search(&self.at.me).is_err() {
            let fault = "its set of members leaves this client out";
            return Err(Abort::cheated(SERVER, fault));
        }
        match opening.kind {
            Kind::Census => self.census(io).await,
            Kind::Round => self.round(io, opening).await,
            Kind::Over => {
                // TRAIN-9.
                let census = self.at.record.census();
                let census = census.map_err(|_| refused())?;
                if census.is_some_and(|census| census.session != opening.census) {
                    return Err(Abort::cheated(SERVER, OTHER_JOB));
                }
                // Step 13: the final model.
                let model = receive_model(&io, self.job.parameters).await?;
                self.turn.lock()?.model.set_params(&model).map_err(broken)?;
                Ok(Step::Over(model))
            }
        }
    }

    /// The claims of this session.
    fn claims(&self) -> record::Session {
        self.at.record.session(&record::Place {
            session: self.at.id,
            seed: &self.at.seed,
            job: self.job.digest(),
        })
    }

    async fn census(&self, io: Io) -> Result<Step, Abort> {
        let (session, me) = (self.at.id, self.at.me);
        let (job, min_clients) = (&self.job, self.job.propagation.min_clients);
        let claims = self.claims();
        let claim = |counted: Option<Vec<PartyId>>, state: Zeroizing<Vec<u8>>| Claim::Census {
            me,
            counted,
            state,
        };
        // TRAIN-7: after a round with other groups this client would be in sums over other sets. A
        // server that repeats censuses could look for groups of its own clients.
        claims.check(claim(None, Zeroizing::default()))?;

        // Step 3: the clients, and a seed that the server does not know.
        let data = Arc::clone(&self.turn.lock()?.data);
        let ad = Advertisement {
            rows: data.rows().len() as u32,
            labelled: data.labelling().labelled().count() as u32,
            job: job.digest(),
            names: names_digest(data.labelling().names()),
        };
        let rules = group::Rules {
            session,
            secrecy: Secrecy::Sealed,
            min_clients,
        };
        let derive = |purpose| self.at.seed.derive(session, purpose, &[me.to_wire()]);
        let credentials = self.at.credentials.clone();
        let setup = group::client(rules, me, ad.write(), credentials, derive("census"))?;
        let group = io.run(setup).await?;
        let counted =
            |member: &group::Member| Advertisement::counted(member.id, &member.advertisement, job);
        let clients: Vec<Counted> = group
            .members
            .iter()
            .map(counted)
            .collect::<Result<_, _>>()?;
        same_names(&group.members)?;

        // Step 4, for free sampling: the sum of class counts, under pads that all clients know.
        let ids: Vec<PartyId> = clients.iter().map(|client| client.id).collect();
        // The difference of two counts would tell of the labels of one client.
        let counted = job.counts_once().then(|| ids.clone());
        claims.claim(claim(counted.clone(), Zeroizing::default()))?;
        let mut counts = Wiped::default();
        if job.counts_once() {
            let rules = count_rules(job, session, clients.len());
            let own = Zeroizing::new(data.brought().counts());
            let pads = |who| count_pads(&group.seed, session, who, job.classes);
            let padded = own.iter().zip(pads(me));
            let words = padded.map(|(count, pad)| count.wrapping_add(pad)).collect();
            let input = sum::Input {
                words: sum::Words::Ready(Zeroizing::new(words)),
                claims: Claims::Made(Some(ids.clone())),
                ..sum::Input::plain(Vec::new()).with_credentials(self.at.credentials.clone())
            };
            let sum = sum::client(rules, me, input, derive("census sum"))?;
            counts = Wiped::from(io.run(sum).await?.shared);
            for who in &ids {
                for (count, pad) in counts.iter_mut().zip(pads(*who)) {
                    *count = count.wrapping_sub(pad);
                }
            }
        }

        // Step 5: the groups, the same for all clients.
        io.phase(MODEL).await;
        let groups = match job.sampling {
            Sampling::Groups(least) => deal(&clients, least, session, &group.seed),
            Sampling::Free => Vec::new(),
        };
        io.send(SERVER, write_groups(&groups));
        let kept = Kept {
            census: Census {
                session,
                clients,
                groups,
            },
            counts,
        };
        claims.claim(claim(counted, kept.write()))?;
        Ok(Step::Counted)
    }

    /// Step 2: claims this round (TRAIN-9 to TRAIN-11). Returns what the client kept of the census.
    fn begin(&self, opening: &Opening) -> Result<Kept, Abort> {
        let cheated = |fault: &str| Err(Abort::cheated(SERVER, fault));
        let (record, me, number) = (&self.at.record, self.at.me, opening.number);
        let claim = Claim::Round {
            census: opening.census,
            me,
            number,
        };
        let Some(census) = record.census().map_err(|_| refused())? else {
            // The owner reads why.
            self.claims().claim(claim)?;
            return Err(refused());
        };
        // TRAIN-9.
        if census.session != opening.census || census.me != me {
            return cheated(OTHER_JOB);
        }
        let kept = Kept::read(census.session, &census.state);
        let kept = kept.map_err(|_| refused())?;
        // TRAIN-11.
        let members = &opening.members;
        let is_client = |id: &PartyId| kept.census.clients.iter().any(|client| client.id == *id);
        let is_allowed = match self.job.sampling {
            Sampling::Groups(_) => are_whole(members, &kept.census.groups),
            Sampling::Free => members.iter().all(is_client),
        };
        if !is_allowed {
            return cheated("its set of members is not made of whole groups of the job's clients");
        }
        // TRAIN-10: a round is run once. Two sums of one round that differ by a client would reveal
        // that client's update.
        let other = "it starts a round that is over, or that the job does not have";
        if number > self.job.last() {
            return cheated(other);
        }
        match self.claims().claim(claim) {
            Ok(()) => Ok(kept),
            Err(_) if number <= census.last => cheated(other),
            Err(refusal) => Err(refusal.into()),
        }
    }

    async fn round(&self, io: Io, opening: Opening) -> Result<Step, Abort> {
        let kept = self.begin(&opening)?;
        let Opening {
            number, members, ..
        } = opening;
        let (job, me) = (&self.job, self.at.me);

        // Step 6: the model.
        let model = receive_model(&io, job.parameters).await?;
        let data = Arc::clone(&self.turn.lock()?.data);
        self.turn.lock()?.model.set_params(&model).map_err(broken)?;
        let context = job.context(
            self.at.id,
            kept.census.session,
            number,
            &digest(&model),
            &members,
        );
        let derive = |purpose| self.at.seed.derive(context, purpose, &[me.to_wire()]);
        let only = || match job.sampling {
            Sampling::Groups(_) => Some(members.clone()),
            Sampling::Free => None,
        };
        let needed = job.needed(members.len());
        // The signatures that count are those of the round's clients.
        let credentials = || {
            self.at.credentials.as_ref().map(|own| Credentials {
                identity: own.identity.clone(),
                pins: own.pins.only(&members),
            })
        };

        // Steps 7 to 9: pseudo-labels.
        let own = data.labelling();
        let source = job.pseudo_in(number);
        let mut warning = None;
        let pseudo: Vec<Target> = match source {
            PseudoLabels::None => Vec::new(),
            PseudoLabels::Network => {
                let probabilities = self
                    .turn
                    .lock()?
                    .model
                    .predict(data.rows())
                    .map_err(broken)?;
                pseudo::predicted(&probabilities, own)?
            }
            PseudoLabels::Local | PseudoLabels::Joint => {
                let embeddings = self.turn.lock()?.model.embed(data.rows()).map_err(broken)?;
                let brought = match source {
                    PseudoLabels::Local => own,
                    _ => data.brought(),
                };
                let directed = Directed::new(&embeddings, brought)?;
                drop(embeddings);
                let params = job.propagation(needed);
                if source == PseudoLabels::Local {
                    directed.propagate(&params, &derive("projection"), own)?
                } else {
                    let input = label::Input {
                        credentials: credentials(),
                        max_peer_rows: self.max_peer_rows,
                        class_counts: job.counts_once().then(|| kept.counts.to_vec()),
                        ..directed.input(Answering::Made(only()))?
                    };
                    let propagation =
                        label::client(me, context, params, input, derive("propagation"))?;
                    let outcome = io.run(propagation).await?;
                    warning = outcome.warning;
                    directed.targets(&outcome.labels, own)
                }
            }
        };

        // Step 10: the update.
        io.phase(UPDATE).await;
        let schedule = self.schedule(&kept, number, derive("update"));
        let Update { words, trained } = self.update(&model, &data, &pseudo, schedule, &members)?;
        drop((model, pseudo));
        io.send(SERVER, &[]);

        // Step 11: the sum of all updates.
        let rules = update_rules(job, context, needed);
        let input = sum::Input {
            words: sum::Words::Ready(words),
            claims: Claims::Made(only()),
            ..sum::Input::plain(Vec::new()).with_credentials(credentials())
        };
        io.run(sum::client(rules, me, input, derive("sum"))?)
            .await?;
        Ok(Step::Trained(Trained {
            number,
            warning,
            ..trained
        }))
    }

    fn schedule(&self, kept: &Kept, number: u32, seed: Seed) -> Schedule {
        let (job, census) = (&self.job, &kept.census);
        let own = census.clients.iter().find(|client| client.id == self.at.me);
        let labelled = own.map_or(0, |client| client.labelled as usize).min(50);
        let holders = census.clients.iter().filter(|client| client.labelled > 0);
        let (holders, labels) = holders.fold((0, 0), |(holders, labels), client| {
            (holders + 1, labels + u64::from(client.labelled))
        });
        // A client without labels takes twice the mean number of labels (arXiv 2210.06434, A.2).
        let mean = (labels as f64 / f64::from(holders.max(1u32))).round() as usize;
        Schedule {
            epochs: job.epochs as usize,
            labelled,
            pseudo: match labelled {
                0 => (2 * mean).clamp(1, 100),
                labelled => labelled,
            },
            learning_rate: job.learning_rate_in(number, labelled),
            weight_decay: job.weight_decay,
            consistency: job.consistency_in(number),
            seed,
        }
    }

    /// Trains, and encodes the change of each parameter.
    fn update(
        &self,
        model: &[f32],
        data: &Data,
        pseudo: &[Target],
        schedule: Schedule,
        members: &[PartyId],
    ) -> Result<Update, Abort> {
        let labelled = pseudo::labelled(data.labelling());
        let examples = Examples {
            rows: data.rows(),
            labelled: &labelled,
            pseudo,
        };
        let mut trained = Trained {
            number: 0,
            pseudo: pseudo.len(),
            clipped: 0,
            diverged: false,
            warning: None,
        };
        let mut change = Wiped::from(vec![0f32; model.len()]);
        if !labelled.is_empty() || !pseudo.is_empty() {
            let mut state = self.turn.lock()?;
            state.model.update(&examples, &schedule).map_err(broken)?;
            let after = Wiped::from(state.model.params());
            drop(state);
            if after.len() != model.len() {
                return Err(Abort::Misuse("the model changed its size".into()));
            }
            let pairs = after.iter().zip(model);
            let changes = pairs.map(|(after, before)| after - before);
            change.iter_mut().zip(changes).for_each(|(to, by)| *to = by);
            // A difference of finite parameters may be infinite, too.
            trained.diverged = change.iter().any(|by| !by.is_finite());
            if trained.diverged {
                change.fill(0.0);
            }
        }
        let mut words = Zeroizing::new(Vec::with_capacity(change.len()));
        let fixed = self.job.fixed(members.len())?;
        trained.clipped = fixed.append(&change, true, &mut words)?;
        Ok(Update { words, trained })
    }
}

/// The rules of the sum of class counts over `clients` clients.
pub(crate) fn count_rules(job: &Job, session: SessionId, clients: usize) -> Rules {
    Rules {
        round: COUNTS,
        shape: Shape::plain(job.classes),
        audience: Audience::Everybody,
        ..update_rules(job, session, clients)
    }
}

/// The rules of the sum of updates.
pub(crate) fn update_rules(job: &Job, session: SessionId, min_clients: usize) -> Rules {
    Rules {
        session,
        round: UPDATES,
        shape: Shape::plain(job.parameters),
        audience: Audience::Server,
        min_clients,
        trust: job.propagation.trust,
        wiring: Wiring::default(),
        suite: job.propagation.suite,
        groups: None,
    }
}

/// The pads that hide a client's class counts from the server.
fn count_pads(
    seed: &Seed,
    session: SessionId,
    who: PartyId,
    classes: usize,
) -> impl Iterator<Item = u32> + use<> {
    let mut prg = seed
        .derive(session, "training counts", &[who.to_wire()])
        .prg();
    (0..classes).map(move |_| prg.next_u64() as u32)
}
