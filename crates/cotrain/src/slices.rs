//! Slices of the public rows, and the masks that hide a slice's votes from the server.

use std::collections::BTreeMap;

use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_ot::{Context, Field};
use undertone_party::{PartyId, SessionId};
use undertone_setup::seal::Channel;

use crate::ballots::Layout;
use crate::messages::Plan;

const SERVER: PartyId = PartyId::SERVER;

/// f of the transfers: corrections of 3.9 bytes for each input bit of the server.
const FIELD: usize = 4;

/// Which blocks a slice has: block j is in slice j mod the number of slices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slices {
    pub(crate) layout: Layout,
    pub(crate) count: usize,
}

impl Slices {
    /// A slice for each of `clients` clients, or for each block if there are fewer.
    pub(crate) fn new(layout: Layout, clients: usize) -> Self {
        Self {
            layout,
            count: clients.min(layout.blocks()),
        }
    }

    /// The blocks of a slice.
    pub(crate) fn blocks(&self, slice: usize) -> impl Iterator<Item = usize> + use<> {
        (slice..self.layout.blocks()).step_by(self.count)
    }

    /// The number of words of a slice.
    fn words(&self, slice: usize) -> usize {
        self.blocks(slice).count() * self.layout.block_words()
    }

    /// The words of the slices of a plan, one slice after the other, from all words. For the empty
    /// plan a zero: its sum shows that its contributors have the same plans.
    pub(crate) fn gather(&self, plan: &Plan, words: &[u64]) -> Wiped<u64> {
        let mut gathered = Wiped::with_capacity(self.len(plan));
        if plan.0.is_empty() {
            gathered.push(0);
        }
        for (slice, _) in &plan.0 {
            for block in self.blocks(*slice as usize) {
                let width = self.layout.block_words();
                gathered.extend_from_slice(&words[block * width..(block + 1) * width]);
            }
        }
        gathered
    }

    /// The number of words that are summed for a plan.
    pub(crate) fn len(&self, plan: &Plan) -> usize {
        let slices = plan.0.iter();
        let words: usize = slices.map(|(slice, _)| self.words(*slice as usize)).sum();
        words.max(1)
    }

    /// The words of each slice of a plan in what [`gather`](Self::gather) returns.
    pub(crate) fn split<'a>(
        &self,
        plan: &'a Plan,
        words: &'a [u64],
    ) -> impl Iterator<Item = (usize, PartyId, &'a [u64])> {
        let this = *self;
        let mut rest = words;
        plan.0.iter().map(move |(slice, helper)| {
            let (head, tail) = rest.split_at(this.words(*slice as usize));
            rest = tail;
            (*slice as usize, *helper, head)
        })
    }

    /// The mask of a client's words of one slice.
    fn mask(&self, slice: usize, seed: &Seed) -> impl Iterator<Item = u64> + use<> {
        let mut prg = seed.prg();
        (0..self.words(slice)).map(move |_| prg.next_u64())
    }
}

/// The context of a slice's garbled circuits in attempt `attempt`.
pub(crate) fn context(session: SessionId, attempt: u32, slice: usize, helper: PartyId) -> Context {
    let purpose = format!("slice {slice} attempt {attempt}");
    Context::new(session, &purpose, helper, SERVER)
}

/// f of the transfers.
pub(crate) fn field() -> Field {
    Field::new(FIELD).unwrap_or_else(|| unreachable!("f is from 1 to 8"))
}

/// The secrets of pairs of clients, from which masks come.
pub(crate) struct Pairs {
    context: SessionId,
    me: PartyId,
    channels: BTreeMap<PartyId, Channel>,
    /// For the masks of a client in a slice that it helps with itself.
    own: Seed,
}

impl Pairs {
    /// The secrets of client `me`, from its channels to the other clients and a seed of its own.
    pub(crate) fn new(
        context: SessionId,
        me: PartyId,
        channels: BTreeMap<PartyId, Channel>,
        own: Seed,
    ) -> Self {
        Self {
            context,
            me,
            channels,
            own,
        }
    }

    /// The seed of the mask of `voter` in a slice of `helper`. This client is one of them.
    fn seed(&self, voter: PartyId, helper: PartyId, slice: usize, attempt: u32) -> Option<Seed> {
        let ids = [voter.to_wire(), helper.to_wire(), slice as u32, attempt];
        let other = if voter == self.me { helper } else { voter };
        if other == self.me {
            return Some(self.own.derive(self.context, "vote mask", &ids));
        }
        let channel = self.channels.get(&other)?;
        Some(channel.export(self.context, "vote mask", &ids))
    }

    /// Takes this client's masks off its words.
    pub(crate) fn hide(&self, slices: &Slices, plan: &Plan, attempt: u32, words: &mut [u64]) {
        let mut words = words.iter_mut();
        for (slice, helper) in &plan.0 {
            let slice = *slice as usize;
            let seed = self.seed(self.me, *helper, slice, attempt);
            let Some(seed) = seed else {
                unreachable!("a plan names members of the group");
            };
            for (mask, word) in slices.mask(slice, &seed).zip(words.by_ref()) {
                *word = word.wrapping_sub(mask);
            }
        }
    }

    /// The sum of the masks of `contributors` in a slice that this client helps with.
    pub(crate) fn masks(
        &self,
        slices: &Slices,
        slice: usize,
        attempt: u32,
        contributors: &[PartyId],
    ) -> Wiped<u64> {
        let mut sum = Wiped::from(vec![0u64; slices.words(slice)]);
        for voter in contributors {
            let seed = self.seed(*voter, self.me, slice, attempt);
            let Some(seed) = seed else {
                unreachable!("contributors are members of the group");
            };
            for (to, mask) in sum.iter_mut().zip(slices.mask(slice, &seed)) {
                *to = to.wrapping_add(mask);
            }
        }
        sum
    }
}
