//! Sums over clients of words modulo 2⁶⁴: some for everybody, the rest for the client they belong to.
//!
//! Every client contributes a matrix, of which rows `R_j` belong to client `j`, and some *shared*
//! words. Client `j` learns rows `R_j` of the sum of the matrices; the server and every client learn
//! the sum of the shared words. A plain sum is a matrix without rows.
//!
//! 1. Client `j` → server: its matrix without rows `R_j`, row after row, then its shared words.
//! 2. Server → client `j`, once it is settled who contributes: rows `R_j` of the sum, which lack
//!    only `j`'s own, which `j` adds; then the sum of the shared words.
//!
//! Words travel in messages of as many as fit [`TILE_BYTES`], at least one message. A client that
//! leaves before its last message contributes nothing, neither rows nor shared words.
//!
//! **Masks are not there yet**: today the server sees every word that is sent. Messages, shapes and
//! who sends what to whom are those of the masked protocols (`SecureSum`, `SecureRowSums`), so
//! masking changes what the words look like and nothing else.

use std::fmt;
use std::ops::Range;

use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Reader, Step, Writer};

/// The phase of this protocol.
pub const PHASE: Phase = Phase {
    id: 6,
    name: "labels",
};

const WORDS: usize = TILE_BYTES / 8;
const SERVER: PartyId = PartyId::SERVER;

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows of the matrix.
    pub rows: usize,
    /// Words in a row.
    pub width: usize,
    /// Shared words.
    pub shared: usize,
}

impl Shape {
    fn words(&self) -> usize {
        self.rows * self.width
    }

    /// Words that the owner of `rows` sends.
    fn upload(&self, rows: &Range<usize>) -> usize {
        self.words() - rows.len() * self.width + self.shared
    }
}

fn add(to: &mut [u64], words: &[u64]) {
    debug_assert_eq!(to.len(), words.len());
    for (to, word) in to.iter_mut().zip(words) {
        *to = to.wrapping_add(*word);
    }
}

/// An array that comes in messages.
#[derive(Default)]
struct Incoming {
    words: Vec<u64>,
    messages: usize,
}

impl Incoming {
    /// Takes the next message of an array of `len` words.
    fn take(&mut self, from: PartyId, bytes: &[u8], len: usize) -> Result<(), Abort> {
        let malformed = Abort::malformed(from);
        let count = WORDS.min(len - self.words.len());
        let mut r = Reader::new(bytes);
        self.words
            .extend(r.u64s(count, "words").map_err(&malformed)?);
        r.finish().map_err(&malformed)?;
        self.messages += 1;
        Ok(())
    }

    fn is_whole(&self, len: usize) -> bool {
        self.messages > 0 && self.words.len() == len
    }
}

/// An array that goes in messages.
#[derive(Default)]
struct Outgoing {
    words: Vec<u64>,
    sent: usize,
    messages: usize,
}

impl Outgoing {
    fn new(words: Vec<u64>) -> Self {
        Self {
            words,
            ..Self::default()
        }
    }

    fn is_sent(&self) -> bool {
        self.messages > 0 && self.sent == self.words.len()
    }

    /// The next message.
    fn next(&mut self) -> Vec<u8> {
        let end = self.words.len().min(self.sent + WORDS);
        let mut w = Writer::default();
        w.u64s(&self.words[self.sent..end]);
        self.sent = end;
        self.messages += 1;
        w.finish()
    }
}

/// What a client learns.
#[derive(Clone, PartialEq, Eq)]
pub struct Sums {
    /// Its rows of the sum of the matrices.
    pub own: Vec<u64>,
    /// The sum of the shared words.
    pub shared: Vec<u64>,
}

impl fmt::Debug for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sums({} own, {} shared words)",
            self.own.len(),
            self.shared.len()
        )
    }
}

/// A client's side. Output: [`Sums`].
pub struct Client {
    own: Vec<u64>,
    shared: usize,
    upload: Outgoing,
    answer: Option<Incoming>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client(..)")
    }
}

