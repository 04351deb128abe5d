//! Sums in long series: every message, from the secrets of pairs and of all clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Serialize;
use undertone::kdf::Seed;
use undertone::kernel::mask::append_bytes;
use undertone::party::{
    Abort, Aborted, Endpoint, Io, Limits, Network, Node, PartyId, Phase, Script,
};
use undertone::setup::group::{Group, Member};
use undertone::setup::roster::Entry;
use undertone::setup::seal::Channel;
use undertone::sum::series::{Adder, Block, Layout, Number, Owner, Series};
use undertone::sum::{Suite, Word};

use crate::labels::RunFrame;
use crate::primitives::SESSION;
use crate::refused::{Change, Refused, refused};
use crate::{Error, File, Hex, hex};

const SERVER: PartyId = PartyId::SERVER;
/// The phase of the frames. No application has this one.
const SUMS: Phase = Phase {
    id: 99,
    name: "sums",
};

/// The secret of a pair of clients.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PairSecret {
    clients: [u32; 2],
    secret: Hex,
}

/// Words with one owner.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SumBlock {
    /// `server`, `client` or `clients`.
    owner: &'static str,
    /// The owner, if it is one client.
    client: Option<u32>,
    words: usize,
    contributors: Vec<u32>,
}

/// A sum of a series.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SumOf {
    step: u32,
    kind: u8,
    /// Bytes of a word.
    word_bytes: usize,
    blocks: Vec<SumBlock>,
    /// The words of each client, little-endian. They cover the whole layout: those of blocks to
    /// which it does not contribute do not count.
    words: Vec<Hex>,
    /// The sums that the server learns.
    server: Hex,
    /// The sums that each client learns: of its own blocks, then of those of all clients.
    learned: Vec<Hex>,
}

/// A series.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SeriesCase {
    comment: &'static str,
    session: Hex,
    /// The name of the series.
    name: String,
    suite: String,
    /// The clients, in order.
    members: Vec<u32>,
    /// The pair secrets of their channels.
    pairs: Vec<PairSecret>,
    group_seed: Hex,
    sums: Vec<SumOf>,
    /// All frames, in the order in which they were sent.
    frames: Vec<RunFrame>,
}

/// One sum of a plan.
#[derive(Debug)]
struct Planned {
    number: Number,
    bytes: usize,
    layout: Layout,
}

struct Case {
    comment: &'static str,
    name: &'static str,
    suite: Suite,
    members: Vec<PartyId>,
    sums: Arc<Vec<Planned>>,
}

/// The sums that the parties of a run learn, as bytes.
struct Ran {
    server: Result<Vec<Vec<u8>>, Aborted>,
    clients: Vec<Result<Vec<Vec<u8>>, Aborted>>,
}

fn bytes<W: Word>(words: &[W]) -> Vec<u8> {
    let mut out = Vec::new();
    append_bytes(words, &mut out);
    out
}

/// The words of a client for a sum.
fn words<W: Word>(client: PartyId, sum: &Planned) -> Vec<W> {
    let number = sum.number;
    let ids = [client.to_wire(), number.step, number.kind.into()];
    let mut prg = group_seed()
        .derive(SESSION, "words of a vector", &ids)
        .prg();
    let count = sum.layout.words();
    (0..count).map(|_| W::truncate(prg.next_u64())).collect()
}

fn group_seed() -> Seed {
    Seed::from_bytes([61; 32])
}

fn pair_secret(a: PartyId, b: PartyId) -> Seed {
    let (low, high) = (a.min(b).to_wire(), a.max(b).to_wire());
    Seed::from_bytes([62; 32]).derive(SESSION, "pair of a vector", &[low, high])
}

async fn add<W: Word>(
    series: &mut Series,
    io: &Io,
    me: PartyId,
    sum: &Planned,
) -> Result<Vec<u8>, Abort> {
    let words = words::<W>(me, sum).into();
    let sum = series.sum(io, sum.number, &sum.layout, words).await?;
    Ok(bytes(&sum))
}

async fn add_up<W: Word>(adder: &mut Adder, io: &Io, sum: &Planned) -> Result<Vec<u8>, Abort> {
    let sum: Vec<W> = adder.sum(io, sum.number, &sum.layout).await?;
    Ok(bytes(&sum))
}

