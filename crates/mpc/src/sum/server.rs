//! The server's side of a sum.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::Cpu;
use undertone_kernel::mask::{self, Op};
use undertone_party::frame::HEADER_LEN;
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Payload, Phase, Reader, Step};
use zeroize::Zeroizing;

use super::messages::{Answer, COMMITMENT_LEN, Incoming, SEALED_LEN, Share, tile};
use super::pad::{self, Pad};
use super::{
    Audience, Context, KEYS, Rules, SHARES, Set, Table, Trust, UNMASK, UPLOAD, Word, advertise,
};
use crate::identity::SIGNATURE_LEN;
use crate::roster::{Entry, enough, enough_holders, invited};

/// Secrets rebuilt in one step.
const REBUILT_PER_STEP: usize = 64;

/// Bytes of words that one thread unmasks in one step.
const UNMASKED_PER_STEP: usize = 256 << 10;

/// What the server learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total<W = u64> {
    /// The sum of the shared words.
    pub shared: Vec<W>,
    /// Whose words are in the sums.
    pub contributors: Vec<PartyId>,
    /// Clients that gave a false share of somebody's secret, or were dealt one. The sums are right
    /// without it.
    pub suspects: Vec<PartyId>,
}

/// The server's side. Output: [`Total`].
pub struct Server<W: Word> {
    rules: Rules,
    stage: Stage<W>,
}

impl<W: Word> fmt::Debug for Server<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({:?}, ..)", self.rules.shape)
    }
}

/// Which rows belong to whom.
type Owners = BTreeMap<PartyId, Range<usize>>;

enum Stage<W: Word> {
    Start {
        ids: Vec<PartyId>,
        rows: Owners,
    },
    Hellos(Owners),
    Shares {
        table: Table,
        mask_keys: Vec<[u8; 32]>,
    },
    /// Clients are heard one after the other, so that one partial upload at most is held.
    Upload {
        adding: Adding<W>,
        turn: usize,
        upload: Incoming,
    },
    Announce(Adding<W>),
    Signatures(Adding<W>),
    Answers(Adding<W>),
    Rebuild {
        adding: Adding<W>,
        answers: Vec<Vec<(usize, Share)>>,
        next: usize,
        pads: Vec<Pad>,
        suspects: Vec<PartyId>,
    },
    Unmask {
        adding: Adding<W>,
        pads: Vec<Pad>,
        suspects: Vec<PartyId>,
        done: usize,
    },
    Result {
        adding: Adding<W>,
        suspects: Vec<PartyId>,
        turn: usize,
        sent: Option<usize>,
    },
}

/// What holds from the shares on.
pub(super) struct Adding<W: Word> {
    pub(super) table: Table,
    pub(super) mask_keys: Vec<[u8; 32]>,
    pub(super) context: Context,
    pub(super) commitments: Vec<[u8; COMMITMENT_LEN]>,
    sum: Vec<W>,
    pub(super) contributors: Set,
}

impl<W: Word> Adding<W> {
    fn ids(&self, set: &Set) -> Vec<PartyId> {
        set.places().map(|place| self.table.ids[place]).collect()
    }

    /// Adds a whole upload of the client in `place`.
    fn add(&mut self, place: usize, upload: &Incoming) {
        let mut at = 0;
        for payload in &upload.payloads {
            let mut bytes = &payload[..];
            let end = at + payload.len() / W::BYTES;
            for part in self.context.upload(place, at..end) {
                let (head, tail) = bytes.split_at(part.len() * W::BYTES);
                mask::combine(Cpu::detect(), Op::Add, &mut self.sum[part], head);
                bytes = tail;
            }
            at = end;
        }
        self.contributors.0[place] = true;
    }

    /// The words that the contributor in `place` is sent: its rows, then the shared words.
    fn result(&self, place: usize) -> [Range<usize>; 2] {
        let shared = match self.context.rules.audience {
            Audience::Everybody => self.context.shared(),
            Audience::Server => 0..0,
        };
        [self.context.blocks[place].clone(), shared]
    }
}

impl<W: Word> Server<W> {
    /// The server of a sum to which the clients `expected` are invited, each with the rows that
    /// belong to it: none (`0..0`) in a plain sum.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the rules are not possible, or `expected` is not clients, each once.
    pub fn new(rules: Rules, expected: Vec<(PartyId, Range<usize>)>) -> Result<Self, Abort> {
        rules.check()?;
        let ids = invited(expected.iter().map(|(id, _)| *id).collect())?;
        Ok(Self {
            rules,
            stage: Stage::Start {
                ids,
                rows: expected.into_iter().collect(),
            },
        })
    }
}

