//! All-but-one transfers, and vectors shared out to the class that the receiver chooses.
//!
//! The sender has a vector S of words, the receiver a class y out of n. They get additive shares of
//! a vector for each class: S for class y, zeros for the others. Neither learns anything else.
//!
//! The sender grows a tree of n seeds, the *leaves*. The receiver gets all but leaf y, by one
//! transfer for each level (Goldreich, Goldwasser, Micali 1986). With G the stream of a leaf:
//!
//! 1. The sender sends `d = S + Σ G(leaf c)` over all leaves c. Its share of class c is
//!    `−G(leaf c)`.
//! 2. The receiver's share of class c is `G(leaf c)`. Its share of class y is `d − Σ G(leaf c)`
//!    over all c but y.
//!
//! Every leaf is in the sum. Whatever bits a receiver chooses, it lacks one leaf, so it learns
//! nothing about S.
//!
//! The tree has ⌈log₂ n⌉ levels. All but the last are full. The first nodes of the last level but
//! one have children, as many nodes as it takes to make n leaves; the others are leaves. Leaves are
//! numbered from left to right. A leaf's *path* has a bit for each level; where the last level is
//! missing, that bit is 0.
//!
//! A node s has the children π₀(s) ⊕ s and π₁(s) ⊕ s. The two keys of level 0 are its nodes. At
//! each further level the sender sends, under its two keys, the sum of all left children and that
//! of all right children. The receiver asks for the key of the side that its path is not on.
//!
//! The specification is `docs/spec/punctured.md`.

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq, ConstantTimeLess};
use undertone_kernel::Cpu;
use undertone_kernel::aes::Permutation;
use undertone_kernel::leaves::{Leaves, ROW_BYTES};
use undertone_kernel::mask::{self, Op, Word};
use zeroize::Zeroizing;

use super::{Context, OtError};

/// Bytes of the two sums of a level.
const CORRECTION_LEN: usize = 2 * 16;

/// Bytes of a stream in one pass: they and the sums of a class stay in the first-level cache.
const TILE_BYTES: usize = 4096;

/// Seeds, tree after tree.
pub type Seeds = Zeroizing<Vec<u128>>;

/// The shape of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    leaves: usize,
    depth: usize,
}

impl Shape {
    /// Largest number of leaves.
    pub const MAX_LEAVES: usize = 1 << 16;

    /// The shape of a tree of 2 to [`MAX_LEAVES`](Self::MAX_LEAVES) leaves.
    pub fn new(leaves: usize) -> Option<Self> {
        let depth = leaves.next_power_of_two().trailing_zeros() as usize;
        let possible = (2..=Self::MAX_LEAVES).contains(&leaves);
        possible.then_some(Self { leaves, depth })
    }

    /// Number of leaves.
    pub fn leaves(self) -> usize {
        self.leaves
    }

    /// Number of levels, and of transfers of a tree.
    pub fn depth(self) -> usize {
        self.depth
    }

    /// Bytes that the sender sends for each tree.
    pub fn message_len(self) -> usize {
        CORRECTION_LEN * (self.depth - 1)
    }

    /// Number of nodes of the last level but one that have children.
    fn split(self) -> usize {
        self.leaves - (1 << (self.depth - 1))
    }

    /// Number of nodes whose children are on `level`, from 1 on.
    fn parents(self, level: usize) -> usize {
        if level + 1 == self.depth {
            self.split()
        } else {
            1 << level
        }
    }

    /// The path to `leaf`. The bit of level 0 is the highest of [`depth`](Self::depth) bits. In
    /// constant time.
    fn path(self, leaf: u16) -> u32 {
        let (leaf, split) = (u32::from(leaf), self.split() as u32);
        let above = leaf.wrapping_sub(split) << 1;
        u32::conditional_select(&above, &leaf, leaf.ct_lt(&(2 * split)))
    }

