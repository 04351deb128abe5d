//! Rounds of means: layouts, and whole sessions without the messages of their secure sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::arrays::{Arrays, ArraysError, Layout, Values};
use undertone::job::simulation::SimulationError;
use undertone::kernel::mask::append_bytes;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Network, PartyId};
use undertone::rounds::{
    CONTRIBUTION, Contribution, Job, Kept, Mean, MeanHeader, RESULT, ROUND, Report, Sampling,
};
use undertone::sum::Suite;
use undertone_tests::rounds::{Member, clear, run};

use crate::refused::{Change, refused};
use crate::{Double, Error, File, Hex, double, doubles, hex};

/// An array without its values.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Entry {
    name: String,
    /// Its length in each dimension.
    shape: Vec<usize>,
    /// Whether its values are doubles. If not, they are singles.
    doubles: bool,
}

/// The layout of some arrays.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Laid {
    comment: String,
    arrays: Vec<Entry>,
    /// The number of values in all arrays.
    values: usize,
    bytes: Hex,
}

/// Bytes that are no layout.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedLayout {
    comment: String,
    bytes: Hex,
    check: String,
}

/// The server's state after the round before.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Before {
    /// The clients whose words are in the sum.
    contributors: Vec<u32>,
    /// The sum of their words, in their encoding on the wire.
    words: Hex,
}

/// The input of one client and the payloads that it sends and receives, without those of the sum.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Participant {
    /// The number of the last mean it has.
    has: u32,
    /// Its values, array after array.
    values: Vec<Double>,
    weight: Double,
    /// The number of clipped values.
    clipped: usize,
    /// The words that it adds, in their encoding on the wire, without masks.
    words: Hex,
    number: Hex,
    opening: Hex,
    /// The header and the tiles of the last mean, if it lacks it.
    last_mean: Vec<Hex>,
    layout: Option<Hex>,
    layout_received: Option<Hex>,
    /// The header and the tiles of the mean.
    mean: Vec<Hex>,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Session {
    comment: String,
    /// The number of rounds of the job.
    rounds: u32,
    /// The number of finished rounds before this session.
    finished: u32,
    /// Whether a round gives the weighted mean. If not, it gives the sum.
    weighted: bool,
    /// Values are from −bound to bound.
    bound: Double,
    max_weight: Double,
    /// Whether values beyond the bound are clipped to it.
    clip: bool,
    min_clients: usize,
    /// The most clients in a sum.
    most_clients: usize,
    arrays: Vec<Entry>,
    before: Option<Before>,
    clients: Vec<Participant>,
    /// The sum of all words, in their encoding on the wire.
    total: Option<Hex>,
    /// The values of the mean, array after array. Values of singles are rounded to singles.
    values: Vec<Double>,
    /// The total weight. For a sum, the number of clients.
    weight: Option<Double>,
}

fn sample() -> Result<Arrays, ArraysError> {
    let mut arrays = Arrays::new();
    arrays.push("w", vec![2, 2], vec![0.0f32; 4])?;
    arrays.push("b", vec![3], vec![0.0f64; 3])?;
    Ok(arrays)
}

fn entries(arrays: &Arrays) -> Vec<Entry> {
    let entry = |array: &undertone::arrays::Array| Entry {
        name: array.name().into(),
        shape: array.shape().to_vec(),
        doubles: matches!(array.values(), Values::Double(_)),
    };
    arrays.iter().map(entry).collect()
}

fn laid(comment: &str, arrays: &Arrays) -> Laid {
    Laid {
        comment: comment.into(),
        arrays: entries(arrays),
        values: arrays.len(),
        bytes: hex(&arrays.layout().write()),
    }
}

