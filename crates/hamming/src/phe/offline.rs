//! The clients' protocol before they have codes: keys and encryptions of zero.

use num_bigint::BigUint;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Phase, Step};

use super::super::{ClientContext, OFFLINE};
use super::{BASES, EXPONENT, Pair, Peer, Phe, Uniform, internal, owns};
use undertone_paillier::{Ciphertexts, PaillierError, PublicKey, SecretKey};

/// An owner's public key, at an evaluator.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) public: PublicKey,
    /// Encryptions of zero, from which the noise is made. When all have arrived, also their powers
    /// of 2, 4, … and 128.
    pub(super) bases: Ciphertexts,
}

impl Key {
    /// Appends the squares of the encryptions of zero, their 4th powers, up to the 128th.
    pub(super) fn square_bases(&mut self) -> Result<(), PaillierError> {
        let mut power = self.bases.clone();
        for _ in 1..EXPONENT {
            let same = power.clone();
            self.public.add(&mut power, &same)?;
            self.bases.append(power.clone())?;
        }
        Ok(())
    }
}

/// A client's state when it is ready for codes.
#[derive(Debug)]
pub(in super::super) struct Prepared {
    pub(super) ctx: ClientContext,
    pub(super) bits: usize,
    /// The client's own key, if it is the owner of a pair.
    pub(super) secret: Option<Box<SecretKey>>,
    pub(super) evaluators: Vec<Peer>,
    pub(super) owners: Vec<(Peer, Key)>,
}

/// The owner's offline state, for all its pairs.
struct Owning {
    secret: Box<SecretKey>,
    /// The encryptions of zero modulo N.
    residues: Uniform,
    sent: usize,
}

/// An owner that has not sent everything yet.
#[derive(Debug)]
struct Waiting {
    peer: Peer,
    key: Option<(Key, Uniform)>,
}

/// The client's offline protocol. Output: [`Prepared`].
pub(in super::super) struct Preparation {
    ctx: ClientContext,
    bits: usize,
    evaluators: Vec<Peer>,
    owning: Option<Owning>,
    waiting: Vec<Waiting>,
    owners: Vec<(Peer, Key)>,
}

impl std::fmt::Debug for Preparation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Preparation(..)")
    }
}

impl Preparation {
    pub(in super::super) fn new(bits: usize, mut ctx: ClientContext) -> Result<Self, Abort> {
        let me = ctx.own()?;
        let (mut evaluators, mut waiting) = (Vec::new(), Vec::new());
        for &other in ctx.clients.iter().filter(|(id, _)| *id != me.0) {
            let rows = [me.1, other.1];
            let Some(pair) = Pair::new(bits, ctx.phe.key_bits(), rows)? else {
                continue;
            };
            let Some(channel) = ctx.channels.remove(&other.0) else {
                return Err(Abort::Misuse(format!("no channel to {}", other.0)));
            };
            let peer = Peer {
                id: other.0,
                pair,
                channel,
            };
            if owns(me, other) {
                evaluators.push(peer)
            } else {
                waiting.push(Waiting { peer, key: None })
            }
        }
        Ok(Self {
            ctx,
            bits,
            evaluators,
            owning: None,
            waiting,
            owners: Vec::new(),
        })
    }

    fn has_work(&self) -> bool {
        let due = self.ctx.phe.bases();
        let sent = self.owning.as_ref().map(|owning| owning.sent);
        !self.evaluators.is_empty() && sent.is_none_or(|sent| sent < due)
    }

    /// Step 1, once: makes a key and sends N. Then step 2: sends the next encryptions of zero.
    fn work(&mut self, out: &mut Outbox) -> Result<(), Abort> {
        let len = self.ctx.phe.key_bits().div_ceil(8);
        let bytes = |x: &BigUint| {
            let mut bytes = x.to_bytes_le();
            bytes.resize(len, 0);
            bytes
        };
        let text = match &mut self.owning {
            None => {
                let seed = self.ctx.secret.derive(self.ctx.session, "paillier", &[]);
                let bits = self.ctx.phe.key_bits();
                let secret = super::secret_key(bits, &mut seed.prg()).map_err(internal)?;
                let n = secret.public().modulus().clone();
                self.owning = Some(Owning {
                    secret: Box::new(secret),
                    residues: residues(&self.ctx, self.ctx.me, &n),
                    sent: 0,
                });
                bytes(&n)
            }
            Some(owning) => {
                let count = BASES.min(self.ctx.phe.bases() - owning.sent);
                owning.sent += count;
                let residues: Vec<BigUint> = (0..count).map(|_| owning.residues.next()).collect();
                let zeros = owning.secret.zeros(&residues).map_err(internal)?;
                let public = owning.secret.public();
                let mut whole = Vec::new();
                public.encode(&zeros, &mut whole).map_err(internal)?;
                let each = whole.chunks_exact(public.ciphertext_len());
                let rest = |c: &[u8]| bytes(&(BigUint::from_bytes_le(c) / public.modulus()));
                each.flat_map(rest).collect()
            }
        };
        for peer in &mut self.evaluators {
            out.extend([peer.seal(&text)?]);
        }
        Ok(())
    }

