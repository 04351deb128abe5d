//! The client's online protocol of `lwe`: it is the key owner in some pairs and the evaluator in
//! others.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Wiped, pack};
use undertone_lwe::{Columns, Evaluator, Headers, KeyError, KeyOwner, Masks, Params, Ring};
use undertone_party::script::try_join_all;
use undertone_party::{Abort, Io, Outbox, PartyId, SessionId};
use undertone_setup::seal::{Broadcast, Channel, SealError};

use super::super::pairwise::ToServer;
use super::super::weight;
use super::offline::Prepared;
use super::{Column, Pair, block, evaluates, key_tiles, parities, rounds};

/// The client with its codes.
pub(in super::super) struct Client {
    own: Own,
    server: Channel,
    /// The channels to the other clients.
    channels: BTreeMap<PartyId, Channel>,
    ahead: Vec<Wiped<u64>>,
}

/// What all pairs of a client use.
struct Own {
    codes: BitMatrix,
    weights: Wiped<u16>,
    session: SessionId,
    suite: Suite,
    /// The client itself and its number of rows.
    me: (PartyId, usize),
    clients: Vec<(PartyId, usize)>,
    /// What all clients share.
    seed: Seed,
    secret: Seed,
    params: &'static Params,
    matrix: Ring,
    owner: Option<KeyOwner>,
}

/// The parts of a client's protocol run side by side.
type Task<'a> = Pin<Box<dyn Future<Output = Result<(), Abort>> + Send + 'a>>;

/// What all tasks use.
struct Shared {
    io: Io,
    server: Mutex<ToServer>,
}

impl Shared {
    /// Sends the server a part about the pair with `peer`.
    fn part(&self, peer: PartyId, text: &[u8]) -> Result<(), Abort> {
        let mut out = Outbox::new();
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.send(peer, text, &mut out)?;
        self.io.send_all(out);
        Ok(())
    }

    /// Tells the server that all pairs are finished.
    fn done(&self) -> Result<(), Abort> {
        let mut out = Outbox::new();
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.done(&mut out)?;
        self.io.send_all(out);
        Ok(())
    }

    /// Sends `peer` a sealed message.
    fn send(&self, peer: PartyId, sealed: Result<Vec<u8>, SealError>) -> Result<(), Abort> {
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        self.io.send(peer, sealed);
        Ok(())
    }
}

/// What `from` sent, opened: LWE-2.
fn opened(from: PartyId, opened: Result<Vec<u8>, SealError>) -> Result<Vec<u8>, Abort> {
    opened.map_err(|error| Abort::Malformed {
        from,
        what: error.to_string(),
    })
}

fn malformed(from: PartyId, what: &str, have: usize, due: usize) -> Abort {
    Abort::Malformed {
        from,
        what: format!("{what} of {have} bytes, {due} are due"),
    }
}

impl Client {
    pub(in super::super) fn new(codes: BitMatrix, prepared: Prepared) -> Result<Self, Abort> {
        let Prepared {
            ctx,
            bits,
            params,
            matrix,
            owner,
            ahead,
        } = prepared;
        ctx.check_codes(&codes, bits)?;
        let weights = (0..codes.rows()).map(|row| weight(&codes, row));
        Ok(Self {
            own: Own {
                weights: Wiped::from(weights.collect::<Vec<_>>()),
                codes,
                session: ctx.session,
                suite: ctx.suite,
                me: ctx.own()?,
                clients: ctx.clients,
                seed: ctx.seed,
                secret: ctx.secret,
                params,
                matrix,
                owner,
            },
            server: ctx.server,
            channels: ctx.channels,
            ahead,
        })
    }

