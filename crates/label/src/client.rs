//! The client: it brings rows and labels, and takes labels home.

use std::sync::Arc;

use undertone_hamming::tiles::{self, Pairs};
use undertone_hamming::{self as hamming, ClientContext};
use undertone_job::record::{Answering, Claims, Of, Place};
use undertone_kdf::Seed;
use undertone_kernel::{Wiped, mask};
use undertone_party::{Abort, Io, PartyId, Script, SessionId};
use undertone_setup::group::{self, Group, Rules, Secrecy};
use undertone_setup::identity::Credentials;
use undertone_sum::{self as sum, Sums, Trust};

use crate::cells;
use crate::codes::{Codes, Together};
use crate::distances::Distances;
use crate::input::{InputError, Labelling, MAX_ROWS};
use crate::labels::Labels;
use crate::messages::{Advertisement, Clients, OwnRows, Plan, column_words};
use crate::offline;
use crate::params::{Params, Variant};
use crate::phases;
use crate::rows::Rows;
use crate::scores::{Scores, fixed};
use crate::shares::Shares;
use crate::solo;
use crate::tie::Brought;
use crate::transfers::Punctured;

const SERVER: PartyId = PartyId::SERVER;

/// What a client takes home.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// A label and a confidence for each of its rows.
    pub labels: Labels,
    /// Scores of its unlabelled rows.
    pub scores: Scores,
    /// What the other clients' numbers of rows mean for this client's rows: see
    /// [`rows_warning`](crate::rows_warning).
    pub warning: Option<String>,
}

/// What a client brings to a run.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its rows.
    pub rows: Rows,
    /// Their labels, as far as they are known.
    pub labelling: Labelling,
    /// With credentials the client signs its keys and checks everybody's signature.
    pub credentials: Option<Credentials>,
    /// Most rows that another client may bring. If another client brings more, this client leaves
    /// the run before it sends anything that depends on its own rows.
    pub max_peer_rows: Option<usize>,
    /// Who answers for distances and scores: the record of these rows, or the caller.
    pub answering: Answering,
    /// The number of labelled rows of each class over all clients, for [`Variant::Counted`] alone.
    pub class_counts: Option<Vec<u32>>,
    /// Where clients of one process hash their rows, for simulations alone.
    pub together: Option<Arc<Together>>,
}

impl Input {
    /// Rows and labels, for which `answering` answers, without credentials and without a bound on
    /// others' rows.
    pub fn new(rows: Rows, labelling: Labelling, answering: impl Into<Answering>) -> Self {
        Self {
            rows,
            labelling,
            credentials: None,
            max_peer_rows: None,
            answering: answering.into(),
            class_counts: None,
            together: None,
        }
    }

    /// Checks that rows, labels and credentials fit together. Returns the features in a row, or 0
    /// for codes.
    fn check(&self, params: &Params) -> Result<usize, Abort> {
        let misfit = |what, have, due| Abort::from(InputError::Shape { what, have, due });
        let rows = self.rows.len();
        // CODE-5
        if rows != self.labelling.rows() {
            return Err(misfit("labels: rows", self.labelling.rows(), rows));
        }
        if rows > MAX_ROWS {
            return Err(Abort::Misuse(format!(
                "{rows} rows; a client may bring at most {MAX_ROWS}"
            )));
        }
        let counts = self.class_counts.as_ref().map(Vec::len);
        let due = (params.variant == Variant::Counted).then_some(self.labelling.classes());
        if counts != due {
            return Err(Abort::Misuse(format!(
                "class counts: {} instead of {}; they are for the variant that counts once",
                counts.unwrap_or(0),
                due.unwrap_or(0)
            )));
        }
        if params.trust == Trust::MaliciousServer && self.credentials.is_none() {
            return Err(Abort::Misuse(
                "this client has no credentials, and a run that withstands a malicious server \
                 needs them"
                    .into(),
            ));
        }
        match &self.rows {
            Rows::Codes(_) if params.cells.is_some() => Err(Abort::Misuse(
                "the job has cells of features, this client brings codes".into(),
            )),
            Rows::Features(features) => {
                features.check_directions()?;
                Ok(features.dim())
            }
            // CODE-4
            Rows::Codes(codes) => match codes.bits().columns() {
                bits if bits == params.bits => Ok(0),
                bits => Err(misfit("codes: bits", bits, params.bits)),
            },
        }
    }
}

