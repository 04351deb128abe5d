//! A client's side of a sum.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::mask;
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Reader, Step, Writer};
use zeroize::{Zeroize, Zeroizing};

use super::messages::{
    Answer, COMMITMENT_LEN, DEALT_LEN, Incoming, SEALED_LEN, SHARE_LEN, Share, tile,
};
use super::pad::{self, Pad};
use super::share;
use super::{Audience, Context, KEYS, Rules, SHARES, SIGNED_KEYS, SIGNED_SET, Set, Table, point};
use super::{SERVER, Trust, UNMASK, UPLOAD, Word, advertise};
use crate::identity::{Credentials, SIGNATURE_LEN};
use crate::kdf::Seed;
use crate::roster::{Entry, enough, enough_holders};
use crate::seal::{Channel, KeyPair, SealError};

/// What a client learns.
#[derive(Clone, PartialEq, Eq)]
pub struct Sums<W = u64> {
    /// Its rows of the sum of the matrices.
    pub own: Vec<W>,
    /// The sum of the shared words; empty if they are for the server only.
    pub shared: Vec<W>,
    /// Whose words are in the sums.
    pub contributors: Vec<PartyId>,
}

impl<W> fmt::Debug for Sums<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sums({} own, {} shared words of {:?})",
            self.own.len(),
            self.shared.len(),
            self.contributors
        )
    }
}

/// A client's side. Output: [`Sums`].
pub struct Client<W: Word> {
    job: Job<W>,
    stage: Stage,
}

impl<W: Word> fmt::Debug for Client<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client(..)")
    }
}

/// What a client holds all along.
struct Job<W: Word> {
    rules: Rules,
    mine: Entry<2>,
    credentials: Option<Credentials>,
    secrets: Secrets,
    /// The matrix, then the shared words; later the joint words.
    words: Zeroizing<Vec<W>>,
}

struct Secrets {
    sealing: KeyPair,
    masking: KeyPair,
    /// The seed of `masking`: what is shared of it.
    mask_key: Seed,
    self_mask: Seed,
    polynomial: Seed,
}

/// A neighbour, and what is agreed with it.
struct Neighbour {
    place: usize,
    channel: Channel,
    /// The secret of the sealing keys, never shared.
    rows: Seed,
    /// The secret of the mask keys.
    mask: Seed,
    /// Its shares, once they have come: of its self mask and of its mask key.
    dealt: Option<[Share; 2]>,
}

enum Stage {
    Start,
    Roster,
    Share {
        table: Table,
        entries: Vec<Entry<2>>,
    },
    Shares(Round),
    Upload {
        masked: Masked,
        pads: Vec<Pad>,
        sent: usize,
    },
    Contributors(Masked),
    Consistency {
        masked: Masked,
        set: Set,
    },
    Result {
        masked: Masked,
        set: Set,
        result: Incoming,
    },
}

/// What holds from the shares on.
struct Round {
    table: Table,
    me: usize,
    own_share: Share,
    neighbours: Vec<Neighbour>,
}

/// What holds once it is known who shared, and with that where words stand and which masks they get.
struct Masked {
    round: Round,
    context: Context,
}

fn cheated(culprit: PartyId, check: impl Into<String>) -> Abort {
    Abort::Cheated {
        culprit,
        check: check.into(),
    }
}

