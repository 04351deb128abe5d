//! The applications that tests of the network run.

use std::sync::{Arc, Mutex, PoisonError};

use undertone::arrays::Arrays;
use undertone::hamming::{Backend, Phe};
use undertone::job::Record;
use undertone::label::{Labelling, Outcome, Params, PropagationTerms, Rows, phases};
use undertone::node::client::{self, JoinError, Joined};
use undertone::node::label::{self, Label};
use undertone::node::sum::{self, Contribution, Mean, Sum};
use undertone::node::{Application, Participant, Seat};
use undertone::party::{Network, Party, PartyId, Phase};
use undertone::rounds::{self, Source};
use undertone::setup::identity::Credentials;
use undertone::sum as sums;

use super::Kit;
use crate::{random_clients, simulation};

/// Label propagation.
#[derive(Clone)]
pub struct Labels {
    /// The distance backend.
    pub backend: Backend,
    /// The number of rows of each client.
    pub rows: Vec<usize>,
}

impl Labels {
    /// Four clients, with codes of 200 bits.
    pub fn small(backend: Backend) -> Self {
        Self {
            backend,
            rows: vec![12, 7, 9, 8],
        }
    }

    /// The job with codes of `bits` bits.
    pub fn job(backend: Backend, bits: usize, neighbours: usize) -> label::Job {
        label::Job {
            params: Params {
                bits,
                neighbours,
                backend,
                phe: Phe::new(2048).unwrap_or_default(),
                ..Params::default()
            },
            ..label::Job::default()
        }
    }

    fn data(&self) -> Vec<(Rows, Labelling)> {
        random_clients(&self.rows, 200, 3).unwrap_or_default()
    }

    fn terms() -> label::Terms {
        label::Terms {
            propagation: PropagationTerms::anything(),
            malicious_server: Some(false),
            ..label::Terms::default()
        }
    }
}

impl Kit for Labels {
    type Application = Label;
    type Outcome = Outcome;

    fn clients(&self) -> usize {
        self.rows.len()
    }

    fn application(&self, min_clients: usize) -> Label {
        let mut job = Self::job(self.backend, 200, 3);
        job.params.min_clients = min_clients;
        Label::new(job)
    }

    fn phases(&self) -> Vec<Phase> {
        vec![
            phases::SETUP,
            phases::DISTANCES,
            phases::INFLUENCE,
            sums::KEYS,
            sums::SHARES,
            sums::UPLOAD,
            sums::UNMASK,
        ]
    }

    fn possible(&self, victim: usize) -> Vec<Vec<Option<Outcome>>> {
        let params = Self::job(self.backend, 200, 3).params;
        let mut all: Vec<Vec<Option<Outcome>>> = Vec::new();
        for frames in 0.. {
            let network = Network::new().leave(PartyId::client(victim), frames);
            let Ok(run) = simulation(params, self.data()).run_over(network) else {
                continue;
            };
            let outcomes: Vec<Option<Outcome>> = run.clients.into_iter().map(Result::ok).collect();
            let is_whole = outcomes[victim].is_some();
            if !all.contains(&outcomes) {
                all.push(outcomes);
            }
            if is_whole {
                break;
            }
        }
        all
    }

    fn party(
        &self,
        index: usize,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> impl Party + 'static {
        let (rows, labelling) = self.data().swap_remove(index);
        let mut owner = label::Owner::new(rows, labelling, Self::terms(), Record::simulated());
        let agreed = owner.agree(&self.application(3).offer(), false);
        assert_eq!(agreed, Ok(()));
        owner
            .client(seat, credentials)
            .expect("a client of the job")
    }

    async fn join(
        &self,
        config: client::Config,
        index: usize,
    ) -> Result<(Outcome, Joined), JoinError> {
        let (rows, labelling) = self.data().swap_remove(index);
        let never = std::future::pending();
        let record = Record::simulated();
        label::join(&config, rows, labelling, Self::terms(), record, never).await
    }
}

/// Weighted means, one round or many.
#[derive(Clone)]
pub struct Means {
    /// The number of clients.
    pub clients: usize,
    /// The number of rounds.
    pub rounds: u32,
    /// The number of values that a client contributes.
    pub values: usize,
}

impl Means {
    /// Four clients, one round.
    pub fn small() -> Self {
        Self {
            clients: 4,
            rounds: 1,
            values: 300,
        }
    }

    /// The job, which needs `min_clients` clients, any of them.
    pub fn job(&self, min_clients: usize) -> sum::Job {
        sum::Job {
            rounds: self.rounds,
            min_clients,
            clients: self.clients,
            groups: None,
            ..sum::Job::default()
        }
    }