fn layouts() -> Result<Vec<File>, Error> {
    let mut odd = Arrays::new();
    odd.push("", vec![], vec![1.0f64])?;
    odd.push("größe/0", vec![1, 2, 3], vec![1.0f32; 6])?;
    odd.push("n".repeat(256), vec![300, 0], Vec::<f64>::new())?;
    let cases = vec![
        laid("singles and doubles", &sample()?),
        laid(
            "a number without a name, a name of many bytes, no values",
            &odd,
        ),
        laid("no arrays", &Arrays::new()),
    ];
    // ROUND-9.
    let bad: Vec<(&str, Change)> = vec![
        ("nothing", Vec::clear),
        ("truncated in a length", |m| m.truncate(m.len() - 1)),
        ("truncated in a name", |m| m.truncate(6)),
        ("an extra byte", |m| m.push(0)),
        ("too many arrays", |m| {
            m[..4].copy_from_slice(&16_385u32.to_le_bytes());
        }),
        ("a name that is not UTF-8", |m| m[6] = 0xff),
        ("an unknown type", |m| m[7] = 2),
        ("a name that occurs twice", |m| {
            let at = m.len() - 8 - 3;
            m[at] = b'w';
        }),
        ("a name that is too long", |m| {
            m.splice(6..7, [b'n'; 257]);
            m[4..6].copy_from_slice(&257u16.to_le_bytes());
        }),
        ("too many dimensions", |m| {
            m.splice(9..25, [1, 0, 0, 0, 0, 0, 0, 0].repeat(33));
            m[8] = 33;
        }),
        ("too many values", |m| m[9 + 3] = 0x10),
        ("a number of values that overflows", |m| {
            m[9..25].fill(0xff);
        }),
    ];
    let honest = sample()?.layout().write();
    let refusal = |(comment, change): (&str, Change)| {
        let mut bytes = honest.clone();
        change(&mut bytes);
        match Layout::read(&bytes) {
            Ok(_) => Err(Error::Accepted(comment.into())),
            Err(error) => Ok(RefusedLayout {
                comment: comment.into(),
                bytes: hex(&bytes),
                check: error.to_string(),
            }),
        }
    };
    let refused: Result<Vec<_>, Error> = bad.into_iter().map(refusal).collect();
    crate::files("layout", "docs/spec/rounds.md, Messages", cases, refused?)
}

/// What client `index` contributes to round `round`.
fn contribution(index: usize, round: u32) -> Contribution {
    let value = |at: usize| {
        let sign = [1.0, -1.0][(at + index) % 2];
        sign * (0.1 + at as f64 * 0.7 + index as f64 * 1.3 + f64::from(round) * 0.01)
    };
    let doubles: Vec<f64> = (0..7).map(value).collect();
    let singles: Vec<f32> = doubles[..4].iter().map(|value| *value as f32).collect();
    let mut arrays = Arrays::new();
    // The shapes fit, so no push fails.
    let _ = arrays.push("w", vec![2, 2], singles);
    let _ = arrays.push("b", vec![3], doubles[4..].to_vec());
    Contribution {
        arrays,
        weight: [10.0, 2.5, 333.0][index % 3],
    }
}

fn member(index: usize) -> Member {
    Member::new(move |round| Ok(contribution(index, round.number)), true)
}

/// A session of three clients, and those before it.
struct Case {
    comment: &'static str,
    job: Job,
    /// For each session before this one the client that was away, or `NOBODY`.
    away: Vec<usize>,
    /// The client that has been restarted since, and has no mean.
    restarted: Option<usize>,
}

fn words_hex(words: &[u64]) -> Hex {
    let mut bytes = Vec::new();
    append_bytes(words, &mut bytes);
    hex(&bytes)
}

