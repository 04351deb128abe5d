//! The server's side of a sum.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::Cpu;
use undertone_kernel::mask::{self, Op};
use undertone_party::{Abort, Io, PartyId, Payload, Script};

use super::messages::{
    Answer, Answers, COMMITMENT_LEN, Dealing, Incoming, Relayed, Share, Signatures, tile,
};
use super::pad::{self, Pad};
use super::{
    Audience, Context, KEYS, Rules, SHARES, Set, Table, Trust, UNMASK, UPLOAD, Word, advertise,
};
use undertone_setup::roster::{Entry, enough, enough_holders, invited};
use zeroize::Zeroizing;

/// Secrets reconstructed in one step.
const REBUILT_PER_STEP: usize = 64;

/// Bytes of words that one thread unmasks in one step.
const UNMASKED_PER_STEP: usize = 256 << 10;

/// What the server learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total<W = u64> {
    /// The sum of the shared words.
    pub shared: Vec<W>,
    /// The clients whose words are in the sums.
    pub contributors: Vec<PartyId>,
    /// Clients that revealed a false share of a secret, or were dealt one. The sums are right
    /// without that share.
    pub suspects: Vec<PartyId>,
}

/// The invited clients of a sum, each with its rows.
#[derive(Debug, Clone, Default)]
pub struct Owners(Vec<(PartyId, Range<usize>)>);

/// The clients of a plain sum, which has no rows.
impl From<Vec<PartyId>> for Owners {
    fn from(clients: Vec<PartyId>) -> Self {
        Self(clients.into_iter().map(|id| (id, 0..0)).collect())
    }
}

impl From<Vec<(PartyId, Range<usize>)>> for Owners {
    fn from(owners: Vec<(PartyId, Range<usize>)>) -> Self {
        Self(owners)
    }
}

/// Returns the server's own words for the given contributors.
/// See [`server_with`](super::server_with).
pub(super) type OwnWords<W> = Box<dyn FnOnce(&[PartyId]) -> Vec<W> + Send>;

/// Messages by sender. `None` for dropped clients.
type Heard = Vec<(PartyId, Option<Payload>)>;

/// What the server holds from step 2e on.
pub(super) struct Adding<W: Word> {
    pub(super) table: Table,
    pub(super) mask_keys: Vec<[u8; 32]>,
    pub(super) context: Context,
    pub(super) commitments: Vec<[u8; COMMITMENT_LEN]>,
    sum: Vec<W>,
    pub(super) contributors: Set,
}

impl<W: Word> Adding<W> {
    /// Adds a whole upload of the client in `place` to `sum`.
    fn add(&self, sum: &mut [W], place: usize, upload: &Incoming) {
        let mut at = 0;
        for payload in &upload.payloads {
            let mut bytes = &payload[..];
            let end = at + payload.len() / W::BYTES;
            for part in self.context.upload(place, at..end) {
                let (head, tail) = bytes.split_at(part.len() * W::BYTES);
                mask::combine(Cpu::detect(), Op::Add, &mut sum[part], head);
                bytes = tail;
            }
            at = end;
        }
    }

    fn enough_holders(&self, answering: &Set) -> Result<(), Abort> {
        let (sharing, set) = (&self.context.sharing, &self.contributors);
        self.table.every_secret_has_holders(sharing, set, answering)
    }

    /// The signers and their signatures, as they are passed on.
    fn signatures(&self, heard: Heard) -> Result<Signatures, Abort> {
        let mut signers = Set(vec![false; self.table.len()]);
        let mut signatures = Vec::new();
        for (place, (from, bytes)) in self.contributors.places().zip(heard) {
            let Some(bytes) = bytes else {
                continue;
            };
            // SUM-20.
            let signature = bytes[..].try_into().map_err(|_| Abort::Malformed {
                from,
                what: format!("a signature of {} bytes", bytes.len()),
            })?;
            signers.0[place] = true;
            signatures.push(signature);
        }
        // SUM-21.
        enough(signers.count(), self.table.degree.quorum)?;
        self.enough_holders(&signers)?;
        Ok(Signatures {
            signers,
            signatures,
        })
    }

