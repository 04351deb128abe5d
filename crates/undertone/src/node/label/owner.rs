//! The client's half of the application.

use undertone_job::record::{self, Record};
use undertone_label::{self as label, LabelNoise, Labelling, Outcome, Rows, Scale, scaling};
use undertone_node::{Application, Decline, Facts, Next, Participant, Seat, Unwilling};
use undertone_party::{Abort, Party, PartyId};
use undertone_setup::identity::Credentials;
use undertone_table::labels::renumber;

use super::{Job, Label, Terms};

/// The client's half: rows, labels and terms, and the results of a job.
///
/// An owner serves jobs of one roster. Its record refuses two sums of the same rows for different
/// clients.
#[derive(Debug)]
pub struct Owner {
    rows: Rows,
    /// The labels as the owner gave them.
    own: Labelling,
    /// The labels under the classes of the job.
    labelling: Labelling,
    classes_stated: bool,
    noise: Option<LabelNoise>,
    terms: Terms,
    job: Option<Job>,
    record: Record,
    /// Number of the present job.
    number: u32,
    /// Means and deviations in the present job.
    scale: Option<Scale>,
    outcome: Option<Outcome>,
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

/// The result of a client's party in a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum Gained {
    /// Means and deviations.
    Scale(Scale),
    /// Labels and scores.
    Outcome(Outcome),
}

impl Owner {
    /// The owner of `rows`, which takes part on these `terms`. `record` is that of these rows.
    pub fn new(rows: Rows, labelling: Labelling, terms: Terms, record: Record) -> Self {
        Self {
            rows,
            own: labelling.clone(),
            labelling,
            classes_stated: true,
            noise: None,
            terms,
            job: None,
            record,
            number: 0,
            scale: None,
            outcome: None,
        }
    }

    /// Takes the number of classes that the job states, if it states one that the labels fit.
    /// Without this, a job with another number of classes is declined. Labels with names need no
    /// permission: they go by name.
    #[must_use]
    pub fn with_classes_of_the_job(self) -> Self {
        Self {
            classes_stated: false,
            ..self
        }
    }

    /// Puts noise on the labels before they enter a session. The server and other clients then
    /// learn about the labels only through the noise. The owner's own result has the labels without
    /// noise.
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

    /// The labels that the owner brings to a session instead of its own.
    fn brought(&self) -> Result<Labelling, Abort> {
        match &self.noise {
            None => Ok(self.labelling.clone()),
            Some(noise) => Ok(noise.apply(&self.rows, &self.labelling)?),
        }
    }

