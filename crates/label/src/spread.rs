//! The server's part of the influence phase: the joint rows, and how the server shares out
//! influences to classes that it does not know.

use std::ops::Range;

use undertone_kernel::mask;
use undertone_party::{Abort, Io, Outbox, PartyId, Progress};

use crate::distances::Distances;
use crate::influence::{COLUMNS, Influence};
use crate::messages::{Plan, check_scores, column_words};
use crate::scores::fixed;
use crate::shares::Shares;
use crate::transfers::Grown;

/// A client, and which of its rows are labelled.
pub(crate) struct Member {
    pub(crate) id: PartyId,
    pub(crate) labelled: Vec<bool>,
}

impl Member {
    fn labelled(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.labelled.len()).filter(|row| self.labelled[*row])
    }
}

/// The rows of all remaining clients.
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
        // LABEL-9
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

    /// The places of a client's rows among the unlabelled rows.
    fn own(&self, place: usize) -> Range<usize> {
        let before = |id: usize| self.unlabelled.partition_point(|row| *row < id);
        before(self.distances.offset(place))..before(self.distances.offset(place + 1))
    }

    /// Each client, and the places of its rows among the unlabelled rows.
    pub(crate) fn owners(&self) -> Vec<(PartyId, Range<usize>)> {
        let owner = |(place, member): (usize, &Member)| (member.id, self.own(place));
        self.members.iter().enumerate().map(owner).collect()
    }

    /// Step 14: to each client its plan.
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

/// The clients with trees: the server shares out influences among their classes.
pub(crate) struct Spread {
    parts: Vec<Part>,
}

/// The server's shares, which it adds to the sum of the clients' shares, and the trees by which it
/// can leave clients out.
pub(crate) struct Shared {
    shares: Shares,
    parts: Vec<Part>,
}

impl Spread {
    /// Takes the trees of the clients of the joint rows, in their order. A dropped client has none.
    ///
    /// # Errors
    /// [`Abort::Cheated`] names a client with another number of labelled rows than trees.
    pub(crate) fn new(joint: &Joint, trees: Vec<Option<Grown>>) -> Result<Self, Abort> {
        let mut parts = Vec::new();
        for (place, (member, grown)) in joint.members.iter().zip(trees).enumerate() {
            let offset = joint.distances.offset(place);
            let rows: Vec<usize> = member.labelled().map(|row| offset + row).collect();
            let Some(grown) = grown else { continue };
            // LABEL-10
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

    /// Number of columns to share out.
    pub(crate) fn columns(&self) -> usize {
        self.parts.iter().map(|part| part.rows.len()).sum()
    }

    /// Steps 15 to 18: solves for the columns, and sends each client those of its labelled rows
    /// under masks. A column has an entry for each unlabelled row of all clients: its influence on
    /// that row, divided by all influences on it.
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
        let progress = Progress::new(batches as u64);
        io.show(progress.clone());
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
            progress.add(batch.len() as u64);
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

/// The columns of one client that are not sent yet.
struct Pending {
    columns: usize,
    height: usize,
    /// Number of columns that are shared out.
    started: usize,
    /// Number of words that are sent, and the words that wait until their message is full.
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

    /// Adds words, and returns the messages that are now full.
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
        if self.done == self.columns * self.height {
            self.words = Vec::new();
        }
        messages
    }
}

impl Shared {
    /// Step 20e: the server's words in a sum of these contributors, with `more` zeros at the end.
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