impl<W: Word> Client<W> {
    /// Client `me`, which contributes `words`, the matrix row after row, then the shared words;
    /// rows `own` of the matrix belong to it. `seed` is its randomness. With
    /// `credentials` it signs its keys and checks everybody's signature.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when words, rows and rules do not fit, or the rules name a malicious server
    /// and there are no credentials.
    pub fn new(
        rules: Rules,
        me: PartyId,
        words: Vec<W>,
        own: Range<usize>,
        credentials: Option<Credentials>,
        seed: Seed,
    ) -> Result<Self, Abort> {
        let words = Zeroizing::new(words);
        rules.check()?;
        let shape = rules.shape;
        if words.len() != shape.words() || own.start > own.end || own.end > shape.rows {
            return Err(Abort::Misuse(format!(
                "{} words with own rows {own:?} for {shape:?}",
                words.len(),
            )));
        }
        if rules.trust == Trust::MaliciousServer && credentials.is_none() {
            return Err(Abort::Misuse(
                "a server that may lie needs clients with credentials".into(),
            ));
        }
        let ids = [me.to_wire(), rules.round];
        let derive = |purpose| seed.derive(rules.session, purpose, &ids);
        let mask_key = derive("mask key");
        let secrets = Secrets {
            sealing: KeyPair::from_seed(&derive("sealing key")),
            masking: KeyPair::from_seed(&mask_key),
            mask_key,
            self_mask: derive("self mask seed"),
            polynomial: derive("polynomial"),
        };
        let mine = Entry::new(
            rules.session,
            SIGNED_KEYS,
            me,
            [secrets.sealing.public(), secrets.masking.public()],
            advertise::<W>(&rules, &own),
            credentials.as_ref(),
        )?;
        Ok(Self {
            job: Job {
                rules,
                mine,
                credentials,
                secrets,
                words,
            },
            stage: Stage::Start,
        })
    }
}

impl<W: Word> Job<W> {
    fn go_on(self, stage: Stage, out: Outbox, need: Vec<PartyId>) -> Step<Client<W>> {
        Step::Continue {
            out,
            need: need.into(),
            next: Client { job: self, stage },
        }
    }

    fn on_server(self, stage: Stage, message: Vec<u8>) -> Step<Client<W>> {
        self.go_on(stage, Outbox::to(SERVER, message), vec![SERVER])
    }

    fn now(self, stage: Stage, out: Outbox) -> Step<Client<W>> {
        self.go_on(stage, out, Vec::new())
    }

    /// Agrees with every neighbour.
    fn agree(
        &self,
        entries: &[Entry<2>],
        table: &Table,
        with: &[usize],
    ) -> Result<Vec<Neighbour>, Abort> {
        let session = self.rules.session;
        let neighbour = |place: &usize| {
            let entry = &entries[*place];
            let low_order = |error: SealError| cheated(entry.id, error.to_string());
            let [sealing, masking] = entry.keys;
            let secrets = &self.secrets;
            let rows = secrets
                .sealing
                .agree(session, "sum pair", sealing)
                .map_err(low_order)?;
            let mask = secrets
                .masking
                .agree(session, "mask pair", masking)
                .map_err(low_order)?;
            Ok(Neighbour {
                place: *place,
                // Bound to the roster: what is dealt under one opens under no other.
                channel: Channel::new(
                    session,
                    &rows.expand(session, "sum seal", &table.digest),
                    self.mine.id,
                    entry.id,
                ),
                rows,
                mask,
                dealt: None,
            })
        };
        with.par_iter().map(neighbour).collect()
    }

    /// Round 2: shares of the two secrets, sealed to each neighbour; one of each for itself.
    fn share(self, table: Table, entries: &[Entry<2>]) -> Result<Step<Client<W>>, Abort> {
        let Some(me) = table.ids.iter().position(|id| *id == self.mine.id) else {
            return Err(Abort::Internal("the roster was checked".into()));
        };
        let with = table.graph.neighbours(me);
        let mut neighbours = self.agree(entries, &table, &with)?;
        let holders = neighbours.len() + 1;
        let secrets = &self.secrets;
        let mut secret = Zeroizing::new([0; DEALT_LEN]);
        secret[..SHARE_LEN].copy_from_slice(secrets.self_mask.expose());
        secret[SHARE_LEN..].copy_from_slice(secrets.mask_key.expose());
        let prg = &mut secrets.polynomial.prg();
        let shares = share::split(&secret, table.degree.threshold, holders, prg);
        let of = |holder| &shares[usize::from(point(&with, me, holder)) - 1];
        let mut w = Writer::with_capacity((holders - 1) * SEALED_LEN + COMMITMENT_LEN);
        for neighbour in &mut neighbours {
            let sealed = neighbour.channel.seal(&**of(neighbour.place));
            w.raw(&sealed.map_err(|error| Abort::Internal(error.to_string()))?);
        }
        w.raw(commitment(&self.rules, self.mine.id, &secrets.self_mask).expose());
        let mut own_share = Share::default();
        own_share.copy_from_slice(&of(me)[..SHARE_LEN]);
        let round = Round {
            table,
            me,
            own_share,
            neighbours,
        };
        Ok(self.on_server(Stage::Shares(round), w.finish()))
    }

