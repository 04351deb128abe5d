//! All-but-one transfers from 128 base transfers: trees of seeds with one leaf missing.
//!
//! The 128 bits of Δ are cut into parts of f bits (the last part may have fewer); the code calls a
//! part a block. For each part the extension's receiver grows a tree of 2^f leaves. The sender gets
//! all leaves but leaf Δ, with one base transfer for each level (Goldreich, Goldwasser, Micali
//! 1986; Boyle et al., *Efficient Two-Round OT Extension and Silent Non-Interactive Secure
//! Computation*, CCS 2019). With permutations π₀ and π₁, a node s has the children π₀(s) ⊕ s and
//! π₁(s) ⊕ s.
//!
//! Level d, from 0, decides bit f − 1 − d of a leaf's number. It uses the base transfer of that bit
//! of Δ. At level 0 the two keys are the nodes; at the other levels they hide the sums of all left
//! and of all right children. The sender gets, at each level, the side that Δ is not on.
//!
//! Against a malicious receiver a leaf s is stretched once more (Roy, *SoftSpokenOT*, CRYPTO 2022):
//! the leaf becomes π₀(s) ⊕ s, and t = (π₁(s) ⊕ s, π₂(s) ⊕ s) serves a check. The receiver sends
//! the sum of all t and a hash of all t in order. The sender finds trees that do not match its
//! missing leaf. A receiver may still guess bits of Δ, at the risk of being found out.
//!
//! The sender numbers its nodes by their distance to Δ: node y has number y ⊕ Δ, and node 0 is the
//! missing one. So only a swap at each level depends on Δ, and it takes constant time.
//!
//! These are steps 3 and 5 of `docs/spec/transfers.md`.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use undertone_kernel::Cpu;
use undertone_kernel::aes::Permutation;
use zeroize::Zeroizing;

use super::{Context, Field, OtError, Security};

const CORRECTION_LEN: usize = 2 * 16;
const CHECK_LEN: usize = 2 * 32;

/// Leaves, part after part.
pub(super) type Seeds = Zeroizing<Vec<u128>>;

/// Bytes of the receiver's message.
pub fn message_len(field: Field, security: Security) -> usize {
    let check = match security {
        Security::SemiHonest => 0,
        Security::Malicious => CHECK_LEN,
    };
    let blocks = field.blocks();
    blocks
        .map(|block| (block.len() - 1) * CORRECTION_LEN + check)
        .sum()
}

/// Number of leaves of all parts.
fn leaves(field: Field) -> usize {
    field.blocks().map(|block| 1 << block.len()).sum()
}

/// The permutations (`tree`, 0 to 2) of a context.
struct Hashes([Permutation; 3]);

impl Hashes {
    fn new(cpu: Cpu, context: &Context) -> Self {
        Self([0, 1, 2].map(|index| context.permutation(cpu, "tree", index)))
    }

    /// π(s) ⊕ s for all nodes, π being permutation `index`.
    fn children(&self, index: usize, nodes: &[u128]) -> Seeds {
        let mut out = Zeroizing::new(nodes.to_vec());
        self.0[index].mmo(&mut out);
        out
    }

    /// Stretches a malicious receiver's leaves: the new leaves, and t of each.
    fn stretch(&self, leaves: &[u128]) -> (Seeds, Zeroizing<Vec<[u128; 2]>>) {
        let (left, right) = (self.children(1, leaves), self.children(2, leaves));
        let checks = left.iter().zip(right.iter());
        let checks = checks.map(|(left, right)| [*left, *right]).collect();
        (self.children(0, leaves), Zeroizing::new(checks))
    }
}

fn sum(nodes: impl Iterator<Item = u128>) -> u128 {
    nodes.fold(0, |sum, node| sum ^ node)
}

fn sum_checks(checks: &[[u128; 2]]) -> [u128; 2] {
    [0, 1].map(|half| sum(checks.iter().map(|check| check[half])))
}

fn digest(context: &Context, block: usize, checks: &[[u128; 2]]) -> [u8; 32] {
    let mut hash = Sha256::new()
        .chain_update(b"undertone/v1/tree check")
        .chain_update(context.digest())
        .chain_update([block as u8]);
    for half in checks.iter().flatten() {
        hash.update(half.to_le_bytes());
    }
    hash.finalize().into()
}

