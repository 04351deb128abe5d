//! The client's online protocol of `shade`.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;
use subtle::ConstantTimeEq;
use undertone_kernel::{BitMatrix, Cpu, Wiped, expand, nh, pack, parts};
use undertone_party::frame::HEADER_LEN;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Payload, Phase, Step};

use super::super::{ClientContext, PHASE, weight};
use super::offline::{Link, Prepared, Ready};
use super::transfers::Keys;
use super::{DIGEST_LEN, FRAME_BYTES, HASH_SEED_LEN, Pair, SERVER, WINDOW};

/// A requested tile: its rows, the progress of its transfers, and the sums so far.
struct Tile {
    rows: Range<usize>,
    keys: Keys,
    /// One sum for each row and lane. A row is filled up to whole registers.
    sums: Wiped<u16>,
    /// The key of the hash of the offers, and the hash so far.
    hash: nh::Key,
    digest: u128,
    /// The first transfer that is not done: the row in the tile and the bit.
    next: (usize, usize),
}

/// The results of a run: its row, its sums, and the pieces of the hash of its offers.
type Ran = (usize, Wiped<u16>, Wiped<u128>);

/// Consecutive transfers of one row of a tile.
#[derive(Debug, Clone)]
struct Run {
    row: usize,
    bits: Range<usize>,
}

impl std::fmt::Debug for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tile({:?}, ..)", self.rows)
    }
}

impl Tile {
    fn new(rows: Range<usize>, keys: Keys, seed: &[u8; HASH_SEED_LEN], pair: &Pair) -> Self {
        let sums = vec![0; rows.len() * pair.stride()].into();
        Self {
            rows,
            keys,
            sums,
            hash: nh::Key::new(Cpu::detect(), seed),
            digest: 0,
            next: (0, 0),
        }
    }

    /// Whether all offers have been made, or have arrived.
    fn is_done(&self) -> bool {
        self.next.0 == self.rows.len()
    }

    /// The transfers of the next message: as many groups as fit, at least one.
    fn runs(&mut self, pair: &Pair) -> Vec<Run> {
        let group = pair.message_len(expand::GROUP);
        let mut left = (FRAME_BYTES / group).max(1);
        let mut runs = Vec::new();
        while left > 0 && !self.is_done() {
            let (row, first) = self.next;
            let end = pair.bits.min(first + left * expand::GROUP);
            left -= (end - first).div_ceil(expand::GROUP);
            runs.push(Run {
                row,
                bits: first..end,
            });
            self.next = if end == pair.bits {
                (row + 1, 0)
            } else {
                (row, end)
            };
        }
        runs
    }

    /// The kernel's shape and the keys of a run.
    fn run(&self, run: &Run, pair: &Pair) -> (expand::Shape, &[u128]) {
        let first = run.row * pair.bits;
        let shape = expand::Shape {
            width: pair.width(),
            lanes: pair.lanes,
            first: ((self.rows.start + run.row) * pair.bits + run.bits.start) as u64,
        };
        let keys = &self.keys[first + run.bits.start..first + run.bits.end];
        (shape, keys)
    }

    /// Adds the results of consecutive runs to the sums and the hash of the tile.
    fn add(&mut self, pair: &Pair, results: Vec<Ran>) {
        let stride = pair.stride();
        for (row, sums, pieces) in results {
            self.digest = self.hash.fold(self.digest, &pieces);
            let totals = &mut self.sums[row * stride..(row + 1) * stride];
            let both = totals.iter_mut().zip(sums.iter());
            both.for_each(|(total, sum)| *total = total.wrapping_add(*sum));
        }
    }

    /// The message to the server: the sums minus `weights`, packed.
    fn pack(&self, peer: PartyId, pair: &Pair, weights: &[u16]) -> Wiped<u8> {
        let mut values = Wiped::with_capacity(self.rows.len() * weights.len());
        for row in self.sums.chunks_exact(pair.stride()) {
            let lanes = row.iter().zip(weights);
            values.extend(lanes.map(|(sum, weight)| sum.wrapping_sub(*weight)));
        }
        let len = 4 + pair.sums_len(self.rows.len());
        let mut out = Wiped::with_capacity(len + pack::SLACK);
        out.extend(peer.to_wire().to_le_bytes());
        pack::pack(pair.width(), &values, &mut out);
        out
    }
}

