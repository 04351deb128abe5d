//! One session of the server: the census, a round, or the end of the job.

use undertone_job::SessionContext;
use undertone_label as label;
use undertone_party::{Abort, Io, PartyId, Script, SessionId};
use undertone_setup::group::{self, Secrecy};
use undertone_setup::roster::enough;
use undertone_sum as sum;

use crate::groups::Counted;
use crate::job::{Job, PseudoLabels, Sampling};
use crate::messages::{Advertisement, Kind, Opening, digest, read_groups, same_names, send_model};
use crate::session::{count_rules, update_rules};
use crate::state::{Census, Report, Round, State, Taken};
use crate::{MODEL, UPDATE};

/// The server of one session.
pub(crate) struct Session {
    pub(crate) job: Job,
    pub(crate) at: SessionContext,
    /// The clients of the session, in ascending order.
    pub(crate) members: Vec<PartyId>,
}

/// Whether each of the `clients`, in ascending order, is in one group; with free sampling there are
/// no groups.
fn is_dealt(groups: &[Vec<PartyId>], clients: &[PartyId], job: &Job) -> bool {
    match job.sampling {
        Sampling::Free => groups.is_empty(),
        Sampling::Groups(_) => {
            let mut all = groups.concat();
            all.sort_unstable();
            all == clients
        }
    }
}

impl Session {
    /// The server's party in the session that has [begun](State::begin). `is_over` says whether all
    /// rounds were over before it began.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the job or its state is impossible.
    pub(crate) fn party(
        self,
        state: &State,
        is_over: bool,
    ) -> Result<Script<'static, Report>, Abort> {
        let job = &self.job;
        job.check().map_err(Abort::Final)?;
        let model = state.model.clone();
        if model.len() != job.parameters || !model.iter().all(|value| value.is_finite()) {
            return Err(Abort::Misuse(format!(
                "the model must have {} finite parameters",
                job.parameters
            )));
        }
        let census = state.census.clone();
        let opening = Opening {
            kind: match census {
                None => Kind::Census,
                Some(_) if is_over => Kind::Over,
                Some(_) => Kind::Round,
            },
            census: census
                .as_ref()
                .map_or(SessionId([0; 32]), |census| census.session),
            number: state.begun,
            members: self.members.clone(),
        };
        let this = Box::new(self);
        Ok(Script::new(MODEL, move |io| async move {
            // docs/spec/training.md, step 1: what the session is for.
            io.send_to_all(&this.members, opening.write());
            match census {
                None => this.census(io).await.map(Report::Counted),
                Some(_) if is_over => {
                    send_model(&io, &this.members, &model).await;
                    Ok(Report::Over)
                }
                Some(census) => {
                    let round = this.round(io, census, opening.number, model);
                    round.await.map(Report::Trained)
                }
            }
        }))
    }

    async fn census(&self, io: Io) -> Result<Census, Abort> {
        let (job, session) = (&self.job, self.at.id);
        let min_clients = job.propagation.min_clients;

        // Step 3: the clients, and their seed.
        let rules = group::Rules {
            session,
            secrecy: Secrecy::Sealed,
            min_clients,
        };
        let seed = self.at.seed.derive(session, "census", &[]);
        let admitted = io
            .run(group::server(rules, self.members.clone(), seed)?)
            .await?;
        let counted =
            |member: &group::Member| Advertisement::counted(member.id, &member.advertisement, job);
        let clients: Vec<Counted> = admitted
            .members
            .iter()
            .map(counted)
            .collect::<Result<_, _>>()?;
        same_names(&admitted.members)?;
        let ids: Vec<PartyId> = clients.iter().map(|client| client.id).collect();

        // Step 4, for free sampling: the sum of class counts, which the server sees under pads.
        if job.counts_once() {
            let rules = count_rules(job, session, clients.len());
            io.run(sum::server::<u32>(rules, ids.clone())?).await?;
        }

        // Step 5: the groups, in which all clients agree.
        io.phase(MODEL).await;
        let mut agreed: Option<(PartyId, Vec<Vec<PartyId>>)> = None;
        let mut left = 0;
        for (who, message) in io.recv_all(&ids).await {
            let Some(message) = message else { continue };
            let groups = read_groups(&message).map_err(Abort::malformed(who))?; // TRAIN-8
            // TRAIN-15.
            if !is_dealt(&groups, &ids, job) {
                let fault = "its groups are not those of the job's clients";
                return Err(Abort::cheated(who, fault));
            }
            left += 1;
            match &agreed {
                None => agreed = Some((who, groups)),
                // TRAIN-12.
                Some((first, known)) if *known != groups => {
                    return Err(Abort::Misuse(format!(
                        "{who} and {first} name different groups; one of them departs from the \
                         protocol"
                    )));
                }
                Some(_) => {}
            }
        }
        // A client without record of the census could take part in no round.
        enough(left, ids.len())?;
        let groups = agreed.map(|(_, groups)| groups).unwrap_or_default();
        Ok(Census {
            session,
            clients,
            groups,
        })
    }

    async fn round(
        &self,
        io: Io,
        census: Census,
        number: u32,
        model: Vec<f32>,
    ) -> Result<Round, Abort> {
        let (job, mut members) = (&self.job, self.members.clone());
        let needed = job.needed(members.len());
        enough(members.len(), needed.max(job.propagation.min_clients))?;

        // Step 6: the model.
        let of = digest(&model);
        let context = job.context(self.at.id, census.session, number, &of, &members);
        send_model(&io, &members, &model).await;

        // Steps 7 to 9: pseudo-labels.
        let mut warning = None;
        if job.pseudo_in(number) == PseudoLabels::Joint {
            let params = job.propagation(needed);
            let seed = self.at.seed.derive(context, "propagation", &[]);
            let propagation = label::server(context, params, members.clone(), seed)?;
            let report = io.run(propagation).await?;
            (members, warning) = (report.contributors, report.warning);
        }

        // Step 10: the clients train.
        io.phase(UPDATE).await;
        let mut trained = Vec::with_capacity(members.len());
        for (who, message) in io.recv_all(&members).await {
            let Some(message) = message else { continue };
            // TRAIN-13.
            if !message.is_empty() {
                let what = "a message that is not empty after its update".into();
                return Err(Abort::Malformed { from: who, what });
            }
            trained.push(who);
        }
        enough(trained.len(), needed)?;

        // Step 11: the sum of all updates. Step 12: the new model.
        let rules = update_rules(job, context, needed);
        let total = io.run(sum::server::<u32>(rules, trained)?).await?;
        let contributors = total.contributors;
        // Clients without any label have no examples in these rounds. Their updates are zeros, and
        // do not count.
        let divisor = match job.pseudo_in(number) {
            PseudoLabels::None | PseudoLabels::Local => census.labelled(&contributors).count(),
            _ => contributors.len(),
        };
        let change = job.fixed(self.members.len())?.decode(&total.shared);
        let add = |(before, change): (&f32, f64)| {
            (f64::from(*before) + change / divisor.max(1) as f64) as f32
        };
        Ok(Round {
            warning,
            model: model.iter().zip(change).map(add).collect(),
            taken: Taken {
                number,
                contributors,
            },
        })
    }
}
