//! The applications that tests of the network run.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use undertone::arrays::Arrays;
use undertone::hamming::{Backend, Phe};
use undertone::job::terms::Insist;
use undertone::job::{Agreed, Record, SessionContext};
use undertone::label::{self, Labelling, Outcome, Params, PropagationTerms, Rows, phases};
use undertone::node::Served;
use undertone::node::client::{self, JoinError, Joined};
use undertone::party::{Network, Party, PartyId, Phase};
use undertone::rounds::{self, Contribution, Mean, Sampling, Source};
use undertone::sum::{self as sums, SamplingTerms};

use super::Kit;
use crate::{random_clients, simulation};

/// The results of all clients, for each way in which a run can end.
type Possible = Arc<OnceLock<Vec<Vec<Option<Outcome>>>>>;

/// Label propagation.
#[derive(Clone, PartialEq)]
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

    fn client(&self, index: usize) -> label::Client {
        let (rows, labelling) = self.data().swap_remove(index);
        label::Client::new(Self::terms(), rows, labelling)
    }

    fn terms() -> label::Terms {
        label::Terms {
            propagation: PropagationTerms::anything(),
            malicious_server: Insist::Never,
            ..label::Terms::default()
        }
    }

    /// The results when client `victim` leaves after each number of messages.
    fn run_with_leaver(&self, victim: usize) -> Vec<Vec<Option<Outcome>>> {
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
}

impl Kit for Labels {
    type Application = label::Server;
    type Outcome = Outcome;

    fn clients(&self) -> usize {
        self.rows.len()
    }

    fn application(&self, min_clients: usize) -> Served<label::Server> {
        let mut job = Self::job(self.backend, 200, 3);
        job.params.min_clients = min_clients;
        Served::new(label::Server::new(job))
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

    // Tests share them: they take as many runs as the victim sends messages.
    fn possible(&self, victim: usize) -> Vec<Vec<Option<Outcome>>> {
        static KNOWN: Mutex<Vec<(Labels, usize, Possible)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let own = known
            .iter()
            .find(|(kit, of, _)| kit == self && *of == victim);
        let possible = own.map(|(.., possible)| Arc::clone(possible));
        let possible = possible.unwrap_or_else(|| {
            let new = Possible::default();
            known.push((self.clone(), victim, Arc::clone(&new)));
            new
        });
        drop(known);
        possible
            .get_or_init(|| self.run_with_leaver(victim))
            .clone()
    }

    fn party(&self, index: usize, at: SessionContext) -> impl Party + 'static {
        let mut client = Agreed::new(self.client(index), Record::simulated());
        let job = Self::job(self.backend, 200, 3);
        assert_eq!(client.agree_to(job, false), Ok(()));
        client.client(at).expect("a client of the job")
    }

    async fn join(
        &self,
        config: client::Config,
        index: usize,
    ) -> Result<(Outcome, Joined), JoinError> {
        labelled(config, self.client(index)).await
    }
}

/// Takes part in a job of label propagation.
///
/// # Errors
/// A [`JoinError`].
///
/// # Panics
/// When the job ends without labels.
pub async fn labelled(
    config: client::Config,
    client: label::Client,
) -> Result<(Outcome, Joined), JoinError> {
    let mut client = Agreed::new(client, Record::simulated());
    let joined = client::join(&config, &mut client, std::future::pending()).await?;
    let outcome = client.into_output().and_then(label::Gained::outcome);
    Ok((outcome.expect("labels"), joined))
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
    pub fn job(&self, min_clients: usize) -> rounds::Job {
        rounds::Job {
            rounds: self.rounds,
            min_clients,
            clients: self.clients,
            sampling: Sampling::Free,
            ..rounds::Job::default()
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
    pub fn terms() -> rounds::Terms {
        rounds::Terms {
            min_clients: 2,
            sampling: SamplingTerms::anything(),
            malicious_server: Insist::Never,
            ..rounds::Terms::default()
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
    type Application = rounds::Server;
    type Outcome = Vec<Arc<Mean>>;

    fn clients(&self) -> usize {
        self.clients
    }

    fn application(&self, min_clients: usize) -> Served<rounds::Server> {
        Served::new(rounds::Server::new(self.job(min_clients)))
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

    fn party(&self, index: usize, at: SessionContext) -> impl Party + 'static {
        let source = Given {
            kit: self.clone(),
            index,
            means: Arc::default(),
        };
        let client = rounds::Client::new(Self::terms(), source);
        let mut client = Agreed::new(client, Record::simulated());
        assert_eq!(client.agree_to(self.job(3), false), Ok(()));
        client.client(at).expect("a client of the job")
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
        let client = rounds::Client::new(Self::terms(), source);
        let mut client = Agreed::new(client, Record::simulated());
        let joined = client::join(&config, &mut client, std::future::pending()).await?;
        let means = means.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((means.clone(), joined))
    }
}