/// Splits the runs of a message for all threads. A part has at least four groups.
fn split(runs: Vec<Run>) -> Vec<Run> {
    let threads = rayon::current_num_threads();
    if threads == 1 {
        return runs;
    }
    let bits: usize = runs.iter().map(|run| run.bits.len()).sum();
    let part = bits
        .div_ceil(2 * threads)
        .next_multiple_of(expand::GROUP)
        .max(4 * expand::GROUP);
    let of = |run: Run| {
        let (row, end) = (run.row, run.bits.end);
        let parts = run.bits.step_by(part);
        parts.map(move |first| Run {
            row,
            bits: first..end.min(first + part),
        })
    };
    runs.into_iter().flat_map(of).collect()
}

/// The state of one end of a pair.
#[derive(Debug)]
struct End {
    side: Ready,
    /// Tiles that are requested and not complete.
    tiles: VecDeque<Tile>,
    asked: usize,
    complete: usize,
}

/// What all pairs of a client use.
struct Own {
    codes: BitMatrix,
    /// The transposed codes: row l is what a sender offers in the transfers of bit l.
    offers: BitMatrix,
    /// The number of ones of each row.
    weights: Wiped<u16>,
    ctx: ClientContext,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Own(..)")
    }
}

impl Own {
    fn send_server(&mut self, text: &[u8], out: &mut Outbox) -> Result<(), Abort> {
        let sealed = self.ctx.server.seal(text);
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        out.push(SERVER, sealed);
        Ok(())
    }
}

impl Link<End> {
    fn is_done(&self) -> bool {
        self.end.complete == self.pair.tiles()
    }

    /// Whether another tile may be requested.
    fn may_ask(&self) -> bool {
        self.end.asked < self.pair.tiles() && self.end.tiles.len() < WINDOW
    }

    /// Whether a message from the peer is due.
    fn waits(&self) -> bool {
        match &self.end.side {
            Ready::Sender(_) => self.may_ask(),
            Ready::Receiver(_) => !self.is_done(),
        }
    }

    fn has_work(&self) -> bool {
        match &self.end.side {
            Ready::Sender(_) => !self.end.tiles.is_empty(),
            Ready::Receiver(_) => self.may_ask(),
        }
    }

    fn malformed(&self, what: String) -> Abort {
        Abort::Malformed {
            from: self.peer,
            what,
        }
    }

    /// Takes the peer's next message: a request at the sender, a message of u or a digest at the
    /// receiver.
    fn receive(&mut self, message: &[u8], own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        match self.end.side {
            Ready::Sender(_) => self.asked(message),
            Ready::Receiver(_) => self.offered(message, own, out),
        }
    }

    /// Sends the next message: a message of u at the sender, a request at the receiver.
    fn work(&mut self, own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        match self.end.side {
            Ready::Sender(_) => self.offer(own, out),
            Ready::Receiver(_) => self.ask(own, out),
        }
    }

    /// Step 4 at the receiver: requests the next tile.
    fn ask(&mut self, own: &Own, out: &mut Outbox) -> Result<(), Abort> {
        let Ready::Receiver(receiving) = &mut self.end.side else {
            return Err(Abort::Internal("a sender has no tile to request".into()));
        };
        let pair = self.pair;
        let rows = pair.tile(self.end.asked);
        let mut text = Vec::new();
        let keys = receiving.take(rows.len() * pair.bits, &mut text);
        for row in rows.clone() {
            let random = receiving.choices(pair.bits)?;
            let both = own.codes.row(row).iter().zip(random.iter());
            text.extend(both.flat_map(|(y, u)| (y ^ u).to_le_bytes()));
        }
        let ids = [
            own.ctx.me.to_wire(),
            self.peer.to_wire(),
            self.end.asked as u32,
        ];
        let seed = own
            .ctx
            .secret
            .derive(own.ctx.session, "hash of offers", &ids);
        text.extend(seed.expose());
        self.end.asked += 1;
        let tile = Tile::new(rows, keys, seed.expose(), &pair);
        self.end.tiles.push_back(tile);
        out.extend([self.seal(&text)?]);
        Ok(())
    }

