//! The server's side of a round.

use std::sync::Arc;

use undertone_party::{Abort, Io, PartyId, Reader, Script, SessionId, Writer};
use undertone_setup::roster::enough;
use undertone_sum as sum;

use super::messages::{Opening, read_layout, read_number, send_mean};
use super::{CONTRIBUTION, Job, Mean, MeanHeader, RESULT, ROUND};
use crate::arrays::{Layout, MAX_LAYOUT, MAX_VALUES};

/// What the server keeps from round to round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// How many rounds are finished.
    finished: u32,
    /// The last round's mean: what it is of, and the sum of the words.
    last: Option<(MeanHeader, Vec<u64>)>,
}

impl Kept {
    /// Longest encoding in bytes.
    pub const MAX_BYTES: usize = 16 + (4 << 20) + MAX_LAYOUT + 8 * (MAX_VALUES + 1);

    /// How many rounds are finished.
    pub fn finished(&self) -> u32 {
        self.finished
    }

    /// The mean of the last round.
    pub fn mean(&self, job: &Job) -> Option<Mean> {
        let (header, words) = self.last.as_ref()?;
        let contributors = header.contributors.clone();
        job.decode(header.round, contributors, &header.layout, words)
    }

    /// What is kept, in bytes: the header's length (8), the header, the words.
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
                "it is after round {finished}, the job has {} rounds",
                job.rounds
            ));
        }
        Ok(Self {
            finished,
            last: Some(last),
        })
    }
}

/// What a session comes to.
#[derive(Debug, Clone)]
pub enum Report {
    /// A round is finished.
    Finished(Mean),
    /// No round was due. All clients have the last mean.
    CaughtUp,
}

/// The server of one session.
#[derive(Debug)]
pub struct Server {
    /// The parameters.
    pub job: Job,
    /// The session.
    pub session: SessionId,
    /// Who takes part.
    pub clients: Vec<PartyId>,
    /// What is kept of the rounds before.
    pub kept: Arc<Kept>,
    /// Fewest clients with which the round goes on. Not below the job's `min_clients`.
    pub needed: usize,
}

impl Server {
    /// The server's party. It calls `keep` when the round is finished, before any client learns the
    /// mean: a server that goes on from there repeats no round of which a client has the mean.
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
        job.check().map_err(Abort::Misuse)?;
        if clients.len() > job.clients {
            let (here, most) = (clients.len(), job.clients);
            return Err(Abort::Misuse(format!(
                "{here} clients, the job is for {most}: their sum could overflow"
            )));
        }
        let finished = kept.finished;

        // Step 1: which round it is, and the last mean for those that lack it.
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

        // Step 2: who contributes. All arrays have the names and shapes of the last round's, or of
        // most clients' in the first round.
        io.phase(CONTRIBUTION).await;
        let mut layouts: Vec<(PartyId, Layout)> = Vec::with_capacity(here.len());
        for (who, message) in io.recv_all(&here).await {
            if let Some(message) = message {
                let layout = read_layout(&message).map_err(Abort::malformed(who))?;
                layouts.push((who, layout));
            }
        }
        enough(layouts.len(), needed)?;
        let layout = match &kept.last {
            Some((header, _)) => header.layout.clone(),
            None => commonest(&layouts),
        };
        let message = layout.write();
        for (who, _) in &layouts {
            io.send(*who, &message[..]);
        }
        // The layout leaves even if too few clients have it: the others learn what differs.
        io.pause().await;
        layouts.retain(|(_, own)| *own == layout);
        let contributors: Vec<PartyId> = layouts.into_iter().map(|(who, _)| who).collect();
        enough(contributors.len(), needed)?;

        // Step 3: the sum of their words.
        let rules = job.rules(session, finished, layout.len());
        let total = io.run(sum::server::<u64>(rules, contributors)?).await?;

        // Step 4: the mean, kept before anybody learns it.
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
        let mean = mean.ok_or_else(|| Abort::Misuse("no contributor has a weight".into()))?;
        keep(now).map_err(Abort::Misuse)?;
        send_mean(&io, &header.contributors, &header, &total.shared).await;
        Ok(Report::Finished(mean))
    }
}

/// The layout that most clients have; of those that as many have, the first client's.
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