impl Case {
    /// What a client has after a setup.
    fn group(&self, me: PartyId) -> Result<Group, Abort> {
        let entry = |id: &PartyId| -> Result<Member, Abort> {
            let keys = [[id.to_wire() as u8; 32]];
            Entry::new(SESSION, "none", *id, keys, Vec::new(), None)
        };
        let members: Result<Vec<Member>, Abort> = self.members.iter().map(entry).collect();
        let others = self.members.iter().filter(|id| **id != me);
        let channel = |peer: &PartyId| {
            let secret = pair_secret(me, *peer);
            (*peer, Channel::new(SESSION, &secret, me, *peer))
        };
        let channels: BTreeMap<PartyId, Channel> = others.map(channel).collect();
        Ok(Group {
            members: members?,
            seed: group_seed(),
            server: Channel::new(SESSION, &pair_secret(me, SERVER), me, SERVER),
            channels,
        })
    }

    fn run_over(&self, mut network: Network<'_>) -> Result<Ran, Error> {
        let (sums, ids) = (Arc::clone(&self.sums), self.members.clone());
        let server = Script::new(SUMS, move |io| async move {
            let mut adder = Adder::new(ids);
            let mut learned = Vec::new();
            for sum in sums.iter() {
                learned.push(match sum.bytes {
                    4 => add_up::<u32>(&mut adder, &io, sum).await?,
                    _ => add_up::<u64>(&mut adder, &io, sum).await?,
                });
            }
            Ok(learned)
        });
        let mut server = Endpoint::new(SERVER, SESSION, Limits::default(), server);
        let mut clients = Vec::new();
        for me in &self.members {
            let (me, sums, group) = (*me, Arc::clone(&self.sums), self.group(*me));
            let series =
                group.and_then(|group| Series::new(SESSION, self.name, self.suite, me, &group));
            let mut series = series.map_err(|_| Error::Missing("a series"))?;
            let script = Script::new(SUMS, move |io| async move {
                let mut learned = Vec::new();
                for sum in sums.iter() {
                    learned.push(match sum.bytes {
                        4 => add::<u32>(&mut series, &io, me, sum).await?,
                        _ => add::<u64>(&mut series, &io, me, sum).await?,
                    });
                }
                Ok(learned)
            });
            clients.push(Endpoint::new(me, SESSION, Limits::default(), script));
        }
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        network.run(&mut nodes)?;
        Ok(Ran {
            server: server.finish().map(|(sums, _)| sums),
            clients: clients
                .into_iter()
                .map(|client| client.finish().map(|(sums, _)| sums))
                .collect(),
        })
    }

    /// The first party that refuses a message over `network`.
    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        let ran = self.run_over(network)?;
        let aborts = ran.clients.into_iter().filter_map(Result::err);
        let mut aborts = ran.server.err().into_iter().chain(aborts);
        Ok(aborts.find(|aborted| !matches!(aborted.cause, Abort::Left { .. })))
    }

    fn case(&self) -> Result<SeriesCase, Error> {
        let sent = Mutex::new(Vec::new());
        let network = Network::new().intercept(|_, _, frame| {
            if let Ok(mut sent) = sent.lock() {
                sent.push(RunFrame::new(frame, true));
            }
        });
        let ran = self.run_over(network)?;
        let frames = sent
            .into_inner()
            .map_err(|_| Error::Missing("the frames"))?;
        let server = ran.server?;
        let clients: Vec<Vec<Vec<u8>>> = ran.clients.into_iter().collect::<Result<_, _>>()?;
        let wire = |ids: &[PartyId]| -> Vec<u32> { ids.iter().map(|id| id.to_wire()).collect() };
        let block = |block: &Block| SumBlock {
            owner: match block.owner {
                Owner::Server => "server",
                Owner::Client(_) => "client",
                Owner::Clients => "clients",
            },
            client: match block.owner {
                Owner::Client(id) => Some(id.to_wire()),
                _ => None,
            },
            words: block.words,
            contributors: wire(&block.contributors),
        };
        let sums = self.sums.iter().enumerate();
        let sums = sums.map(|(nth, sum)| SumOf {
            step: sum.number.step,
            kind: sum.number.kind,
            word_bytes: sum.bytes,
            blocks: sum.layout.blocks().iter().map(block).collect(),
            words: self
                .members
                .iter()
                .map(|id| match sum.bytes {
                    4 => hex(&bytes(&words::<u32>(*id, sum))),
                    _ => hex(&bytes(&words::<u64>(*id, sum))),
                })
                .collect(),
            server: hex(&server[nth]),
            learned: clients.iter().map(|learned| hex(&learned[nth])).collect(),
        });
        let pairs = self.members.iter().enumerate().flat_map(|(place, a)| {
            self.members[place + 1..].iter().map(|b| PairSecret {
                clients: [a.to_wire(), b.to_wire()],
                secret: hex(pair_secret(*a, *b).expose()),
            })
        });
        Ok(SeriesCase {
            comment: self.comment,
            session: hex(&SESSION.0),
            name: self.name.into(),
            suite: self.suite.to_string(),
            members: wire(&self.members),
            pairs: pairs.collect(),
            group_seed: hex(group_seed().expose()),
            sums: sums.collect(),
            frames: frames.into_iter().collect::<Result<_, _>>()?,
        })
    }
}

