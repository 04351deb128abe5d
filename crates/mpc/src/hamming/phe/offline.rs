//! What clients do before they have codes: keys and tables.

use num_bigint::BigUint;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Phase, Step};

use super::super::{OFFLINE, Peers};
use super::{Pair, Peer, Phe, owns};
use crate::paillier::{NoiseTable, Primes, PublicKey, SecretKey};

/// A key to evaluate with.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) public: PublicKey,
    /// Nothing where noise is to be full.
    pub(super) table: Option<NoiseTable>,
}

/// What a client holds of `phe` before it has codes.
#[derive(Debug)]
pub(in super::super) struct Prepared {
    pub(super) peers: Peers,
    pub(super) bits: usize,
    /// The client's own key, where it is somebody's owner.
    pub(super) secret: Option<Box<SecretKey>>,
    pub(super) evaluators: Vec<Peer>,
    pub(super) owners: Vec<(Peer, Key)>,
}

/// A client's offline side. Output: [`Prepared`].
#[derive(Debug)]
pub(in super::super) struct Preparation {
    peers: Peers,
    bits: usize,
    secret: Option<Box<SecretKey>>,
    evaluators: Vec<Peer>,
    started: bool,
    /// Those whose moduli are not there.
    waiting: Vec<Peer>,
    owners: Vec<(Peer, Key)>,
}

impl Preparation {
    pub(in super::super) fn new(bits: usize, mut peers: Peers) -> Result<Self, Abort> {
        let me = peers.own()?;
        let (mut evaluators, mut waiting) = (Vec::new(), Vec::new());
        for &other in peers.clients.iter().filter(|(id, _)| *id != me.0) {
            let rows = [me.1, other.1];
            let Some(pair) = Pair::new(bits, peers.phe.key_bits(), rows)? else {
                continue;
            };
            let Some(channel) = peers.channels.remove(&other.0) else {
                return Err(Abort::Misuse(format!("no channel to {}", other.0)));
            };
            let peer = Peer {
                id: other.0,
                pair,
                channel,
            };
            match owns(me, other) {
                true => evaluators.push(peer),
                false => waiting.push(peer),
            }
        }
        Ok(Self {
            peers,
            bits,
            secret: None,
            evaluators,
            started: false,
            waiting,
            owners: Vec::new(),
        })
    }

    /// Makes a key, if there is somebody to evaluate with it.
    fn start(&mut self, out: &mut Outbox) -> Result<(), Abort> {
        self.started = true;
        if self.evaluators.is_empty() {
            return Ok(());
        }
        let seed = self
            .peers
            .secret
            .derive(self.peers.session, "paillier", &[]);
        let bits = self.peers.phe.key_bits();
        let secret = SecretKey::of_size(bits, Primes::Structured, &mut seed.prg());
        let mut n = secret.public().modulus().to_bytes_le();
        n.resize(bits.div_ceil(8), 0);
        for peer in &mut self.evaluators {
            out.extend([peer.seal(&n)?]);
        }
        self.secret = Some(Box::new(secret));
        Ok(())
    }

    fn receive(&mut self, at: usize, sealed: &[u8]) -> Result<(), Abort> {
        let mut peer = self.waiting.remove(at);
        let text = peer.open(sealed)?;
        let n = modulus(&text, &self.peers.phe).map_err(|what| peer.malformed(what))?;
        let public = PublicKey::checked(&n).map_err(|error| Abort::Cheated {
            culprit: peer.id,
            check: error.to_string(),
        })?;
        let table = (!self.peers.phe.full_noise()).then(|| {
            let ids = [self.peers.me.to_wire(), peer.id.to_wire()];
            let seed = self
                .peers
                .secret
                .derive(self.peers.session, "noise table", &ids);
            public.noise_table(&mut seed.prg())
        });
        self.owners.push((peer, Key { public, table }));
        Ok(())
    }
}

/// A modulus of the size that was agreed on.
pub(super) fn modulus(bytes: &[u8], phe: &Phe) -> Result<BigUint, String> {
    let n = BigUint::from_bytes_le(bytes);
    match bytes.len() == phe.key_bits().div_ceil(8) && n.bits() == phe.key_bits() as u64 {
        true => Ok(n),
        false => Err(format!(
            "a modulus of {} bits in {} bytes, one of {} bits is due",
            n.bits(),
            bytes.len(),
            phe.key_bits()
        )),
    }
}

impl Party for Preparation {
    type Output = Prepared;

    fn phase(&self) -> Phase {
        OFFLINE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        if !self.started {
            self.start(&mut out)?;
        }
        if let Some(from) = inbox.first()
            && let Some(at) = self.waiting.iter().position(|peer| peer.id == from)
        {
            match inbox.take(from)? {
                Some(sealed) => self.receive(at, &sealed)?,
                None => drop(self.waiting.remove(at)),
            }
        }
        let of: Vec<PartyId> = self.waiting.iter().map(|peer| peer.id).collect();
        if !of.is_empty() {
            return Ok(Step::Continue {
                out,
                need: Need::Any { of, busy: false },
                next: self,
            });
        }
        self.owners.sort_unstable_by_key(|(peer, _)| peer.id);
        Ok(Step::Done {
            out,
            output: Prepared {
                peers: self.peers,
                bits: self.bits,
                secret: self.secret,
                evaluators: self.evaluators,
                owners: self.owners,
            },
        })
    }
}