fn put(out: &mut Vec<u8>, blocks: [u128; 2]) {
    out.extend(blocks.iter().flat_map(|block| block.to_le_bytes()));
}

fn take(bytes: &[u8]) -> [u128; 2] {
    [0, 16].map(|at| {
        let mut block = [0; 16];
        block.copy_from_slice(&bytes[at..at + 16]);
        u128::from_le_bytes(block)
    })
}

/// The receiver's side: all leaves of all parts, and its message. `keys` are both keys of each base
/// transfer.
pub(super) fn grow(
    cpu: Cpu,
    context: &Context,
    field: Field,
    security: Security,
    keys: &[[u128; 2]],
) -> (Seeds, Vec<u8>) {
    let hashes = Hashes::new(cpu, context);
    let mut all = Zeroizing::new(Vec::with_capacity(leaves(field)));
    let mut message = Vec::with_capacity(message_len(field, security));
    for (number, block) in field.blocks().enumerate() {
        let mut levels = keys[block].iter().rev();
        let mut nodes: Seeds = Zeroizing::new(levels.next().map_or(Vec::new(), |k| k.to_vec()));
        for key in levels {
            let (left, right) = (hashes.children(0, &nodes), hashes.children(1, &nodes));
            let sums = [sum(left.iter().copied()), sum(right.iter().copied())];
            put(&mut message, [sums[0] ^ key[0], sums[1] ^ key[1]]);
            let pairs = left.iter().zip(right.iter());
            let mut children = Zeroizing::new(Vec::with_capacity(2 * nodes.len()));
            pairs.for_each(|(left, right)| children.extend([*left, *right]));
            nodes = children;
        }
        if security == Security::Malicious {
            let (leaves, checks) = hashes.stretch(&nodes);
            put(&mut message, sum_checks(&checks));
            message.extend(digest(context, number, &checks));
            nodes = leaves;
        }
        all.extend_from_slice(&nodes);
    }
    (all, message)
}

/// The sender's side: the leaves of each part by their distance to Δ. Leaf 0 is missing, and zero.
/// `keys` are the keys of the base transfers on the side of 1 − Δ.
///
/// # Errors
/// [`OtError::Length`], or [`OtError::Tree`] when a tree does not match its digest.
pub(super) fn puncture(
    cpu: Cpu,
    context: &Context,
    field: Field,
    security: Security,
    (keys, delta): (&[u128], u128),
    message: &[u8],
) -> Result<Seeds, OtError> {
    OtError::check_len("trees", message, message_len(field, security))?; // OT-3
    let hashes = Hashes::new(cpu, context);
    let mut all = Zeroizing::new(Vec::with_capacity(leaves(field)));
    let mut rest = message;
    let mut next = |len: usize| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        head
    };
    let mut fits = Choice::from(1);
    for (number, block) in field.blocks().enumerate() {
        let bit = |i: usize| Choice::from((delta >> i & 1) as u8);
        let mut levels = block.clone().rev();
        let sibling = levels.next().map_or(0, |i| keys[i]);
        let mut nodes: Seeds = Zeroizing::new(vec![0, sibling]);
        for i in levels {
            let (mut left, mut right) = (hashes.children(0, &nodes), hashes.children(1, &nodes));
            (left[0], right[0]) = (0, 0);
            // Nearer to Δ and farther from it, in place of left and right.
            let mut farther_sum = {
                let corrections = take(next(CORRECTION_LEN));
                u128::conditional_select(&corrections[1], &corrections[0], bit(i))
            };
            let mut children = Zeroizing::new(Vec::with_capacity(2 * nodes.len()));
            for (left, right) in left.iter().zip(right.iter()) {
                let (mut near, mut far) = (*left, *right);
                u128::conditional_swap(&mut near, &mut far, bit(i));
                children.extend([near, far]);
                farther_sum ^= far;
            }
            children[1] = farther_sum ^ keys[i];
            nodes = children;
        }
        if security == Security::Malicious {
            let (mut leaves, mut checks) = hashes.stretch(&nodes);
            leaves[0] = 0;
            checks[0] = [0; 2];
            let (sums, others) = (take(next(32)), sum_checks(&checks));
            checks[0] = [sums[0] ^ others[0], sums[1] ^ others[1]];
            for (level, i) in block.enumerate() {
                swap_halves(&mut checks, 1 << level, bit(i));
            }
            let found = digest(context, number, &checks);
            fits &= found.as_slice().ct_eq(next(32)); // OT-6
            nodes = leaves;
        }
        all.extend_from_slice(&nodes);
    }
    if bool::from(fits) {
        Ok(all)
    } else {
        Err(OtError::Tree)
    }
}

