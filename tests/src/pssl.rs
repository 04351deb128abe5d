//! Rows of several clients for tests of pairwise graphs.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone::job::simulation::Parties;
use undertone::job::{Agreed, Application as _, Job as _, Record, SessionContext, Terms as _};
use undertone::kdf::{Seed, simulated};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Network, PartyId, Script, SessionId};
use undertone::pssl::{self, Client, Data, Job, Outcome, Report, Server, Simulation, Terms, clear};
use undertone::setup::group::{self, Secrecy};
use undertone::setup::seal::{Channel, KeyPair};

use crate::tamper::set_payload;

/// Rows of each client.
pub const ROWS: usize = 30;

/// Features of a row.
pub const FEATURES: usize = 12;

/// The largest value.
pub const SCALE: u8 = 16;

/// Rows of one of three classes around centres, every fifth with a label. The centres are far from
/// each other, and rows of a class are near to each other.
///
/// # Panics
/// When there are no rows.
pub fn data(client: usize, rows: usize) -> Arc<Data> {
    let session = undertone::party::SessionId([0; 32]);
    let mut prg = Seed::from_bytes([9; 32])
        .derive(session, "rows", &[client as u32])
        .prg();
    let mut values = Vec::new();
    let mut labels = Vec::new();
    for row in 0..rows {
        let class = row % 3;
        for feature in 0..FEATURES {
            let centre = if feature % 3 == class { 12 } else { 3 };
            values.push(centre + (prg.next_u64() % 5) as u8 - u8::from(feature % 2 == 0));
        }
        labels.push((row % 5 == client % 5).then_some(class as u16));
    }
    Arc::new(Data::new(FEATURES, values, labels).unwrap_or_else(|error| panic!("{error}")))
}

/// A job for these rows.
pub fn job() -> Job {
    Job::new(FEATURES, SCALE, 3, ROWS).with_range(0.1, 0.8)
}

/// Clients with [`ROWS`] rows each, or a few more, whose terms every job meets.
///
/// # Panics
/// When the rows do not fit the job.
pub fn simulation(clients: usize, change: impl FnOnce(&mut Job)) -> Simulation {
    let mut job = job();
    change(&mut job);
    let made = pssl::simulation(job, rows(clients), seed());
    made.unwrap_or_else(|error| panic!("{error}"))
}

/// The run of a [`simulation`] in the clear.
pub fn in_the_clear(simulation: &Simulation) -> clear::Outcome {
    let clients = rows(simulation.all().len());
    clear::simulated(simulation.server().job(), &clients, &seed())
}

/// [`ROWS`] rows of each client, or a few more.
fn rows(clients: usize) -> Vec<Arc<Data>> {
    (0..clients).map(|c| data(c, ROWS + c)).collect()
}

fn seed() -> Seed {
    Seed::from_bytes([7; 32])
}

/// A run in which parties may have other rules, and whose outcome every party keeps.
#[derive(Debug)]
pub struct World {
    /// The job of the server, and of the clients in order.
    pub jobs: (Job, Vec<Job>),
    /// The rows of the clients.
    pub clients: Vec<Arc<Data>>,
    seed: Seed,
}

/// The outcome of a run for each party.
#[derive(Debug)]
pub struct Session {
    /// For the server.
    pub server: Result<Report, Aborted>,
    /// For the clients.
    pub clients: BTreeMap<PartyId, Result<Outcome, Aborted>>,
}

impl World {
    /// The clients of [`simulation`] with the same seed.
    pub fn new(clients: usize, change: impl FnOnce(&mut Job)) -> Self {
        let mut job = job();
        change(&mut job);
        Self {
            jobs: (job.clone(), vec![job; clients]),
            clients: rows(clients),
            seed: seed(),
        }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        simulated::session(&self.seed)
    }

    /// The session of the protocols of the run, by `docs/spec/pssl.md`.
    pub fn context(&self) -> SessionId {
        undertone::job::context(self.session(), &self.jobs.0.digest(), &[])
    }

    /// The ids of all clients.
    pub fn all(&self) -> Vec<PartyId> {
        (0..self.clients.len()).map(PartyId::client).collect()
    }

    /// The randomness of a party.
    pub fn seed(&self, who: PartyId) -> Seed {
        simulated::party(&self.seed, self.session(), who)
    }

    fn place(&self, who: PartyId) -> SessionContext {
        SessionContext::new(self.session(), who, self.seed(who))
    }

    /// The rules of the setup.
    pub fn group(&self) -> group::Rules {
        group::Rules {
            session: self.context(),
            secrecy: Secrecy::Sealed,
            min_clients: self.jobs.0.min_clients,
        }
    }

