//! Pads: the mask streams that hide a client's words, and their places (`docs/spec/sums.md`,
//! *Masks*).
//!
//! The words of a sum form one array, the *joint words*: the rows of every client that shared, in
//! roster order, then the shared words. The rows of one client are its *block*. Client `j` sends
//! all joint words but its own block.
//!
//! | pad | lies on |
//! |---|---|
//! | self mask of `j` | all words but `j`'s block |
//! | edge mask of `j < k` | all words but the blocks of `j` and `k` |
//! | row mask of `j < k` | the blocks of `j` and `k` |
//!
//! The words of a mask are in the order of the joint words. The smaller client adds edge masks and
//! row masks, the greater one subtracts them.

use std::ops::Range;

use undertone_kernel::mask::{Op, Stream, Suite, TILE_BYTES};
use undertone_party::PartyId;

use super::{Context, Word};
use undertone_kdf::Seed;

/// A mask before its expansion.
pub(super) struct Pad {
    op: Op,
    /// The key on all words but `blocks`.
    main: Option<Seed>,
    /// The key on `blocks`.
    rows: Option<Seed>,
    /// Disjoint, in order.
    blocks: [Range<usize>; 2],
}

/// A pad with running streams.
struct Running<'a> {
    pad: &'a Pad,
    main: Option<Stream>,
    rows: Option<Stream>,
}

impl Pad {
    /// The self mask of a client with the block `own`.
    pub(super) fn own(context: &Context, me: PartyId, seed: &Seed, own: Range<usize>) -> Self {
        Self {
            op: Op::Add,
            main: Some(context.stream(seed, "self mask", me, me)),
            rows: None,
            blocks: [own, 0..0],
        }
    }

    /// The masks of `me` with its neighbour `peer`. `main` is the secret of their mask keys, `rows`
    /// the secret of their sealing keys.
    pub(super) fn edge(
        context: &Context,
        (me, own): (PartyId, Range<usize>),
        (peer, its): (PartyId, Range<usize>),
        main: Option<&Seed>,
        rows: Option<&Seed>,
    ) -> Self {
        let (op, low, high, blocks) = if me < peer {
            (Op::Add, me, peer, [own, its])
        } else {
            (Op::Subtract, peer, me, [its, own])
        };
        Self {
            op,
            main: main.map(|secret| context.stream(secret, "edge mask", low, high)),
            rows: rows.map(|secret| context.stream(secret, "row mask", low, high)),
            blocks,
        }
    }

    /// The pad that takes this one off.
    pub(super) fn inverse(mut self) -> Self {
        self.op = self.op.inverse();
        self
    }

    fn start(&self, suite: Suite) -> Running<'_> {
        let stream =
            |seed: &Option<Seed>| seed.as_ref().map(|seed| Stream::new(suite, seed.expose()));
        Running {
            pad: self,
            main: stream(&self.main),
            rows: stream(&self.rows),
        }
    }
}

impl Running<'_> {
    /// Applies the pad to `words`, which begin at `at` of the joint words.
    fn apply<W: Word>(&mut self, at: usize, words: &mut [W]) {
        let end = at + words.len();
        let clamp = |x: usize| x.clamp(at, end);
        let [first, second] = &self.pad.blocks;
        // Before the first block, inside it, between, inside the second, after.
        let cuts = [
            at,
            clamp(first.start),
            clamp(first.end),
            clamp(second.start.max(first.end)),
            clamp(second.end.max(first.end)),
            end,
        ];
        for (part, cut) in cuts.windows(2).enumerate() {
            let (from, to) = (cut[0], cut[1]);
            if from == to {
                continue;
            }
            let (stream, skipped) = match part {
                0 => (&mut self.main, 0),
                1 => (&mut self.rows, first.start),
                2 => (&mut self.main, first.len()),
                3 => (&mut self.rows, second.start - first.len()),
                _ => (&mut self.main, first.len() + second.len()),
            };
            if let Some(stream) = stream {
                let words = &mut words[from - at..to - at];
                stream.apply(from - skipped, self.pad.op, words);
            }
        }
    }
}

/// Applies all `pads`, tile by tile, to `words`, which begin at `at` of the joint words.
pub(super) fn apply<W: Word>(pads: &[Pad], suite: Suite, at: usize, words: &mut [W]) {
    let mut running: Vec<Running<'_>> = pads.iter().map(|pad| pad.start(suite)).collect();
    let tile = TILE_BYTES / W::BYTES;
    for (index, words) in words.chunks_mut(tile).enumerate() {
        for pad in &mut running {
            pad.apply(at + index * tile, words);
        }
    }
}
