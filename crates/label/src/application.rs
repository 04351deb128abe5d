//! The two halves of the application.

use std::sync::Arc;

use undertone_job::{Application, Entries, Next, Participant, SessionContext, Unwilling};
use undertone_party::{Abort, Aborted, PartyId, Phase, Script};

use crate::classes::{Classes, under};
use crate::client::{Input, Outcome, client};
use crate::codes::Together;
use crate::input::Labelling;
use crate::job::Job;
use crate::label_noise::LabelNoise;
use crate::rows::Rows;
use crate::scaling::{self, Scale};
use crate::server::{Report, server};
use crate::terms::{PeerRows, Terms};
use crate::{Params, phases};

/// The server's half: one session, or two if the job standardises features.
#[derive(Debug)]
pub struct Server {
    job: Job,
    /// The clients whose rows are in the means and deviations of the present job.
    scaled: Option<Vec<PartyId>>,
    results: Entries,
}

/// The result of the server's party in a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended {
    /// Clients have means and deviations: these contributed.
    Scaled(Vec<PartyId>),
    /// Clients have labels.
    Labelled(Report),
}

impl Server {
    /// The server of `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            scaled: None,
            results: Entries::new(),
        }
    }
}

impl Application for Server {
    type Job = Job;
    type Report = Ended;

    fn job(&self) -> &Job {
        &self.job
    }

    fn phases(&self) -> Vec<Phase> {
        phases::ALL.to_vec()
    }

    fn needed(&self, roster: usize) -> usize {
        let params = &self.job.params;
        params.trust.needed(params.min_clients, roster)
    }

    fn begin(&mut self) {
        self.scaled = None;
        self.results.clear();
    }

    fn number(&self) -> u32 {
        u32::from(self.scaled.is_some())
    }

    fn eligible(&self) -> Option<Vec<PartyId>> {
        self.scaled.clone()
    }

    fn server(
        &mut self,
        at: SessionContext,
        clients: Vec<PartyId>,
    ) -> Result<Script<'static, Ended>, Abort> {
        let params = self.job.agreed();
        if self.job.standardise && self.scaled.is_none() {
            let server = scaling::server(at.id, params, clients, at.seed)?;
            Ok(server.map(Ended::Scaled))
        } else {
            let server = server(at.id, params, clients, at.seed)?;
            Ok(server.map(Ended::Labelled))
        }
    }

    fn ended(&mut self, report: Result<&Ended, &Aborted>) -> Next {
        self.scaled = match report {
            Ok(Ended::Scaled(contributors)) => Some(contributors.clone()),
            Ok(Ended::Labelled(report)) => {
                if let Some(warning) = &report.warning {
                    tracing::warn!("{warning}");
                }
                self.results.extend([
                    ("contributors".to_owned(), report.contributors.len().into()),
                    ("rows".to_owned(), report.labelled.len().into()),
                ]);
                None
            }
            Err(_) => None,
        };
        if self.scaled.is_some() {
            Next::Again
        } else {
            Next::Done
        }
    }

    fn results(&self) -> Entries {
        self.results.clone()
    }
}

/// The client's half: its rows, their labels and its terms.
#[derive(Debug)]
pub struct Client {
    terms: Terms,
    rows: Rows,
    /// The labels as the client gave them, and under the classes of the job once it has agreed.
    labelling: Labelling,
    classes: Classes,
    noise: Option<LabelNoise>,
    /// Where clients of one process hash their rows.
    together: Option<Arc<Together>>,
    /// Number of the present job.
    job: u32,
    /// Means and deviations in the present job.
    scale: Option<Scale>,
}

/// The result of the client's party in a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum Gained {
    /// Means and deviations.
    Scale(Scale),
    /// Labels and scores.
    Outcome(Outcome),
}

impl Gained {
    /// Labels and scores, once the job is done.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Scale(_) => None,
            Self::Outcome(outcome) => Some(outcome),
        }
    }
}

/// Features that cannot be standardised. The server and all clients read why a client leaves: no
/// row or value may be in it.
fn unfit() -> Abort {
    Abort::Misuse(
        "this client's features cannot be standardised: a value is 9.2e18 or more, or a row equals \
         the mean of all rows; leave such rows out"
            .into(),
    )
}

