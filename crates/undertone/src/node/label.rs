//! The application `label`: label propagation over the rows of all clients, by [`xclp`].
//!
//! A job is one session. Its file, `job.toml`, may say:
//!
//! ```toml
//! application = "label"    # the default
//! backend = "psm"          # psm, shade, phe, sketch, clear
//! bits = 4096
//! neighbours = 10
//! alpha = 0.99
//! variant = "balanced"     # balanced, paper
//! suite = "aes128ctr"      # aes128ctr, chacha20
//! malicious_server = true  # whether sums stay private if the server cheats; true by default if
//!                          # all clients of the roster have keys
//! min_clients = 3
//! key_bits = 3072          # of phe
//! # classes = 10
//!
//! [deadlines]              # seconds without progress, phase by phase
//! default = 120
//! "sum keys" = 30
//! ```
//!
//! The server:
//!
//! ```no_run
//! use undertone::node::label::{Job, Label};
//! use undertone::node::server::{Config, Server};
//! use undertone::node::{Certificate, Roster};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let read = std::fs::read_to_string;
//! let certificate = Certificate::from_pem(&read("server.pem")?, &read("server.key")?)?;
//! let roster = Roster::parse(&read("roster.toml")?)?;
//! let job = Job::parse(&read("job.toml")?, roster.is_signed())?;
//! let config = Config {
//!     jobs: Some(1),
//!     ..Config::new(roster, certificate)
//! };
//! let server = Server::bind("0.0.0.0:7431".parse()?, config, Label::new(job)).await?;
//! server
//!     .run(std::future::pending(), |report| println!("{}", report.result))
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! One of its clients:
//!
//! ```no_run
//! use undertone::node::label::{Terms, join};
//! use undertone::node::{Roster, client::Config};
//! use undertone::setup::identity::Identity;
//! use undertone::xclp::{Features, Labelling, Rows};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn take_part(rows: Features, labels: Labelling) -> Result<(), Failure> {
//! let read = std::fs::read_to_string;
//! let config = Config {
//!     identity: Some(Identity::from_pem(&read("client.key")?)?),
//!     ..Config::new("server.example:7431".into(), read("ca.pem")?, "ward-1".into())
//! }
//! .with_roster(Roster::parse(&read("roster.toml")?)?);
//! let (rows, stop) = (Rows::Features(rows), std::future::pending());
//! let (outcome, _) = join(&config, rows, labels, Terms::default(), stop).await?;
//! println!("{:?}", outcome.labels.classes());
//! # Ok(())
//! # }
//! ```
//!
//! A client that puts [noise](undertone_xclp::label_noise) on its labels keeps a seed for it:
//!
//! ```no_run
//! use undertone::kdf::Seed;
//! use undertone::node::client::{self, Config};
//! use undertone::node::label::{Owner, Terms};
//! use undertone::xclp::{Features, LabelNoise, Labelling, Rows};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn take_part(config: Config, rows: Features, labels: Labelling) -> Result<(), Failure> {
//! // 32 bytes of `Seed::from_os`, kept since the first job.
//! let kept: [u8; 32] = std::fs::read("label.seed")?.try_into().map_err(|_| "not 32 bytes")?;
//! let noise = LabelNoise::new(2.0, Seed::from_bytes(kept))?;
//! let owner = Owner::new(Rows::Features(rows), labels, Terms::default());
//! let mut owner = owner.with_label_noise(noise);
//! client::join(&config, &mut owner, std::future::pending()).await?;
//! println!("{:?}", owner.into_outcome());
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use undertone_hamming::{Backend, Phe};
use undertone_node::client::{self, JoinError, Joined};
use undertone_node::{Application, Facts, JobError, Next, Participant, Seat, Unwilling, deadlines};
use undertone_party::{Abort, Aborted, Party, PartyId, Phase};
use undertone_setup::identity::Credentials;
use undertone_sum::{Answered, Suite, Trust, Wiring};
use undertone_xclp::{
    self as xclp, LabelNoise, Labelling, Outcome, Params, Report, Rows, Variant, phases,
};

/// The parameters of a job.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Job {
    /// The parameters.
    pub params: Params,
    /// How many classes there are. `None` leaves this to the clients.
    pub classes: Option<usize>,
}

/// A job on paper: what a file says, and what clients are offered.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    backend: String,
    bits: usize,
    neighbours: usize,
    alpha: f64,
    variant: String,
    suite: String,
    malicious_server: Option<bool>,
    min_clients: usize,
    key_bits: usize,
    classes: Option<usize>,
}

