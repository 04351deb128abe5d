//! A client's side of a sum.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use undertone_job::record::Claims;
use undertone_kernel::mask;
use undertone_party::{Abort, Io, PartyId, Payload, Reader, Script};
use zeroize::{Zeroize, Zeroizing};

use super::input::{Input, Words};
use super::messages::{
    Answer, Answers, DEALT_LEN, Dealing, Incoming, Relayed, SHARE_LEN, Share, Signatures, tile,
};
use super::pad::{self, Pad};
use super::share;
use super::{Audience, Context, KEYS, Rules, SHARES, SIGNED_KEYS, SIGNED_SET, Set, Table, point};
use super::{SERVER, Trust, UNMASK, UPLOAD, Word, advertise};
use undertone_kdf::Seed;
use undertone_setup::identity::Credentials;
use undertone_setup::roster::{Entry, enough, enough_holders};
use undertone_setup::seal::{Channel, KeyPair, SealError};

/// What a client learns.
#[derive(Clone, PartialEq, Eq)]
pub struct Sums<W = u64> {
    /// Its rows of the sum of the matrices.
    pub own: Vec<W>,
    /// The sum of the shared words. Empty if they are for the server only.
    pub shared: Vec<W>,
    /// The clients whose words are in the sums.
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

/// What a client holds from start to end.
struct Job<W: Word> {
    rules: Rules,
    mine: Entry<2>,
    credentials: Option<Credentials>,
    secrets: Secrets,
    /// The matrix, then the shared words; later the joint words. Empty until step 3.
    words: Zeroizing<Vec<W>>,
    claims: Claims,
}

struct Secrets {
    sealing: KeyPair,
    masking: KeyPair,
    /// The seed of `masking`, which is shared.
    mask_key: Seed,
    self_mask: Seed,
    polynomial: Seed,
}

/// A neighbour and the secrets agreed with it.
struct Neighbour {
    place: usize,
    /// Boxed: a vector that moves its elements leaves no copies of the secrets behind.
    agreed: Box<Agreed>,
}

/// The secrets agreed with a neighbour.
struct Agreed {
    channel: Channel,
    /// The secret of the sealing keys, which is never shared. It keys the row masks.
    rows: Seed,
    /// The secret of the mask keys. It keys the edge masks.
    mask: Seed,
}

/// A neighbour's shares: of its self mask and of its mask key.
type Dealt = [Share; 2];

/// See [`Word`].
pub(super) fn client<W: Word>(
    rules: Rules,
    me: PartyId,
    input: Input<W>,
    seed: Seed,
) -> Result<Script<'static, Sums<W>>, Abort> {
    let Input {
        words,
        own,
        credentials,
        claims,
    } = input;
    rules.check()?;
    let shape = rules.shape;
    if let Words::Ready(words) = &words {
        fits(words, &rules)?;
    }
    if own.start > own.end || own.end > shape.rows {
        return Err(Abort::Misuse(format!(
            "own rows {own:?} do not fit {shape:?}"
        )));
    }
    if rules.trust == Trust::MaliciousServer && credentials.is_none() {
        return Err(Abort::Misuse(
            "a sum against a malicious server needs clients with credentials".into(),
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
    // Boxed: a future that moves leaves no copies of the secrets behind.
    let job = Box::new(Job {
        rules,
        mine,
        credentials,
        secrets,
        words: Zeroizing::default(),
        claims,
    });
    Ok(Script::new(KEYS, |io| contribute(io, job, words)))
}

async fn contribute<W: Word>(
    io: Io,
    mut job: Box<Job<W>>,
    words: Words<W>,
) -> Result<Sums<W>, Abort> {
    let rules = job.rules;

    // docs/spec/sums.md, steps 1a and 1c: the keys of all clients.
    io.send(SERVER, job.mine.write());
    let entries = job.roster(&from_server(&io, &rules).await?)?;
    let table = Table::new::<W>(&rules, &entries)?;

    // Steps 2a to 2d: shares of the two secrets, sealed for each neighbour; one for itself.
    io.phase(SHARES).await;
    let Some(me) = table.ids.iter().position(|id| *id == job.mine.id) else {
        return Err(Abort::Internal("the roster was checked".into()));
    };
    let mut neighbours = job.agree(&entries, &table, me)?;
    drop(entries);
    let (own_share, sealed) = job.deal(&table, me, &mut neighbours)?;
    io.send(SERVER, sealed);
    // Step 2f: who shared, and the neighbours' shares.
    let relayed = from_server(&io, &rules).await?;
    let (sharing, dealt) = job.open(&relayed, &table, me, &mut neighbours)?;
    drop(relayed);

    // Step 3: the masked words. Rows of clients that did not share are left out.
    let context = Context::new::<W>(rules, &table, sharing);
    let pads = job.pads(&context, &table, me, &neighbours);
    io.phase(UPLOAD).await;
    job.words = match words {
        Words::Ready(words) => words,
        Words::Late(give) => give()?,
    };
    fits(&job.words, &rules)?;
    job.join(&table, &context);
    // SUM-13.
    job.claims.sending()?;
    let len = context.upload_len(me);
    let mut sent = 0;
    loop {
        let next = tile::<W>(sent, len);
        sent = next.end;
        io.send(SERVER, job.mask(&context, me, &pads, next));
        if sent == len {
            break;
        }
        io.pause().await;
    }
    drop(pads);
    let own = job.keep(context.blocks[me].clone());

    // Step 4a: the contributors. Step 4b: against a malicious server a quorum signs them.
    io.phase(UNMASK).await;
    let set = job.contributors(&from_server(&io, &rules).await?, &context, &table, me)?;
    if let (Trust::MaliciousServer, Some(credentials)) = (rules.trust, &job.credentials) {
        let body = signed_set(&context, &set);
        let signature = credentials.identity.sign(rules.session, SIGNED_SET, &body);
        io.send(SERVER, &signature);
        let signatures = io.require(SERVER).await?;
        job.consistency(&signatures, &body, &table, &set)?;
    }

    // Step 4c: one share for each neighbour that shared, and its own share of its own self mask.
    let contributors: Vec<PartyId> = set.places().map(|place| table.ids[place]).collect();
    // SUM-25.
    job.claims.opening(&contributors)?;
    io.send(SERVER, answer(&own_share, &neighbours, dealt, &set));

    // Step 4e: its rows of the sum, and the shared words if they are for everybody.
    let shared = match rules.audience {
        Audience::Server => 0,
        Audience::Everybody => rules.shape.shared,
    };
    let len = context.blocks[me].len() + shared;
    let mut result = Incoming::default();
    while len > 0 && !result.is_whole(len) {
        result.take::<W>(SERVER, io.require(SERVER).await?, len)?;
    }
    neighbours.retain(|neighbour| set.has(neighbour.place));
    let (own, shared) = job.unmask(own, &result.payloads, &context, &table, me, &neighbours);
    Ok(Sums {
        own,
        shared,
        contributors,
    })
}

/// The server's next message.
///
/// # Errors
/// [`Abort::Left`] if the server leaves this client out, because its group is not whole.
async fn from_server(io: &Io, rules: &Rules) -> Result<Payload, Abort> {
    let message = io.require(SERVER).await?;
    if rules.groups.is_some() && message.is_empty() {
        return Err(Abort::Left { who: SERVER });
    }
    Ok(message)
}

impl<W: Word> Job<W> {
    fn roster(&self, message: &[u8]) -> Result<Vec<Entry<2>>, Abort> {
        let (session, own) = (self.rules.session, self.credentials.as_ref());
        let entries = Entry::read_roster(session, SIGNED_KEYS, message, &self.mine, own)?;
        if let (Trust::MaliciousServer, Some(own)) = (self.rules.trust, own) {
            // SUM-4: the corrupt share is a share of the pinned clients.
            enough(entries.len(), self.rules.wiring.fewest(own.pins.len()))?;
        }
        Ok(entries)
    }

    /// Agrees on secrets with every neighbour.
    fn agree(
        &self,
        entries: &[Entry<2>],
        table: &Table,
        me: usize,
    ) -> Result<Vec<Neighbour>, Abort> {
        let session = self.rules.session;
        let neighbour = |place: usize| {
            let entry = &entries[place];
            let low_order = |error: SealError| Abort::cheated(entry.id, error.to_string());
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
            // Bound to the roster: shares dealt under one roster open under no other.
            let seal = rows.expand(session, "sum seal", &table.digest);
            let agreed = Box::new(Agreed {
                channel: Channel::new(session, &seal, self.mine.id, entry.id),
                rows,
                mask,
            });
            Ok(Neighbour { place, agreed })
        };
        let with = table.graph.neighbours(me);
        with.into_par_iter().map(neighbour).collect()
    }

    /// Its own share of its self mask, and the message with the neighbours' shares of both secrets.
    fn deal(
        &self,
        table: &Table,
        me: usize,
        neighbours: &mut [Neighbour],
    ) -> Result<(Share, Vec<u8>), Abort> {
        let secrets = &self.secrets;
        let mut secret = Zeroizing::new([0; DEALT_LEN]);
        secret[..SHARE_LEN].copy_from_slice(secrets.self_mask.expose());
        secret[SHARE_LEN..].copy_from_slice(secrets.mask_key.expose());
        let prg = &mut secrets.polynomial.prg();
        let shares = share::split(&secret, table.degree.threshold, neighbours.len() + 1, prg);
        let with = table.graph.neighbours(me);
        let of = |holder| &shares[usize::from(point(&with, me, holder)) - 1];
        let seal =
            |neighbour: &mut Neighbour| neighbour.agreed.channel.seal(&**of(neighbour.place));
        let sealed: Result<Vec<_>, SealError> = neighbours.iter_mut().map(seal).collect();
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        let commitment = commitment(&self.rules, self.mine.id, &secrets.self_mask);
        let mut own_share = Share::default();
        own_share.copy_from_slice(&of(me)[..SHARE_LEN]);
        Ok((own_share, Dealing::write(&sealed, &commitment)))
    }

    /// Who shared, and the shares of the neighbours that did. Only these stay in `neighbours`.
    fn open(
        &self,
        message: &[u8],
        table: &Table,
        me: usize,
        neighbours: &mut Vec<Neighbour>,
    ) -> Result<(Set, Vec<Dealt>), Abort> {
        let mut relayed = Relayed::read(message, table.len())?;
        // SUM-10.
        if !relayed.sharing.has(me) {
            return Err(Abort::cheated(
                SERVER,
                "its set of clients that shared leaves this client out",
            ));
        }
        enough(relayed.sharing.count(), self.rules.min_clients)?; // SUM-5
        neighbours.retain(|neighbour| relayed.sharing.has(neighbour.place));
        enough_holders(neighbours.len() + 1, table.degree.threshold)?; // SUM-11
        let mut dealt = Vec::with_capacity(neighbours.len());
        for neighbour in neighbours {
            let sealed = relayed.next()?;
            let who = table.ids[neighbour.place];
            // SUM-12.
            let opened = neighbour
                .agreed
                .channel
                .open(sealed)
                .map(Zeroizing::new)
                .map_err(|_| Abort::cheated(who, "its shares do not open"))?;
            let (mut mask, mut key) = (Share::default(), Share::default());
            if opened.len() != DEALT_LEN {
                return Err(Abort::cheated(
                    who,
                    "its sealed message does not hold two shares",
                ));
            }
            mask.copy_from_slice(&opened[..SHARE_LEN]);
            key.copy_from_slice(&opened[SHARE_LEN..]);
            dealt.push([mask, key]);
        }
        let sharing = relayed.sharing.clone();
        relayed.finish()?;
        Ok((sharing, dealt))
    }

    /// Turns the words into the joint words. It leaves out rows of clients that did not share: no
    /// mask would hide them from the server.
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

    fn pads(
        &self,
        context: &Context,
        table: &Table,
        me: usize,
        neighbours: &[Neighbour],
    ) -> Vec<Pad> {
        let block = |place: usize| context.blocks[place].clone();
        let (id, self_mask) = (self.mine.id, &self.secrets.self_mask);
        let mut pads = Vec::with_capacity(1 + neighbours.len());
        pads.push(Pad::own(context, id, self_mask, block(me)));
        pads.extend(neighbours.iter().map(|n| {
            let (mine, its) = ((id, block(me)), (table.ids[n.place], block(n.place)));
            Pad::edge(
                context,
                mine,
                its,
                Some(&n.agreed.mask),
                Some(&n.agreed.rows),
            )
        }));
        pads
    }

    /// Masks the next words of the upload. Returns the message.
    fn mask(&mut self, context: &Context, me: usize, pads: &[Pad], next: Range<usize>) -> Vec<u8> {
        let mut message = Vec::with_capacity(next.len() * W::BYTES);
        for part in context.upload(me, next) {
            let words = &mut self.words[part.clone()];
            pad::apply(pads, self.rules.suite, part.start, words);
            mask::append_bytes(words, &mut message);
        }
        message
    }

    /// Takes out the client's own block, which is never sent. [`unmask`](Self::unmask) adds it to
    /// the result. The rest is masked by now and no longer secret.
    fn keep(&mut self, block: Range<usize>) -> Zeroizing<Vec<W>> {
        let block = &mut self.words[block];
        let own = Zeroizing::new(block.to_vec());
        block.iter_mut().for_each(Zeroize::zeroize);
        drop(std::mem::take(&mut *self.words));
        own
    }

    /// Reads and checks the set of contributors.
    fn contributors(
        &self,
        message: &[u8],
        context: &Context,
        table: &Table,
        me: usize,
    ) -> Result<Set, Abort> {
        // SUM-16.
        let mut r = Reader::new(message);
        let set = Set::read(&mut r, table.len())?;
        r.finish().map_err(Abort::malformed(SERVER))?;
        // SUM-17.
        if !set.is_within(&context.sharing) {
            return Err(Abort::cheated(
                SERVER,
                "its set of contributors names a client that did not share",
            ));
        }
        // SUM-18.
        if !set.has(me) {
            return Err(Abort::cheated(
                SERVER,
                "its set of contributors leaves this client out",
            ));
        }
        enough(set.count(), self.rules.min_clients)?; // SUM-5
        // SUM-34.
        if let Some(groups) = self.rules.groups
            && !groups.are_whole(&table.ids_of(&set))
        {
            return Err(Abort::cheated(
                SERVER,
                "its contributors are not whole groups: what changes little at a client would \
                 follow from sums over changing sets",
            ));
        }
        let left = table.neighbours_in(me, &set).len() + 1;
        enough_holders(left, table.degree.threshold)?; // SUM-11
        if self.rules.shape.rows > 0 {
            // SUM-19: if a client has no neighbour left, its rows would have no mask.
            table.every_secret_has_holders(&context.sharing, &set, &set)?;
        }
        Ok(set)
    }

    /// Step 4b: a quorum of clients signed the same set, so no honest client was told another one.
    fn consistency(
        &self,
        message: &[u8],
        body: &[u8],
        table: &Table,
        set: &Set,
    ) -> Result<(), Abort> {
        let Signatures {
            signers,
            signatures,
        } = Signatures::read(message, table.len())?;
        // SUM-23.
        if !signers.is_within(set) {
            return Err(Abort::cheated(
                SERVER,
                "its set of signers names a client that did not contribute",
            ));
        }
        let session = self.rules.session;
        let pins = self.credentials.as_ref().map(|own| &own.pins);
        let signed = signers.places().zip(&signatures);
        let valid = signed.filter(|(place, signature)| {
            let id = table.ids[*place];
            pins.is_some_and(|pins| pins.verify(id, session, SIGNED_SET, body, signature))
        });
        let valid = valid.count();
        let quorum = table.degree.quorum;
        // SUM-24.
        if valid < quorum {
            let check = format!(
                "{valid} signatures fit the contributors this client was told, {quorum} are needed"
            );
            return Err(Abort::cheated(SERVER, check));
        }
        Ok(())
    }

    /// Its own rows of the sum, without the row masks of the neighbours that contributed, and the
    /// shared words.
    fn unmask(
        &self,
        mut own: Zeroizing<Vec<W>>,
        came: &[Payload],
        context: &Context,
        table: &Table,
        me: usize,
        contributing: &[Neighbour],
    ) -> (Vec<W>, Vec<W>) {
        let block = |place: usize| context.blocks[place].clone();
        let edge = |n: &Neighbour| {
            let mine = (self.mine.id, block(me));
            let its = (table.ids[n.place], block(n.place));
            Pad::edge(context, mine, its, None, Some(&n.agreed.rows))
        };
        let pads: Vec<Pad> = contributing.iter().map(edge).collect();
        pad::apply(&pads, self.rules.suite, block(me).start, &mut own);
        let came = came.iter();
        let mut came: Vec<W> = came.flat_map(|payload| mask::from_bytes(payload)).collect();
        let shared = came.split_off(own.len());
        for (word, mine) in came.iter_mut().zip(own.iter()) {
            *word = word.plus(*mine);
        }
        (came, shared)
    }
}

fn fits<W>(words: &[W], rules: &Rules) -> Result<(), Abort> {
    let shape = rules.shape;
    if words.len() == shape.words() {
        return Ok(());
    }
    Err(Abort::Misuse(format!(
        "an input of {} words does not fit {shape:?}",
        words.len()
    )))
}

fn answer(own_share: &Share, neighbours: &[Neighbour], dealt: Vec<Dealt>, set: &Set) -> Vec<u8> {
    let answers = neighbours.iter().zip(dealt);
    let answers = answers.map(|(neighbour, [mask, key])| {
        if set.has(neighbour.place) {
            Answer::SelfMask(mask)
        } else {
            Answer::MaskKey(key)
        }
    });
    Answers::write(own_share, answers)
}

/// What contributors sign: the transcript, then the set of contributors.
fn signed_set(context: &Context, set: &Set) -> Vec<u8> {
    let mut body = context.transcript.to_vec();
    body.extend(set.write());
    body
}

/// The commitment of `who` to its self mask.
pub(super) fn commitment(rules: &Rules, who: PartyId, self_mask: &Seed) -> Seed {
    let ids = [who.to_wire(), rules.round];
    self_mask.derive(rules.session, "self mask commitment", &ids)
}
