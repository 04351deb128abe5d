//! The server's part of the influence phase: whose rows there are, and how influences are shared
//! out to classes that it does not know.

use std::ops::Range;

use undertone_kernel::mask;
use undertone_party::{Abort, Io, Outbox, PartyId};

use crate::distances::Distances;
use crate::influence::{COLUMNS, Influence};
use crate::messages::{Plan, check_scores, column_words};
use crate::scores::fixed;
use crate::shares::Shares;
use crate::transfers::Grown;

/// A client and what the server knows of its rows.
pub(crate) struct Member {
    pub(crate) id: PartyId,
    pub(crate) labelled: Vec<bool>,
}

impl Member {
    fn labelled(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.labelled.len()).filter(|row| self.labelled[*row])
    }
}

/// The rows of all remaining clients, and where each client's unlabelled ones are.
pub(crate) struct Joint {
    pub(crate) members: Vec<Member>,
    pub(crate) classes: usize,
    pub(crate) distances: Distances,
    /// Global ids of unlabelled rows.
    pub(crate) unlabelled: Vec<usize>,
}

impl Joint {
    pub(crate) fn new(
        members: Vec<Member>,
        classes: usize,
        distances: Distances,
    ) -> Result<Self, Abort> {
        let flags = members.iter().flat_map(|member| &member.labelled);
        let unlabelled = flags.enumerate().filter(|(_, is_labelled)| !**is_labelled);
        let unlabelled: Vec<usize> = unlabelled.map(|(row, _)| row).collect();
        if unlabelled.len() == distances.rows() {
            return Err(Abort::Misuse("no client has a labelled row".into()));
        }
        check_scores(unlabelled.len(), classes)?;
        Ok(Self {
            members,
            classes,
            distances,
            unlabelled,
        })
    }

    /// The client's part of the unlabelled rows.
    fn own(&self, place: usize) -> Range<usize> {
        let before = |id: usize| self.unlabelled.partition_point(|row| *row < id);
        before(self.distances.offset(place))..before(self.distances.offset(place + 1))
    }

    /// Each client and its part of the unlabelled rows.
    pub(crate) fn owners(&self) -> Vec<(PartyId, Range<usize>)> {
        let owner = |(place, member): (usize, &Member)| (member.id, self.own(place));
        self.members.iter().enumerate().map(owner).collect()
    }

    /// To each client its plan.
    pub(crate) fn plans(&self) -> Outbox {
        let mut out = Outbox::new();
        for (place, member) in self.members.iter().enumerate() {
            let plan = Plan {
                unlabelled: self.unlabelled.len(),
                own_start: self.own(place).start,
            };
            out.push(member.id, plan.write());
        }
        out
    }
}

/// A client's trees, and the global ids of its labelled rows.
struct Part {
    id: PartyId,
    rows: Vec<usize>,
    grown: Grown,
}

/// The clients among whose classes influences are spread.
pub(crate) struct Spread {
    parts: Vec<Part>,
}

/// What the server adds to the sum of the clients' shares: its own, and what it takes to leave
/// clients out.
pub(crate) struct Shared {
    shares: Shares,
    parts: Vec<Part>,
}

impl Spread {
    /// Takes the trees of the joint rows' clients, in their order; a client that has left has none.
    ///
    /// # Errors
    /// [`Abort::Cheated`] by a client that has another number of labelled rows than trees.
    pub(crate) fn new(joint: &Joint, trees: Vec<Option<Grown>>) -> Result<Self, Abort> {
        let mut parts = Vec::new();
        for (place, (member, grown)) in joint.members.iter().zip(trees).enumerate() {
            let offset = joint.distances.offset(place);
            let rows: Vec<usize> = member.labelled().map(|row| offset + row).collect();
            let Some(grown) = grown else { continue };
            if grown.len() != rows.len() {
                return Err(Abort::Cheated {
                    culprit: member.id,
                    fault: format!(
                        "it has {} labelled rows, and announced {}",
                        rows.len(),
                        grown.len()
                    ),
                });
            }
            let id = member.id;
            parts.push(Part { id, rows, grown });
        }
        Ok(Self { parts })
    }

