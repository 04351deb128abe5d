//! `clear` and `sketch`: the clients send their codes, the server counts differing bits.
//!
//! Whether the server knows the projection, which is the difference between the two, was decided
//! when the group seed was made.
//!
//! Client → server: its codes, packed, as many whole rows in a message as fit
//! [`TILE_BYTES`], at least one message. Distances are computed once every client has
//! sent all its rows or left, so a client that leaves leaves no trace.

use undertone_kernel::{BitMatrix, Cpu};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Payload, Phase, Step};

use super::{Collected, PHASE};
use crate::tiles::{self, Pairs, Sink};

fn rows_per_message(bits: usize) -> usize {
    (TILE_BYTES / bits.div_ceil(8).max(1)).max(1)
}

#[derive(Debug)]
pub(super) struct Client {
    codes: BitMatrix,
    sent: usize,
}

impl Client {
    pub(super) fn new(codes: BitMatrix) -> Self {
        Self { codes, sent: 0 }
    }
}

impl Party for Client {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, _: Inbox) -> Result<Step<Self>, Abort> {
        let rows = self.codes.rows();
        let end = rows.min(self.sent + rows_per_message(self.codes.columns()));
        let out = Outbox::to(PartyId::SERVER, self.codes.to_packed(self.sent..end));
        self.sent = end;
        Ok(if end == rows {
            Step::Done { out, output: () }
        } else {
            Step::Continue {
                out,
                need: vec![].into(),
                next: self,
            }
        })
    }
}

#[derive(Debug)]
struct Upload {
    from: PartyId,
    rows: usize,
    codes: BitMatrix,
    messages: usize,
    remains: bool,
}

impl Upload {
    fn is_due(&self) -> bool {
        self.remains && (self.messages == 0 || self.codes.rows() < self.rows)
    }

    fn take(&mut self, message: Option<Payload>) -> Result<(), Abort> {
        let Some(bytes) = message else {
            self.remains = false;
            self.codes = BitMatrix::default();
            return Ok(());
        };
        let left = self.rows - self.codes.rows();
        let rows = left.min(rows_per_message(self.codes.columns()));
        let due = rows * self.codes.row_bytes();
        if bytes.len() != due {
            return Err(Abort::Malformed {
                from: self.from,
                what: format!("codes of {} bytes, {due} are due", bytes.len()),
            });
        }
        self.codes.append_packed(rows, &bytes);
        self.messages += 1;
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Server<S> {
    cpu: Cpu,
    uploads: Vec<Upload>,
    sink: S,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Start,
    Uploads {
        due: Vec<usize>,
    },
    Sweep {
        codes: Vec<BitMatrix>,
        pairs: Pairs,
        done: usize,
    },
}

impl<S: Sink> Server<S> {
    pub(super) fn new(cpu: Cpu, bits: usize, clients: &[(PartyId, usize)], sink: S) -> Self {
        let upload = |&(from, rows): &(PartyId, usize)| Upload {
            from,
            rows,
            codes: BitMatrix::zero(0, bits),
            messages: 0,
            remains: true,
        };
        Self {
            cpu,
            uploads: clients.iter().map(upload).collect(),
            sink,
            stage: Stage::Start,
        }
    }

    /// Waits for whoever has not sent all, or starts to compute.
    fn wait(mut self) -> Step<Self> {
        let is_due = |place: &usize| self.uploads[*place].is_due();
        let due: Vec<usize> = (0..self.uploads.len()).filter(is_due).collect();
        let need: Vec<PartyId> = due.iter().map(|place| self.uploads[*place].from).collect();
        self.stage = if due.is_empty() {
            let rows: Vec<usize> = self.uploads.iter().map(|u| u.codes.rows()).collect();
            let codes = self
                .uploads
                .iter_mut()
                .map(|u| std::mem::take(&mut u.codes));
            Stage::Sweep {
                codes: codes.collect(),
                pairs: Pairs::cross(&rows),
                done: 0,
            }
        } else {
            Stage::Uploads { due }
        };
        Step::Continue {
            out: Outbox::new(),
            need: need.into(),
            next: self,
        }
    }
}

impl<S: Sink> Party for Server<S> {
    type Output = Collected<S>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        match std::mem::replace(&mut self.stage, Stage::Start) {
            Stage::Start => Ok(self.wait()),
            Stage::Uploads { due } => {
                for place in due {
                    let upload = &mut self.uploads[place];
                    upload.take(inbox.take(upload.from)?)?;
                }
                Ok(self.wait())
            }
            Stage::Sweep { codes, pairs, done } => {
                let end = pairs.len().min(done + tiles::PER_STEP);
                tiles::sweep(self.cpu, &codes, &pairs, done..end, &mut self.sink);
                if end < pairs.len() {
                    self.stage = Stage::Sweep {
                        codes,
                        pairs,
                        done: end,
                    };
                    return Ok(Step::Continue {
                        out: Outbox::new(),
                        need: vec![].into(),
                        next: self,
                    });
                }
                Ok(Step::Done {
                    out: Outbox::new(),
                    output: Collected {
                        sink: self.sink,
                        remains: self.uploads.iter().map(|u| u.remains).collect(),
                    },
                })
            }
        }
    }
}