    /// Sends keys, decrypts the answers of every evaluator, and evaluates, side by side.
    pub(in super::super) async fn run(self, io: Io) -> Result<(), Abort> {
        let Self {
            own,
            server,
            mut channels,
            ahead,
        } = self;
        let shared = Shared {
            io,
            server: Mutex::new(ToServer::new(server)),
        };
        let mut tasks: Vec<Task<'_>> = Vec::new();
        let others = own.clients.iter().copied();
        let others = others.filter(|other| other.0 != own.me.0 && other.1 > 0 && own.me.1 > 0);
        let (evaluators, owners): (Vec<_>, Vec<_>) =
            others.partition(|other| evaluates(*other, own.me));
        let mut channel = |id: PartyId| {
            let channel = channels.remove(&id);
            channel.ok_or_else(|| Abort::Internal(format!("no channel to {id}")))
        };
        if let Some(owner) = &own.owner {
            let ids = evaluators.iter().map(|(id, _)| *id).collect();
            tasks.push(Box::pin(own.send_keys(&shared, owner, ids, ahead)));
            for evaluator in evaluators {
                let channel = channel(evaluator.0)?;
                tasks.push(Box::pin(own.decrypt(&shared, owner, evaluator, channel)));
            }
        }
        if !owners.is_empty() {
            let ends = owners.into_iter().map(|(id, _)| Ok((id, channel(id)?)));
            let ends: BTreeMap<PartyId, Channel> = ends.collect::<Result<_, Abort>>()?;
            tasks.push(Box::pin(own.evaluate(&shared, ends)));
        }
        try_join_all(tasks).await?;
        shared.done()
    }
}

impl Own {
    /// The messages that `from` sends to many clients, all under one key.
    fn broadcast(&self, purpose: &str, from: PartyId, ids: &[u32]) -> Broadcast {
        let ids = [&[from.to_wire()], ids].concat();
        let secret = self.seed.derive(self.session, purpose, &ids);
        Broadcast::new(self.session, &secret, from)
    }

    /// Step 1: a key owner sends its keys to all its evaluators, tile by tile.
    async fn send_keys(
        &self,
        shared: &Shared,
        owner: &KeyOwner,
        evaluators: Vec<PartyId>,
        ahead: Vec<Wiped<u64>>,
    ) -> Result<(), Abort> {
        let params = self.params;
        let mut seal = self.broadcast("lwe keys", self.me.0, &[]);
        let rows = self.codes.rows();
        let blocks = 0..rows.div_ceil(params.max_columns());
        let tiles = blocks.flat_map(|number| key_tiles(params, block(params, rows, number)));
        let mut ahead = ahead.into_iter();
        for rows in tiles {
            let columns = match ahead.next() {
                Some(columns) => columns,
                None => owner.columns(&self.matrix, rows.clone()),
            };
            let sealed = seal.seal(&owner.keys(&columns, &self.codes, rows));
            for evaluator in &evaluators {
                shared.send(*evaluator, sealed.clone())?;
            }
            shared.io.pause().await;
        }
        Ok(())
    }

    /// Step 5: a key owner decrypts the answers of one evaluator.
    async fn decrypt(
        &self,
        shared: &Shared,
        owner: &KeyOwner,
        evaluator: (PartyId, usize),
        mut channel: Channel,
    ) -> Result<(), Abort> {
        let (params, from) = (self.params, evaluator.0);
        let pair = Pair {
            params,
            rows: evaluator.1,
            owned: self.me.1,
        };
        let mut parities_due = true;
        for (number, round) in rounds(params, &self.clients, evaluator)
            .into_iter()
            .enumerate()
        {
            let Some(Column { rows, .. }) =
                round.into_iter().find(|column| column.owner == self.me.0)
            else {
                continue;
            };
            let mut headers_seal = self.broadcast("lwe headers", from, &[number as u32]);
            for tile in pair.tiles() {
                let Some(sealed) = shared.io.recv(from).await else {
                    return Ok(());
                };
                let headers = opened(from, headers_seal.open(&sealed))?;
                let due = tile.len() * params.header_len();
                // LWE-5
                if headers.len() != due {
                    return Err(malformed(from, "headers", headers.len(), due));
                }
                let Some(sealed) = shared.io.recv(from).await else {
                    return Ok(());
                };
                let mut answers = opened(from, channel.open(&sealed))?;
                let each = pair.answer_len(rows.len());
                let due = tile.len() * each + usize::from(parities_due);
                // LWE-6
                if answers.len() != due {
                    return Err(malformed(from, "answers", answers.len(), due));
                }
                if parities_due {
                    let bit = answers.pop().unwrap_or(0);
                    // LWE-7
                    if bit > 1 {
                        return Err(Abort::Malformed {
                            from,
                            what: "a masking bit that is neither 0 nor 1".into(),
                        });
                    }
                    shared.part(from, &parities(&self.weights, bit))?;
                    parities_due = false;
                }
                let mut values = vec![0; tile.len() * rows.len()];
                for (values, bytes) in values
                    .chunks_exact_mut(rows.len())
                    .zip(answers.chunks_exact(each))
                {
                    pack::unpack_words(params.v, bytes, values);
                }
                let weights = &self.weights[rows.clone()];
                let headers = Headers::new(params, &headers);
                let masked = owner.open(&headers, &values, rows.clone(), weights);
                let mut packed = Wiped::with_capacity(
                    pack::packed_len(params.width(), masked.len()) + pack::SLACK,
                );
                pack::pack(params.width(), &masked, &mut packed);
                shared.part(from, &packed)?;
                shared.io.pause().await;
            }
        }
        Ok(())
    }