/// Client `me` of `session`, which brings `input`. `seed` is its randomness.
///
/// # Errors
/// [`Abort::Misuse`] when a parameter is out of range, when rows, labels and codes do not fit
/// together, or when the client lacks the credentials that withstanding a malicious server takes.
pub fn client(
    me: PartyId,
    session: SessionId,
    params: Params,
    input: Input,
    seed: Seed,
) -> Result<Script<'static, Outcome>, Abort> {
    params.check()?;
    let dim = input.check(&params)?;
    let Input {
        rows,
        labelling,
        credentials,
        max_peer_rows,
        answering,
        class_counts,
        together,
    } = input;
    let digest = params.digest();
    let brought = Brought::rows(&digest, &rows).and_labels(&labelling);
    let (own, tied) = brought.tie(session, seed);
    let place = Place {
        session,
        seed: &tied,
        job: digest,
    };
    let claims = answering.in_session(&place, Of::Labels);
    let ad = Advertisement::new(rows.len(), dim, labelling.classes(), &params)
        .with_names(labelling.names());
    let later = tied.derive(session, "after the setup", &[me.to_wire()]);
    let rules = rules(session, &params);
    let setup = group::client(rules, me, ad.write(), credentials.clone(), own)?;
    // Boxed, so that a future that moves leaves no copies of the secrets behind.
    let job = Box::new(Job {
        me,
        ad,
        params,
        session,
        labelling,
        credentials,
        max_peer_rows,
        claims,
        class_counts,
        together,
        seed: later,
    });
    Ok(Script::new(phases::SETUP, |io| run(io, job, setup, rows)))
}

/// What a client holds during the whole run.
struct Job {
    me: PartyId,
    ad: Advertisement,
    params: Params,
    session: SessionId,
    labelling: Labelling,
    credentials: Option<Credentials>,
    /// Most rows that another client may bring.
    max_peer_rows: Option<usize>,
    claims: Claims,
    class_counts: Option<Vec<u32>>,
    together: Option<Arc<Together>>,
    /// The randomness of everything after the setup, then bound to the keys of all clients.
    seed: Seed,
}

/// The client's shares of all scores. They grow with the columns of its labelled rows as these
/// arrive.
struct Columns {
    plan: Plan,
    trees: Punctured,
    columns: usize,
    shares: Shares,
    received: usize,
}