impl Client {
    /// The client that contributes `matrix` and `shared` and to which rows `own` belong.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when they do not have the shape or `own` goes past the last row.
    pub fn new(
        shape: Shape,
        mut matrix: Vec<u64>,
        shared: &[u64],
        own: Range<usize>,
    ) -> Result<Self, Abort> {
        let fits = matrix.len() == shape.words() && shared.len() == shape.shared;
        if !fits || own.start > own.end || own.end > shape.rows {
            return Err(Abort::Misuse(format!(
                "{} and {} words with own rows {own:?} for {shape:?}",
                matrix.len(),
                shared.len()
            )));
        }
        let own = matrix
            .drain(own.start * shape.width..own.end * shape.width)
            .collect();
        matrix.extend_from_slice(shared);
        Ok(Self {
            own,
            shared: shape.shared,
            upload: Outgoing::new(matrix),
            answer: None,
        })
    }
}

impl Party for Client {
    type Output = Sums;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        let mut need = Vec::new();
        if let Some(answer) = &mut self.answer {
            let len = self.own.len() + self.shared;
            answer.take(SERVER, &inbox.require(SERVER)?, len)?;
            if answer.is_whole(len) {
                let shared = answer.words.split_off(self.own.len());
                add(&mut self.own, &answer.words);
                return Ok(Step::Done {
                    out,
                    output: Sums {
                        own: self.own,
                        shared,
                    },
                });
            }
            need.push(SERVER);
        } else {
            out.push(SERVER, self.upload.next());
            if self.upload.is_sent() {
                self.upload = Outgoing::default();
                self.answer = Some(Incoming::default());
                need.push(SERVER);
            }
        }
        Ok(Step::Continue {
            out,
            need,
            next: self,
        })
    }
}

/// What the server learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// The sum of the shared words.
    pub shared: Vec<u64>,
    /// Whose words it holds, and whose matrices the rows hold.
    pub contributors: Vec<PartyId>,
}

/// The server's side. Output: [`Total`].
pub struct Server {
    shape: Shape,
    min_contributors: usize,
    clients: Vec<(PartyId, Range<usize>)>,
    sum: Vec<u64>,
    shared: Vec<u64>,
    contributors: Vec<(PartyId, Range<usize>)>,
    stage: Stage,
}

enum Stage {
    Start,
    /// Clients are heard one after the other, so that one partial upload at most is held.
    Upload {
        turn: usize,
        upload: Incoming,
    },
    Answer {
        turn: usize,
        answer: Outgoing,
    },
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({:?}, ..)", self.shape)
    }
}

impl Server {
    /// The server that adds up what `clients` contribute, each with the rows that belong to it, if
    /// at least `min_contributors` do.
    pub fn new(
        shape: Shape,
        clients: Vec<(PartyId, Range<usize>)>,
        min_contributors: usize,
    ) -> Self {
        Self {
            min_contributors,
            clients,
            sum: vec![0; shape.words()],
            shared: vec![0; shape.shared],
            shape,
            contributors: Vec::new(),
            stage: Stage::Start,
        }
    }

    fn words_of(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.shape.width..rows.end * self.shape.width
    }

    fn accept(&mut self, from: PartyId, rows: Range<usize>, upload: &[u64]) {
        let own = self.words_of(&rows);
        let (before, rest) = upload.split_at(own.start);
        let (after, shared) = rest.split_at(self.sum.len() - own.end);
        add(&mut self.sum[..own.start], before);
        add(&mut self.sum[own.end..], after);
        add(&mut self.shared, shared);
        self.contributors.push((from, rows));
    }

    /// Hears the client whose turn it is, or starts to answer.
    fn hear(mut self, turn: usize, upload: Incoming) -> Result<Step<Self>, Abort> {
        if let Some((from, _)) = self.clients.get(turn) {
            let need = vec![*from];
            self.stage = Stage::Upload { turn, upload };
            return Ok(Step::Continue {
                out: Outbox::new(),
                need,
                next: self,
            });
        }
        let left = self.contributors.len();
        if left < self.min_contributors {
            let need = self.min_contributors;
            return Err(Abort::TooFew { left, need });
        }
        Ok(self.answer(0, Outgoing::default()))
    }

