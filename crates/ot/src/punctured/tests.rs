use proptest::prelude::*;
use undertone_kernel::Prg;
use undertone_party::{PartyId, SessionId};

use super::*;

fn context() -> Context {
    let (a, b) = (PartyId::SERVER, PartyId::client(0));
    Context::new(SessionId([1; 32]), "test", a, b)
}

fn block(prg: &mut Prg) -> u128 {
    u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64())
}

/// Both keys of `count` transfers, and the chosen key of each.
fn keys(prg: &mut Prg, choices: &[u64], count: usize) -> (Vec<[u128; 2]>, Vec<u128>) {
    let both: Vec<[u128; 2]> = (0..count).map(|_| [block(prg), block(prg)]).collect();
    let chosen = both.iter().enumerate();
    let chosen = chosen.map(|(t, keys)| keys[(choices[t / 64] >> (t % 64) & 1) as usize]);
    let chosen = chosen.collect();
    (both, chosen)
}

/// The leaves under a node, by the definition, from left to right.
fn definition(trees: &Trees, node: u128, level: usize, place: usize, out: &mut Vec<u128>) {
    let shape = trees.shape;
    if level + 1 < shape.depth && place < shape.parents(level + 1) {
        for side in 0..2 {
            let mut child = [node];
            trees.pi[side].mmo(&mut child);
            definition(trees, child[0], level + 1, 2 * place + side, out);
        }
    } else {
        out.push(node);
    }
}

#[test]
fn shapes() {
    let depths = [
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 3),
        (10, 4),
        (16, 4),
        (17, 5),
        (1 << 16, 16),
    ];
    for (leaves, depth) in depths {
        assert_eq!(Shape::new(leaves).map(Shape::depth), Some(depth));
    }
    assert_eq!([0, 1, (1 << 16) + 1].map(Shape::new), [None; 3]);
    // Ten leaves: two of the eight nodes of level 2 have children.
    let ten = Shape::new(10).unwrap();
    let paths: Vec<u32> = (0..10).map(|leaf| ten.path(leaf)).collect();
    assert_eq!(paths, [0, 1, 2, 3, 4, 6, 8, 10, 12, 14]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn all_leaves_but_one_are_the_same(
        leaves in 2usize..40, missing in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        seed: u8,
    ) {
        let shape = Shape::new(leaves).unwrap();
        let missing: Vec<u16> = missing.iter().map(|at| at.index(leaves) as u16).collect();
        let mut prg = Prg::new(&[seed; 32]);
        let choices = shape.choices(&missing);
        let (both, chosen) = keys(&mut prg, &choices, missing.len() * shape.depth());
        for cpu in Cpu::all() {
            let trees = Trees::new(cpu, &context(), shape);
            let (all, message) = trees.grow(&both);
            prop_assert_eq!(message.len(), missing.len() * shape.message_len());
            let roots: Vec<_> = both.chunks(shape.depth()).map(|keys| keys[0]).collect();
            prop_assert_eq!(&trees.leaves(&roots)[..], &all[..]);
            let known = trees.puncture(&chosen, &missing, &message).unwrap();
            for (tree, (all, known)) in all.chunks(leaves).zip(known.chunks(leaves)).enumerate() {
                let mut due = Vec::new();
                for (place, root) in roots[tree].iter().enumerate() {
                    definition(&trees, *root, 0, place, &mut due);
                }
                prop_assert_eq!(all, &due);
                for leaf in 0..leaves {
                    let is_missing = leaf == usize::from(missing[tree]);
                    prop_assert_eq!(known[leaf], if is_missing { 0 } else { all[leaf] });
                }
            }
            // TREE-1
            let is_refused = |m: &[u8]| trees.puncture(&chosen, &missing, m).is_err();
            prop_assert!(message.is_empty() || is_refused(&message[1..]));
        }
    }

    /// Whatever a receiver chooses, it lacks one leaf: a path of any bits ends at a leaf.
    #[test]
    fn every_path_ends_at_a_leaf(leaves in 2usize..300, path: u32) {
        let shape = Shape::new(leaves).unwrap();
        let path = path & ((1 << shape.depth()) - 1);
        let (node, split) = ((path >> 1) as usize, shape.split());
        let leaf = if node < split { path as usize } else { node + split };
        prop_assert!(leaf < leaves);
        // The last bit does not matter where there is no last level.
        let last = u32::from(node < split);
        prop_assert_eq!(shape.path(leaf as u16) | !last & 1, path | !last & 1);
    }

    #[test]
    fn shares_add_up_to_the_vector_in_its_class(
        (classes, class) in (1usize..12).prop_flat_map(|n| (Just(n), 0..n)),
        first in 0u64..5, len in 1usize..3000, spare in 0usize..100, seed: u8,
    ) {
        let mut prg = Prg::new(&[seed; 32]);
        let leaves = classes.max(2);
        let seeds: Vec<u128> = (0..leaves).map(|_| block(&mut prg)).collect();
        let vector: Vec<u32> = (0..len).map(|_| prg.next_u64() as u32).collect();
        let start: Vec<u32> = (0..classes * (len + spare)).map(|_| prg.next_u64() as u32).collect();
        let mut messages = Vec::new();
        for cpu in Cpu::all() {
            let mut mine = start.clone();
            let mut message = vector.clone();
            let stride = len + spare;
            let all = Leaves::new(cpu, &seeds);
            send(cpu, &all, first, &mut message, Sums { words: &mut mine, stride });
            messages.push(message.clone());
            let mut known = seeds.clone();
            known[class] = 0;
            let known = Leaves::new(cpu, &known);
            let mut theirs = vec![0u32; classes * stride];
            let sums = Sums { words: &mut theirs, stride };
            receive(cpu, &known, first, class as u16, &mut message, sums);
            for at in 0..classes * stride {
                let due = match (at / stride == class, at % stride < len) {
                    (true, true) => vector[at % stride],
                    _ => 0,
                };
                let shares = mine[at].wrapping_sub(start[at]).wrapping_add(theirs[at]);
                prop_assert_eq!(shares, due, "word {}", at);
            }
            withdraw(cpu, &all, first, len, Sums { words: &mut mine, stride });
            prop_assert!(mine == start);
        }
        prop_assert!(messages.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

/// Words of 64 bits are shared out in the same way.
#[test]
fn words_of_64_bits() {
    let cpu = Cpu::detect();
    let seeds = [5u128, 6, 7];
    let vector: Vec<u64> = (0..1000).map(|i| i << 40).collect();
    let mut message = vector.clone();
    let (mut mine, mut theirs) = (vec![0u64; 3000], vec![0u64; 3000]);
    let stride = 1000;
    let words = &mut mine[..];
    send(
        cpu,
        &Leaves::new(cpu, &seeds),
        0,
        &mut message,
        Sums { words, stride },
    );
    let words = &mut theirs[..];
    let known = Leaves::new(cpu, &[5, 0, 7]);
    receive(cpu, &known, 0, 1, &mut message, Sums { words, stride });
    let shares = mine.iter().zip(&theirs).map(|(a, b)| a.wrapping_add(*b));
    let shares: Vec<u64> = shares.collect();
    assert!(
        shares[..1000]
            .iter()
            .chain(&shares[2000..])
            .all(|word| *word == 0)
    );
    assert_eq!(shares[1000..2000], vector);
}
