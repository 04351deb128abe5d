//! `SecureSum`: the server learns the sum of the clients' vectors.

use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Step, Writer};

use super::{PHASE, add, read_words};

/// A client's side. Output: nothing.
#[derive(Debug)]
pub struct Client {
    vector: Vec<u64>,
}

impl Client {
    /// The client that contributes `vector`.
    pub fn new(vector: Vec<u64>) -> Self {
        Self { vector }
    }
}

impl Party for Client {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(self, _: Inbox) -> Result<Step<Self>, Abort> {
        let mut w = Writer::default();
        w.u64s(&self.vector);
        Ok(Step::Done {
            out: Outbox::to(PartyId::SERVER, w.finish()),
            output: (),
        })
    }
}

/// What the server learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// The sum of the contributors' vectors.
    pub vector: Vec<u64>,
    /// Whose vectors it holds.
    pub contributors: Vec<PartyId>,
}

/// The server's side. Output: [`Total`].
#[derive(Debug)]
pub struct Server {
    clients: Vec<PartyId>,
    len: usize,
    started: bool,
}

impl Server {
    /// The server that adds up vectors of `len` words from `clients`.
    pub fn new(clients: Vec<PartyId>, len: usize) -> Self {
        Self {
            clients,
            len,
            started: false,
        }
    }
}

impl Party for Server {
    type Output = Total;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        if !self.started {
            self.started = true;
            return Ok(Step::Continue {
                out: Outbox::new(),
                need: self.clients.clone(),
                next: self,
            });
        }
        let mut total = Total {
            vector: vec![0; self.len],
            contributors: Vec::new(),
        };
        for from in self.clients {
            if let Some(bytes) = inbox.take(from)? {
                add(&mut total.vector, &read_words(from, &bytes, self.len)?);
                total.contributors.push(from);
            }
        }
        Ok(Step::Done {
            out: Outbox::new(),
            output: total,
        })
    }
}