    /// For each dealer the shares of the secret that is due, each with its holder.
    fn answers(&self, heard: Heard) -> Result<Vec<Vec<(usize, Share)>>, Abort> {
        let (table, contributors) = (&self.table, &self.contributors);
        let mut answers: Vec<Vec<(usize, Share)>> = vec![Vec::new(); table.len()];
        let mut left = Set(vec![false; table.len()]);
        for (holder, (from, bytes)) in contributors.places().zip(heard) {
            let Some(bytes) = bytes else {
                continue;
            };
            left.0[holder] = true;
            let dealers = table.neighbours_in(holder, &self.context.sharing);
            let (own, revealed) = Answers::read(from, bytes, dealers.len())?;
            answers[holder].push((holder, own));
            for (dealer, answer) in dealers.into_iter().zip(revealed) {
                // SUM-27.
                let share = match (answer, contributors.has(dealer)) {
                    (Answer::SelfMask(share), true) | (Answer::MaskKey(share), false) => share,
                    _ => {
                        return Err(Abort::Cheated {
                            culprit: from,
                            fault: "it reveals a share of the wrong kind: self masks are due for \
                                    contributors, mask keys for the others"
                                .into(),
                        });
                    }
                };
                answers[dealer].push((holder, share));
            }
        }
        self.enough_holders(&left)?; // SUM-28
        Ok(answers)
    }

    /// Takes uploads client after client: the server holds at most one partial upload. With groups
    /// it holds the sum of one more group, and forgets that of a group that is not whole.
    async fn collect(&mut self, io: &Io) -> Result<(), Abort> {
        let sharing: Vec<usize> = self.context.sharing.places().collect();
        let units = match self.context.rules.groups {
            None => vec![sharing],
            Some(groups) => {
                let number = |place: &usize| groups.of(self.table.ids[*place].index()?);
                let units = sharing.chunk_by(|a, b| number(a) == number(b));
                units.map(<[usize]>::to_vec).collect()
            }
        };
        let needs_all = self.context.rules.groups.is_some();
        // Without the only group there is no sum.
        let apart = units.len() > 1;
        let mut sum = std::mem::take(&mut self.sum);
        let mut group = vec![W::default(); if apart { sum.len() } else { 0 }];
        for unit in units {
            let mut came = Vec::with_capacity(unit.len());
            for place in &unit {
                let (from, len) = (self.table.ids[*place], self.context.upload_len(*place));
                let mut upload = Incoming::default();
                while !upload.is_whole(len)
                    && let Some(bytes) = io.recv(from).await
                {
                    upload.take::<W>(from, bytes, len)?;
                }
                if upload.is_whole(len) {
                    let to = if apart { &mut group } else { &mut sum };
                    self.add(to, *place, &upload);
                    came.push(*place);
                }
            }
            if needs_all && came.len() < unit.len() {
                came.clear();
                group.fill(W::default());
            } else {
                for (word, more) in sum.iter_mut().zip(&mut group) {
                    *word = word.plus(std::mem::take(more));
                }
            }
            for place in came {
                self.contributors.0[place] = true;
            }
        }
        self.sum = sum;
        Ok(())
    }

    /// The masks on the sum, from `answers` by dealer, and the holders of false shares.
    async fn masks(
        &self,
        io: &Io,
        answers: Vec<Vec<(usize, Share)>>,
    ) -> Result<(Vec<Pad>, Vec<PartyId>), Abort> {
        let (mut pads, mut suspects) = (Vec::new(), Vec::new());
        for next in (0..answers.len()).step_by(REBUILT_PER_STEP) {
            io.pause().await;
            let end = answers.len().min(next + REBUILT_PER_STEP);
            let rebuilt: Result<Vec<_>, Abort> = (next..end)
                .into_par_iter()
                .map(|place| self.masks_of(place, &answers[place]))
                .collect();
            for (masks, suspect) in rebuilt? {
                pads.extend(masks);
                suspects.extend(suspect);
            }
        }
        suspects.sort_unstable();
        suspects.dedup();
        Ok((pads, suspects))
    }

    /// Takes the masks off the sum.
    async fn unmask(&mut self, io: &Io, pads: Vec<Pad>) {
        let suite = self.context.rules.suite;
        let part = UNMASKED_PER_STEP / W::BYTES;
        let mut done = 0;
        for words in self.sum.chunks_mut(part * rayon::current_num_threads()) {
            io.pause().await;
            let parts = words.par_chunks_mut(part).enumerate();
            parts.for_each(|(index, words)| pad::apply(&pads, suite, done + index * part, words));
            done += words.len();
        }
    }