    /// Steps 2 to 4: an evaluator answers the keys of all its key owners, round by round.
    async fn evaluate(
        &self,
        shared: &Shared,
        mut ends: BTreeMap<PartyId, Channel>,
    ) -> Result<(), Abort> {
        let params = self.params;
        let rows_of = |id: PartyId| self.clients.iter().find(|client| client.0 == id);
        let masks = |owner: PartyId| {
            let ids = [self.me.0.to_wire(), owner.to_wire()];
            let seed = self.secret.derive(self.session, "lwe masks", &ids);
            let rows = rows_of(owner).map_or(0, |client| client.1);
            Masks::new(params, self.suite, seed, rows)
        };
        let bit = |owner: PartyId| {
            let seed = self
                .secret
                .derive(self.session, "lwe bit", &[owner.to_wire()]);
            seed.expose()[0] & 1
        };
        for owner in ends.keys() {
            let mut text = Wiped::from(masks(*owner).seed().expose().to_vec());
            text.extend(parities(&self.weights, bit(*owner)));
            shared.part(*owner, &text)?;
        }
        let seed = self.secret.derive(self.session, "lwe rows", &[]);
        let mut evaluator = Evaluator::new(params, self.session, self.suite, seed);
        let mut keys: BTreeMap<PartyId, Broadcast> = ends
            .keys()
            .map(|id| (*id, self.broadcast("lwe keys", *id, &[])))
            .collect();
        let mut parities_due: Vec<PartyId> = ends.keys().copied().collect();
        for (number, round) in rounds(params, &self.clients, self.me)
            .into_iter()
            .enumerate()
        {
            let count = round.iter().map(|column| column.rows.len()).sum();
            let mut columns = Columns::new(params, count);
            for Column { owner, rows, .. } in &round {
                columns.part(masks(*owner), rows.start);
                for tile in key_tiles(params, rows.clone()) {
                    let Some(seal) = keys.get_mut(owner).filter(|_| ends.contains_key(owner))
                    else {
                        break;
                    };
                    let Some(sealed) = shared.io.recv(*owner).await else {
                        ends.remove(owner);
                        break;
                    };
                    let text = opened(*owner, seal.open(&sealed))?;
                    let due = tile.len() * params.key_len();
                    // LWE-3
                    if text.len() != due {
                        return Err(malformed(*owner, "keys", text.len(), due));
                    }
                    // LWE-4
                    columns
                        .push(&text)
                        .map_err(|error| refused(*owner, error))?;
                }
            }
            let mut headers_seal = self.broadcast("lwe headers", self.me.0, &[number as u32]);
            let mut hint = evaluator.hint(columns);
            while let Some(tile) = hint.next(&self.matrix, &self.codes) {
                let headers = headers_seal.seal(&tile.headers);
                for (Column { owner, .. }, mut answers) in round.iter().zip(tile.answers) {
                    let Some(channel) = ends.get_mut(owner) else {
                        continue;
                    };
                    shared.send(*owner, headers.clone())?;
                    if let Some(at) = parities_due.iter().position(|due| due == owner) {
                        parities_due.swap_remove(at);
                        answers.push(bit(*owner));
                    }
                    shared.send(*owner, channel.seal(&answers))?;
                }
                shared.io.pause().await;
            }
        }
        Ok(())
    }
}

fn refused(from: PartyId, error: KeyError) -> Abort {
    match error {
        KeyError::Repeated => Abort::cheated(from, error.to_string()),
        _ => Abort::Malformed {
            from,
            what: error.to_string(),
        },
    }
}