impl Case {
    /// The clients and the server's state when the session begins.
    fn prepare(&self) -> Result<(Vec<Member>, Arc<Kept>), Error> {
        let mut members: Vec<Member> = (0..3).map(member).collect();
        let mut kept = Arc::<Kept>::default();
        for away in &self.away {
            let mut network = Network::new();
            if *away < members.len() {
                network = network.leave(PartyId::client(*away), 0);
            }
            kept = run(self.job, &kept, &members, network)?.kept;
        }
        if let Some(index) = self.restarted {
            members[index] = member(index);
        }
        Ok((members, kept))
    }

    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        let (members, kept) = self.prepare()?;
        match run(self.job, &kept, &members, network) {
            Err(SimulationError::Aborted(aborted)) => Ok(Some(aborted)),
            Err(error) => Err(error.into()),
            Ok(run) => Ok(run.clients.into_iter().find_map(Result::err)),
        }
    }

    fn session(&self) -> Result<Session, Error> {
        let (members, kept) = self.prepare()?;
        let has: Vec<u32> = members
            .iter()
            .map(|member| member.heard().means.last().map_or(0, |mean| mean.round))
            .collect();
        let mut seen: BTreeMap<(PartyId, PartyId, u8), Vec<Hex>> = BTreeMap::new();
        let network = Network::new().intercept(|from, to, frame| {
            let payload = hex(&frame[HEADER_LEN..]);
            seen.entry((from, to, frame[4])).or_default().push(payload);
        });
        let run = run(self.job, &kept, &members, network)?;
        let job = self.job;
        let round = kept.finished() + 1;
        let due = round <= job.rounds;
        let contributions: Vec<(usize, Contribution)> = (0..3)
            .map(|index| (index, contribution(index, round)))
            .collect();
        let mut clients = Vec::with_capacity(3);
        for (index, own) in &contributions {
            let me = PartyId::client(*index);
            let mut take = |from, to, phase: undertone::party::Phase| {
                let found = seen.remove(&(from, to, phase.id));
                found.unwrap_or_default().into_iter()
            };
            let mut down = take(PartyId::SERVER, me, ROUND);
            let encoded = job.encode(&own.arrays, own.weight);
            let (words, clipped) = encoded.map_err(Error::Contribution)?;
            clients.push(Participant {
                has: has[*index],
                values: doubles(&own.arrays.to_doubles()),
                weight: double(own.weight),
                clipped,
                words: words_hex(&words),
                opening: down.next().ok_or(Error::Missing("an opening"))?,
                last_mean: down.collect(),
                number: take(me, PartyId::SERVER, ROUND)
                    .next()
                    .ok_or(Error::Missing("a number"))?,
                layout: take(me, PartyId::SERVER, CONTRIBUTION).next(),
                layout_received: take(PartyId::SERVER, me, CONTRIBUTION).next(),
                mean: take(PartyId::SERVER, me, RESULT).collect(),
            });
        }
        let mean: Option<&Mean> = match &run.report {
            Report::Finished(mean) => Some(mean),
            Report::CaughtUp => None,
        };
        if due && mean != clear(&job, round, &contributions).as_ref() {
            return Err(Error::Missing("the mean in the clear"));
        }
        let (before, total) = (parts(&kept)?, parts(&run.kept)?);
        Ok(Session {
            comment: self.comment.into(),
            rounds: job.rounds,
            finished: kept.finished(),
            weighted: job.mean,
            bound: double(job.bound),
            max_weight: double(job.max_weight),
            clip: job.clip,
            min_clients: job.min_clients,
            most_clients: job.clients,
            arrays: entries(&sample()?),
            before: before.map(|(header, words)| Before {
                contributors: header.contributors.iter().map(|id| id.to_wire()).collect(),
                words,
            }),
            clients,
            total: total.filter(|_| due).map(|(_, words)| words),
            values: mean.map_or(Vec::new(), |mean| doubles(&mean.arrays.to_doubles())),
            weight: mean.map(|mean| double(mean.weight)),
        })
    }
}

/// The header and the words of the server's state.
fn parts(kept: &Kept) -> Result<Option<(MeanHeader, Hex)>, Error> {
    let bytes = kept.write();
    let Some((len, rest)) = bytes.split_first_chunk::<8>() else {
        return Ok(None);
    };
    let (header, words) = rest.split_at(u64::from_le_bytes(*len) as usize);
    let header = MeanHeader::read(header).map_err(|_| Error::Missing("a header"))?;
    Ok(Some((header, hex(words))))
}

const NOBODY: usize = usize::MAX;