    /// Adds the server's own words: the rows of clients that shared, and the shared words.
    fn add_own(&mut self, own: &[W]) -> Result<(), Abort> {
        let shape = self.context.rules.shape;
        if own.len() != shape.words() {
            return Err(Abort::Misuse(format!(
                "the server's own {} words do not fit {shape:?}",
                own.len()
            )));
        }
        let mut add = |to: Range<usize>, from: Range<usize>| {
            for (word, own) in self.sum[to].iter_mut().zip(&own[from]) {
                *word = word.plus(*own);
            }
        };
        for place in self.context.sharing.places() {
            let rows = &self.table.rows[place];
            let words = rows.start * shape.width..rows.end * shape.width;
            add(self.context.blocks[place].clone(), words);
        }
        let shared = self.context.shared();
        add(shared, shape.rows * shape.width..own.len());
        Ok(())
    }

    async fn send_results(&self, io: &Io) {
        for place in self.contributors.places() {
            let len = self.result_len(place);
            let mut sent = 0;
            while sent < len {
                io.pause().await;
                let next = tile::<W>(sent, len);
                sent = next.end;
                io.send(self.table.ids[place], self.result(place, next));
            }
        }
        io.pause().await;
    }

    /// The ranges of the words for the contributor in `place`: its rows, then the shared words.
    fn parts(&self, place: usize) -> [Range<usize>; 2] {
        let shared = match self.context.rules.audience {
            Audience::Everybody => self.context.shared(),
            Audience::Server => 0..0,
        };
        [self.context.blocks[place].clone(), shared]
    }

    fn result_len(&self, place: usize) -> usize {
        self.parts(place).iter().map(Range::len).sum()
    }

    /// The message with the words `next` of these.
    fn result(&self, place: usize, next: Range<usize>) -> Vec<u8> {
        let mut message = Vec::with_capacity(next.len() * W::BYTES);
        let mut before = 0;
        for part in self.parts(place) {
            let within = |at: usize| at.clamp(before, before + part.len()) - before + part.start;
            let words = within(next.start)..within(next.end);
            mask::append_bytes(&self.sum[words], &mut message);
            before += part.len();
        }
        message
    }
}

/// See [`Word`].
pub(super) fn server<W: Word>(
    rules: Rules,
    Owners(owners): Owners,
    own: Option<OwnWords<W>>,
) -> Result<Script<'static, Total<W>>, Abort> {
    rules.check()?;
    let ids = invited(owners.iter().map(|(id, _)| *id).collect())?;
    let owners = owners.into_iter().collect();
    Ok(Script::new(KEYS, |io| total(io, rules, ids, owners, own)))
}