    /// Round 3, first half: opens the neighbours' shares, and lays out the words.
    fn receive(mut self, mut round: Round, message: &[u8]) -> Result<Step<Client<W>>, Abort> {
        let Round {
            table,
            me,
            neighbours,
            ..
        } = &mut round;
        let mut r = Reader::new(message);
        let sharing = Set::read(&mut r, table.len())?;
        if !sharing.has(*me) {
            return Err(cheated(SERVER, "I am among those that shared"));
        }
        enough(sharing.count(), self.rules.min_clients)?;
        neighbours.retain(|neighbour| sharing.has(neighbour.place));
        enough_holders(neighbours.len() + 1, table.degree.threshold)?;
        for neighbour in neighbours.iter_mut() {
            let sealed = r
                .raw(SEALED_LEN, "shares")
                .map_err(Abort::malformed(SERVER))?;
            let who = table.ids[neighbour.place];
            let opened = neighbour
                .channel
                .open(sealed)
                .map(Zeroizing::new)
                .map_err(|_| cheated(who, "its shares open"))?;
            let (mut mask, mut key) = (Share::default(), Share::default());
            if opened.len() != DEALT_LEN {
                return Err(cheated(who, "it sealed two shares"));
            }
            mask.copy_from_slice(&opened[..SHARE_LEN]);
            key.copy_from_slice(&opened[SHARE_LEN..]);
            neighbour.dealt = Some([mask, key]);
        }
        r.finish().map_err(Abort::malformed(SERVER))?;

        let context = Context::new::<W>(self.rules, table, sharing);
        self.join(table, &context);
        let block = |place: usize| context.blocks[place].clone();
        let id = self.mine.id;
        let mut pads = vec![Pad::own(&context, id, &self.secrets.self_mask, block(*me))];
        for Neighbour {
            place, rows, mask, ..
        } in neighbours.iter()
        {
            let (mine, its) = ((id, block(*me)), (table.ids[*place], block(*place)));
            pads.push(Pad::edge(&context, mine, its, Some(mask), Some(rows)));
        }
        let stage = Stage::Upload {
            masked: Masked { round, context },
            pads,
            sent: 0,
        };
        Ok(self.now(stage, Outbox::new()))
    }

    /// Turns the words into the joint words: rows that belong to nobody who shared are left out,
    /// as nothing would hide them from the server.
    fn join(&mut self, table: &Table, context: &Context) {
        let shape = self.rules.shape;
        if context.len == shape.words() {
            return;
        }
        let mut joint = Zeroizing::new(Vec::with_capacity(context.len));
        for place in context.sharing.places() {
            let rows = &table.rows[place];
            let words = rows.start * shape.width..rows.end * shape.width;
            joint.extend_from_slice(&self.words[words]);
        }
        joint.extend_from_slice(&self.words[shape.rows * shape.width..]);
        self.words = joint;
    }

    /// Round 3, second half: masks the next words and sends them.
    fn upload(mut self, masked: Masked, pads: Vec<Pad>, sent: usize) -> Step<Client<W>> {
        let (context, me) = (&masked.context, masked.round.me);
        let len = context.upload_len(me);
        let next = tile::<W>(sent, len);
        let sent = next.end;
        let mut message = Vec::with_capacity(next.len() * W::BYTES);
        for part in context.upload(me, next) {
            let words = &mut self.words[part.clone()];
            pad::apply(&pads, self.rules.suite, part.start, words);
            mask::append_bytes(words, &mut message);
        }
        let out = Outbox::to(SERVER, message);
        if sent < len {
            return self.now(Stage::Upload { masked, pads, sent }, out);
        }
        // The own block is still to come; the rest is masked by now, no secret any more.
        let block = &mut self.words[context.blocks[me].clone()];
        let own = Zeroizing::new(block.to_vec());
        block.iter_mut().for_each(Zeroize::zeroize);
        drop(std::mem::take(&mut *self.words));
        self.words = own;
        self.go_on(Stage::Contributors(masked), out, vec![SERVER])
    }