    /// The receiver's choice for each level of each tree, to get all leaves but `missing`. 64
    /// choices go into a word, from the lowest bit on. In constant time. Entries that are not
    /// leaves of the tree give meaningless choices: to refuse them would take a branch.
    pub fn choices(self, missing: &[u16]) -> Zeroizing<Vec<u64>> {
        let count = missing.len() * self.depth;
        let mut words = Zeroizing::new(vec![0u64; count.div_ceil(64)]);
        for (tree, leaf) in missing.iter().enumerate() {
            debug_assert!(usize::from(*leaf) < self.leaves, "no leaf {leaf}");
            let path = self.path(*leaf);
            for level in 0..self.depth {
                let far = u64::from(!path >> (self.depth - 1 - level) & 1);
                let at = tree * self.depth + level;
                words[at / 64] |= far << (at % 64);
            }
        }
        words
    }
}

/// Trees of one shape.
pub struct Trees {
    shape: Shape,
    pi: [Permutation; 2],
}

impl std::fmt::Debug for Trees {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trees({:?})", self.shape)
    }
}

fn sum(nodes: impl Iterator<Item = u128>) -> u128 {
    nodes.fold(0, |sum, node| sum ^ node)
}

impl Trees {
    /// Trees of a context.
    pub fn new(cpu: Cpu, context: &Context, shape: Shape) -> Self {
        Self {
            shape,
            pi: [0, 1].map(|side| context.permutation(cpu, "punctured", side)),
        }
    }

    /// Both children of the first `parents` nodes of each tree. A tree has `width` nodes so far.
    fn children(&self, nodes: &[u128], width: usize, parents: usize) -> [Seeds; 2] {
        let trees = nodes.chunks_exact(width);
        let mut first: Seeds = Zeroizing::new(Vec::with_capacity(trees.len() * parents));
        trees.for_each(|tree| first.extend_from_slice(&tree[..parents]));
        [0, 1].map(|side: usize| {
            let mut children = first.clone();
            self.pi[side].mmo(&mut children);
            children
        })
    }

    /// Joins the next level of all trees: children side by side, then the nodes without children.
    fn next(nodes: &[u128], width: usize, parents: usize, [left, right]: &[Seeds; 2]) -> Seeds {
        let mut out = Zeroizing::new(Vec::with_capacity(nodes.len() / width * (width + parents)));
        for (tree, nodes) in nodes.chunks_exact(width).enumerate() {
            let own = tree * parents..(tree + 1) * parents;
            for (left, right) in left[own.clone()].iter().zip(&right[own]) {
                out.extend([*left, *right]);
            }
            out.extend_from_slice(&nodes[parents..]);
        }
        out
    }

    /// The leaves of trees, given their nodes of level 0.
    pub fn leaves(&self, roots: &[[u128; 2]]) -> Seeds {
        let mut nodes: Seeds = Zeroizing::new(roots.as_flattened().to_vec());
        let mut width = 2;
        for level in 1..self.shape.depth {
            let parents = self.shape.parents(level);
            let children = self.children(&nodes, width, parents);
            nodes = Self::next(&nodes, width, parents, &children);
            width += parents;
        }
        nodes
    }

    /// The sender's side: the leaves of all trees, and its message (step 4). `keys` are both keys
    /// of each level of each tree, the left side's first.
    ///
    /// # Panics
    /// When there are keys for part of a tree.
    pub fn grow(&self, keys: &[[u128; 2]]) -> (Seeds, Vec<u8>) {
        let depth = self.shape.depth;
        let trees = keys.chunks_exact(depth);
        assert!(trees.remainder().is_empty(), "keys for part of a tree");
        let mut message = vec![0; trees.len() * self.shape.message_len()];
        let roots = Zeroizing::new(trees.clone().map(|keys| keys[0]).collect::<Vec<_>>());
        let mut nodes: Seeds = Zeroizing::new(roots.as_flattened().to_vec());
        let mut width = 2;
        for level in 1..depth {
            let parents = self.shape.parents(level);
            let children = self.children(&nodes, width, parents);
            let messages = message.chunks_exact_mut(self.shape.message_len());
            for ((tree, keys), message) in trees.clone().enumerate().zip(messages) {
                let own = tree * parents..(tree + 1) * parents;
                let at = (level - 1) * CORRECTION_LEN;
                let out = message[at..at + CORRECTION_LEN].chunks_exact_mut(16);
                for ((out, children), key) in out.zip(&children).zip(keys[level]) {
                    let hidden = sum(children[own.clone()].iter().copied()) ^ key;
                    out.copy_from_slice(&hidden.to_le_bytes());
                }
            }
            nodes = Self::next(&nodes, width, parents, &children);
            width += parents;
        }
        (nodes, message)
    }

