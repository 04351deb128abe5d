//! The transforms with AVX-512 IFMA. A register holds one [`Eight`].

use std::arch::x86_64::*;

use super::plan::{Factor, Join, Plan};
use super::{BLOCK, DEGREE, Eight, MASK, quarters};

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

/// A prime in all lanes.
#[derive(Clone, Copy)]
struct Prime {
    p: __m512i,
    twice: __m512i,
}

/// A step of the transform.
#[target_feature(enable = "avx512f,avx512ifma")]
fn split(x: &mut __m512i, y: &mut __m512i, factor: Broadcast, prime: Prime) {
    let a = below(*x, prime.twice);
    let b = times(*y, factor, prime.p);
    *x = _mm512_add_epi64(a, b);
    *y = _mm512_sub_epi64(_mm512_add_epi64(a, prime.twice), b);
}

/// A step of the inverse transform.
#[target_feature(enable = "avx512f,avx512ifma")]
fn merge(x: &mut __m512i, y: &mut __m512i, factor: Broadcast, prime: Prime) {
    let difference = _mm512_sub_epi64(_mm512_add_epi64(*x, prime.twice), *y);
    *x = below(_mm512_add_epi64(*x, *y), prime.twice);
    *y = times(difference, factor, prime.p);
}

/// Two steps at a time stay in registers.
///
/// # Safety
/// The processor has AVX-512 F and IFMA.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) unsafe fn forward(plan: &Plan, a: &mut [Eight]) {
    let prime = Prime {
        p: splat(plan.p),
        twice: splat(2 * plan.p),
    };
    let mut size = DEGREE;
    while size > 1 {
        let groups = DEGREE / size;
        for (group, a) in a.chunks_exact_mut(size).enumerate() {
            let outer = broadcast(plan.powers[groups + group]);
            let inner = [0, 1].map(|i| broadcast(plan.powers[2 * (groups + group) + i]));
            let [first, second, third, fourth] = quarters(a);
            let low = first.iter_mut().zip(second);
            for ((a0, a1), (a2, a3)) in low.zip(third.iter_mut().zip(fourth)) {
                let [mut x0, mut x1, mut x2, mut x3] = [load(a0), load(a1), load(a2), load(a3)];
                split(&mut x0, &mut x2, outer, prime);
                split(&mut x1, &mut x3, outer, prime);
                split(&mut x0, &mut x1, inner[0], prime);
                split(&mut x2, &mut x3, inner[1], prime);
                store(a0, x0);
                store(a1, x1);
                store(a2, x2);
                store(a3, x3);
            }
        }
        size /= 4;
    }
}

/// Two steps at a time stay in registers.
///
/// # Safety
/// The processor has AVX-512 F and IFMA.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) unsafe fn inverse(plan: &Plan, a: &mut [Eight]) {
    let prime = Prime {
        p: splat(plan.p),
        twice: splat(2 * plan.p),
    };
    let mut size = 4;
    while size <= DEGREE {
        let groups = DEGREE / size;
        for (group, a) in a.chunks_exact_mut(size).enumerate() {
            let outer = broadcast(plan.inverses[groups + group]);
            let inner = [0, 1].map(|i| broadcast(plan.inverses[2 * (groups + group) + i]));
            let [first, second, third, fourth] = quarters(a);
            let low = first.iter_mut().zip(second);
            for ((a0, a1), (a2, a3)) in low.zip(third.iter_mut().zip(fourth)) {
                let [mut x0, mut x1, mut x2, mut x3] = [load(a0), load(a1), load(a2), load(a3)];
                merge(&mut x0, &mut x1, inner[0], prime);
                merge(&mut x2, &mut x3, inner[1], prime);
                merge(&mut x0, &mut x2, outer, prime);
                merge(&mut x1, &mut x3, outer, prime);
                store(a0, x0);
                store(a1, x1);
                store(a2, x2);
                store(a3, x3);
            }
        }
        size *= 4;
    }
    let shrink = broadcast(plan.shrink);
    for a in a {
        let value = times(load(a), shrink, prime.p);
        store(a, below(value, prime.p));
    }
}

/// # Safety
/// The processor has AVX-512 F and IFMA.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) unsafe fn multiply(plan: &Plan, hat: &[u64], x: &[Eight], out: [&mut Eight; BLOCK]) {
    let (p, mask) = (splat(plan.p), splat(MASK));
    let carries = plan.carries.map(|factor| broadcast(factor));
    let mut low = [_mm512_setzero_si512(); BLOCK];
    let mut high = [_mm512_setzero_si512(); BLOCK];
    for (hat, x) in hat
        .as_chunks::<BLOCK>()
        .0
        .iter()
        .zip(x.as_chunks::<BLOCK>().0)
    {
        for at in 0..BLOCK {
            let (hat, x) = (splat(hat[at]), load(&x[at]));
            low[at] = _mm512_madd52lo_epu64(low[at], hat, x);
            high[at] = _mm512_madd52hi_epu64(high[at], hat, x);
        }
    }
    for (at, out) in out.into_iter().enumerate() {
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