    /// Step 4 at the sender: takes a request.
    fn asked(&mut self, sealed: &[u8]) -> Result<(), Abort> {
        let (text, pair, peer) = (self.open(sealed)?, self.pair, self.peer);
        let Ready::Sender(sending) = &mut self.end.side else {
            return Err(Abort::Internal("a receiver has no requests to take".into()));
        };
        let rows = pair.tile(self.end.asked);
        let corrections = sending.corrections_len(rows.len() * pair.bits);
        let due = corrections + pair.request_len(rows.len());
        // SHADE-6
        if text.len() != due {
            let what = format!("a request of {} bytes, {due} are due", text.len());
            return Err(Abort::Malformed { from: peer, what });
        }
        let (corrections, rest) = text.split_at(corrections);
        let Some((changes, seed)) = rest.split_last_chunk() else {
            return Err(Abort::Internal("a request has no seed".into()));
        };
        sending.extend(corrections);
        let mut keys = sending.take(rows.len() * pair.bits)?;
        // Where the wanted choice is not the random one, K₀ and K₁ are exchanged.
        let delta = sending.delta();
        let rows_of_changes = changes.chunks_exact(8 * pair.words());
        for (keys, changes) in keys.chunks_exact_mut(pair.bits).zip(rows_of_changes) {
            for (keys, byte) in keys.chunks_mut(8).zip(changes) {
                for (bit, key) in keys.iter_mut().enumerate() {
                    *key ^= delta & 0u128.wrapping_sub(u128::from(byte >> bit & 1));
                }
            }
        }
        self.end.asked += 1;
        self.end.tiles.push_back(Tile::new(rows, keys, seed, &pair));
        Ok(())
    }

    /// Steps 5 to 7: sends the next message of u. After the last of a tile sends the digest and R.
    fn offer(&mut self, own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        let pair = self.pair;
        let (Ready::Sender(sending), Some(tile)) = (&self.end.side, self.end.tiles.front_mut())
        else {
            return Err(Abort::Internal("there is no tile to offer".into()));
        };
        let runs = split(tile.runs(&pair)).into_iter();
        let parts = runs.map(|run| {
            let len = pair.message_len(run.bits.len());
            (run, len)
        });
        let (pi, delta, offers, done) = (&self.pi, sending.delta(), &own.offers, &*tile);
        let (message, results) = parts::message(HEADER_LEN, parts.collect(), |run: Run, slot| {
            let mut sums = Wiped::from(vec![0; pair.stride()]);
            let mut pieces = Wiped::with_capacity(pair.pieces(run.bits.len()));
            let (shape, keys) = done.run(&run, &pair);
            let (keys, offers) = ((keys, delta), (offers, run.bits));
            let each = |group: &[u8]| done.hash.nh(group, &mut pieces);
            let written = expand::send(pi, shape, keys, offers, &mut sums, slot, each);
            (written, (run.row, sums, pieces))
        });
        tile.add(&pair, results);
        out.push(self.peer, Payload::within(message));
        if !tile.is_done() {
            return Ok(());
        }
        let digest = tile.digest.to_le_bytes();
        out.extend([self.seal(&digest)?]);
        self.complete(own, out)
    }

    /// Steps 6 and 8: takes the digest of the first tile, and sends T.
    fn digested(&mut self, sealed: &[u8], own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        let text = self.open(sealed)?;
        // SHADE-14
        let Ok(digest) = <[u8; DIGEST_LEN]>::try_from(&text[..]) else {
            let what = format!("a digest of {} bytes, {DIGEST_LEN} are due", text.len());
            return Err(self.malformed(what));
        };
        let found = self.end.tiles.front().map(|tile| tile.digest.to_le_bytes());
        // SHADE-13
        if !found.is_some_and(|found| found.ct_eq(&digest).into()) {
            return Err(Abort::Contradicted {
                first: SERVER,
                second: self.peer,
                fault: "offers were changed on the way, or their digest is false".into(),
            });
        }
        self.complete(own, out)
    }