/// The server between two steps.
struct Job {
    rules: Rules,
}

impl Job {
    fn go_on<W: Word>(self, stage: Stage<W>, out: Outbox, need: Vec<PartyId>) -> Step<Server<W>> {
        let next = Server {
            rules: self.rules,
            stage,
        };
        let need = need.into();
        Step::Continue { out, need, next }
    }

    fn now<W: Word>(self, stage: Stage<W>) -> Step<Server<W>> {
        self.go_on(stage, Outbox::new(), Vec::new())
    }

    /// Round 1: the roster, to everybody on it.
    fn roster<W: Word>(self, owners: &Owners, mut inbox: Inbox) -> Result<Step<Server<W>>, Abort> {
        let mut entries = Vec::with_capacity(owners.len());
        for (id, rows) in owners {
            let Some(bytes) = inbox.take(*id)? else {
                continue;
            };
            let entry = Entry::read(*id, &bytes)?;
            if entry.advertisement != advertise::<W>(&self.rules, rows) {
                return Err(Abort::Cheated {
                    culprit: *id,
                    check: "it sums by my rules, and its rows are those I know".into(),
                });
            }
            entries.push(entry);
        }
        if let Some(id) = Entry::repeats(&entries) {
            return Err(Abort::Cheated {
                culprit: id,
                check: "its keys are nobody else's".into(),
            });
        }
        let table = Table::new::<W>(&self.rules, &entries)?;
        let out = to_all(&table.ids, &Entry::write_roster(&entries));
        let need = table.ids.clone();
        let mask_keys = entries.iter().map(|entry| entry.keys[1]).collect();
        Ok(self.go_on(Stage::Shares { table, mask_keys }, out, need))
    }

    /// Round 2: everybody's shares to whom they are for.
    fn relay<W: Word>(
        self,
        table: Table,
        mask_keys: Vec<[u8; 32]>,
        mut inbox: Inbox,
    ) -> Result<Step<Server<W>>, Abort> {
        let mut sent = Vec::with_capacity(table.len());
        let neighbours: Vec<Vec<usize>> = (0..table.len())
            .map(|place| table.graph.neighbours(place))
            .collect();
        for (id, neighbours) in table.ids.iter().zip(&neighbours) {
            let bytes = inbox.take(*id)?;
            let due = neighbours.len() * SEALED_LEN + COMMITMENT_LEN;
            if let Some(bytes) = &bytes
                && bytes.len() != due
            {
                return Err(Abort::Malformed {
                    from: *id,
                    what: format!("{} bytes of shares, {due} are due", bytes.len()),
                });
            }
            sent.push(bytes);
        }
        let sharing = Set(sent.iter().map(Option::is_some).collect());
        enough(sharing.count(), self.rules.min_clients)?;
        for place in sharing.places() {
            let left = table.neighbours_in(place, &sharing).len() + 1;
            enough_holders(left, table.degree.threshold)?;
        }
        let mut out = Outbox::new();
        for to in sharing.places() {
            let mut message = sharing.write();
            for from in table.neighbours_in(to, &sharing) {
                let at = neighbours[from].partition_point(|other| *other < to);
                if let Some(bytes) = &sent[from] {
                    message.extend_from_slice(&bytes[at * SEALED_LEN..(at + 1) * SEALED_LEN]);
                }
            }
            out.push(table.ids[to], message);
        }
        let commitment = |bytes: &Option<Payload>| {
            let mut commitment = [0; COMMITMENT_LEN];
            if let Some(bytes) = bytes {
                commitment.copy_from_slice(&bytes[bytes.len() - COMMITMENT_LEN..]);
            }
            commitment
        };
        let context = Context::new::<W>(self.rules, &table, sharing);
        let adding = Adding {
            commitments: sent.iter().map(commitment).collect(),
            sum: vec![W::default(); context.len],
            contributors: Set(vec![false; table.len()]),
            context,
            mask_keys,
            table,
        };
        self.hear(adding, 0, Incoming::default(), out)
    }

    /// Round 3: hears the next client that shared, from `turn` on, or says who contributed.
    fn hear<W: Word>(
        self,
        adding: Adding<W>,
        turn: usize,
        upload: Incoming,
        out: Outbox,
    ) -> Result<Step<Server<W>>, Abort> {
        let turn = adding.context.sharing.places().find(|place| *place >= turn);
        if let Some(turn) = turn {
            let need = vec![adding.table.ids[turn]];
            let stage = Stage::Upload {
                adding,
                turn,
                upload,
            };
            return Ok(self.go_on(stage, out, need));
        }
        let set = &adding.contributors;
        enough(set.count(), self.rules.min_clients)?;
        let Adding { table, context, .. } = &adding;
        table.every_secret_has_holders(&context.sharing, set, set)?;
        Ok(self.go_on(Stage::Announce(adding), out, Vec::new()))
    }