async fn total<W: Word>(
    io: Io,
    rules: Rules,
    ids: Vec<PartyId>,
    owners: BTreeMap<PartyId, Range<usize>>,
    own: Option<OwnWords<W>>,
) -> Result<Total<W>, Abort> {
    // docs/spec/sums.md, step 1b: the roster, to every client on it.
    let mut entries = roster::<W>(&rules, &owners, io.recv_all(&ids).await)?;
    if let Some(groups) = rules.groups {
        let here: Vec<PartyId> = entries.iter().map(|entry| entry.id).collect();
        let whole = groups.whole(&here);
        leave_out(&io, &here, &whole);
        entries.retain(|entry| whole.binary_search(&entry.id).is_ok());
    }
    let table = Table::new::<W>(&rules, &entries)?;
    io.send_all(to_all(&table.ids, &Entry::write_roster(&entries)));

    // Step 2e: shares, to their holders.
    io.phase(SHARES).await;
    let dealt = dealings(&table, io.recv_all(&table.ids).await)?;
    let mut sharing = Set(dealt.iter().map(Option::is_some).collect());
    if let Some(groups) = rules.groups {
        let here = table.ids_of(&sharing);
        let whole = groups.whole(&here);
        leave_out(&io, &here, &whole);
        sharing = table.set_of(&whole);
    }
    enough(sharing.count(), rules.min_clients)?; // SUM-5
    for place in sharing.places() {
        let left = table.neighbours_in(place, &sharing).len() + 1;
        enough_holders(left, table.degree.threshold)?; // SUM-7
    }
    for place in sharing.places() {
        let message = Relayed::write(&table, &sharing, &dealt, place);
        io.send(table.ids[place], message);
    }
    let context = Context::new::<W>(rules, &table, sharing);
    let mut adding = Adding {
        commitments: dealt.iter().map(commitment).collect(),
        sum: vec![W::default(); context.len],
        contributors: Set(vec![false; table.len()]),
        context,
        mask_keys: entries.iter().map(|entry| entry.keys[1]).collect(),
        table,
    };
    drop((entries, dealt));

    // Step 3c: the masked words of all clients.
    io.phase(UPLOAD).await;
    adding.collect(&io).await?;
    let set = &adding.contributors;
    enough(set.count(), rules.min_clients)?; // SUM-5
    adding.enough_holders(set)?; // SUM-15

    // Step 4a: the contributors. Step 4b: against a malicious server a quorum signs them.
    io.phase(UNMASK).await;
    let contributors = adding.table.ids_of(&adding.contributors);
    if adding.context.rules.groups.is_some() {
        let here = adding.table.ids_of(&adding.context.sharing);
        leave_out(&io, &here, &contributors);
    }
    io.send_all(to_all(&contributors, &adding.contributors.write()));
    if rules.trust == Trust::MaliciousServer {
        let signed = adding.signatures(io.recv_all(&contributors).await)?;
        io.send_all(to_all(
            &adding.table.ids_of(&signed.signers),
            &signed.write(),
        ));
    }

    // Step 4c: one share of one secret of every client, from every remaining holder.
    let answers = adding.answers(io.recv_all(&contributors).await)?;

    // Step 4d: the masks come off.
    let (pads, suspects) = adding.masks(&io, answers).await?;
    adding.unmask(&io, pads).await;
    if let Some(own) = own {
        io.pause().await;
        let own = Zeroizing::new(own(&contributors));
        adding.add_own(&own)?;
    }

    // Step 4e: its rows of the sum to each contributor, and the shared words if for everybody.
    adding.send_results(&io).await;
    let shared = adding.context.shared();
    Ok(Total {
        contributors,
        shared: adding.sum.split_off(shared.start),
        suspects,
    })
}

fn roster<W: Word>(
    rules: &Rules,
    owners: &BTreeMap<PartyId, Range<usize>>,
    hellos: Heard,
) -> Result<Vec<Entry<2>>, Abort> {
    let mut entries = Vec::with_capacity(owners.len());
    for (id, hello) in hellos {
        let Some(bytes) = hello else {
            continue;
        };
        let entry = Entry::read(id, &bytes)?;
        // SUM-1.
        if entry.advertisement != advertise::<W>(rules, &owners[&id]) {
            return Err(Abort::Cheated {
                culprit: id,
                fault: "its rules or its rows differ from the server's".into(),
            });
        }
        entries.push(entry);
    }
    // SETUP-4.
    if let Some(id) = Entry::repeats(&entries) {
        return Err(Abort::Cheated {
            culprit: id,
            fault: "one of its keys occurs twice among the keys of all clients".into(),
        });
    }
    Ok(entries)
}

/// All clients' dealings, by place.
fn dealings(table: &Table, heard: Heard) -> Result<Vec<Option<Dealing>>, Abort> {
    let read = |(place, (from, bytes)): (usize, (PartyId, Option<Payload>))| {
        let neighbours = table.graph.neighbours(place);
        let read = |bytes| Dealing::read(from, bytes, neighbours);
        bytes.map(read).transpose()
    };
    heard.into_iter().enumerate().map(read).collect()
}

/// The commitment of a client; zeros if it did not deal.
fn commitment(dealt: &Option<Dealing>) -> [u8; COMMITMENT_LEN] {
    dealt.as_ref().map(Dealing::commitment).unwrap_or_default()
}

/// Tells those that are `here` and not among the clients of whole groups that they are left out.
fn leave_out(io: &Io, here: &[PartyId], whole: &[PartyId]) {
    for id in here.iter().filter(|id| whole.binary_search(id).is_err()) {
        io.send(*id, Vec::new());
    }
}

fn to_all<'a>(
    whom: &'a [PartyId],
    message: &'a [u8],
) -> impl Iterator<Item = (PartyId, Vec<u8>)> + 'a {
    whom.iter().map(|id| (*id, message.to_vec()))
}