    /// Steps 5 and 8: takes a message of u, or the digest after the last one of a tile.
    fn offered(&mut self, message: &[u8], own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        if self.end.tiles.front().is_some_and(Tile::is_done) {
            return self.digested(message, own, out);
        }
        let pair = self.pair;
        // SHADE-8
        let Some(tile) = self.end.tiles.front_mut() else {
            return Err(self.malformed("an offer for a tile that was not requested".into()));
        };
        let runs = split(tile.runs(&pair));
        let lens = runs.iter().map(|run| pair.message_len(run.bits.len()));
        let due: usize = lens.sum();
        // SHADE-7
        if message.len() != due {
            let what = format!("an offer of {} bytes, {due} are due", message.len());
            return Err(self.malformed(what));
        }
        let mut rest = message;
        let mut parts = Vec::with_capacity(runs.len());
        for run in runs {
            let (head, tail) = rest.split_at(pair.message_len(run.bits.len()));
            rest = tail;
            parts.push((run, head));
        }
        let (pi, codes, first, done) = (&self.pi, &own.codes, tile.rows.start, &*tile);
        let one = |(run, message): (Run, &[u8])| {
            let mut sums = Wiped::from(vec![0; pair.stride()]);
            let mut pieces = Wiped::with_capacity(pair.pieces(run.bits.len()));
            let (shape, keys) = done.run(&run, &pair);
            let choices = (codes.row(first + run.row), run.bits);
            let each = |group: &[u8]| done.hash.nh(group, &mut pieces);
            expand::receive(pi, shape, keys, choices, &mut sums, message, each);
            (run.row, sums, pieces)
        };
        let results = match rayon::current_num_threads() {
            1 => parts.into_iter().map(one).collect(),
            _ => parts.into_par_iter().map(one).collect(),
        };
        tile.add(&pair, results);
        Ok(())
    }

    /// Sends the server the sums of the first tile, which is complete.
    fn complete(&mut self, own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        let Some(tile) = self.end.tiles.pop_front() else {
            return Ok(());
        };
        self.end.complete += 1;
        // The kernel adds up G(K₀). R is that minus the sender's bits.
        let text = match self.end.side {
            Ready::Sender(_) => tile.pack(self.peer, &self.pair, &own.weights),
            Ready::Receiver(_) => tile.pack(self.peer, &self.pair, &vec![0; self.pair.lanes]),
        };
        own.send_server(&text, out)
    }
}

/// The client's online protocol. Output: nothing.
#[derive(Debug)]
pub(in super::super) struct Client {
    own: Own,
    links: VecDeque<Link<End>>,
}

impl Client {
    pub(in super::super) fn new(codes: BitMatrix, prepared: Prepared) -> Result<Self, Abort> {
        let Prepared { ctx, bits, links } = prepared;
        ctx.check_codes(&codes, bits)?;
        let sends = links
            .iter()
            .any(|link| matches!(link.end, Ready::Sender(_)));
        let links = links.into_iter().map(|link| Link {
            peer: link.peer,
            pair: link.pair,
            channel: link.channel,
            pi: link.pi,
            end: End {
                side: link.end,
                tiles: VecDeque::new(),
                asked: 0,
                complete: 0,
            },
        });
        Ok(Self {
            own: Own {
                offers: if sends {
                    codes.transpose()
                } else {
                    BitMatrix::default()
                },
                weights: (0..codes.rows())
                    .map(|row| weight(&codes, row))
                    .collect::<Vec<u16>>()
                    .into(),
                codes,
                ctx,
            },
            links: links.collect(),
        })
    }
}

impl Party for Client {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        if let Some((from, message)) = inbox.pop()
            && let Some(at) = self.links.iter().position(|link| link.peer == from)
        {
            match message {
                Some(message) => self.links[at].receive(&message, &mut self.own, &mut out)?,
                None => drop(self.links.remove(at)),
            }
        }
        if let Some(at) = self.links.iter().position(Link::has_work)
            && let Some(mut link) = self.links.remove(at)
        {
            link.work(&mut self.own, &mut out)?;
            // The other links come first next time.
            self.links.push_back(link);
        }
        self.links.retain(|link| !link.is_done());
        if self.links.is_empty() {
            self.own
                .send_server(&SERVER.to_wire().to_le_bytes(), &mut out)?;
            return Ok(Step::done(out, ()));
        }
        let waiting = self.links.iter().filter(|link| link.waits());
        let need = Need::Any {
            of: waiting.map(|link| link.peer).collect(),
            busy: self.links.iter().any(Link::has_work),
        };
        Ok(Step::wait(out, need, self))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::super::Phe;
    use super::super::transfers::Receiving;
    use super::*;
    use undertone_kdf::Seed;
    use undertone_kernel::Cpu;
    use undertone_kernel::mask::Suite;
    use undertone_ot::extend::{Receiver, SenderSetup};
    use undertone_ot::{Context, Security};
    use undertone_party::SessionId;
    use undertone_setup::seal::Channel;