impl Default for File {
    fn default() -> Self {
        let mut file = Self::of(&Job::default());
        file.malicious_server = None;
        file
    }
}

impl File {
    fn of(job: &Job) -> Self {
        let params = &job.params;
        Self {
            backend: params.backend.to_string(),
            bits: params.bits,
            neighbours: params.neighbours,
            alpha: params.alpha,
            variant: params.variant.to_string(),
            suite: params.suite.to_string(),
            malicious_server: Some(params.trust == Trust::MaliciousServer),
            min_clients: params.min_clients,
            key_bits: params.phe.key_bits(),
            classes: job.classes,
        }
    }
}

fn params(file: &File, signed: bool) -> Result<Params, JobError> {
    let wrong = |error: &dyn std::fmt::Display| JobError::new(error);
    let params = Params {
        bits: file.bits,
        neighbours: file.neighbours,
        alpha: file.alpha,
        variant: file.variant.parse::<Variant>().map_err(|e| wrong(&e))?,
        backend: file.backend.parse::<Backend>().map_err(|e| wrong(&e))?,
        phe: Phe::new(file.key_bits).map_err(|_| wrong(&"key_bits must be 2048, 3072 or 4096"))?,
        min_clients: file.min_clients,
        trust: if file.malicious_server.unwrap_or(signed) {
            Trust::MaliciousServer
        } else {
            Trust::SemiHonest
        },
        suite: file.suite.parse::<Suite>().map_err(|e| wrong(&e))?,
    };
    params.check().map_err(|e| wrong(&e))?;
    if let Some(classes) = file.classes.filter(|c| !(2..=1 << 16).contains(c)) {
        return Err(JobError::new(format!(
            "classes is {classes}; it must be 2 to 65536"
        )));
    }
    Ok(params)
}

impl Job {
    /// Reads a job file. What it leaves out has its default. `signed` says whether all clients of
    /// the roster have keys, without which sums are not private if the server cheats.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(text: &str, signed: bool) -> Result<Self, JobError> {
        let file: File = deadlines::parameters(text)?;
        Ok(Self {
            params: params(&file, signed)?,
            classes: file.classes,
        })
    }

    /// The job as clients are offered it: a job file that leaves nothing out.
    pub fn to_offer(&self) -> Vec<u8> {
        toml::to_string(&File::of(self)).unwrap_or_default().into()
    }

    /// Reads what [`Job::to_offer`] writes.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn from_offer(bytes: &[u8]) -> Result<Self, JobError> {
        let text = std::str::from_utf8(bytes).map_err(JobError::new)?;
        Self::parse(text, false)
    }

    /// The parameters, for people.
    pub fn facts(&self) -> Facts {
        let params = &self.params;
        let mut facts = Facts::from_iter([
            ("backend".to_owned(), params.backend.to_string().into()),
            ("bits".to_owned(), params.bits.into()),
            ("neighbours".to_owned(), params.neighbours.into()),
            ("alpha".to_owned(), params.alpha.into()),
            ("variant".to_owned(), params.variant.to_string().into()),
            ("suite".to_owned(), params.suite.to_string().into()),
            ("trust".to_owned(), trust(params.trust).into()),
            ("min_clients".to_owned(), params.min_clients.into()),
        ]);
        if let Some(classes) = self.classes {
            facts.insert("classes".to_owned(), classes.into());
        }
        facts
    }
}

/// Fewest clients with which a session begins. Where sums withstand a server that lies about who
/// has left, clients accept a few absent ones only.
pub(in crate::node) fn needed(min_clients: usize, trust: Trust, roster: usize) -> usize {
    match trust {
        Trust::SemiHonest => min_clients,
        Trust::MaliciousServer => min_clients.max(Wiring::default().fewest(roster)),
    }
}

/// What reports call a trust model.
pub(in crate::node) fn trust(trust: Trust) -> &'static str {
    match trust {
        Trust::SemiHonest => "semi-honest",
        Trust::MaliciousServer => "malicious-server",
    }
}

/// The server's half: one session.
#[derive(Debug)]
pub struct Label {
    job: Job,
    results: Facts,
}

impl Label {
    /// The application that runs `job`.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            results: Facts::new(),
        }
    }
}

impl Application for Label {
    const NAME: &'static str = "label";

    type Report = Report;

    fn phases(&self) -> Vec<Phase> {
        phases::ALL.to_vec()
    }

    fn offer(&self) -> Vec<u8> {
        self.job.to_offer()
    }

    fn describe(&self) -> Facts {
        self.job.facts()
    }