    /// The receiver's side: the leaves of all trees (step 5). The missing leaf of each tree is
    /// zero. `keys` are those of the transfers with the choices that [`Shape::choices`] gives. In
    /// constant time. If the sender lies, leaves are false, and the receiver does not notice.
    ///
    /// # Errors
    /// [`OtError::Length`].
    ///
    /// # Panics
    /// When the number of keys does not fit the number of missing leaves.
    pub fn puncture(
        &self,
        keys: &[u128],
        missing: &[u16],
        message: &[u8],
    ) -> Result<Seeds, OtError> {
        let depth = self.shape.depth;
        assert_eq!(keys.len(), missing.len() * depth, "number of keys");
        let len = self.shape.message_len();
        OtError::check_len("corrections of trees", message, missing.len() * len)?; // TREE-1
        let paths = missing.iter().map(|leaf| self.shape.path(*leaf));
        let paths: Zeroizing<Vec<u32>> = Zeroizing::new(paths.collect());
        let bit = |path: u32, level: usize| Choice::from((path >> (depth - 1 - level) & 1) as u8);
        let mut nodes: Seeds = Zeroizing::new(Vec::with_capacity(2 * missing.len()));
        for (path, keys) in paths.iter().zip(keys.chunks_exact(depth)) {
            let (mut left, mut right) = (keys[0], 0);
            u128::conditional_swap(&mut left, &mut right, !bit(*path, 0));
            nodes.extend([left, right]);
        }
        let mut width = 2;
        for level in 1..depth {
            let parents = self.shape.parents(level);
            let mut children = self.children(&nodes, width, parents);
            for (tree, path) in paths.iter().enumerate() {
                let at = tree * len + (level - 1) * CORRECTION_LEN;
                let (hidden, _) = message[at..at + CORRECTION_LEN].as_chunks::<16>();
                let key = keys[tree * depth + level];
                let [left, right] = &mut children;
                let own = tree * parents..(tree + 1) * parents;
                let (left, right) = (&mut left[own.clone()], &mut right[own]);
                let hidden = [hidden[0], hidden[1]].map(u128::from_le_bytes);
                mend(
                    left,
                    right,
                    path >> (depth - level),
                    bit(*path, level),
                    hidden,
                    key,
                );
            }
            nodes = Self::next(&nodes, width, parents, &children);
            width += parents;
        }
        Ok(nodes)
    }
}

/// Corrects the children of the node `missing` of one tree. The path continues to its `side`, 1 for
/// the right: that child is zero. The other child follows from the sum.
fn mend(
    left: &mut [u128],
    right: &mut [u128],
    missing: u32,
    side: Choice,
    hidden: [u128; 2],
    key: u128,
) {
    let mut rest = key ^ u128::conditional_select(&hidden[1], &hidden[0], side);
    for (node, (left, right)) in left.iter().zip(&*right).enumerate() {
        let far = u128::conditional_select(right, left, side);
        let known = !(node as u32).ct_eq(&missing);
        rest ^= u128::conditional_select(&0, &far, known);
    }
    let (mut at_left, mut at_right) = (0, rest);
    u128::conditional_swap(&mut at_left, &mut at_right, side);
    for (node, (left, right)) in left.iter_mut().zip(right).enumerate() {
        let is_missing = (node as u32).ct_eq(&missing);
        left.conditional_assign(&at_left, is_missing);
        right.conditional_assign(&at_right, is_missing);
    }
}

/// Sums of the shares of all classes, at consecutive words.
#[derive(Debug)]
pub struct Sums<'a, W> {
    /// The words, class after class, `stride` each.
    pub words: &'a mut [W],
    /// Words of a class. Those past the vector are not used.
    pub stride: usize,
}