    /// Sends the next message to the contributor whose turn it is.
    fn answer(mut self, turn: usize, mut answer: Outgoing) -> Step<Self> {
        let Some((to, rows)) = self.contributors.get(turn) else {
            let ids = self.contributors.iter().map(|(id, _)| *id);
            return Step::Done {
                out: Outbox::new(),
                output: Total {
                    contributors: ids.collect(),
                    shared: self.shared,
                },
            };
        };
        if answer.messages == 0 {
            let mut words = self.sum[self.words_of(rows)].to_vec();
            words.extend_from_slice(&self.shared);
            answer = Outgoing::new(words);
        }
        let out = Outbox::to(*to, answer.next());
        self.stage = match answer.is_sent() {
            true => Stage::Answer {
                turn: turn + 1,
                answer: Outgoing::default(),
            },
            false => Stage::Answer { turn, answer },
        };
        Step::Continue {
            out,
            need: Vec::new(),
            next: self,
        }
    }
}

impl Party for Server {
    type Output = Total;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        match std::mem::replace(&mut self.stage, Stage::Start) {
            Stage::Start => self.hear(0, Incoming::default()),
            Stage::Upload { turn, mut upload } => {
                let (from, rows) = self.clients[turn].clone();
                let len = self.shape.upload(&rows);
                match inbox.take(from)? {
                    None => return self.hear(turn + 1, Incoming::default()),
                    Some(bytes) => upload.take(from, &bytes, len)?,
                }
                if upload.is_whole(len) {
                    self.accept(from, rows, &upload.words);
                    return self.hear(turn + 1, Incoming::default());
                }
                self.hear(turn, upload)
            }
            Stage::Answer { turn, answer } => Ok(self.answer(turn, answer)),
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
    fn run(width: usize, shared: usize, own: &[usize], leaver: Option<(usize, usize)>) {
        let shape = Shape {
            rows: own.iter().sum(),
            width,
            shared,
        };
        let mut prg = Prg::new(&[7; 32]);
        let mut random = |len| (0..len).map(|_| prg.next_u64()).collect::<Vec<_>>();
        let inputs: Vec<_> = own
            .iter()
            .map(|_| (random(shape.words()), random(shared)))
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
        let server = Server::new(shape, plan, 1);
        let mut server = Endpoint::new(SERVER, SESSION, Limits::default(), server);
        let mut clients: Vec<_> = (0..own.len())
            .map(|place| {
                let (matrix, words) = inputs[place].clone();
                let client = Client::new(shape, matrix, &words, ranges[place].clone()).unwrap();
                Endpoint::new(ids[place], SESSION, Limits::default(), client)
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
        let (mut sum, mut total) = (vec![0; shape.words()], vec![0; shared]);
        for place in &places {
            add(&mut sum, &inputs[*place].0);
            add(&mut total, &inputs[*place].1);
        }
        let learnt = server.finish().unwrap().0;
        assert_eq!(learnt.shared, total);
        assert_eq!(
            learnt.contributors,
            places.iter().map(|p| ids[*p]).collect::<Vec<_>>()
        );
        for (place, client) in clients
            .into_iter()
            .enumerate()
            .filter(|(p, _)| contributes(p))
        {
            let due = ranges[place].start * width..ranges[place].end * width;
            let sums = client.finish().unwrap().0;
            assert!(
                sums.own == sum[due] && sums.shared == total,
                "client {place}"
            );
        }
    }

    #[test]
    fn every_client_gets_its_rows_and_the_shared_words() {
        for own in [
            &[3, 4, 2][..],
            &[0, 5],
            &[0, 0, 3],
            &[1],
            &[0, 0],
            &[7, 0, 1],
        ] {
            for shared in [0, 2] {
                run(3, shared, own, None);
            }
        }
    }

    #[test]
    fn arrays_of_several_messages_and_leavers_between_them() {
        let own = [WORDS, 10, WORDS / 2];
        run(2, 5, &own, None);
        for frames in 0..3 {
            run(2, 5, &own, Some((1, frames)));
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let shape = Shape {
            rows: 3,
            width: 2,
            shared: 1,
        };
        assert!(Client::new(shape, vec![0; 5], &[0], 0..1).is_err());
        assert!(Client::new(shape, vec![0; 6], &[], 0..1).is_err());
        assert!(Client::new(shape, vec![0; 6], &[0], 2..4).is_err());
    }
}
