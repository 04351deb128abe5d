//! The server's side of a series.

use undertone_kernel::Cpu;
use undertone_kernel::mask::{self, Op};
use undertone_party::{Abort, Io, PartyId};

use super::layout::{Layout, Owner};
use super::{Number, Tiles};
use crate::Word;

/// The server's end of a series. It has no secrets.
#[derive(Debug)]
pub struct Adder {
    members: Vec<PartyId>,
    last: Option<Number>,
}

impl Adder {
    /// The end of a series of these clients.
    pub fn new(members: Vec<PartyId>) -> Self {
        Self {
            members,
            last: None,
        }
    }

    /// Adds up the words of all clients, sends each the sums that it may have, and returns those of
    /// the server's blocks.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the number is not above the last (SERIES-1); when a message is not
    /// what is due (SERIES-2, SERIES-3); [`Abort::Left`] when a client is gone. The series is then
    /// over.
    pub async fn sum<W: Word>(
        &mut self,
        io: &Io,
        number: Number,
        layout: &Layout,
    ) -> Result<Vec<W>, Abort> {
        self.last = Some(number.after(self.last)?);
        let mut sum = vec![W::default(); layout.words()];
        for who in &self.members {
            let len = Layout::count(layout.sent_by(*who));
            let mut tiles = Tiles::<W>::new(number, len);
            let mut bytes: &[u8] = &[];
            let mut message;
            for mut range in layout.sent_by(*who) {
                while !range.is_empty() {
                    if bytes.is_empty() {
                        message = io.require(*who).await?;
                        bytes = tiles.read(*who, &message)?;
                    }
                    let words = range.len().min(bytes.len() / W::BYTES);
                    let (now, rest) = bytes.split_at(words * W::BYTES);
                    let to = &mut sum[range.start..range.start + words];
                    mask::combine(Cpu::detect(), Op::Add, to, now);
                    range.start += words;
                    bytes = rest;
                }
            }
        }
        for who in &self.members {
            let own = layout.owned_by(Owner::Client(*who));
            self.send(io, number, &gather(&sum, own), &[*who]).await;
        }
        let all = gather(&sum, layout.owned_by(Owner::Clients));
        self.send(io, number, &all, &self.members).await;
        Ok(gather(&sum, layout.owned_by(Owner::Server)))
    }

    async fn send<W: Word>(&self, io: &Io, number: Number, words: &[W], to: &[PartyId]) {
        let mut tiles = Tiles::<W>::new(number, words.len());
        let mut rest = words;
        while !rest.is_empty() {
            let (message, after) = tiles.write(rest);
            io.send_to_all(to, message);
            rest = after;
            if !rest.is_empty() {
                io.pause().await;
            }
        }
    }
}

/// The words at these places, one after the other.
fn gather<W: Word>(words: &[W], places: impl Iterator<Item = std::ops::Range<usize>>) -> Vec<W> {
    places.flat_map(|range| &words[range]).copied().collect()
}