    /// Checks who contributed, and signs it for the others or answers at once.
    fn contributors(self, masked: Masked, message: &[u8]) -> Result<Step<Client<W>>, Abort> {
        let Masked { round, context } = &masked;
        let table = &round.table;
        let mut r = Reader::new(message);
        let set = Set::read(&mut r, table.len())?;
        r.finish().map_err(Abort::malformed(SERVER))?;
        if !set.is_within(&context.sharing) {
            return Err(cheated(SERVER, "only clients that shared contribute"));
        }
        if !set.has(round.me) {
            return Err(cheated(SERVER, "I am among those that contributed"));
        }
        enough(set.count(), self.rules.min_clients)?;
        let left = table.neighbours_in(round.me, &set).len() + 1;
        enough_holders(left, table.degree.threshold)?;
        if self.rules.shape.rows > 0 {
            // Rows whose owner has no neighbour left would have no mask.
            table.every_secret_has_holders(&context.sharing, &set, &set)?;
        }
        match (self.rules.trust, &self.credentials) {
            (Trust::MaliciousServer, Some(own)) => {
                let body = signed_set(context, &set);
                let signature = own.identity.sign(self.rules.session, SIGNED_SET, &body);
                Ok(self.on_server(Stage::Consistency { masked, set }, signature.to_vec()))
            }
            _ => self.answer(masked, set),
        }
    }

    /// Round 3½: a quorum of clients signed the same set, so no honest client was told another.
    fn consistency(&self, masked: &Masked, set: &Set, message: &[u8]) -> Result<(), Abort> {
        let table = &masked.round.table;
        let mut r = Reader::new(message);
        let signers = Set::read(&mut r, table.len())?;
        if !signers.is_within(set) {
            return Err(cheated(SERVER, "contributors signed who contributed"));
        }
        let mut valid = 0;
        let body = signed_set(&masked.context, set);
        let pins = self.credentials.as_ref().map(|own| &own.pins);
        for place in signers.places() {
            let signature: [u8; SIGNATURE_LEN] =
                r.array("signature").map_err(Abort::malformed(SERVER))?;
            let id = table.ids[place];
            let session = self.rules.session;
            let fits = pins.is_some_and(|p| p.verify(id, session, SIGNED_SET, &body, &signature));
            valid += usize::from(fits);
        }
        r.finish().map_err(Abort::malformed(SERVER))?;
        let quorum = table.degree.quorum;
        if valid < quorum {
            let check = format!("{quorum} clients signed the contributors I was told, not {valid}");
            return Err(cheated(SERVER, check));
        }
        Ok(())
    }

    /// Round 4: one share for each neighbour that shared, and its own of its own self mask.
    fn answer(self, mut masked: Masked, set: Set) -> Result<Step<Client<W>>, Abort> {
        let round = &mut masked.round;
        let mut message = Vec::with_capacity(SHARE_LEN + round.neighbours.len() * Answer::LEN);
        message.extend_from_slice(&*round.own_share);
        for neighbour in &mut round.neighbours {
            let Some([mask, key]) = neighbour.dealt.take() else {
                return Err(Abort::Internal("a share was revealed before".into()));
            };
            let answer = match set.has(neighbour.place) {
                true => Answer::SelfMask(mask),
                false => Answer::MaskKey(key),
            };
            answer.write(&mut message);
        }
        let result = Incoming::default();
        Ok(self.on_server(
            Stage::Result {
                masked,
                set,
                result,
            },
            message,
        ))
    }

