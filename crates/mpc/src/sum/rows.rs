//! `SecureRowSums`: rows of the sum of the clients' matrices, each to the client it belongs to.
//!
//! 1. Client `j` → server: its matrix without rows `R_j`.
//! 2. Server → client `j`: rows `R_j` of the sum, which lack only `j`'s own; `j` adds them.
//!
//! Matrices travel row after row, in messages of as many words as fit
//! [`TILE_BYTES`]. A client that leaves before its last message
//! contributes nothing.

use std::ops::Range;

use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Step, Writer};

use super::{PHASE, add, read_words};

const WORDS: usize = TILE_BYTES / 8;
const SERVER: PartyId = PartyId::SERVER;

/// The matrix and whose rows are whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Words in a row.
    pub width: usize,
    /// Rows.
    pub rows: usize,
}

/// A client's side. Output: its rows of the sum.
#[derive(Debug)]
pub struct Client {
    own: Vec<u64>,
    others: Vec<u64>,
    sent: usize,
    received: usize,
    waiting: bool,
}

impl Client {
    /// The client that contributes `matrix` and to which rows `own` belong.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when `matrix` does not have the shape or `own` goes past its last row.
    pub fn new(shape: &Shape, mut matrix: Vec<u64>, own: Range<usize>) -> Result<Self, Abort> {
        if matrix.len() != shape.rows * shape.width || own.start > own.end || own.end > shape.rows {
            return Err(Abort::Misuse(format!(
                "{} words with own rows {own:?} for a matrix of {} x {}",
                matrix.len(),
                shape.rows,
                shape.width
            )));
        }
        let own = own.start * shape.width..own.end * shape.width;
        let own = matrix.drain(own).collect();
        Ok(Self {
            own,
            others: matrix,
            sent: 0,
            received: 0,
            waiting: false,
        })
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Abort> {
        let end = self.own.len().min(self.received + WORDS);
        let words = read_words(SERVER, bytes, end - self.received)?;
        add(&mut self.own[self.received..end], &words);
        self.received = end;
        Ok(())
    }
}

impl Party for Client {
    type Output = Vec<u64>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        if self.waiting {
            self.receive(&inbox.require(SERVER)?)?;
        } else if self.sent < self.others.len() {
            let end = self.others.len().min(self.sent + WORDS);
            let mut w = Writer::default();
            w.u64s(&self.others[self.sent..end]);
            out.push(SERVER, w.finish());
            self.sent = end;
        }
        self.waiting = self.sent == self.others.len();
        let need = match (self.waiting, self.received < self.own.len()) {
            (true, false) => {
                return Ok(Step::Done {
                    out,
                    output: self.own,
                });
            }
            (true, true) => vec![SERVER],
            (false, _) => Vec::new(),
        };
        Ok(Step::Continue {
            out,
            need,
            next: self,
        })
    }
}

/// The server's side. Output: the contributors.
#[derive(Debug)]
pub struct Server {
    width: usize,
    sum: Vec<u64>,
    clients: Vec<(PartyId, Range<usize>)>,
    contributors: Vec<PartyId>,
    turn: usize,
    upload: Vec<u64>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Upload,
    Return { sent: usize },
}

impl Server {
    /// The server that adds up matrices from `clients`, each with the rows that belong to it.
    pub fn new(shape: &Shape, clients: Vec<(PartyId, Range<usize>)>) -> Self {
        Self {
            width: shape.width,
            sum: vec![0; shape.rows * shape.width],
            clients,
            contributors: Vec::new(),
            turn: 0,
            upload: Vec::new(),
            stage: Stage::Start,
        }
    }

    fn words_of(&self, place: usize) -> Range<usize> {
        let rows = &self.clients[place].1;
        rows.start * self.width..rows.end * self.width
    }

    /// Takes a message of the client whose turn it is. Clients take turns so that one partial
    /// matrix at most is held.
    fn receive(&mut self, message: Option<Vec<u8>>) -> Result<(), Abort> {
        let own = self.words_of(self.turn);
        let from = self.clients[self.turn].0;
        let due = self.sum.len() - own.len();
        let Some(bytes) = message else {
            self.upload.clear();
            self.turn += 1;
            return Ok(());
        };
        let count = WORDS.min(due - self.upload.len());
        self.upload.extend(read_words(from, &bytes, count)?);
        if self.upload.len() == due {
            self.accept(own, from);
        }
        Ok(())
    }

    fn accept(&mut self, own: Range<usize>, from: PartyId) {
        let (before, after) = self.upload.split_at(own.start);
        add(&mut self.sum[..own.start], before);
        add(&mut self.sum[own.end..], after);
        self.upload.clear();
        self.contributors.push(from);
        self.turn += 1;
    }