/// Blocks of all owners, among clients with these ids.
fn blocks(ids: &[PartyId]) -> Result<Layout, Error> {
    let block = |owner, words, places: &[usize]| Block {
        owner,
        words,
        contributors: places.iter().map(|place| ids[*place]).collect(),
    };
    let layout = Layout::new(vec![
        block(Owner::Server, 3, &[0, 1, 2]),
        block(Owner::Client(ids[1]), 5, &[0, 2]),
        block(Owner::Clients, 2, &[1, 2]),
        block(Owner::Client(ids[0]), 1, &[0, 1]),
        // The server sees the words of this one.
        block(Owner::Server, 2, &[2]),
        // Sums of nothing.
        block(Owner::Client(ids[2]), 2, &[]),
        block(Owner::Server, 1, &[]),
        block(Owner::Clients, 4, &[0]),
        block(Owner::Client(ids[1]), 0, &[0, 2]),
    ]);
    layout.map_err(|_| Error::Missing("a layout"))
}

/// The file of this operation.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let number = |step, kind| Number { step, kind };
    let mut cases = Vec::new();
    for (suite, members, comment) in [
        (Suite::Aes128Ctr, [0, 1, 2], "clients 0, 1 and 2"),
        (
            Suite::ChaCha20,
            [1, 4, 300],
            "clients whose numbers are not their places",
        ),
    ] {
        let members: Vec<PartyId> = members.map(PartyId::client).into();
        let all = blocks(&members)?;
        let plain = |owner, words| {
            Layout::plain(owner, words, members.clone()).map_err(|_| Error::Missing("a layout"))
        };
        let sums = [
            (number(0, 1), 4, all.clone()),
            (number(0, 7), 8, all.clone()),
            (number(1, 0), 4, plain(Owner::Clients, 3)?),
            (number(256, 2), 8, plain(Owner::Server, 2)?),
            (number(u32::MAX, 255), 8, all),
        ];
        let sums = sums.map(|(number, bytes, layout)| Planned {
            number,
            bytes,
            layout,
        });
        cases.push(Case {
            comment,
            name: if members[0] == PartyId::client(0) {
                "test"
            } else {
                "séries"
            },
            suite,
            members,
            sums: Arc::new(sums.into()),
        });
    }
    let made: Result<Vec<SeriesCase>, Error> = cases.iter().map(Case::case).collect();
    let bad: [(&str, bool, usize, Change); 8] = [
        // SERIES-2.
        ("words of another step", true, 0, |m| m[0] ^= 1),
        ("words of another kind", true, 1, |m| m[4] ^= 1),
        ("own sums of another kind", false, 0, |m| m[4] ^= 2),
        ("sums for all of another step", false, 1, |m| m[3] ^= 128),
        // SERIES-3.
        ("words that are cut", true, 0, |m| m.truncate(m.len() - 1)),
        ("words without a number", true, 2, |m| m.truncate(3)),
        ("a word too many", true, 3, |m| m.extend([0; 8])),
        ("sums for all that are cut", false, 3, |m| {
            m.truncate(m.len() - 8)
        }),
    ];
    let mut refusals: Vec<Refused> = Vec::new();
    for (comment, up, nth, change) in bad {
        let client = PartyId::client(1);
        let link = if up {
            (client, SERVER, nth)
        } else {
            (SERVER, client, nth)
        };
        refusals.push(refused(comment, 0, link, change, |network| {
            cases[0].refusal(network)
        })?);
    }
    crate::files("series", "docs/spec/series.md", made?, refusals)
}