    fn needed(&self, roster: usize) -> usize {
        needed(self.job.params.min_clients, self.job.params.trust, roster)
    }

    fn begin(&mut self) {
        self.results.clear();
    }

    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Report> + 'static + use<>, Abort> {
        xclp::server(seat.id, self.job.params, clients, seat.seed)
    }

    fn ended(&mut self, session: Result<Report, &Aborted>) -> Next {
        if let Ok(report) = session {
            let contributors = report.contributors.len();
            self.results
                .insert("contributors".to_owned(), contributors.into());
            self.results
                .insert("rows".to_owned(), report.labelled.len().into());
        }
        Next::Done
    }

    fn results(&self) -> Facts {
        self.results.clone()
    }
}

/// The client's half: rows, labels and terms, and what they become.
#[derive(Debug)]
pub struct Owner {
    rows: Rows,
    labelling: Labelling,
    classes_stated: bool,
    noise: Option<LabelNoise>,
    terms: Terms,
    job: Option<Job>,
    /// Sessions with these labels, of whatever job.
    answered: Answered,
    outcome: Option<Outcome>,
}

impl Owner {
    /// The owner of `rows`, who takes part on these `terms`.
    pub fn new(rows: Rows, labelling: Labelling, terms: Terms) -> Self {
        Self {
            rows,
            labelling,
            classes_stated: true,
            noise: None,
            terms,
            job: None,
            answered: Answered::default(),
            outcome: None,
        }
    }

    /// Takes the number of classes that the job states, if it states one that the labels fit.
    /// Without this, a job with another number of classes is declined.
    #[must_use]
    pub fn with_classes_of_the_job(self) -> Self {
        Self {
            classes_stated: false,
            ..self
        }
    }

    /// Puts noise on the labels before they enter a session. Server and other clients learn nothing
    /// that depends on the labels but through the noise. The owner takes its own labels home as they
    /// are.
    ///
    /// The number of classes must then be the owner's, and must not follow from its labels: a job
    /// with another number is declined, as that would be a fresh draw for every label.
    #[must_use]
    pub fn with_label_noise(self, noise: LabelNoise) -> Self {
        Self {
            noise: Some(noise),
            ..self
        }
    }

    /// What the owner brings to a session in the place of its labels.
    fn brought(&self) -> Result<Labelling, Abort> {
        match &self.noise {
            None => Ok(self.labelling.clone()),
            Some(noise) => Ok(noise.apply(&self.rows, &self.labelling)?),
        }
    }

    /// The job that it has agreed to.
    pub fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    /// Labels and scores, once the job is done.
    pub fn into_outcome(self) -> Option<Outcome> {
        self.outcome
    }
}

impl Participant for Owner {
    const NAME: &'static str = Label::NAME;

    type Output = Outcome;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        let job = Job::from_offer(job).map_err(|error| error.to_string())?;
        Ok(job.facts())
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), String> {
        let job = Job::from_offer(job).map_err(|error| error.to_string())?;
        self.terms.check(&job, signed)?;
        let mine = self.labelling.classes();
        // NOISE-3
        if let Some(classes) = job.classes.filter(|classes| *classes != mine) {
            let labels = self.labelling.labels().to_vec();
            match Labelling::new(classes, labels) {
                Ok(labelling) if !self.classes_stated && self.noise.is_none() => {
                    self.labelling = labelling;
                }
                _ => {
                    return Err(format!(
                        "the job has {classes} classes, this client has {mine} (--classes)"
                    ));
                }
            }
        }
        self.job = Some(job);
        Ok(())
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Outcome> + 'static + use<>, Unwilling> {
        let Some(job) = self.job.filter(|_| seat.session == 0) else {
            let why = format!(
                "the job has one session, the server starts number {}",
                seat.session
            );
            return Err(Abort::cheated(PartyId::SERVER, why).into());
        };
        let input = xclp::Input {
            rows: self.rows.clone(),
            labelling: self.brought()?,
            credentials,
            max_peer_rows: self.terms.peer_rows(&job),
            answered: self.answered.clone(),
        };
        Ok(xclp::client(
            seat.me, seat.id, job.params, input, seat.seed,
        )?)
    }

    fn ended(&mut self, mut output: Outcome) -> Next {
        if self.noise.is_some() {
            output.labels.restore(&self.labelling);
        }
        self.outcome = Some(output);
        Next::Done
    }
}

