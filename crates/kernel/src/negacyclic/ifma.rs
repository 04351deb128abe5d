//! The transforms with AVX-512 IFMA. A register holds one [`Eight`].

use std::arch::x86_64::*;

use super::plan::{Factor, Join, Plan};
use super::{BLOCK, DEGREE, Eight, MASK};

/// A factor in all lanes.
#[derive(Clone, Copy)]
struct Broadcast {
    value: __m512i,
    quotient: __m512i,
}

#[target_feature(enable = "avx512f")]
fn splat(value: u64) -> __m512i {
    _mm512_set1_epi64(value as i64)
}

#[target_feature(enable = "avx512f")]
fn broadcast(factor: Factor) -> Broadcast {
    Broadcast {
        value: splat(factor.value),
        quotient: splat(factor.quotient),
    }
}

#[target_feature(enable = "avx512f")]
fn load(from: &Eight) -> __m512i {
    // SAFETY: 64 aligned bytes.
    unsafe { _mm512_load_si512(std::ptr::from_ref(from).cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(to: &mut Eight, value: __m512i) {
    // SAFETY: 64 aligned bytes.
    unsafe { _mm512_store_si512(std::ptr::from_mut(to).cast(), value) }
}

/// Numbers below 2⁵² times a factor, below 2p.
#[target_feature(enable = "avx512f,avx512ifma")]
fn times(a: __m512i, factor: Broadcast, p: __m512i) -> __m512i {
    let zero = _mm512_setzero_si512();
    let quotient = _mm512_madd52hi_epu64(zero, a, factor.quotient);
    let product = _mm512_madd52lo_epu64(zero, a, factor.value);
    let back = _mm512_madd52lo_epu64(zero, quotient, p);
    _mm512_and_si512(_mm512_sub_epi64(product, back), splat(MASK))
}

/// `a`, or `a − bound` if that is not negative.
#[target_feature(enable = "avx512f")]
fn below(a: __m512i, bound: __m512i) -> __m512i {
    _mm512_min_epu64(a, _mm512_sub_epi64(a, bound))
}

/// # Safety
/// The processor has AVX-512 F and IFMA.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) unsafe fn forward(plan: &Plan, a: &mut [Eight]) {
    let (p, p2) = (splat(plan.p), splat(2 * plan.p));
    let step = |x: &mut Eight, y: &mut Eight, factor: Broadcast| {
        let a = below(load(x), p2);
        let b = times(load(y), factor, p);
        store(x, _mm512_add_epi64(a, b));
        store(y, _mm512_sub_epi64(_mm512_add_epi64(a, p2), b));
    };
    let mut half = DEGREE / 2;
    while half > 0 {
        let groups = DEGREE / (2 * half);
        for (group, a) in a.chunks_exact_mut(2 * half).enumerate() {
            let factor = broadcast(plan.powers[groups + group]);
            let (xs, ys) = a.split_at_mut(half);
            for (x, y) in xs.iter_mut().zip(ys) {
                step(x, y, factor);
            }
        }
        half /= 2;
    }
}

/// # Safety
/// The processor has AVX-512 F and IFMA.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) unsafe fn inverse(plan: &Plan, a: &mut [Eight]) {
    let (p, p2) = (splat(plan.p), splat(2 * plan.p));
    let mut half = 1;
    while half < DEGREE {
        let groups = DEGREE / (2 * half);
        for (group, a) in a.chunks_exact_mut(2 * half).enumerate() {
            let factor = broadcast(plan.inverses[groups + group]);
            let (xs, ys) = a.split_at_mut(half);
            for (x, y) in xs.iter_mut().zip(ys) {
                let (a, b) = (load(x), load(y));
                store(x, below(_mm512_add_epi64(a, b), p2));
                let difference = _mm512_sub_epi64(_mm512_add_epi64(a, p2), b);
                store(y, times(difference, factor, p));
            }
        }
        half *= 2;
    }
    let shrink = broadcast(plan.shrink);
    for a in a {
        let value = times(load(a), shrink, p);
        store(a, below(value, p));
    }
}

/// # Safety
/// The processor has AVX-512 F and IFMA.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) unsafe fn multiply(plan: &Plan, hat: &[u64], x: &[Eight], out: &mut [Eight]) {
    let inputs = x.len() / DEGREE;
    let (p, mask) = (splat(plan.p), splat(MASK));
    let carries = plan.carries.map(|factor| broadcast(factor));
    for (block, out) in out.chunks_exact_mut(BLOCK).enumerate() {
        let hat = &hat[block * inputs * BLOCK..(block + 1) * inputs * BLOCK];
        let mut low = [_mm512_setzero_si512(); BLOCK];
        let mut high = [_mm512_setzero_si512(); BLOCK];
        for (hat, x) in hat.chunks_exact(BLOCK).zip(x.chunks_exact(DEGREE)) {
            let x = &x[block * BLOCK..(block + 1) * BLOCK];
            for at in 0..BLOCK {
                let (hat, x) = (splat(hat[at]), load(&x[at]));
                low[at] = _mm512_madd52lo_epu64(low[at], hat, x);
                high[at] = _mm512_madd52hi_epu64(high[at], hat, x);
            }
        }
        for (at, out) in out.iter_mut().enumerate() {
            let high = _mm512_add_epi64(high[at], _mm512_srli_epi64::<52>(low[at]));
            let parts = [
                _mm512_and_si512(low[at], mask),
                _mm512_and_si512(high, mask),
                _mm512_srli_epi64::<52>(high),
            ];
            let mut sum = _mm512_setzero_si512();
            for (part, factor) in parts.into_iter().zip(carries) {
                sum = _mm512_add_epi64(sum, times(part, factor, p));
            }
            let sum = below(sum, splat(4 * plan.p));
            store(out, below(sum, splat(2 * plan.p)));
        }
    }
}

/// # Safety
/// The processor has AVX-512 F and IFMA.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) unsafe fn join(join: &Join, first: &[Eight], second: &[Eight], out: &mut [Eight]) {
    let [one, two] = join.primes;
    let whole = splat(one.wrapping_mul(two));
    let half = splat(two / 2);
    let inverse = broadcast(join.inverse);
    let (one, two, mask) = (splat(one), splat(two), splat(MASK));
    let two_p2 = _mm512_add_epi64(two, two);
    for ((first, second), out) in first.iter().zip(second).zip(out) {
        let (a, b) = (load(first), load(second));
        let difference = _mm512_sub_epi64(_mm512_add_epi64(b, two_p2), a);
        let digit = below(times(difference, inverse, two), two);
        let value = _mm512_madd52lo_epu64(a, one, digit);
        let negative = _mm512_cmplt_epu64_mask(half, digit);
        let value = _mm512_mask_sub_epi64(value, negative, value, whole);
        store(out, _mm512_and_si512(value, mask));
    }
}