    fn upload<W: Word>(
        self,
        mut adding: Adding<W>,
        turn: usize,
        mut upload: Incoming,
        mut inbox: Inbox,
    ) -> Result<Step<Server<W>>, Abort> {
        let from = adding.table.ids[turn];
        let out = Outbox::new();
        let Some(bytes) = inbox.take(from)? else {
            return self.hear(adding, turn + 1, Incoming::default(), out);
        };
        let len = adding.context.upload_len(turn);
        upload.take::<W>(from, bytes, len)?;
        if upload.is_whole(len) {
            adding.add(turn, &upload);
            return self.hear(adding, turn + 1, Incoming::default(), out);
        }
        self.hear(adding, turn, upload, out)
    }

    /// Round 3½: passes the signatures on.
    fn signatures<W: Word>(
        self,
        adding: Adding<W>,
        mut inbox: Inbox,
    ) -> Result<Step<Server<W>>, Abort> {
        let mut signers = Set(vec![false; adding.table.len()]);
        let mut signatures = Vec::new();
        for place in adding.contributors.places() {
            let from = adding.table.ids[place];
            if let Some(bytes) = inbox.take(from)? {
                if bytes.len() != SIGNATURE_LEN {
                    return Err(Abort::Malformed {
                        from,
                        what: format!("a signature of {} bytes", bytes.len()),
                    });
                }
                signers.0[place] = true;
                signatures.extend_from_slice(&bytes);
            }
        }
        enough(signers.count(), adding.table.degree.quorum)?;
        let (table, sharing) = (&adding.table, &adding.context.sharing);
        table.every_secret_has_holders(sharing, &adding.contributors, &signers)?;
        let mut message = signers.write();
        message.extend(signatures);
        let need = adding.ids(&adding.contributors);
        let out = to_all(&adding.ids(&signers), &message);
        Ok(self.go_on(Stage::Answers(adding), out, need))
    }

    /// Round 4: one share of every client's one secret, from every holder that is left.
    fn answers<W: Word>(
        self,
        adding: Adding<W>,
        mut inbox: Inbox,
    ) -> Result<Step<Server<W>>, Abort> {
        let Adding {
            table,
            context,
            contributors,
            ..
        } = &adding;
        let mut answers: Vec<Vec<(usize, Share)>> = vec![Vec::new(); table.len()];
        let mut left = Set(vec![false; table.len()]);
        for holder in contributors.places() {
            let from = table.ids[holder];
            let Some(bytes) = inbox.take(from)? else {
                continue;
            };
            let frame = Zeroizing::new(bytes.into_frame());
            left.0[holder] = true;
            let malformed = Abort::malformed(from);
            let mut r = Reader::new(&frame[HEADER_LEN..]);
            let own = r.array("share").map_err(&malformed)?;
            answers[holder].push((holder, Zeroizing::new(own)));
            for dealer in table.neighbours_in(holder, &context.sharing) {
                let answer = Answer::read(&mut r).map_err(&malformed)?;
                let share = match (answer, contributors.has(dealer)) {
                    (Answer::SelfMask(share), true) | (Answer::MaskKey(share), false) => share,
                    _ => {
                        return Err(Abort::Cheated {
                            culprit: from,
                            check: "it reveals self masks of contributors, keys of the others"
                                .into(),
                        });
                    }
                };
                answers[dealer].push((holder, share));
            }
            r.finish().map_err(&malformed)?;
        }
        table.every_secret_has_holders(&context.sharing, contributors, &left)?;
        Ok(self.now(Stage::Rebuild {
            adding,
            answers,
            next: 0,
            pads: Vec::new(),
            suspects: Vec::new(),
        }))
    }

    /// Rebuilds the next secrets, and from them the masks that are left on the sum.
    fn rebuild<W: Word>(
        self,
        adding: Adding<W>,
        answers: Vec<Vec<(usize, Share)>>,
        next: usize,
        mut pads: Vec<Pad>,
        mut suspects: Vec<PartyId>,
    ) -> Result<Step<Server<W>>, Abort> {
        let end = adding.table.len().min(next + REBUILT_PER_STEP);
        let rebuilt: Result<Vec<_>, Abort> = (next..end)
            .into_par_iter()
            .map(|place| adding.masks_of(place, &answers[place]))
            .collect();
        for (masks, suspect) in rebuilt? {
            pads.extend(masks);
            suspects.extend(suspect);
        }
        if end < adding.table.len() {
            return Ok(self.now(Stage::Rebuild {
                adding,
                answers,
                next: end,
                pads,
                suspects,
            }));
        }
        suspects.sort_unstable();
        suspects.dedup();
        Ok(self.now(Stage::Unmask {
            adding,
            pads,
            suspects,
            done: 0,
        }))
    }