    /// Adds its own rows to those that came, and takes off the row masks of the neighbours that
    /// contributed.
    fn result(mut self, masked: &Masked, set: &Set, result: &Incoming) -> Sums<W> {
        let Masked { round, context } = masked;
        let block = |place: usize| context.blocks[place].clone();
        let own = block(round.me);
        let id = self.mine.id;
        let contributing = round.neighbours.iter().filter(|n| set.has(n.place));
        let pads: Vec<Pad> = contributing
            .map(|n| {
                let (mine, its) = (
                    (id, own.clone()),
                    (round.table.ids[n.place], block(n.place)),
                );
                Pad::edge(context, mine, its, None, Some(&n.rows))
            })
            .collect();
        pad::apply(&pads, self.rules.suite, own.start, &mut self.words);
        let came = result.payloads.iter();
        let mut came: Vec<W> = came.flat_map(|payload| mask::from_bytes(payload)).collect();
        let shared = came.split_off(own.len());
        for (word, mine) in came.iter_mut().zip(self.words.iter()) {
            *word = word.plus(*mine);
        }
        Sums {
            own: came,
            shared,
            contributors: set.places().map(|place| round.table.ids[place]).collect(),
        }
    }
}

/// What contributors sign: the transcript, then who contributed.
fn signed_set(context: &Context, set: &Set) -> Vec<u8> {
    let mut body = context.transcript.to_vec();
    body.extend(set.write());
    body
}

/// What binds `who` to its self mask before anybody knows it.
pub(super) fn commitment(rules: &Rules, who: PartyId, self_mask: &Seed) -> Seed {
    let ids = [who.to_wire(), rules.round];
    self_mask.derive(rules.session, "self mask commitment", &ids)
}

impl<W: Word> Party for Client<W> {
    type Output = Sums<W>;

    fn phase(&self) -> Phase {
        match self.stage {
            Stage::Start | Stage::Roster => KEYS,
            Stage::Share { .. } | Stage::Shares(_) => SHARES,
            Stage::Upload { .. } => UPLOAD,
            Stage::Contributors(_) | Stage::Consistency { .. } | Stage::Result { .. } => UNMASK,
        }
    }

    fn step(self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let Self { job, stage } = self;
        match stage {
            Stage::Start => {
                let hello = job.mine.write();
                Ok(job.on_server(Stage::Roster, hello))
            }
            Stage::Roster => {
                let entries = Entry::read_roster(
                    job.rules.session,
                    SIGNED_KEYS,
                    &inbox.require(SERVER)?,
                    &job.mine,
                    job.credentials.as_ref(),
                )?;
                if let (Trust::MaliciousServer, Some(own)) = (job.rules.trust, &job.credentials) {
                    // The corrupt share is that of the clients that are pinned.
                    enough(entries.len(), job.rules.wiring.fewest(own.pins.len()))?;
                }
                let table = Table::new::<W>(&job.rules, &entries)?;
                Ok(job.now(Stage::Share { table, entries }, Outbox::new()))
            }
            Stage::Share { table, entries } => job.share(table, &entries),
            Stage::Shares(round) => job.receive(round, &inbox.require(SERVER)?),
            Stage::Upload { masked, pads, sent } => Ok(job.upload(masked, pads, sent)),
            Stage::Contributors(masked) => job.contributors(masked, &inbox.require(SERVER)?),
            Stage::Consistency { masked, set } => {
                job.consistency(&masked, &set, &inbox.require(SERVER)?)?;
                job.answer(masked, set)
            }
            Stage::Result {
                masked,
                set,
                mut result,
            } => {
                let shared = match job.rules.audience {
                    Audience::Server => 0,
                    Audience::Everybody => job.rules.shape.shared,
                };
                let len = masked.context.blocks[masked.round.me].len() + shared;
                result.take::<W>(SERVER, inbox.require(SERVER)?, len)?;
                if !result.is_whole(len) {
                    let stage = Stage::Result {
                        masked,
                        set,
                        result,
                    };
                    return Ok(job.go_on(stage, Outbox::new(), vec![SERVER]));
                }
                Ok(Step::Done {
                    out: Outbox::new(),
                    output: job.result(&masked, &set, &result),
                })
            }
        }
    }
}
