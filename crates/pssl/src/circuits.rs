//! The circuits of a pair: the closest cluster, and which edges are accepted.

use undertone_garble::{Builder, Circuit, Number, index_bits};
use undertone_kernel::{BitMatrix, Wiped};

use crate::job::{Job, Reveal};

/// Adds the words of both parties modulo 2^w: squared distances.
fn squares(builder: &mut Builder, count: usize, width: usize) -> Vec<Number> {
    (0..count)
        .map(|i| {
            let bits = i * width..(i + 1) * width;
            let own: Number = bits.clone().map(|bit| builder.garbler(bit)).collect();
            let other: Number = bits.map(|bit| builder.evaluator(bit)).collect();
            builder.add(&own, &other)
        })
        .collect()
}

/// From L words of each party: the index of the least squared distance, the first of several.
pub fn closest(job: &Job) -> Circuit {
    let (count, width) = (job.clusters, job.width() as usize);
    let mut builder = Builder::new(count * width, count * width);
    let squares = squares(&mut builder, count, width);
    let (index, _) = builder.argmin(&squares);
    builder.finish(&index[..index_bits(count)])
}

/// From a word of each party, and a bit that says whether its row is real: whether the rows get an
/// edge, and what the edge tells about its length, or zeros.
pub fn accept(job: &Job) -> Circuit {
    let (width, thresholds) = (job.width() as usize, job.thresholds());
    let mut builder = Builder::new(width + 1, width + 1);
    let square = squares(&mut builder, 1, width).swap_remove(0);
    let below = |builder: &mut Builder, least: u64| {
        let least = builder.number(least, width);
        builder.less(&square, &least)
    };
    let mut accept = {
        let (own, other) = (builder.garbler(width), builder.evaluator(width));
        builder.and(own, other)
    };
    let most = builder.number(thresholds.most, width);
    let (low, high) = (
        below(&mut builder, thresholds.least),
        builder.less(&most, &square),
    );
    accept = builder.and(accept, !low);
    accept = builder.and(accept, !high);
    let told: Number = match job.reveal {
        Reveal::Accept => Vec::new(),
        Reveal::Distance => square.clone(),
        Reveal::Bucket => {
            let above = thresholds.quarters.map(|least| !below(&mut builder, least));
            // The thresholds ascend: the number of those that are not above, in two bits.
            let odd = builder.xor(above[0], above[1]);
            vec![builder.xor(odd, above[2]), above[1]]
        }
    };
    let mut outputs = vec![accept];
    outputs.extend(told.iter().map(|bit| builder.and(accept, *bit)));
    builder.finish(&outputs)
}

/// What an accepted comparison tells, from the outputs of [`accept`].
pub fn told(output: u64) -> Option<u64> {
    (output & 1 == 1).then_some(output >> 1)
}

/// A party's input bits: `per` words of `width` bits for each instance, and a bit of `flags` if
/// there are any.
///
/// # Panics
/// When a word has more bits, or there are fewer flags than instances.
pub fn inputs(words: &[u64], per: usize, width: u32, flags: Option<&[bool]>) -> BitMatrix {
    let instances = words.len() / per.max(1);
    let bits = per * width as usize;
    let columns = bits + usize::from(flags.is_some());
    let stride = columns.div_ceil(64);
    // One word of slack, for the upper part of the last number of a row.
    let mut packed = Wiped::from(vec![0u64; instances * stride + 1]);
    let mut put = |row: usize, at: usize, word: u64| {
        let place = row * stride + at / 64;
        packed[place] |= word << (at % 64);
        packed[place + 1] |= (word >> 1) >> (63 - at % 64);
    };
    for (row, words) in words.chunks_exact(per.max(1)).enumerate() {
        for (number, word) in words.iter().enumerate() {
            put(row, number * width as usize, *word);
        }
        if let Some(flags) = flags {
            put(row, bits, flags[row].into());
        }
    }
    packed.truncate(instances * stride);
    BitMatrix::from_words(instances, columns, packed.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(word: u64, width: u32, flag: bool) -> Vec<bool> {
        let bits = (0..width).map(|bit| word >> bit & 1 == 1);
        bits.chain([flag]).collect()
    }

    proptest! {
        #[test]
        fn an_edge_is_accepted_by_its_definition(
            square in 0u64..=64 * 16 * 16,
            share: u64,
            real: [bool; 2],
            reveal in 0usize..3,
        ) {
            let reveal = [Reveal::Bucket, Reveal::Distance, Reveal::Accept][reveal];
            let job = Job { reveal, ..Job::new(64, 16, 4, 70) };
            let width = job.width();
            let mask = (1u64 << width) - 1;
            let share = share & mask;
            let garbler = bits(share, width, real[0]);
            let evaluator = bits(square.wrapping_sub(share) & mask, width, real[1]);
            let quarter = job.thresholds().quarter(square);
            let due = quarter.filter(|_| real == [true; 2]).map(|quarter| match reveal {
                Reveal::Bucket => quarter,
                Reveal::Distance => square,
                Reveal::Accept => 0,
            });
            prop_assert_eq!(told(accept(&job).run(&garbler, &evaluator)), due);
        }
    }

    proptest! {
        #[test]
        fn inputs_are_bits(
            width in 1u32..=28,
            per in 1usize..6,
            words in prop::collection::vec(any::<u64>(), 12),
            flagged: bool,
        ) {
            let words: Vec<u64> = words.iter().map(|word| word & ((1 << width) - 1)).collect();
            let instances = words.len() / per;
            let words = &words[..instances * per];
            let flags: Vec<bool> = (0..instances).map(|row| row % 3 == 0).collect();
            let packed = inputs(words, per, width, flagged.then_some(&flags));
            prop_assert_eq!(packed.rows(), instances);
            for row in 0..instances {
                for number in 0..per {
                    for bit in 0..width {
                        let column = number * width as usize + bit as usize;
                        let due = words[row * per + number] >> bit & 1 == 1;
                        prop_assert_eq!(packed.get(row, column), due);
                    }
                }
                if flagged {
                    prop_assert_eq!(packed.get(row, per * width as usize), flags[row]);
                }
            }
        }
    }

    #[test]
    fn sizes() {
        let job = Job::new(784, 255, 4, 500);
        assert_eq!((job.width(), accept(&job).ands()), (26, 149));
        assert_eq!(Job::new(64, 16, 4, 70).width(), 15);
        assert_eq!(Job::new(64, 255, 4, 70).width(), 22);
        assert_eq!(Job::new(4096, 255, 4, 70).width(), 28);
    }
}
