//! The server's side of a round.

use std::sync::Arc;

use crate::arrays::{Layout, MAX_LAYOUT, MAX_VALUES};
use undertone_job::Job as _;
use undertone_party::{Abort, Io, PartyId, Reader, Script, SessionId, Writer};
use undertone_setup::roster::enough;
use undertone_sum as sum;

use super::messages::{Opening, read_layout, read_number, send_mean};
use super::{CONTRIBUTION, Job, Mean, MeanHeader, RESULT, ROUND};

/// The server's state between rounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// The number of finished rounds.
    finished: u32,
    /// The last round's mean: its header and the sum of the words.
    last: Option<(MeanHeader, Vec<u64>)>,
}

impl Kept {
    /// The longest encoding, in bytes.
    pub const MAX_BYTES: usize = 16 + (4 << 20) + MAX_LAYOUT + 8 * (MAX_VALUES + 1);

    /// The number of finished rounds.
    pub fn finished(&self) -> u32 {
        self.finished
    }

    /// The mean of the last round.
    pub fn mean(&self, job: &Job) -> Option<Mean> {
        let (header, words) = self.last.as_ref()?;
        let contributors = header.contributors.clone();
        job.decode(header.round, contributors, &header.layout, words)
    }

    /// The state in bytes: the length of the header (8), the header, the words.
    pub fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        if let Some((header, words)) = &self.last {
            let header = header.write();
            w.u64(header.len() as u64);
            w.raw(&header);
            w.u64s(words);
        }
        w.finish()
    }

    /// Reads what [`Kept::write`] writes, for `job`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(bytes: &[u8], job: &Job) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let read = |bytes| {
            let mut r = Reader::new(bytes);
            let len = r.u64("length of the header")?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let header = MeanHeader::read(r.raw(len, "header")?)?;
            let words = r.u64s(job.words(header.layout.len()), "words")?.collect();
            r.finish()?;
            Ok((header, words))
        };
        let last: (MeanHeader, Vec<u64>) =
            read(bytes).map_err(|error: undertone_party::DecodeError| error.to_string())?;
        let finished = last.0.round;
        if !(1..=job.rounds).contains(&finished) {
            return Err(format!(
                "its last finished round is {finished}, but the job has {} rounds",
                job.rounds
            ));
        }
        Ok(Self {
            finished,
            last: Some(last),
        })
    }
}

/// The result of a session.
#[derive(Debug, Clone)]
pub enum Report {
    /// A round is finished.
    Finished(Mean),
    /// No round was due. All clients have the last mean.
    CaughtUp,
}

/// The server of one session.
#[derive(Debug)]
pub struct Session {
    /// The parameters of the job.
    pub job: Job,
    /// The session.
    pub session: SessionId,
    /// The clients of the session.
    pub clients: Vec<PartyId>,
    /// The state after the rounds before.
    pub kept: Arc<Kept>,
    /// Fewest clients with which the round continues, at least the job's `min_clients`.
    pub needed: usize,
}

impl Session {
    /// The server's party. It calls `keep` when the round is finished, before any client learns the
    /// mean. A server that continues from this state repeats no finished round.
    pub fn party(
        self,
        keep: impl FnOnce(Kept) -> Result<(), String> + Send + 'static,
    ) -> Script<'static, Report> {
        Script::new(ROUND, move |io| self.run(io, keep))
    }

    async fn run(
        self,
        io: Io,
        keep: impl FnOnce(Kept) -> Result<(), String> + Send,
    ) -> Result<Report, Abort> {
        let Self {
            job,
            session,
            clients,
            kept,
            needed,
        } = self;
        let needed = needed.max(job.min_clients);
        job.check()
            .map_err(|fault| Abort::Final(fault.to_string()))?;
        // ROUND-19.
        if clients.len() > job.clients {
            let (here, most) = (clients.len(), job.clients);
            return Err(Abort::Misuse(format!(
                "{here} clients, the job is for {most}: their sum could overflow"
            )));
        }
        let finished = kept.finished;

        // docs/spec/rounds.md, step 1: the round, and the last mean for clients that lack it.
        let (mut here, mut lacking) = (Vec::new(), Vec::new());
        for (who, message) in io.recv_all(&clients).await {
            let Some(message) = message else {
                continue;
            };
            let has = read_number(&message).map_err(Abort::malformed(who))?;
            here.push(who);
            let opening = Opening {
                finished,
                is_due: finished < job.rounds,
                mean_follows: finished > has,
            };
            io.send(who, opening.write());
            if opening.mean_follows {
                lacking.push(who);
            }
        }
        if let Some((header, words)) = &kept.last {
            send_mean(&io, &lacking, header, words).await;
        }
        if finished >= job.rounds {
            io.pause().await;
            return Ok(Report::CaughtUp);
        }

        // Step 2: the contributors. All arrays have the layout of the last mean. In the first round
        // it is the most common layout.
        io.phase(CONTRIBUTION).await;
        let mut layouts: Vec<(PartyId, Layout)> = Vec::with_capacity(here.len());
        for (who, message) in io.recv_all(&here).await {
            if let Some(message) = message {
                let layout = read_layout(&message).map_err(Abort::malformed(who))?;
                layouts.push((who, layout));
            }
        }
        enough(layouts.len(), needed)?; // ROUND-11
        let layout = match &kept.last {
            Some((header, _)) => header.layout.clone(),
            None => commonest(&layouts),
        };
        let message = layout.write();
        for (who, _) in &layouts {
            io.send(*who, &message[..]);
        }
        // The layout is sent even if too few clients have it: the others learn what differs.
        io.pause().await;
        layouts.retain(|(_, own)| *own == layout);
        let contributors: Vec<PartyId> = layouts.into_iter().map(|(who, _)| who).collect();
        // The sum leaves out those whose group is not whole.
        let able = match job.fixed_groups() {
            Some(groups) => groups.whole(&contributors).len(),
            None => contributors.len(),
        };
        enough(able, needed)?; // ROUND-11

        // Step 3: the sum of their words.
        let rules = job.rules(session, finished, &layout, kept.mean(&job).as_ref());
        let total = io.run(sum::server::<u64>(rules, contributors)?).await?;

        // Step 4: the mean, stored before anybody learns it.
        io.phase(RESULT).await;
        let header = MeanHeader {
            round: finished + 1,
            contributors: total.contributors,
            layout,
        };
        let now = Kept {
            finished: finished + 1,
            last: Some((header.clone(), total.shared.clone())),
        };
        let mean = now.mean(&job);
        // ROUND-17.
        let mean = mean.ok_or_else(|| {
            Abort::Final("no contributor has a weight: all weights are 0 (--weight)".into())
        })?;
        keep(now).map_err(Abort::Final)?;
        send_mean(&io, &header.contributors, &header, &total.shared).await;
        Ok(Report::Finished(mean))
    }
}

/// The most common layout. Ties go to the lowest-numbered client's.
fn commonest(layouts: &[(PartyId, Layout)]) -> Layout {
    let count = |layout: &Layout| layouts.iter().filter(|(_, other)| other == layout).count();
    let mut best = (0, &layouts[0].1);
    for (_, layout) in layouts {
        let count = count(layout);
        if count > best.0 {
            best = (count, layout);
        }
    }
    best.1.clone()
}