    /// The labels, with the classes of the job once it has agreed to one.
    pub fn labelling(&self) -> &Labelling {
        &self.labelling
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

impl Owner {
    /// The labels under the classes of the job. A job may state names, and the number of classes.
    fn labelling_for(&self, job: &Job) -> Result<Labelling, String> {
        let own = &self.own;
        let Some(names) = &job.class_names else {
            return self.counted(job.classes.unwrap_or(own.classes()));
        };
        if own.names() == names {
            return Ok(own.clone());
        }
        if self.noise.is_some() {
            return Err(
                "the job has other class names than this client; with noise on labels they must \
                 be the same: state them with --classes"
                    .to_owned(),
            );
        }
        if own.names().is_empty() {
            // NOISE-3
            self.counted(names.len())?;
        }
        // The server and all clients read why a job is declined: no label may be in it.
        let labels = renumber(own.labels(), own.names(), names).map_err(|_| {
            "this client has a label that is not among the class names of the job; join with \
             --classes and these names says which"
        })?;
        Labelling::new(names.len(), labels)
            .and_then(|labelling| labelling.with_names(names.clone()))
            .map_err(|error| error.to_string())
    }

    /// The labels, of so many classes.
    fn counted(&self, classes: usize) -> Result<Labelling, String> {
        let own = &self.own;
        if classes == own.classes() {
            return Ok(own.clone());
        }
        let declined = format!(
            "the job has {classes} classes, this client has {}; state them with --classes",
            own.classes()
        );
        if !own.names().is_empty() {
            return Err(format!("{declined}, or class_names in the job"));
        }
        // NOISE-3
        if self.classes_stated || self.noise.is_some() {
            return Err(declined);
        }
        Labelling::new(classes, own.labels().to_vec()).map_err(|_| declined)
    }
}

impl Participant for Owner {
    const NAME: &'static str = Label::NAME;

    type Output = Gained;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        let job = Job::from_offer(job).map_err(|error| error.to_string())?;
        Ok(job.facts())
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        let job = Job::from_offer(job).map_err(Decline::telling)?;
        self.terms.check(&job, signed).map_err(Decline::telling)?;
        if job.standardise && matches!(self.rows, Rows::Codes(_)) {
            return Err(Decline::telling(
                "the job standardises features, this client brings codes",
            ));
        }
        if self.terms.propagation.max_peer_rows == label::PeerRows::Features
            && self.rows.features().is_none()
        {
            return Err(Decline::keeping(
                "this client's terms do not fit its rows",
                "'features' as the most rows of another client needs features, and codes have \
                 none; give a number",
            ));
        }
        self.labelling = self.labelling_for(&job).map_err(|why| {
            Decline::keeping("the classes of the job are not those of this client", why)
        })?;
        let brought = self.record.bring("this client's data", self.rows.digests());
        brought.map_err(|why| Decline::keeping(record::TOLD, why))?;
        self.job = Some(job);
        Ok(())
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Gained> + 'static + use<>, Unwilling> {
        if self.number != seat.job {
            self.number = seat.job;
            self.scale = None;
        }
        if let Some(peers) = seat.peers {
            self.record.know(peers);
        }
        let job = self.job.as_ref();
        let last = job.map(|job| u32::from(job.standardise));
        let Some(job) = job.filter(|_| Some(seat.session) <= last) else {
            let why = format!(
                "it starts session number {}, which the job does not have",
                seat.session
            );
            return Err(Abort::cheated(PartyId::SERVER, why).into());
        };
        let max_peer_rows = self
            .terms
            .propagation
            .max_peer_rows
            .most(self.rows.features());
        let rows = match (&self.rows, job.standardise, &self.scale) {
            (Rows::Features(features), true, _) if seat.session == 0 => {
                let input = scaling::Input {
                    features: features.clone(),
                    credentials,
                    max_peer_rows,
                    answering: self.record.clone().into(),
                };
                let client = scaling::client(seat.me, seat.id, job.agreed(), input, seat.seed);
                return Ok(client.map_err(|_| unfit())?.map(Gained::Scale));
            }
            (Rows::Features(features), true, Some(scale)) => {
                Rows::Features(scale.apply(features).map_err(|_| unfit())?)
            }
            (_, true, _) => {
                let why = "this client has no means and deviations of the job: it missed the \
                           session that computes them, and can take part in the next job";
                return Err(Abort::Misuse(why.into()).into());
            }
            (rows, false, _) => rows.clone(),
        };
        let input = label::Input {
            credentials,
            max_peer_rows,
            ..label::Input::new(rows, self.brought()?, self.record.clone())
        };
        let client = label::client(seat.me, seat.id, job.agreed(), input, seat.seed)?;
        Ok(client.map(Gained::Outcome))
    }

    fn ended(&mut self, output: Gained) -> Next {
        match output {
            Gained::Scale(scale) => {
                self.scale = Some(scale);
                Next::Again
            }
            Gained::Outcome(mut outcome) => {
                if self.noise.is_some() {
                    outcome.labels.restore(&self.labelling);
                }
                self.outcome = Some(outcome);
                Next::Done
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(epsilon: Option<f64>) -> Owner {
        let rows = (0..60).map(|row| f64::from(row) + 1.0).collect();
        let rows = Rows::Features(label::Features::new(1, rows).unwrap());
        let labels = (0..60u16).map(|row| (row % 3).checked_sub(1));
        let labelling = Labelling::new(2, labels.collect()).unwrap();
        let owner = Owner::new(rows, labelling, Terms::default(), Record::simulated())
            .with_classes_of_the_job();
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
        let scores = label::Scores::new(2, vec![1.0; 40]);
        let labels = label::Labels::decide(&brought, &scores);
        noisy.ended(Gained::Outcome(Outcome {
            labels,
            scores,
            warning: None,
        }));
        let home = noisy.outcome.take().unwrap().labels;
        for row in noisy.labelling.labelled() {
            assert_eq!(home.classes()[row], noisy.labelling.labels()[row]);
        }
    }

    fn named(labels: &[u16], names: &[&str]) -> Owner {
        let rows = (0..labels.len()).map(|row| row as f64 + 1.0).collect();
        let rows = Rows::Features(label::Features::new(1, rows).unwrap());
        let labels = labels.iter().copied().map(Some).collect();
        let labelling = Labelling::new(names.len(), labels).unwrap();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let labelling = labelling.with_names(names).unwrap();
        Owner::new(rows, labelling, Terms::default(), Record::simulated()).with_classes_of_the_job()
    }

    fn job(text: &str) -> Vec<u8> {
        Job::parse(text, false).unwrap().to_offer()
    }

    /// Names are never dropped: two clients could mean other classes by the same number.
    #[test]
    fn labels_with_names_go_by_name() {
        let mut owner = named(&[0, 1], &["ash", "cedar"]);
        let declined = owner.agree(&job("classes = 3"), false).unwrap_err();
        assert!(declined.to_string().contains("class_names"), "{declined}");
        let three = job("class_names = [\"cedar\", \"birch\", \"ash\"]");
        // Every offer starts from the labels as they were given.
        for _ in 0..2 {
            owner.agree(&three, false).unwrap();
            assert_eq!(owner.labelling().labels(), [Some(2), Some(0)]);
            assert_eq!(owner.labelling().names(), ["cedar", "birch", "ash"]);
        }
        let declined = owner.agree(&job("class_names = [\"ash\", \"elm\"]"), false);
        let declined = declined.unwrap_err();
        let shown = format!("{declined}{}", declined.told());
        assert!(shown.contains("--classes") && !shown.contains("cedar"));
        owner.agree(&job(""), false).unwrap();
        assert_eq!(owner.labelling().labels(), [Some(0), Some(1)]);
    }

    /// Others read why a client leaves, and learn nothing of its rows by it.
    #[test]
    fn what_does_not_fit_is_not_told() {
        let seat = |session| Seat {
            id: undertone_party::SessionId([1; 32]),
            me: PartyId::client(0),
            seed: undertone_kdf::Seed::from_bytes([1; 32]),
            job: 1,
            session,
            peers: None,
        };
        let rows = label::Features::new(1, vec![3.5, 4e19]).unwrap();
        let labelling = Labelling::new(2, vec![Some(0), None]).unwrap();
        let mut owner = Owner::new(
            Rows::Features(rows),
            labelling,
            Terms::default(),
            Record::simulated(),
        );
        owner.agree(&job("standardise = true"), false).unwrap();
        let told = |refused: Unwilling| format!("{refused:?}");
        let large = told(owner.client(seat(0), None).err().unwrap());
        assert!(
            large.contains("standardised") && !large.contains("4e19"),
            "{large}"
        );
        // A row that is the mean.
        let alone = label::Features::new(1, vec![3.5, 3.5]).unwrap();
        owner.scale = Some(Scale::of(&alone).unwrap());
        let mean = told(owner.client(seat(1), None).err().unwrap());
        assert!(
            mean.contains("standardised") && !mean.contains("row 0"),
            "{mean}"
        );
    }

    #[test]
    fn numbers_get_the_names_of_the_job() {
        let mut owner = owner(None);
        for (names, first) in [
            ("[\"no\", \"yes\"]", Some(0)),
            ("[\"yes\", \"no\"]", Some(0)),
            ("[\"1\", \"0\"]", Some(1)),
        ] {
            let job = job(&format!("class_names = {names}"));
            owner.agree(&job, false).unwrap();
            assert_eq!(owner.labelling().labels()[1], first, "{names}");
        }
        assert!(
            owner
                .agree(&job("class_names = [\"1\", \"2\"]"), false)
                .is_err()
        );
    }

    #[test]
    fn no_field_of_a_job_is_a_fresh_draw() {
        let mut owner = owner(Some(1.0));
        let due = owner.brought().unwrap();
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
            owner.agree(&job(more), false).unwrap();
            assert_eq!(owner.brought().unwrap(), due, "{more}");
        }
    }

    #[test]
    fn codes_have_no_features_to_count() {
        let bits = undertone_kernel::BitMatrix::zero(60, 4096);
        let rows = Rows::Codes(label::Codes::from_bits(bits));
        let labelling = Labelling::new(2, vec![None; 60]).unwrap();
        let terms = |max_peer_rows| Terms {
            propagation: label::PropagationTerms {
                max_peer_rows,
                ..label::PropagationTerms::default()
            },
            ..Terms::default()
        };
        let mut agreed = [label::PeerRows::Features, label::PeerRows::Rows(50)].map(|most| {
            let (rows, labelling) = (rows.clone(), labelling.clone());
            let mut owner = Owner::new(rows, labelling, terms(most), Record::simulated());
            owner.agree(&job("classes = 2"), false)
        });
        assert!(agreed[1].is_ok());
        let declined = std::mem::replace(&mut agreed[0], Ok(())).unwrap_err();
        assert!(declined.to_string().contains("give a number"), "{declined}");
    }

    /// NOISE-3. With another number of classes every label would be a fresh draw.
    #[test]
    fn an_owner_with_noise_does_not_take_classes_of_the_job() {
        let job = Job::parse("classes = 5", false).unwrap().to_offer();
        assert_eq!(owner(None).agree(&job, false), Ok(()));
        let declined = owner(Some(1.0)).agree(&job, false).unwrap_err();
        assert!(declined.to_string().contains("--classes"), "{declined}");
        let job = Job::parse("classes = 2", false).unwrap().to_offer();
        assert_eq!(owner(Some(1.0)).agree(&job, false), Ok(()));
    }
}