    /// The contribution of client `index` to a round.
    ///
    /// # Panics
    /// When there are fewer than two values.
    pub fn contribution(&self, index: usize, round: u32) -> Contribution {
        let value = |at: usize| ((at * 37 + index * 101 + round as usize * 7) % 1999) as f64 / 64.0;
        let mut arrays = Arrays::new();
        let half = self.values / 2;
        let values: Vec<f64> = (0..self.values).map(value).collect();
        let pushed = arrays
            .push("first", vec![half], values[..half].to_vec())
            .and_then(|()| arrays.push("rest", vec![self.values - half], values[half..].to_vec()));
        assert!(pushed.is_ok());
        Contribution {
            arrays,
            weight: (index + 1) as f64,
        }
    }

    /// The mean of a round with these contributors.
    pub fn mean(&self, round: u32, contributors: &[usize]) -> Option<Mean> {
        let job = self.job(2);
        let mut sum = vec![0u64; job.words(self.values)];
        for index in contributors {
            let own = self.contribution(*index, round);
            let (words, _) = job.encode(&own.arrays, own.weight).ok()?;
            for (sum, word) in sum.iter_mut().zip(words.iter()) {
                *sum = sum.wrapping_add(*word);
            }
        }
        let layout = self.contribution(0, round).arrays.layout();
        let ids = contributors.iter().copied().map(PartyId::client).collect();
        job.decode(round, ids, &layout, &sum)
    }

    /// The terms of a client.
    pub fn terms() -> sum::Terms {
        sum::Terms {
            min_clients: 2,
            groups: None,
            malicious_server: Some(false),
            ..sum::Terms::default()
        }
    }
}

/// A source that gives the contributions of a kit and keeps the means.
struct Given {
    kit: Means,
    index: usize,
    means: Arc<Mutex<Vec<Arc<Mean>>>>,
}

impl Source for Given {
    fn contribute(&mut self, round: &rounds::Round) -> Result<Contribution, String> {
        Ok(self.kit.contribution(self.index, round.number))
    }

    fn mean(&mut self, mean: &Arc<Mean>) -> Result<(), String> {
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        means.push(Arc::clone(mean));
        Ok(())
    }
}

impl Kit for Means {
    type Application = Sum;
    type Outcome = Vec<Arc<Mean>>;

    fn clients(&self) -> usize {
        self.clients
    }

    fn application(&self, min_clients: usize) -> Sum {
        Sum::new(self.job(min_clients))
    }

    /// Without the last phase: in it a client sends nothing and may have the mean already.
    fn restarts(&self) -> Vec<Phase> {
        let phases = self.phases().into_iter();
        phases.take_while(|phase| *phase != sums::UPLOAD).collect()
    }

    fn phases(&self) -> Vec<Phase> {
        let phases = rounds::PHASES.into_iter();
        phases.filter(|phase| *phase != rounds::RESULT).collect()
    }

    fn possible(&self, victim: usize) -> Vec<Vec<Option<Self::Outcome>>> {
        let all: Vec<usize> = (0..self.clients).collect();
        let mut others = all.clone();
        others.retain(|index| *index != victim);
        let outcome = |of: &[usize]| -> Vec<Option<Self::Outcome>> {
            let mean = self.mean(1, of).map(|mean| vec![Arc::new(mean)]);
            all.iter().map(|_| mean.clone()).collect()
        };
        vec![outcome(&others), outcome(&all)]
    }

    fn party(
        &self,
        index: usize,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> impl Party + 'static {
        let source = Given {
            kit: self.clone(),
            index,
            means: Arc::default(),
        };
        let mut contributor = sum::Contributor::new(source, Self::terms(), Record::simulated());
        let agreed = contributor.agree(&self.application(3).offer(), false);
        assert_eq!(agreed, Ok(()));
        contributor
            .client(seat, credentials)
            .expect("a client of the job")
    }

    async fn join(
        &self,
        config: client::Config,
        index: usize,
    ) -> Result<(Self::Outcome, Joined), JoinError> {
        let means = Arc::<Mutex<Vec<Arc<Mean>>>>::default();
        let source = Given {
            kit: self.clone(),
            index,
            means: Arc::clone(&means),
        };
        let never = std::future::pending();
        let joined =
            sum::join_with(&config, source, Self::terms(), Record::simulated(), never).await?;
        let means = means.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((means.clone(), joined))
    }
}