impl Client {
    /// A client with these `terms`, which brings `rows` and their labels.
    pub fn new(terms: Terms, rows: Rows, labelling: Labelling) -> Self {
        Self {
            terms,
            rows,
            labelling,
            classes: Classes::Stated,
            noise: None,
            together: None,
            job: 0,
            scale: None,
        }
    }

    /// Takes the number of classes that the job states, if it states one that the labels fit.
    /// Without this, the client declines a job with another number. Labels with names need no
    /// permission: they go by name.
    ///
    /// Noise on labels rules this out.
    #[must_use]
    pub fn with_classes_of_the_job(mut self) -> Self {
        if self.noise.is_none() {
            self.classes = Classes::OfTheJob;
        }
        self
    }

    /// Puts noise on the labels before they enter a session. The server and other clients then
    /// learn about the labels only through the noise. The client's own result has the labels
    /// without noise.
    ///
    /// The number of classes must then be the client's, and must not follow from its labels: it
    /// declines a job with another number, as that would be a fresh draw for every label.
    #[must_use]
    pub fn with_label_noise(self, noise: LabelNoise) -> Self {
        Self {
            noise: Some(noise),
            classes: Classes::StatedWithNoise,
            ..self
        }
    }

    /// Hashes its rows with those of other clients of this process.
    pub(crate) fn hashing_together(self, together: Arc<Together>) -> Self {
        Self {
            together: Some(together),
            ..self
        }
    }

    /// The labels, with the classes of the job once the client has agreed to one.
    pub fn labelling(&self) -> &Labelling {
        &self.labelling
    }

    /// The labels that the client brings to a session instead of its own.
    fn brought(&self) -> Result<Labelling, Abort> {
        match &self.noise {
            None => Ok(self.labelling.clone()),
            Some(noise) => Ok(noise.apply(&self.rows, &self.labelling)?),
        }
    }

    /// The client's party in the session that labels `rows`.
    fn labelled(
        &self,
        params: Params,
        rows: Rows,
        at: SessionContext,
    ) -> Result<Script<'static, Gained>, Abort> {
        if let (Some(together), Rows::Features(features)) = (&self.together, &rows) {
            together.expect(features.clone());
        }
        let input = Input {
            credentials: at.credentials,
            max_peer_rows: self.most(),
            together: self.together.clone(),
            ..Input::new(rows, self.brought()?, at.record)
        };
        let client = client(at.me, at.id, params, input, at.seed)?;
        let own = self.noise.is_some().then(|| self.labelling.clone());
        Ok(client.map(move |mut outcome| {
            if let Some(own) = &own {
                outcome.labels.restore(own);
            }
            Gained::Outcome(outcome)
        }))
    }

    /// Most rows of another client.
    fn most(&self) -> Option<usize> {
        let most = self.terms.propagation.max_peer_rows;
        most.most(self.rows.features())
    }
}

impl Participant for Client {
    type Job = Job;
    type Terms = Terms;
    type Output = Gained;

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn prepare(&mut self, job: &Job) -> Result<(), String> {
        if self.rows.features().is_none() {
            if job.standardise {
                return Err("the job standardises features, this client brings codes".to_owned());
            }
            if job.cells > 0 {
                return Err("the job has cells of features, this client brings codes".to_owned());
            }
            if self.terms.propagation.max_peer_rows == PeerRows::Features {
                return Err(
                    "'features' as the most rows of another client needs features, and codes have \
                     none; give a number"
                        .to_owned(),
                );
            }
        }
        self.labelling = under(&self.labelling, self.classes, job)?;
        Ok(())
    }

    fn rows(&self) -> Option<Vec<[u8; 32]>> {
        Some(self.rows.digests())
    }