/// Takes part in a job with `rows` and their labels, until the job ends or `stop` resolves.
///
/// # Errors
/// A [`JoinError`].
pub async fn join(
    config: &client::Config,
    rows: Rows,
    labelling: Labelling,
    terms: Terms,
    stop: impl Future<Output = ()> + Send,
) -> Result<(Outcome, Joined), JoinError> {
    let mut owner = Owner::new(rows, labelling, terms);
    let joined = client::join(config, &mut owner, stop).await?;
    let outcome = owner.into_outcome();
    let outcome = outcome.ok_or_else(|| JoinError::Abandoned("it has ended too early".into()))?;
    Ok((outcome, joined))
}

/// What a client agrees to, whatever the server asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Most bits of a code. Longer codes tell the server more precisely how close rows are.
    pub max_bits: usize,
    /// Most neighbours of a row. With more, scores tell its owner about more rows of others.
    pub max_neighbours: usize,
    /// Values of alpha. Beyond them, scores follow single neighbours or barely depend on them, and
    /// the server may take very long to solve for them.
    pub alpha: RangeInclusive<f64>,
    /// The least private backend, in the order of [`Backend::ALL`].
    pub backend_at_least: Backend,
    /// Fewest clients that the job may go on with.
    pub min_clients: usize,
    /// Most rows of another client. `None` allows a quarter of the bits with `shade` and `phe`, and
    /// any number with the other backends.
    pub max_peer_rows: Option<usize>,
    /// Whether to accept only jobs whose sums stay private if the server cheats. `None` asks for it
    /// where the client knows a key of every client on the roster.
    pub malicious_server: Option<bool>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            max_bits: 16384,
            max_neighbours: 64,
            alpha: 0.5..=0.9999,
            backend_at_least: Backend::Psm,
            min_clients: 3,
            max_peer_rows: None,
            malicious_server: None,
        }
    }
}

impl Terms {
    /// Checks a job against these terms. `signed` says whether the client knows a key of every
    /// client on the roster.
    ///
    /// # Errors
    /// What the job asks for, what these terms allow, and the option that changes that.
    pub fn check(&self, job: &Job, signed: bool) -> Result<(), String> {
        let params = &job.params;
        let rank = |backend| Backend::ALL.iter().position(|b| *b == backend);
        if params.bits > self.max_bits {
            return Err(format!(
                "the job has codes of {} bits, this client allows at most {} (--max-bits)",
                params.bits, self.max_bits
            ));
        }
        if params.neighbours > self.max_neighbours {
            return Err(format!(
                "the job has {} neighbours, this client allows at most {} (--max-neighbours)",
                params.neighbours, self.max_neighbours
            ));
        }
        if !self.alpha.contains(&params.alpha) {
            return Err(format!(
                "the job has alpha {}, this client allows {} to {} (--any-alpha)",
                params.alpha,
                self.alpha.start(),
                self.alpha.end()
            ));
        }
        if rank(params.backend) < rank(self.backend_at_least) {
            return Err(format!(
                "the job has backend {}, this client asks for at least {} (--backend-at-least)",
                params.backend, self.backend_at_least
            ));
        }
        if params.min_clients < self.min_clients {
            return Err(format!(
                "the job may go on with {} clients, this client asks for {} (--min-clients)",
                params.min_clients, self.min_clients
            ));
        }
        check_trust(params.trust, self.malicious_server, signed)
    }

    /// Most rows of another client in `job`.
    pub fn peer_rows(&self, job: &Job) -> Option<usize> {
        let quarter = match job.params.backend {
            Backend::Shade | Backend::Phe => Some(job.params.bits / 4),
            _ => None,
        };
        self.max_peer_rows.or(quarter)
    }
}

