//! The bounds on norms that the noise of answers is chosen by.

use rayon::prelude::*;

use super::linear::norm;
use super::{code_norm, error_norm, secret_norm, seed, words};
use crate::params::{CLASSES, Params};
use crate::sample;

/// The secrets and errors of all keys, of several owners, column after column.
struct Keys {
    secrets: Vec<i8>,
    errors: Vec<i8>,
}

fn keys(params: &Params, columns: usize, owners: usize) -> Keys {
    let column = |column: usize| {
        let owner = seed((column % owners) as u8 + 71);
        let mut words = words(&owner, "lwe key", &[(column / owners) as u32]);
        let mut secret = vec![0; params.n];
        sample::ternary(&mut words, &mut secret);
        words.seek(params.n.div_ceil(32));
        let mut error = vec![0; params.bits];
        sample::binomial(&mut words, &mut error);
        let narrow = |number: u64| number as i8;
        (
            secret.into_iter().map(|s| s as i8).collect::<Vec<_>>(),
            error.into_iter().map(narrow).collect::<Vec<_>>(),
        )
    };
    let both: Vec<_> = (0..columns).into_par_iter().map(column).collect();
    Keys {
        secrets: both.iter().flat_map(|both| &both.0).copied().collect(),
        errors: both.iter().flat_map(|both| &both.1).copied().collect(),
    }
}

/// The norm of the matrix with these columns of `height` numbers, less `shift` from each number.
fn norm_of(columns: &[i8], height: usize, shift: f32) -> f64 {
    let forward = |vector: &[f64]| -> Vec<f64> {
        let strip = 64;
        let sums = columns
            .par_chunks(strip * height)
            .zip(vector.par_chunks(strip))
            .fold(
                || vec![0f32; height],
                |mut sum, (columns, factors)| {
                    for (column, factor) in columns.chunks(height).zip(factors) {
                        let factor = *factor as f32;
                        for (sum, number) in sum.iter_mut().zip(column) {
                            *sum += factor * (f32::from(*number) - shift);
                        }
                    }
                    sum
                },
            )
            .reduce(
                || vec![0f32; height],
                |a, b| a.iter().zip(b).map(|(a, b)| a + b).collect(),
            );
        sums.into_iter().map(f64::from).collect()
    };
    let backward = |vector: &[f64]| -> Vec<f64> {
        let vector: Vec<f32> = vector.iter().map(|x| *x as f32).collect();
        columns
            .par_chunks(height)
            .map(|column| {
                let mut sums = [0f32; 16];
                for (eight, vector) in column.chunks(16).zip(vector.chunks(16)) {
                    for ((sum, number), factor) in sums.iter_mut().zip(eight).zip(vector) {
                        *sum += (f32::from(*number) - shift) * factor;
                    }
                }
                f64::from(sums.iter().sum::<f32>())
            })
            .collect()
    };
    norm(columns.len() / height, 30, forward, backward)
}

fn norms_are_below(params: &Params, columns: usize, owners: usize) {
    let keys = keys(params, columns, owners);
    // A large random matrix has about the sum of the square roots as its norm.
    let edge = |height: usize| (height as f64).sqrt() + (columns as f64).sqrt();
    let errors = norm_of(&keys.errors, params.bits, 0.0);
    let most = error_norm(params.bits, columns);
    let typical = edge(params.bits);
    println!("L = {}: E {errors}, {typical}, {most}", params.bits);
    assert!(errors < most && errors > 0.95 * typical);
    let codes = code_norm(params.bits, params.t, columns);
    let shifted = norm_of(&keys.errors, params.bits, 2.0 / params.t as f32);
    println!(
        "L = {}: with codes {shifted}, {}",
        params.bits,
        most + codes
    );
    assert!(shifted < most + codes && codes < most);
    let secrets = norm_of(&keys.secrets, params.n, 0.0);
    let most = secret_norm(params.n, columns);
    println!("L = {}: S {secrets}, {most}", params.bits);
    assert!(secrets < most && secrets > 0.95 * 0.5f64.sqrt() * edge(params.n));
}

#[test]
fn norms_of_keys_are_below_their_bounds() {
    for params in &CLASSES {
        norms_are_below(params, 1 << 20 >> params.bits.ilog2(), 2);
    }
}

#[test]
#[ignore = "as many columns as a masked row answers, 2^25 numbers in larger classes"]
fn norms_of_keys_are_below_their_bounds_at_length() {
    for params in &CLASSES {
        norms_are_below(params, params.max_columns(), 5);
    }
}