fn sessions() -> Result<Vec<File>, Error> {
    let job = Job {
        rounds: 2,
        bound: 8.0,
        max_weight: 1000.0,
        min_clients: 2,
        clients: 3,
        sampling: Sampling::Free,
        ..Job::default()
    };
    let case = |comment, job, away: &[usize], restarted| Case {
        comment,
        job,
        away: away.to_vec(),
        restarted,
    };
    let sums = Job {
        mean: false,
        clip: true,
        bound: 3.0,
        rounds: 1,
        clients: 10,
        suite: Suite::ChaCha20,
        ..job
    };
    let cases = [
        case("the first round", job, &[], None),
        case(
            "the second round; client 1 was away in the first",
            job,
            &[1],
            None,
        ),
        case(
            "no more rounds; client 2 has no mean, client 0 has the first",
            job,
            &[NOBODY, 0],
            Some(2),
        ),
        case("a sum; large values are clipped", sums, &[], None),
    ];
    let made: Result<Vec<Session>, Error> = cases.iter().map(Case::session).collect();
    let refused: Result<Vec<_>, Error> = bad()
        .into_iter()
        .map(|(comment, up, number, change)| {
            let (server, client) = (PartyId::SERVER, PartyId::client(1));
            let link = match up {
                Way::Up => (client, server, number),
                Way::Down => (server, client, number),
            };
            refused(comment, 1, link, change, |network| {
                cases[1].refusal(network)
            })
        })
        .collect();
    crate::files("round", "docs/spec/rounds.md", made?, refused?)
}

/// The direction of a message.
enum Way {
    Up,
    Down,
}

/// The replacements of a message of the second round, to or from the client that lacks the first
/// mean.
fn bad() -> Vec<(&'static str, Way, usize, Change)> {
    use Way::{Down, Up};
    let (opening, last, last_words, layout, mean, words) = (0, 1, 2, 3, 7, 8);
    vec![
        // ROUND-1.
        ("a truncated number", Up, 0, |m| m.truncate(3)),
        ("a number with an extra byte", Up, 0, |m| m.push(0)),
        // ROUND-9.
        ("a truncated layout", Up, 1, |m| m.truncate(m.len() - 1)),
        ("a layout without values", Up, 1, |m| *m = vec![0; 4]),
        // ROUND-3, ROUND-5, ROUND-6, ROUND-2.
        ("another round", Down, opening, |m| m[0] = 0),
        ("no round where one is due", Down, opening, |m| m[4] = 0),
        ("no mean where one is due", Down, opening, |m| m[5] = 0),
        ("a flag that is neither 0 nor 1", Down, opening, |m| {
            m[4] = 2
        }),
        ("a truncated opening", Down, opening, |m| m.truncate(5)),
        ("an opening with an extra byte", Down, opening, |m| {
            m.push(0)
        }),
        // ROUND-7, ROUND-14, ROUND-12.
        ("the mean of another round", Down, last, |m| m[0] = 2),
        ("a mean of one client", Down, last, |m| {
            m[4] = 1;
            m.drain(8..12);
        }),
        ("contributors out of order", Down, last, |m| {
            m[8] = 2;
            m[12] = 0;
        }),
        ("the server as a contributor", Down, last, |m| {
            m[12..16].fill(0xff)
        }),
        ("more contributors than fit", Down, last, |m| m[5] = 1),
        ("a mean without values", Down, last, |m| {
            m.truncate(16);
            m.extend([0; 4]);
        }),
        // ROUND-13, ROUND-17.
        ("truncated words", Down, last_words, |m| {
            m.truncate(m.len() - 1)
        }),
        ("words with weight 0", Down, last_words, |m| m.fill(0)),
        // ROUND-10, ROUND-9.
        ("a layout of other arrays", Down, layout, |m| m[6] = b'v'),
        ("a layout with an extra byte", Down, layout, |m| m.push(0)),
        // ROUND-15, ROUND-16, ROUND-13.
        ("the mean of the round before", Down, mean, |m| m[0] = 1),
        ("another contributor", Down, mean, |m| m[16] = 3),
        ("one contributor less", Down, mean, |m| {
            m[4] = 2;
            m.drain(16..20);
        }),
        ("a mean of other arrays", Down, mean, |m| m[26] = b'v'),
        ("words with an extra byte", Down, words, |m| m.push(0)),
    ]
}

pub(super) fn files() -> Result<Vec<File>, Error> {
    let mut all = layouts()?;
    all.extend(sessions()?);
    Ok(all)
}