    /// Takes an owner's N, or some of its encryptions of zero.
    fn receive(&mut self, at: usize, sealed: &[u8]) -> Result<(), Abort> {
        let mut waiting = self.waiting.swap_remove(at);
        let text = waiting.peer.open(sealed)?;
        let peer = &waiting.peer;
        let Some((mut key, mut residues)) = waiting.key else {
            // PHE-2
            let n = modulus(&text, &self.ctx.phe).map_err(|what| peer.malformed(what))?;
            // PHE-3
            let public = super::public_key(&n).map_err(|error| Abort::Cheated {
                culprit: peer.id,
                fault: error.to_string(),
            })?;
            let key = Key {
                bases: public.decode(&[]).map_err(internal)?,
                public,
            };
            waiting.key = Some((key, residues(&self.ctx, peer.id, &n)));
            self.waiting.push(waiting);
            return Ok(());
        };
        let len = peer.pair.plaintext_len();
        let count = BASES.min(self.ctx.phe.bases() - key.bases.len());
        // PHE-4
        if text.len() != count * len {
            let what = format!(
                "encryptions of zero of {} bytes, {} are due",
                text.len(),
                count * len
            );
            return Err(peer.malformed(what));
        }
        let mut whole = Vec::with_capacity(2 * text.len());
        for rest in text.chunks_exact(len) {
            let rest = BigUint::from_bytes_le(rest);
            // PHE-5
            if rest >= *key.public.modulus() {
                return Err(peer.malformed("an encryption of zero that is not below N²".into()));
            }
            let c = residues.next() + rest * key.public.modulus();
            let end = whole.len() + key.public.ciphertext_len();
            whole.extend(c.to_bytes_le());
            whole.resize(end, 0);
        }
        // PHE-5
        let decoded = key.public.decode(&whole);
        let some = decoded.map_err(|error| peer.malformed(error.to_string()))?;
        key.bases.append(some).map_err(internal)?;
        if key.bases.len() == self.ctx.phe.bases() {
            key.square_bases().map_err(internal)?;
            self.owners.push((waiting.peer, key));
        } else {
            waiting.key = Some((key, residues));
            self.waiting.push(waiting);
        }
        Ok(())
    }
}

/// The encryptions of zero of an owner, modulo its N. They depend on N. Otherwise an owner could
/// choose an N modulo which all of them have a property that other numbers lack.
fn residues(ctx: &ClientContext, owner: PartyId, n: &BigUint) -> Uniform {
    let context = [&owner.to_wire().to_le_bytes()[..], &n.to_bytes_le()].concat();
    let seed = ctx.seed.expand(ctx.session, "noise bases", &context);
    Uniform::new(&seed, n)
}

/// Reads a modulus of `phe.key_bits()` bits. The error says what is wrong.
pub(super) fn modulus(bytes: &[u8], phe: &Phe) -> Result<BigUint, String> {
    let n = BigUint::from_bytes_le(bytes);
    if bytes.len() == phe.key_bits().div_ceil(8) && n.bits() == phe.key_bits() as u64 {
        Ok(n)
    } else {
        Err(format!(
            "a modulus of {} bits in {} bytes, one of {} bits is due",
            n.bits(),
            bytes.len(),
            phe.key_bits()
        ))
    }
}

impl Party for Preparation {
    type Output = Prepared;

    fn phase(&self) -> Phase {
        OFFLINE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        if let Some((from, message)) = inbox.pop()
            && let Some(at) = self.waiting.iter().position(|one| one.peer.id == from)
        {
            match message {
                Some(sealed) => self.receive(at, &sealed)?,
                None => drop(self.waiting.swap_remove(at)),
            }
        }
        if self.has_work() {
            self.work(&mut out)?;
        }
        let of: Vec<PartyId> = self.waiting.iter().map(|one| one.peer.id).collect();
        let busy = self.has_work();
        if busy || !of.is_empty() {
            return Ok(Step::wait(out, Need::Any { of, busy }, self));
        }
        self.owners.sort_unstable_by_key(|(peer, _)| peer.id);
        let prepared = Prepared {
            ctx: self.ctx,
            bits: self.bits,
            secret: self.owning.map(|owning| owning.secret),
            evaluators: self.evaluators,
            owners: self.owners,
        };
        Ok(Step::done(out, prepared))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use undertone_kernel::mask::Suite;
    use undertone_party::SessionId;

    use super::*;
    use undertone_kdf::Seed;
    use undertone_setup::seal::Channel;

    /// An owner has to fix N first, so it cannot choose N to fit them.
    #[test]
    fn residues_depend_on_the_modulus() {
        let me = PartyId::client(0);
        let seed = || Seed::from_bytes([1; 32]);
        let session = SessionId([1; 32]);
        let ctx = ClientContext {
            cells: None,
            session,
            me,
            clients: vec![(me, 1)],
            seed: seed(),
            secret: seed(),
            suite: Suite::Aes128Ctr,
            phe: Phe::insecure(128),
            server: Channel::new(session, &seed(), me, PartyId::SERVER),
            channels: BTreeMap::new(),
            min_clients: 1,
        };
        let first = |n: u128| residues(&ctx, me, &n.into()).next();
        assert_eq!(first(u128::MAX), first(u128::MAX));
        assert_ne!(first(u128::MAX), first(u128::MAX - 2));
    }
}