    fn client(
        &mut self,
        job: &Job,
        at: SessionContext,
    ) -> Result<Script<'static, Gained>, Unwilling> {
        if self.job != at.job {
            self.job = at.job;
            self.scale = None;
        }
        if at.number > u32::from(job.standardise) {
            let why = format!(
                "it starts session number {}, which the job does not have",
                at.number
            );
            return Err(Abort::cheated(PartyId::SERVER, why).into());
        }
        let params = job.agreed();
        let Rows::Features(features) = &self.rows else {
            return Ok(self.labelled(params, self.rows.clone(), at)?);
        };
        if !job.standardise {
            return Ok(self.labelled(params, self.rows.clone(), at)?);
        }
        if at.number == 0 {
            let input = scaling::Input {
                features: features.clone(),
                credentials: at.credentials,
                max_peer_rows: self.most(),
                answering: at.record.into(),
            };
            let client = scaling::client(at.me, at.id, params, input, at.seed);
            return Ok(client.map_err(|_| unfit())?.map(Gained::Scale));
        }
        let Some(scale) = &self.scale else {
            let why = "this client has no means and deviations of the job: it missed the session \
                       that computes them, and can take part in the next job";
            return Err(Abort::Misuse(why.into()).into());
        };
        let rows = scale.apply(features).map_err(|_| unfit())?;
        Ok(self.labelled(params, Rows::Features(rows), at)?)
    }

    fn ended(&mut self, gained: &Gained) -> Next {
        match gained {
            Gained::Scale(scale) => {
                self.scale = Some(scale.clone());
                Next::Again
            }
            Gained::Outcome(_) => Next::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use undertone_job::record::{Claim, Place, TOLD, Volatile};
    use undertone_job::testing::PowerCut;
    use undertone_job::{Agreed, Known, Record, settle};
    use undertone_kdf::Seed;
    use undertone_kernel::BitMatrix;
    use undertone_party::SessionId;

    use super::*;
    use crate::codes::Codes;
    use crate::input::Features;
    use crate::terms::PropagationTerms;

    /// After means and deviations only their contributors can go on; the next job is for all.
    #[test]
    fn who_missed_the_first_session_waits_for_the_next_job() {
        let mut server = Server::new(Job {
            standardise: true,
            ..Job::default()
        });
        assert_eq!((server.number(), server.eligible()), (0, None));
        let contributors = vec![PartyId::client(0), PartyId::client(2)];
        let scaled = server.ended(Ok(&Ended::Scaled(contributors.clone())));
        assert_eq!(scaled, Next::Again);
        assert_eq!(
            (server.number(), server.eligible()),
            (1, Some(contributors))
        );
        let failed = Aborted {
            party: PartyId::SERVER,
            phase: phases::SETUP,
            cause: Abort::Misuse("a test".into()),
        };
        assert_eq!(server.ended(Err(&failed)), Next::Done);
        assert_eq!((server.number(), server.eligible()), (0, None));
    }

    fn client_of(epsilon: Option<f64>) -> Client {
        let rows = (0..60).map(|row| f64::from(row) + 1.0).collect();
        let rows = Rows::Features(Features::new(1, rows).unwrap());
        let labels = (0..60u16).map(|row| (row % 3).checked_sub(1));
        let labelling = Labelling::new(2, labels.collect()).unwrap();
        let client = Client::new(Terms::default(), rows, labelling);
        match epsilon {
            None => client.with_classes_of_the_job(),
            Some(epsilon) => {
                let noise = LabelNoise::new(epsilon, Seed::from_bytes([1; 32])).unwrap();
                client.with_label_noise(noise).with_classes_of_the_job()
            }
        }
    }

    fn job(text: &str) -> Job {
        settle(settle::parse(text).unwrap(), Known::new(false)).unwrap()
    }

    #[test]
    fn a_client_brings_noisy_labels() {
        let noisy = client_of(Some(1.0));
        let brought = noisy.brought().unwrap();
        assert_ne!(brought, noisy.labelling);
        assert_eq!(brought, noisy.brought().unwrap());
        assert!(brought.labelled().eq(noisy.labelling.labelled()));
        assert_eq!(client_of(None).brought().unwrap(), noisy.labelling);
    }

    #[test]
    fn no_field_of_a_job_is_a_fresh_draw() {
        let due = client_of(Some(1.0)).brought().unwrap();
        for more in [
            "",
            "bits = 512",
            "neighbours = 5",
            "alpha = 0.9",
            "variant = \"paper\"",
            "backend = \"phe\"",
            "suite = \"chacha20\"",
            "min_clients = 4",
            "key_bits = 2048",
            "malicious_server = true",
            "standardise = true",
            "classes = 2",
        ] {
            let mut client = client_of(Some(1.0));
            client.prepare(&job(more)).unwrap();
            assert_eq!(client.brought().unwrap(), due, "{more}");
        }
        // NOISE-3. With another number of classes every label would be a fresh draw.
        let declined = client_of(Some(1.0)).prepare(&job("classes = 5"));
        assert!(declined.unwrap_err().contains("--classes"));
        assert_eq!(client_of(None).prepare(&job("classes = 5")), Ok(()));
    }

    fn at(number: u32) -> SessionContext {
        let seed = Seed::from_bytes([1; 32]);
        SessionContext {
            number,
            ..SessionContext::new(SessionId([1; 32]), PartyId::client(0), seed)
        }
    }

    /// Others read why a client leaves, and learn nothing of its rows by it.
    #[test]
    fn what_does_not_fit_is_not_told() {
        let rows = Features::new(1, vec![3.5, 4e19]).unwrap();
        let labelling = Labelling::new(2, vec![Some(0), None]).unwrap();
        let mut client = Client::new(Terms::default(), Rows::Features(rows), labelling);
        let job = job("standardise = true");
        client.prepare(&job).unwrap();
        let told = |refused: Unwilling| format!("{refused:?}");
        let large = told(client.client(&job, at(0)).err().unwrap());
        assert!(
            large.contains("standardised") && !large.contains("4e19"),
            "{large}"
        );
        // A row that is the mean.
        let alone = Features::new(1, vec![3.5, 3.5]).unwrap();
        client.scale = Some(Scale::of(&alone).unwrap());
        let mean = told(client.client(&job, at(1)).err().unwrap());
        assert!(
            mean.contains("standardised") && !mean.contains("row 0"),
            "{mean}"
        );
        let more = told(client.client(&job, at(2)).err().unwrap());
        assert!(more.contains("does not have"), "{more}");
    }

    /// RECORD-3. Peers are told nothing of it.
    #[test]
    fn a_client_whose_record_is_of_other_rows_declines() {
        let disk = Arc::new(PowerCut::default());
        let folder = Path::new("/records");
        let record = Record::create_on(disk, || 0, folder, "ward-7", Volatile::Refused).unwrap();
        record.bring("others.csv", [[0; 32]]).unwrap();
        let place = Place {
            session: SessionId([1; 32]),
            seed: &Seed::from_bytes([1; 32]),
            job: [1; 32],
        };
        record.session(&place).claim(Claim::Pairs).unwrap();
        let mut client = Agreed::new(client_of(None), record);
        let declined = client.agree_to(job(""), false).unwrap_err();
        assert_eq!(declined.told(), TOLD);
        assert!(
            declined.to_string().contains("none of its 60 rows"),
            "{declined}"
        );
    }

    #[test]
    fn codes_have_no_features_to_count() {
        let rows = Rows::Codes(Codes::from_bits(BitMatrix::zero(60, 4096)));
        let agree = |max_peer_rows, text| {
            let terms = Terms {
                propagation: PropagationTerms {
                    max_peer_rows,
                    ..PropagationTerms::default()
                },
                ..Terms::default()
            };
            let labelling = Labelling::new(2, vec![None; 60]).unwrap();
            let client = Client::new(terms, rows.clone(), labelling);
            Agreed::new(client, Record::simulated()).agree_to(job(text), false)
        };
        assert_eq!(agree(PeerRows::Rows(50), ""), Ok(()));
        let declined = agree(PeerRows::Features, "").unwrap_err();
        assert!(declined.to_string().contains("give a number"), "{declined}");
        assert!(!declined.told().contains("codes"));
        assert!(agree(PeerRows::Any, "standardise = true").is_err());
    }
}