    /// Waits for the client whose turn it is, or starts to return rows.
    fn wait(mut self) -> Step<Self> {
        while let Some((from, _)) = self.clients.get(self.turn) {
            let from = *from;
            let own = self.words_of(self.turn);
            if own.len() < self.sum.len() {
                self.stage = Stage::Upload;
                return Step::Continue {
                    out: Outbox::new(),
                    need: vec![from],
                    next: self,
                };
            }
            self.accept(own, from);
        }
        self.clients
            .retain(|(id, _)| self.contributors.contains(id));
        self.turn = 0;
        self.stage = Stage::Return { sent: 0 };
        self.give_back(0)
    }

    /// Sends the next message of rows to the client whose turn it is.
    fn give_back(mut self, sent: usize) -> Step<Self> {
        let mut out = Outbox::new();
        let Some((to, _)) = self.clients.get(self.turn) else {
            return Step::Done {
                out,
                output: self.contributors,
            };
        };
        let own = self.words_of(self.turn);
        let end = own.len().min(sent + WORDS);
        if sent < end {
            let mut w = Writer::default();
            w.u64s(&self.sum[own.start + sent..own.start + end]);
            out.push(*to, w.finish());
        }
        self.stage = if end == own.len() {
            self.turn += 1;
            Stage::Return { sent: 0 }
        } else {
            Stage::Return { sent: end }
        };
        Step::Continue {
            out,
            need: Vec::new(),
            next: self,
        }
    }
}

impl Party for Server {
    type Output = Vec<PartyId>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        match self.stage {
            Stage::Start => Ok(self.wait()),
            Stage::Upload => {
                let message = inbox.take(self.clients[self.turn].0)?;
                self.receive(message)?;
                Ok(self.wait())
            }
            Stage::Return { sent } => Ok(self.give_back(sent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_kernel::Prg;
    use undertone_party::{Endpoint, Limits, Network, Node, SessionId};

    const SESSION: SessionId = SessionId([0; 32]);

    /// Runs clients with `own[j]` rows each; client `leaver` leaves after `frames` frames.
    fn run(width: usize, own: &[usize], leaver: Option<(usize, usize)>) {
        let rows: usize = own.iter().sum();
        let shape = Shape { width, rows };
        let mut prg = Prg::new(&[7; 32]);
        let matrices: Vec<Vec<u64>> = own
            .iter()
            .map(|_| (0..rows * width).map(|_| prg.next_u64()).collect())
            .collect();
        let mut start = 0;
        let ranges: Vec<Range<usize>> = own
            .iter()
            .map(|count| {
                start += count;
                start - count..start
            })
            .collect();
        let ids: Vec<PartyId> = (0..own.len()).map(PartyId::client).collect();
        let plan = ids.iter().copied().zip(ranges.clone()).collect();
        let mut server = Endpoint::new(
            SERVER,
            SESSION,
            Limits::default(),
            Server::new(&shape, plan),
        );
        let mut clients: Vec<_> = ids
            .iter()
            .map(|id| {
                let place = id.index().unwrap();
                let client =
                    Client::new(&shape, matrices[place].clone(), ranges[place].clone()).unwrap();
                Endpoint::new(*id, SESSION, Limits::default(), client)
            })
            .collect();
        let mut network = Network::new();
        if let Some((leaver, frames)) = leaver {
            network = network.leave(ids[leaver], frames);
        }
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        network.run(&mut nodes).unwrap();

        let contributes = |place: &usize| leaver.is_none_or(|(leaver, _)| leaver != *place);
        let places: Vec<usize> = (0..own.len()).filter(contributes).collect();
        let contributors = server.finish().unwrap().0;
        assert_eq!(
            contributors,
            places.iter().map(|p| ids[*p]).collect::<Vec<_>>()
        );
        let mut sum = vec![0; rows * width];
        places
            .iter()
            .for_each(|place| add(&mut sum, &matrices[*place]));
        for (place, client) in clients
            .into_iter()
            .enumerate()
            .filter(|(p, _)| contributes(p))
        {
            let due = ranges[place].start * width..ranges[place].end * width;
            assert_eq!(client.finish().unwrap().0, sum[due]);
        }
    }

    #[test]
    fn every_client_gets_its_rows_of_the_sum() {
        for own in [
            &[3, 4, 2][..],
            &[0, 5],
            &[0, 0, 3],
            &[1],
            &[0, 0],
            &[7, 0, 1],
        ] {
            run(3, own, None);
        }
    }

    #[test]
    fn matrices_of_several_messages_and_leavers_between_them() {
        let own = [WORDS, 10, WORDS / 2];
        run(2, &own, None);
        for frames in 0..3 {
            run(2, &own, Some((1, frames)));
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let shape = Shape { width: 2, rows: 3 };
        assert!(Client::new(&shape, vec![0; 5], 0..1).is_err());
        assert!(Client::new(&shape, vec![0; 6], 2..4).is_err());
    }
}