    /// Takes the masks off the next words.
    fn unmask<W: Word>(
        self,
        mut adding: Adding<W>,
        pads: Vec<Pad>,
        suspects: Vec<PartyId>,
        done: usize,
    ) -> Step<Server<W>> {
        let part = UNMASKED_PER_STEP / W::BYTES;
        let end = adding
            .sum
            .len()
            .min(done + part * rayon::current_num_threads());
        adding.sum[done..end]
            .par_chunks_mut(part)
            .enumerate()
            .for_each(|(index, words)| {
                let at = done + index * part;
                pad::apply(&pads, self.rules.suite, at, words);
            });
        if end < adding.sum.len() {
            return self.now(Stage::Unmask {
                adding,
                pads,
                suspects,
                done: end,
            });
        }
        self.now(Stage::Result {
            adding,
            suspects,
            turn: 0,
            sent: None,
        })
    }

    /// Sends the next words to the contributor whose turn it is.
    fn result<W: Word>(
        self,
        mut adding: Adding<W>,
        suspects: Vec<PartyId>,
        turn: usize,
        sent: Option<usize>,
    ) -> Step<Server<W>> {
        let Some(place) = adding.contributors.places().find(|place| *place >= turn) else {
            let shared = adding.context.shared();
            return Step::Done {
                out: Outbox::new(),
                output: Total {
                    contributors: adding.ids(&adding.contributors),
                    shared: adding.sum.split_off(shared.start),
                    suspects,
                },
            };
        };
        let parts = adding.result(place);
        let len = parts[0].len() + parts[1].len();
        let next = tile::<W>(sent.unwrap_or(0), len);
        let mut message = Vec::with_capacity(next.len() * W::BYTES);
        let mut before = 0;
        for part in parts {
            let within = |at: usize| at.clamp(before, before + part.len()) - before + part.start;
            let words = within(next.start)..within(next.end);
            mask::append_bytes(&adding.sum[words], &mut message);
            before += part.len();
        }
        let out = Outbox::to(adding.table.ids[place], message);
        let (turn, sent) = match next.end == len {
            true => (place + 1, None),
            false => (place, Some(next.end)),
        };
        let stage = Stage::Result {
            adding,
            suspects,
            turn,
            sent,
        };
        self.go_on(stage, out, Vec::new())
    }
}

fn to_all(whom: &[PartyId], message: &[u8]) -> Outbox {
    let mut out = Outbox::new();
    for id in whom {
        out.push(*id, message.to_vec());
    }
    out
}

impl<W: Word> Party for Server<W> {
    type Output = Total<W>;

    fn phase(&self) -> Phase {
        match self.stage {
            Stage::Start { .. } | Stage::Hellos(_) => KEYS,
            Stage::Shares { .. } => SHARES,
            Stage::Upload { .. } => UPLOAD,
            _ => UNMASK,
        }
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let job = Job { rules: self.rules };
        match self.stage {
            Stage::Start { ids, rows } => Ok(job.go_on(Stage::Hellos(rows), Outbox::new(), ids)),
            Stage::Hellos(rows) => job.roster(&rows, inbox),
            Stage::Shares { table, mask_keys } => job.relay(table, mask_keys, inbox),
            Stage::Upload {
                adding,
                turn,
                upload,
            } => job.upload(adding, turn, upload, inbox),
            Stage::Announce(adding) => {
                let need = adding.ids(&adding.contributors);
                let out = to_all(&need, &adding.contributors.write());
                let stage = match job.rules.trust {
                    Trust::SemiHonest => Stage::Answers(adding),
                    Trust::MaliciousServer => Stage::Signatures(adding),
                };
                Ok(job.go_on(stage, out, need))
            }
            Stage::Signatures(adding) => job.signatures(adding, inbox),
            Stage::Answers(adding) => job.answers(adding, inbox),
            Stage::Rebuild {
                adding,
                answers,
                next,
                pads,
                suspects,
            } => job.rebuild(adding, answers, next, pads, suspects),
            Stage::Unmask {
                adding,
                pads,
                suspects,
                done,
            } => Ok(job.unmask(adding, pads, suspects, done)),
            Stage::Result {
                adding,
                suspects,
                turn,
                sent,
            } => Ok(job.result(adding, suspects, turn, sent)),
        }
    }
}
