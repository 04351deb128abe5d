//! `clear` and `sketch`: the clients send their codes and the server counts differing bits.
//!
//! The two differ in whether the server knows the projection. The setup decides that, when it makes
//! the group seed.
//!
//! `docs/spec/distances.md` specifies the messages. The server computes distances once every client
//! has sent all its rows or has dropped out. So a dropped client leaves no trace.

use undertone_kernel::{BitMatrix, Cpu};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, Io, PartyId, Payload};

use super::{Collected, ServerContext};
use crate::tiles::{self, Pairs, Sink};

fn rows_per_message(bits: usize) -> usize {
    (TILE_BYTES / bits.div_ceil(8).max(1)).max(1)
}

/// The client's protocol.
pub(super) async fn send(io: Io, codes: BitMatrix) -> Result<(), Abort> {
    let rows = codes.rows();
    let mut sent = 0;
    loop {
        let end = rows.min(sent + rows_per_message(codes.columns()));
        io.send(PartyId::SERVER, codes.to_packed(sent..end));
        if end == rows {
            return Ok(());
        }
        sent = end;
        io.pause().await;
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
        // DIST-5
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

/// The server's protocol.
pub(super) async fn collect<S: Sink>(
    io: Io,
    ctx: ServerContext,
    mut sink: S,
) -> Result<Collected<S>, Abort> {
    let upload = |&(from, rows): &(PartyId, usize)| Upload {
        from,
        rows,
        codes: BitMatrix::zero(0, ctx.bits),
        messages: 0,
        remains: true,
    };
    let mut uploads: Vec<Upload> = ctx.clients.iter().map(upload).collect();
    loop {
        let due = uploads.iter_mut().filter(|upload| upload.is_due());
        let mut due: Vec<&mut Upload> = due.collect();
        if due.is_empty() {
            break;
        }
        let from: Vec<PartyId> = due.iter().map(|upload| upload.from).collect();
        let heard = io.recv_all(&from).await;
        for (upload, (_, message)) in due.iter_mut().zip(heard) {
            upload.take(message)?;
        }
    }
    let remains: Vec<bool> = uploads.iter().map(|upload| upload.remains).collect();
    let codes: Vec<BitMatrix> = uploads.into_iter().map(|upload| upload.codes).collect();
    let rows = |codes: &BitMatrix| codes.rows();
    let pairs = match &ctx.cells {
        None => Pairs::cross(&codes.iter().map(rows).collect::<Vec<_>>()),
        Some(cells) => Pairs::within(&cells.without(&remains), codes.len()),
    };
    let cpu = Cpu::detect();
    for done in (0..pairs.len()).step_by(tiles::PER_STEP) {
        io.pause().await;
        let end = pairs.len().min(done + tiles::PER_STEP);
        tiles::sweep(cpu, &codes, &pairs, done..end, &mut sink);
    }
    Ok(Collected {
        sink,
        above: 0,
        remains,
    })
}