    const ME: PartyId = PartyId::client(0);
    const SENDER: PartyId = PartyId::client(1);
    const SESSION: SessionId = SessionId([1; 32]);

    fn seed() -> Seed {
        Seed::from_bytes([1; 32])
    }

    /// A receiver with three rows, and its link to a sender with four.
    fn receiver() -> (Own, Link<End>) {
        let context = Context::new(SESSION, "distances", SENDER, ME);
        let (_, points) = SenderSetup::new(context.clone(), seed());
        let pair = Pair::new(20, [3, 4], 2).unwrap();
        let mode = (pair.field(), Security::SemiHonest);
        let (made, _) = Receiver::new(Cpu::detect(), &context, mode, &points, seed()).unwrap();
        let link = Link {
            peer: SENDER,
            pair,
            channel: Channel::new(SESSION, &seed(), ME, SENDER),
            pi: context.permutation(Cpu::detect(), "vectors", 0),
            end: End {
                side: Ready::Receiver(Receiving::new(made)),
                tiles: VecDeque::new(),
                asked: 0,
                complete: 0,
            },
        };
        let ctx = ClientContext {
            cells: None,
            session: SESSION,
            me: ME,
            clients: vec![(ME, 3), (SENDER, 4)],
            seed: seed(),
            secret: seed(),
            suite: Suite::Aes128Ctr,
            phe: Phe::default(),
            server: Channel::new(SESSION, &seed(), ME, SERVER),
            channels: BTreeMap::new(),
            min_clients: 2,
        };
        let own = Own {
            codes: BitMatrix::from_words(3, 20, vec![1; 3]),
            offers: BitMatrix::default(),
            weights: vec![1; 3].into(),
            ctx,
        };
        (own, link)
    }

    /// SHADE-13: the receiver sends its sums only after it has compared the hashes. A changed bit
    /// in any byte of the offers, those of the filling too, and any other digest give none.
    #[test]
    fn no_sums_leave_before_the_digest_of_the_offers_fits() {
        let (mut own, mut link) = receiver();
        let honest = vec![0; 3 * link.pair.message_len(link.pair.bits)];
        link.work(&mut own, &mut Outbox::new()).unwrap();
        let out = &mut Outbox::new();
        link.receive(&honest, &mut own, out).unwrap();
        assert_eq!(std::mem::take(out).into_iter().count(), 0);
        let due = link.end.tiles[0].digest;
        for at in 0..honest.len() {
            let (mut own, mut link) = receiver();
            link.work(&mut own, &mut Outbox::new()).unwrap();
            let mut offer = honest.clone();
            offer[at] ^= 1 << (at % 8);
            let mut peer = Channel::new(SESSION, &seed(), SENDER, ME);
            let digest = peer.seal(&due.to_le_bytes()).unwrap();
            link.receive(&offer, &mut own, out).unwrap();
            let abort = link.receive(&digest, &mut own, out).unwrap_err();
            assert!(matches!(abort, Abort::Contradicted { first: SERVER, .. }));
            assert_eq!(std::mem::take(out).into_iter().count(), 0, "byte {at}");
        }
    }

    /// SHADE-8: a sender offers a tile before the receiver requests one, and another one after the
    /// last.
    #[test]
    fn offers_of_tiles_that_were_not_requested_are_refused() {
        let (mut own, mut link) = receiver();
        let out = &mut Outbox::new();
        let mut peer = Channel::new(SESSION, &seed(), SENDER, ME);
        let offer = vec![0; 3 * link.pair.message_len(link.pair.bits)];
        let mut assert_refused = |link: &mut Link<End>, own: &mut Own| {
            let abort = link.receive(&offer, own, out).unwrap_err();
            assert_eq!(abort.culprit(), Some(SENDER));
            assert!(abort.to_string().contains("was not requested"), "{abort}");
        };
        assert_refused(&mut link, &mut own);
        link.work(&mut own, &mut Outbox::new()).unwrap();
        link.receive(&offer, &mut own, &mut Outbox::new()).unwrap();
        let digest = link.end.tiles[0].digest.to_le_bytes();
        let digest = peer.seal(&digest).unwrap();
        link.receive(&digest, &mut own, &mut Outbox::new()).unwrap();
        assert!(link.is_done());
        assert_refused(&mut link, &mut own);
    }
}