/// Checks whom a job's sums withstand. `insists` is `None` where the client insists on sums that
/// withstand a server that cheats if all clients are `signed`.
pub(in crate::node) fn check_trust(
    trust: Trust,
    insists: Option<bool>,
    signed: bool,
) -> Result<(), String> {
    if insists.unwrap_or(signed) && trust != Trust::MaliciousServer {
        return Err(
            "the job's sums are not private if the server cheats (malicious_server = true in the \
             job makes them so; --semi-honest accepts this)"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_the_wire() {
        let job = Job::parse(
            "backend = \"phe\"\nbits = 100\nclasses = 7\nkey_bits = 2048\nmalicious_server = true",
            false,
        )
        .unwrap();
        assert_eq!(Job::from_offer(&job.to_offer()), Ok(job));
        assert_eq!(Job::parse("", false), Ok(Job::default()));
        assert_eq!(
            Job::parse("application = \"label\"\n[deadlines]\nsetup = 3", false),
            Ok(Job::default())
        );
    }

    #[test]
    fn sums_withstand_a_cheating_server_where_all_clients_have_keys() {
        let trust = |text, signed| Job::parse(text, signed).unwrap().params.trust;
        assert_eq!(trust("", true), Trust::MaliciousServer);
        assert_eq!(trust("", false), Trust::SemiHonest);
        assert_eq!(trust("malicious_server = false", true), Trust::SemiHonest);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let says = |text| Job::parse(text, false).unwrap_err().to_string();
        assert!(says("bits = 0").contains("bits"));
        assert!(says("bots = 4").contains("bots"));
        assert!(says("alpha = 2.0").contains("alpha"));
        assert!(says("backend = \"plain\"").contains("plain"));
        assert!(says("key_bits = 12").contains("key_bits"));
        assert!(says("classes = 1").contains("classes"));
    }

    #[test]
    fn terms_refuse_what_they_do_not_allow() {
        let job = |text| Job::parse(text, false).unwrap();
        let terms = Terms::default();
        let says = |text| terms.check(&job(text), false).unwrap_err();
        assert!(terms.check(&Job::default(), false).is_ok());
        assert!(terms.check(&job("backend = \"phe\""), false).is_ok());
        assert!(
            terms
                .check(&job("neighbours = 64\nalpha = 0.5"), false)
                .is_ok()
        );
        assert!(says("backend = \"sketch\"").contains("--backend-at-least"));
        assert!(says("bits = 65535").contains("--max-bits"));
        assert!(says("min_clients = 2").contains("--min-clients"));
        assert!(says("neighbours = 65").contains("--max-neighbours"));
        assert!(says("alpha = 0.49").contains("--any-alpha"));
        assert_eq!(terms.peer_rows(&job("backend = \"shade\"")), Some(1024));
        assert_eq!(terms.peer_rows(&job("")), None);
    }

    fn owner(epsilon: Option<f64>) -> Owner {
        let rows = (0..60).map(|row| f64::from(row) + 1.0).collect();
        let rows = Rows::Features(xclp::Features::new(1, rows).unwrap());
        let labels = (0..60u16).map(|row| (row % 3).checked_sub(1));
        let labelling = Labelling::new(2, labels.collect()).unwrap();
        let owner = Owner::new(rows, labelling, Terms::default()).with_classes_of_the_job();
        match epsilon {
            None => owner,
            Some(epsilon) => {
                let seed = undertone_kdf::Seed::from_bytes([1; 32]);
                owner.with_label_noise(LabelNoise::new(epsilon, seed).unwrap())
            }
        }
    }

    #[test]
    fn an_owner_brings_noisy_labels_and_takes_its_own_home() {
        let mut noisy = owner(Some(1.0));
        let brought = noisy.brought().unwrap();
        assert_ne!(brought, noisy.labelling);
        assert_eq!(brought, noisy.brought().unwrap());
        assert!(brought.labelled().eq(noisy.labelling.labelled()));
        assert_eq!(owner(None).brought().unwrap(), noisy.labelling);
        let scores = xclp::Scores::new(2, vec![1.0; 40]);
        let labels = xclp::Labels::decide(&brought, &scores);
        noisy.ended(Outcome { labels, scores });
        let home = noisy.outcome.take().unwrap().labels;
        for row in noisy.labelling.labelled() {
            assert_eq!(home.classes()[row], noisy.labelling.labels()[row]);
        }
    }

    /// NOISE-3. With another number of classes every label would be a fresh draw.
    #[test]
    fn an_owner_with_noise_does_not_take_classes_of_the_job() {
        let job = Job::parse("classes = 5", false).unwrap().to_offer();
        assert_eq!(owner(None).agree(&job, false), Ok(()));
        let declined = owner(Some(1.0)).agree(&job, false).unwrap_err();
        assert!(declined.contains("--classes"), "{declined}");
        let job = Job::parse("classes = 2", false).unwrap().to_offer();
        assert_eq!(owner(Some(1.0)).agree(&job, false), Ok(()));
    }

    #[test]
    fn terms_insist_on_sums_that_withstand_the_server_where_clients_can() {
        let check = |malicious_server, text, signed| {
            let terms = Terms {
                malicious_server,
                ..Terms::default()
            };
            terms.check(&Job::parse(text, false).unwrap(), signed)
        };
        assert!(check(None, "", true).unwrap_err().contains("--semi-honest"));
        assert!(check(None, "", false).is_ok());
        assert!(check(None, "malicious_server = true", true).is_ok());
        assert!(check(Some(false), "", true).is_ok());
        assert!(check(Some(true), "", false).is_err());
    }
}