    /// Client `who` by its job.
    ///
    /// # Panics
    /// When the job is impossible.
    pub fn client(&self, who: PartyId) -> Script<'static, Outcome> {
        let at = who.index().expect("a client");
        let client = Client::of(Terms::anything(), Arc::clone(&self.clients[at]));
        let mut client = Agreed::new(client, Record::simulated());
        let agreed = client.agree_to(self.jobs.1[at].clone(), false);
        agreed.unwrap_or_else(|why| panic!("{why}"));
        client.client(self.place(who)).expect("a possible job")
    }

    /// The server.
    ///
    /// # Panics
    /// When the job is impossible.
    pub fn server(&self) -> Script<'static, Report> {
        let mut server = Server::new(self.jobs.0.clone());
        let party = server.server(self.place(PartyId::SERVER), self.all());
        party.expect("a possible job")
    }

    /// Runs it over `network`.
    pub fn run(&self, network: Network<'_>) -> Session {
        self.run_with(network, self.server(), |_| None)
    }

    /// Runs it with this server, and with other clients where `instead` has one.
    pub fn run_with(
        &self,
        network: Network<'_>,
        server: Script<'static, Report>,
        instead: impl Fn(PartyId) -> Option<Script<'static, Outcome>>,
    ) -> Session {
        let client = |who| (who, instead(who).unwrap_or_else(|| self.client(who)));
        let parties = Parties {
            session: self.session(),
            server,
            clients: self.all().into_iter().map(client).collect(),
        };
        // Parties that wait forever have an error.
        let outcomes = parties.outcomes(network);
        Session {
            server: outcomes.server,
            clients: outcomes.clients.into_iter().collect(),
        }
    }

    /// The run of these clients in the clear.
    pub fn clear(&self, clients: &[PartyId]) -> clear::Outcome {
        let seeds: Vec<Seed> = clients.iter().map(|who| self.seed(*who)).collect();
        let client = |(who, seed)| {
            let who: &PartyId = who;
            clear::Client {
                me: *who,
                data: &self.clients[who.index().unwrap_or_default()],
                seed,
            }
        };
        let clients: Vec<_> = clients.iter().zip(&seeds).map(client).collect();
        clear::run(&self.jobs.0, self.session(), &clients)
    }

    /// The two ends of the channel by which `from` seals messages to `to`: one opens, one seals.
    ///
    /// # Panics
    /// When there is no such channel.
    pub fn channels(&self, from: PartyId, to: PartyId) -> [Channel; 2] {
        let context = self.context();
        let key = |who: PartyId| {
            let seed = self.seed(who).derive(context, "group", &[who.to_wire()]);
            KeyPair::from_seed(&seed.derive(context, "key pair", &[who.to_wire()]))
        };
        let (own, other) = (key(from), key(to));
        let end =
            |me, keys: &KeyPair, peer, public| Channel::agree(context, me, keys, peer, public);
        let reader = end(to, &other, from, own.public()).expect("a channel");
        let writer = end(from, &own, to, other.public()).expect("a channel");
        [reader, writer]
    }

    /// A network in which `change` sees and alters the text inside the seal of each message from
    /// `from` to `to`: its number, its phase and its text.
    ///
    /// # Panics
    /// When a message of the client does not open.
    pub fn inside<'a>(
        &self,
        (from, to): (PartyId, PartyId),
        mut change: impl FnMut(usize, u8, &mut Vec<u8>) + 'a,
    ) -> Network<'a> {
        let [mut reader, mut writer] = self.channels(from, to);
        // The place of the contribution for `to` among those for the others.
        let place = to.index().unwrap_or_default();
        let place = place - usize::from(from < to);
        let others = self.clients.len() - 1;
        let (mut sent, mut count) = (0, 0);
        Network::new().intercept(move |f, t, frame| {
            if f != from || frame[3] != 0 {
                return;
            }
            if t == PartyId::SERVER {
                sent += 1;
                if sent == 2 {
                    let all = &frame[HEADER_LEN..];
                    let len = all.len() / others;
                    let text = reader.open(&all[place * len..(place + 1) * len]);
                    let text = text.expect("a contribution");
                    writer.seal(&text).expect("a seal");
                }
            } else if t == to {
                let mut text = reader.open(&frame[HEADER_LEN..]).expect("a message");
                change(count, frame[4], &mut text);
                count += 1;
                let sealed = writer.seal(&text).expect("a seal");
                set_payload(frame, &sealed);
            }
        })
    }
}