/// If `choice` is 1, swaps every entry with the one `apart` places away.
fn swap_halves(entries: &mut [[u128; 2]], apart: usize, choice: Choice) {
    for entries in entries.chunks_exact_mut(2 * apart) {
        let (low, high) = entries.split_at_mut(apart);
        for (low, high) in low.iter_mut().zip(high) {
            <[u128; 2]>::conditional_swap(low, high, choice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_kernel::Prg;
    use undertone_party::{PartyId, SessionId};

    struct Trees {
        context: Context,
        delta: u128,
        keys: Vec<[u128; 2]>,
        known: Vec<u128>,
    }

    fn trees() -> Trees {
        let mut prg = Prg::new(&[4; 32]);
        let mut block = || u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64());
        let delta = block();
        let keys: Vec<[u128; 2]> = (0..128).map(|_| [block(), block()]).collect();
        let known = keys.iter().enumerate();
        let known = known.map(|(i, keys)| keys[1 - (delta >> i & 1) as usize]);
        Trees {
            context: Context::new(
                SessionId([1; 32]),
                "test",
                PartyId::client(0),
                PartyId::client(1),
            ),
            delta,
            known: known.collect(),
            keys,
        }
    }

    impl Trees {
        fn puncture(
            &self,
            field: Field,
            security: Security,
            message: &[u8],
        ) -> Result<Seeds, OtError> {
            let mine = (&self.known[..], self.delta);
            puncture(Cpu::detect(), &self.context, field, security, mine, message)
        }
    }

    #[test]
    fn all_leaves_but_one_are_the_same() {
        let trees = trees();
        for f in 1..=8 {
            let field = Field::new(f).unwrap();
            for security in [Security::SemiHonest, Security::Malicious] {
                let (all, message) =
                    grow(Cpu::detect(), &trees.context, field, security, &trees.keys);
                let known = trees.puncture(field, security, &message).unwrap();
                assert_eq!(all.len(), known.len());
                let mut start = 0;
                for block in field.blocks() {
                    let q = 1 << block.len();
                    let delta = (trees.delta >> block.start) as usize % q;
                    for y in 0..q {
                        let (mine, theirs) = (known[start + y], all[start + (y ^ delta)]);
                        match y {
                            0 => assert_eq!(mine, 0),
                            _ => assert_eq!(mine, theirs, "f = {f}, leaf {y}"),
                        }
                    }
                    start += q;
                }
            }
        }
    }

    #[test]
    fn false_trees_are_found() {
        let trees = trees();
        for f in [2, 3, 8] {
            let field = Field::new(f).unwrap();
            let security = Security::Malicious;
            let (_, message) = grow(Cpu::detect(), &trees.context, field, security, &trees.keys);
            let mut caught = 0;
            let tries = message.len();
            for at in 0..tries {
                let mut changed = message.clone();
                changed[at] ^= 1 << (at % 8);
                match trees.puncture(field, security, &changed) {
                    Err(OtError::Tree) => caught += 1, // OT-6
                    // A correction on the side that Δ is on is not used: the change guesses one bit
                    // of Δ.
                    Ok(_) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            // Half of the corrections are used, and of the checks all but the missing leaf's share.
            assert!(2 * caught > tries, "f = {f}: {caught} of {tries}");
            assert!(matches!(
                trees.puncture(field, security, &message[1..]),
                Err(OtError::Length { .. })
            ));
        }
    }
}