impl Columns {
    fn new(plan: Plan, trees: Punctured, labelling: &Labelling) -> Self {
        Self {
            columns: labelling.labelled().count(),
            shares: Shares::new(plan.unlabelled, labelling.classes()),
            plan,
            trees,
            received: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.received == self.columns * self.plan.unlabelled
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Abort> {
        let height = self.plan.unlabelled;
        let count = column_words(self.received, self.columns, height);
        // LABEL-15
        if bytes.len() != count * size_of::<u32>() {
            return Err(Abort::Malformed {
                from: SERVER,
                what: format!("columns of {} bytes, {} are due", bytes.len(), 4 * count),
            });
        }
        let mut words = Wiped::with_capacity(count);
        words.extend(mask::from_bytes::<u32>(bytes));
        for words in words.chunks_mut(height) {
            let (column, first) = (self.received / height, self.received % height);
            let (label, leaves) = self.trees.column(column)?;
            self.shares.receive(&leaves, label, first, words);
            self.received += words.len();
        }
        Ok(())
    }
}

impl Job {
    fn hash(&self, projection: &Seed, rows: Rows) -> Codes {
        let bits = self.params.bits;
        match (rows, &self.together) {
            (Rows::Codes(codes), _) => codes,
            (Rows::Features(features), None) => Codes::hash(&features, projection, bits),
            (Rows::Features(features), Some(all)) => all.hash(&features, projection, bits),
        }
    }

    /// What the distance backend needs: the clients, and the secrets that this client shares with
    /// them.
    fn distance_context(&self, group: Group, bound: &Seed, clients: &Clients) -> ClientContext {
        ClientContext {
            session: self.session,
            me: self.me,
            clients: clients.rows.clone(),
            cells: None,
            seed: bound.derive(self.session, "distances", &[]),
            secret: self.seed.derive(self.session, "distances", &[]),
            suite: self.params.suite,
            phe: self.params.phe,
            server: group.server,
            channels: group.channels,
            min_clients: self.params.min_clients,
        }
    }

    /// The pads that hide `client`'s class counts from the server, a word for each class.
    fn count_pads(&self, pads: &Seed, client: PartyId) -> impl Iterator<Item = u32> {
        let mut prg = pads
            .derive(self.session, "counts", &[client.to_wire()])
            .prg();
        let classes = match self.params.variant {
            Variant::Balanced => self.labelling.classes(),
            Variant::Counted | Variant::Paper => 0,
        };
        (0..classes).map(move |_| prg.next_u64() as u32)
    }

    /// The client's side of the sum, once all columns have arrived. `pads` is the seed, common to
    /// all clients, of the pads of counts.
    fn sums(&self, columns: Columns, pads: &Seed) -> Result<Script<'static, Sums<u32>>, Abort> {
        let Plan {
            unlabelled,
            own_start,
        } = columns.plan;
        let classes = self.labelling.classes();
        let rules = self.params.sums(self.session, unlabelled, classes);
        let mut words = columns.shares.into_rows(rules.shape.shared);
        let counts = Wiped::from(self.labelling.counts());
        let padded = counts.iter().zip(self.count_pads(pads, self.me));
        words.extend(padded.map(|(count, pad)| count.wrapping_add(pad)));
        let own = own_start..own_start + self.labelling.unlabelled().count();
        let seed = self.seed.derive(self.session, "sums", &[]);
        let input = sum::Input {
            credentials: self.credentials.clone(),
            claims: self.claims.clone(),
            ..sum::Input::with_rows(words.into_inner(), own)
        };
        sum::client(rules, self.me, input, seed)
    }

    fn scores(&self, sums: Sums<u32>, pads: &Seed) -> Scores {
        let own = Wiped::from(sums.own);
        let values = own.iter().map(|word| fixed::decode(*word)).collect();
        let mut scores = Scores::new(self.labelling.classes(), values);
        if let Some(counts) = &self.class_counts {
            scores.balance(counts);
        }
        if self.params.variant == Variant::Balanced {
            let mut counts = Wiped::from(sums.shared);
            for client in sums.contributors {
                for (count, pad) in counts.iter_mut().zip(self.count_pads(pads, client)) {
                    *count = count.wrapping_sub(pad);
                }
            }
            scores.balance(&counts);
        }
        scores
    }
}

pub(crate) fn rules(session: SessionId, params: &Params) -> Rules {
    Rules {
        session,
        secrecy: match params.cells {
            None => params.backend.secrecy(),
            Some(_) => Secrecy::Sealed,
        },
        min_clients: params.min_clients,
    }
}

async fn run(
    io: Io,
    mut job: Box<Job>,
    setup: Script<'static, Group>,
    rows: Rows,
) -> Result<Outcome, Abort> {
    // The steps are those of docs/spec/labels.md. Steps 1 and 2, setup: who takes part, and the
    // group seed.
    let group = io.run(setup).await?;
    job.seed = group.bind(job.session, &job.seed);
    let bound = group.bind(job.session, &group.seed);
    let params = &job.params;
    let clients = Clients::of(&group.members, params, Some((job.me, job.ad.clone())))?;
    clients.check_rows(job.me, job.max_peer_rows)?;
    // LWE-15, before a claim is spent. With cells each run has the rows of one.
    if params.cells.is_none() {
        hamming::check_rows(params.backend, &clients.rows)?;
    }
    let warning = clients.warning(Some(job.me));
    let ids: Vec<PartyId> = clients.rows.iter().map(|(id, _)| *id).collect();
    job.claims.beginning(&ids)?; // LABEL-2
    let projection = group.seed.derive(job.session, "projection", &[]);

    let pads = bound.derive(job.session, "counts", &[]);

    // docs/spec/cells.md: the cells of each row, and how many rows all clients have in each.
    let known = match (params.cells, &rows) {
        (Some(cells), Rows::Features(features)) => {
            io.phase(cells::PHASE).await;
            let shape = cells::Shape::new(cells, &clients, params.min_clients)?;
            let secrets = cells::Secrets {
                session: job.session,
                me: job.me,
                suite: params.suite,
                group: &group,
                common: bound.derive(job.session, "cells", &[]),
                own: job.seed.derive(job.session, "cells", &[]),
            };
            Some(cells::client(&io, &shape, &secrets, features).await?)
        }
        _ => None,
    };

    // Steps 3 to 8, offline: the trees. The client gets all leaves but those of its labels. Between
    // steps 5 and 7 the backend makes its preparations.
    io.phase(phases::OFFLINE).await;
    let seed = job.seed.derive(job.session, "influence", &[]);
    let choosing = offline::choose(&io, job.session, job.me, &job.labelling, seed).await?;
    let mut context = job.distance_context(group, &bound, &clients);
    let mut dummies = job.seed.derive(job.session, "dummies", &[]);
    let mut slots = None;
    if let Some(known) = known {
        // Slots follow from what the server has sent, and so do all secrets from here on.
        let bind = |seed: &Seed| known.heard.bind(job.session, seed);
        (context.seed, context.secret) = (bind(&context.seed), bind(&context.secret));
        (context.clients, context.cells) = (known.clients, Some(known.cells));
        dummies = bind(&dummies);
        slots = Some(known.slots);
    }
    let preparation = hamming::prepare(params.backend, params.bits, context)?;
    let prepared = io.run(preparation).await?;
    let trees = offline::puncture(&io, choosing).await?;

    // Step 9, codes: the client hashes its rows under the projection, which only clients know.
    io.phase(phases::CODES).await;
    let codes = job.hash(&projection, rows);

    // docs/spec/distances.md, step 1: for each row its label flag and its nearest own rows.
    io.phase(phases::DISTANCES).await;
    let mut near = Distances::new(&[codes.bits().rows()], params.neighbours);
    let pairs = Pairs::own(0, near.rows());
    for done in (0..pairs.len()).step_by(tiles::PER_STEP) {
        let end = pairs.len().min(done + tiles::PER_STEP);
        solo::sweep(&codes, &pairs, done..end, &mut near);
        io.pause().await;
    }
    let shape = OwnRows::new(near.rows(), params);
    let mut sent = 0;
    loop {
        let (message, next) = shape.write(sent, &job.labelling, &near);
        io.send(SERVER, message);
        io.pause().await;
        sent = next;
        if sent == near.rows() {
            break;
        }
    }
    drop(near);

    // docs/spec/distances.md, step 3: the backend brings the server the other distances.
    let mut codes = codes.into_bits();
    if let Some(slots) = slots {
        codes = slots.codes(&codes, &mut dummies.prg());
    }
    io.run(hamming::client(codes, prepared)?).await?;

    // Step 14, influence: the plan, which says how many unlabelled rows there are.
    io.phase(phases::INFLUENCE).await;
    let plan = Plan::read(&io.require(SERVER).await?, &job.labelling, &clients)?;

    // Steps 17 and 19: the masked columns of its labelled rows become its shares of all scores.
    let mut columns = Columns::new(plan, trees, &job.labelling);
    while !columns.is_done() {
        columns.receive(&io.require(SERVER).await?)?;
    }

    // Step 20: the secure sum of all shares. Steps 21 and 22: the scores.
    let sums = io.run(job.sums(columns, &pads)?).await?;
    let scores = job.scores(sums, &pads);

    // Steps 23 to 25: the labels.
    io.phase(phases::LABELS).await;
    Ok(Outcome {
        labels: Labels::decide(&job.labelling, &scores),
        scores,
        warning,
    })
}

#[cfg(test)]
mod tests {
    use undertone_kernel::BitMatrix;

    use super::*;

    /// LABEL-1.
    #[test]
    fn others_with_too_many_rows_are_refused() {
        let me = PartyId::client(0);
        let clients = Clients {
            rows: vec![(me, 9), (PartyId::client(1), 8)],
            dim: 0,
            classes: 2,
        };
        for limit in [None, Some(8)] {
            assert_eq!(clients.check_rows(me, limit), Ok(()));
        }
        let refused = clients.check_rows(me, Some(7)).unwrap_err();
        assert!(refused.to_string().contains("at most 7 are allowed"));
    }

    /// CODE-4, CODE-5.
    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let params = Params::default();
        let codes = |bits| Rows::Codes(Codes::from_bits(BitMatrix::zero(3, bits)));
        let refused = |bits, labels: usize| {
            let labelling = Labelling::new(2, vec![None; labels]).unwrap();
            let refused = Input::new(codes(bits), labelling, Answering::Made(None)).check(&params);
            refused.unwrap_err().to_string()
        };
        assert!(refused(params.bits + 1, 3).contains("codes: bits"));
        assert!(refused(params.bits, 2).contains("labels: rows"));
    }
}
