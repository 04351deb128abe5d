//! The secrets that the server reconstructs from shares (`docs/spec/sums.md`, step 4d): self masks
//! of contributors, mask keys of the other clients that shared.

use rayon::prelude::*;
use undertone_party::{Abort, PartyId};

use super::client::commitment;
use super::messages::{SHARE_LEN, Share};
use super::pad::Pad;
use super::server::Adding;
use super::{Word, point, share};
use undertone_kdf::Seed;
use undertone_setup::seal::KeyPair;

impl<W: Word> Adding<W> {
    /// The inverses of the masks that the secret of `place` keys, and the holder of a false share.
    pub(super) fn masks_of(
        &self,
        place: usize,
        shares: &[(usize, Share)],
    ) -> Result<(Vec<Pad>, Option<PartyId>), Abort> {
        let Self { table, context, .. } = self;
        let rules = &context.rules;
        let id = table.ids[place];
        let block = |place: usize| context.blocks[place].clone();
        if self.contributors.has(place) {
            // SUM-29.
            let due = &self.commitments[place];
            let fits = |seed: &Seed| commitment(rules, id, seed).expose() == due;
            let (seed, suspect) = self.rebuild(place, shares, fits)?;
            let pad = Pad::own(context, id, &seed, block(place)).inverse();
            return Ok((vec![pad], suspect));
        }
        let others = table.neighbours_in(place, &self.contributors);
        if !context.sharing.has(place) || others.is_empty() {
            return Ok((Vec::new(), None));
        }
        // SUM-30.
        let due = self.mask_keys[place];
        let fits = |seed: &Seed| KeyPair::from_seed(seed).public() == due;
        let (seed, suspect) = self.rebuild(place, shares, fits)?;
        let key = KeyPair::from_seed(&seed);
        let mask = |other: &usize| {
            let (who, public) = (table.ids[*other], self.mask_keys[*other]);
            let secret = key
                .agree(rules.session, "mask pair", public)
                .map_err(|error| Abort::Cheated {
                    culprit: who,
                    fault: error.to_string(),
                })?;
            let (theirs, its) = ((who, block(*other)), (id, block(place)));
            Ok(Pad::edge(context, theirs, its, Some(&secret), None).inverse())
        };
        let pads: Result<Vec<Pad>, Abort> = others.par_iter().map(mask).collect();
        Ok((pads?, suspect))
    }

    /// The secret of `dealer` from its `shares`. One false share among them is found by leaving out
    /// each in turn. Its holder is the suspect.
    fn rebuild(
        &self,
        dealer: usize,
        shares: &[(usize, Share)],
        fits: impl Fn(&Seed) -> bool,
    ) -> Result<(Seed, Option<PartyId>), Abort> {
        let threshold = self.table.degree.threshold;
        let neighbours = self.table.graph.neighbours(dealer);
        let without = |left_out: Option<usize>| {
            let shares = shares
                .iter()
                .filter(|(holder, _)| Some(*holder) != left_out);
            let points: Vec<(u8, &[u8; SHARE_LEN])> = shares
                .take(threshold)
                .map(|(holder, share)| (point(&neighbours, dealer, *holder), &**share))
                .collect();
            let secret = share::combine(&points);
            (points.len() == threshold)
                .then(|| Seed::from_bytes(*secret))
                .filter(&fits)
        };
        if let Some(seed) = without(None) {
            return Ok((seed, None));
        }
        for (holder, _) in shares.iter().take(threshold) {
            if let Some(seed) = without(Some(*holder)) {
                return Ok((seed, Some(self.table.ids[*holder])));
            }
        }
        Err(Abort::Cheated {
            culprit: self.table.ids[dealer],
            fault: "the shares of its secret do not reconstruct what it committed to".into(),
        })
    }
}