    /// How many columns are shared out.
    pub(crate) fn columns(&self) -> usize {
        self.parts.iter().map(|part| part.rows.len()).sum()
    }

    /// Solves column after column and sends each client those of its labelled rows, masked. A
    /// column has one entry for each unlabelled row of all clients: the influence on it, as part of
    /// all influences on it.
    pub(crate) async fn share_out(self, io: &Io, joint: &Joint, influence: &Influence) -> Shared {
        let (height, n) = (joint.unlabelled.len(), influence.graph().rows());
        let mut shares = Shares::new(height, joint.classes);
        let parts = self.parts.iter().enumerate();
        let all = parts.flat_map(|(place, part)| part.rows.iter().map(move |row| (place, *row)));
        let (whose, rows): (Vec<usize>, Vec<usize>) = all.unzip();
        let reach = influence.reach(&rows);
        let mut left: Vec<Pending> = self
            .parts
            .iter()
            .map(|part| Pending::new(part, height))
            .collect();
        // Without unlabelled rows there is nothing to share out.
        let batch = COLUMNS * rayon::current_num_threads();
        let batches = if height == 0 { 0 } else { rows.len() };
        for start in (0..batches).step_by(batch) {
            let batch = start..rows.len().min(start + batch);
            let mut leaves = Vec::with_capacity(batch.len());
            for whose in whose[batch.clone()].chunk_by(|a, b| a == b) {
                let own = &mut left[whose[0]];
                let next = own.started..own.started + whose.len();
                own.started = next.end;
                leaves.extend(self.parts[whose[0]].grown.columns(next));
            }
            let columns = influence.columns(&rows[batch.clone()]);
            let value = |place: usize, row: usize| {
                let row = joint.unlabelled[row];
                fixed::encode(columns[place * n + row], reach[row])
            };
            let mut words = &shares.send(&leaves, value)[..];
            for whose in whose[batch].chunk_by(|a, b| a == b) {
                let (own, others) = words.split_at(whose.len() * height);
                words = others;
                for message in left[whose[0]].messages(own) {
                    io.send(self.parts[whose[0]].id, message);
                }
            }
            io.pause().await;
        }
        Shared {
            shares,
            parts: self.parts,
        }
    }
}

/// A client's columns on their way to it.
struct Pending {
    columns: usize,
    height: usize,
    /// Columns that are shared out.
    started: usize,
    /// Words that are sent, and those that wait for their message to be full.
    done: usize,
    words: Vec<u32>,
}

impl Pending {
    fn new(part: &Part, height: usize) -> Self {
        Self {
            columns: part.rows.len(),
            height,
            started: 0,
            done: 0,
            words: Vec::new(),
        }
    }

    /// Takes more words. Gives the messages whose words are all there.
    fn messages(&mut self, words: &[u32]) -> Vec<Vec<u8>> {
        self.words.extend_from_slice(words);
        let (mut messages, mut at) = (Vec::new(), 0);
        loop {
            let next = column_words(self.done, self.columns, self.height);
            if next == 0 || self.words.len() - at < next {
                break;
            }
            let mut message = Vec::with_capacity(next * size_of::<u32>());
            mask::append_bytes(&self.words[at..at + next], &mut message);
            messages.push(message);
            at += next;
            self.done += next;
        }
        self.words.drain(..at);
        messages
    }
}

impl Shared {
    /// The server's words of a sum of these contributors, with `more` zeros at the end.
    pub(crate) fn of(mut self, contributors: &[PartyId], more: usize) -> Vec<u32> {
        for part in self
            .parts
            .iter()
            .filter(|part| !contributors.contains(&part.id))
        {
            for at in 0..part.grown.len() {
                for leaves in part.grown.columns(at..at + 1) {
                    self.shares.withdraw(&leaves);
                }
            }
        }
        let mut words = self.shares.into_rows(more);
        let len = words.len() + more;
        words.resize(len, 0);
        words.into_inner()
    }
}
