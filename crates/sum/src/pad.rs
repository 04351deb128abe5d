//! Pads: the streams that hide a client's words, and where they lie.
//!
//! The words that are added up stand in one array, the *joint words*: the rows of every sharing
//! client, client after client in roster order (its *block*), then the shared words. Client `j`
//! sends all but its own block.
//!
//! | pad | lies on | order of its words |
//! |---|---|---|
//! | self mask of `j` | all but `j`'s block | as they stand |
//! | edge mask of `j < k` | all but the blocks of `j` and `k` | as they stand |
//! | row mask of `j < k` | the blocks of `j` and `k` | as they stand |
//!
//! Edge and row masks are added by the smaller client and subtracted by the greater.

use std::ops::Range;

use undertone_kernel::mask::{Op, Stream, Suite, TILE_BYTES};
use undertone_party::PartyId;

use super::{Context, Word};
use undertone_kdf::Seed;

/// A mask that is not expanded yet.
pub(super) struct Pad {
    op: Op,
    /// For everything but `blocks`.
    main: Option<Seed>,
    /// For `blocks`.
    rows: Option<Seed>,
    /// Disjoint, in order.
    blocks: [Range<usize>; 2],
}

/// A pad whose streams are running.
struct Running<'a> {
    pad: &'a Pad,
    main: Option<Stream>,
    rows: Option<Stream>,
}

impl Pad {
    /// The self mask of a client whose block is `own`.
    pub(super) fn own(context: &Context, me: PartyId, seed: &Seed, own: Range<usize>) -> Self {
        Self {
            op: Op::Add,
            main: Some(context.stream(seed, "self mask", me, me)),
            rows: None,
            blocks: [own, 0..0],
        }
    }

    /// What `me` puts on its words for the sake of `peer`. `main` is the secret of their mask keys,
    /// `rows` that of their sealing keys.
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

    /// The same, to be taken off again.
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
    /// Applies the pad to `words`, which stand at `at` of the joint words.
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

/// Applies all `pads` to `words`, which stand at `at` of the joint words, tile by tile.
pub(super) fn apply<W: Word>(pads: &[Pad], suite: Suite, at: usize, words: &mut [W]) {
    let mut running: Vec<Running<'_>> = pads.iter().map(|pad| pad.start(suite)).collect();
    let tile = TILE_BYTES / W::BYTES;
    for (index, words) in words.chunks_mut(tile).enumerate() {
        for pad in &mut running {
            pad.apply(at + index * tile, words);
        }
    }
}