/// For each tile of a vector of `len` words: its first word, its length, and the chunk of the
/// stream.
fn tiles<W: Word>(len: usize, first: u64) -> impl Iterator<Item = (usize, usize, u64)> {
    let (most, per_row) = (TILE_BYTES / W::BYTES, ROW_BYTES / W::BYTES);
    (0..len)
        .step_by(most)
        .map(move |at| (at, most.min(len - at), first + (at / per_row) as u64))
}

/// Step 6: adds the streams of all `leaves` of a tree to `vector`, which becomes the message, and
/// the sender's shares to `sums`. Words are those of the streams from row `first` on, rows of
/// [`ROW_BYTES`].
///
/// # Panics
/// When `sums` has more classes than there are leaves, or `vector` more words than a class.
pub fn send<W: Word>(cpu: Cpu, leaves: &Leaves, first: u64, vector: &mut [W], sums: Sums<'_, W>) {
    assert!(vector.len() <= sums.stride && sums.words.len() <= leaves.len() * sums.stride);
    let mut stream = Zeroizing::new([0; TILE_BYTES]);
    for (at, count, chunk) in tiles::<W>(vector.len(), first) {
        let bytes = count * W::BYTES;
        for leaf in 0..leaves.len() {
            leaves.stream(
                leaf,
                chunk,
                &mut stream[..bytes.next_multiple_of(ROW_BYTES)],
            );
            mask::combine(cpu, Op::Add, &mut vector[at..at + count], &stream[..bytes]);
            if let Some(class) = sums.words.chunks_exact_mut(sums.stride).nth(leaf) {
                mask::combine(
                    cpu,
                    Op::Subtract,
                    &mut class[at..at + count],
                    &stream[..bytes],
                );
            }
        }
    }
}

/// Takes the sender's shares of a tree out of `sums` again, for vectors of `len` words.
///
/// # Panics
/// As [`send`].
pub fn withdraw<W: Word>(cpu: Cpu, leaves: &Leaves, first: u64, len: usize, sums: Sums<'_, W>) {
    assert!(len <= sums.stride && sums.words.len() <= leaves.len() * sums.stride);
    let mut stream = Zeroizing::new([0; TILE_BYTES]);
    for (at, count, chunk) in tiles::<W>(len, first) {
        let bytes = count * W::BYTES;
        for (leaf, class) in sums.words.chunks_exact_mut(sums.stride).enumerate() {
            leaves.stream(
                leaf,
                chunk,
                &mut stream[..bytes.next_multiple_of(ROW_BYTES)],
            );
            mask::combine(cpu, Op::Add, &mut class[at..at + count], &stream[..bytes]);
        }
    }
}

/// Step 7: adds the receiver's shares to `sums`. The leaf of `class` is the missing one, and zero.
/// Overwrites `message`. In constant time.
///
/// # Panics
/// As [`send`].
pub fn receive<W: Word>(
    cpu: Cpu,
    leaves: &Leaves,
    first: u64,
    class: u16,
    message: &mut [W],
    sums: Sums<'_, W>,
) {
    assert!(message.len() <= sums.stride && sums.words.len() <= leaves.len() * sums.stride);
    let mut stream = Zeroizing::new([0; TILE_BYTES]);
    for (at, count, chunk) in tiles::<W>(message.len(), first) {
        let bytes = count * W::BYTES;
        // The stream of the missing leaf, which is zero, is added to `class` and subtracted again.
        for leaf in 0..leaves.len() {
            leaves.stream(
                leaf,
                chunk,
                &mut stream[..bytes.next_multiple_of(ROW_BYTES)],
            );
            mask::combine(
                cpu,
                Op::Subtract,
                &mut message[at..at + count],
                &stream[..bytes],
            );
            if let Some(class) = sums.words.chunks_exact_mut(sums.stride).nth(leaf) {
                mask::combine(cpu, Op::Add, &mut class[at..at + count], &stream[..bytes]);
            }
        }
        for (other, words) in sums.words.chunks_exact_mut(sums.stride).enumerate() {
            let is_own = (other as u32).ct_eq(&class.into());
            mask::add_if(
                cpu,
                is_own,
                &mut words[at..at + count],
                &message[at..at + count],
            );
        }
    }
}

#[cfg(test)]
mod tests;
