use super::*;
use proptest::prelude::*;

fn sum<W: Word>(parts: &[Vec<W>]) -> Vec<W> {
    let mut total = vec![W::default(); parts[0].len()];
    for part in parts {
        for (a, b) in total.iter_mut().zip(part) {
            *a = a.plus(*b);
        }
    }
    total
}

fn check<W: Word>(values: &[f64], bound: f64) {
    let point = Fixed::<W>::for_range(bound, values.len()).unwrap();
    let words: Vec<Vec<W>> = values
        .iter()
        .map(|v| point.encode(&[*v]).unwrap())
        .collect();
    let expected: f64 = values.iter().sum();
    let unit = 2f64.powi(-point.fraction());
    let error = (point.decode(&sum(&words))[0] - expected).abs();
    let tolerance = unit * values.len() as f64 + 1e-12 * bound * values.len() as f64;
    assert!(error <= tolerance, "{error} of {expected}, unit {unit}");
}

/// Values within, at and beyond a bound of 5, with ties, NaN and infinities.
fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => -6.0f64..=6.0,
        2 => (-96i32..=96).prop_map(|sixteenths| f64::from(sixteenths) / 16.0),
        1 => prop::num::f64::ANY,
        1 => prop::sample::select(vec![5.0, -5.0, 0.0, -0.0, f64::NAN, f64::NEG_INFINITY]),
    ]
}

/// round(x·2^f) in integers. Ties round away from zero.
fn units(x: f64, fraction: i32) -> i128 {
    let exponent = (x.to_bits() >> 52 & 0x7ff) as i32;
    let mantissa = i128::from(x.to_bits() & ((1 << 52) - 1));
    let (mantissa, power) = match exponent {
        0 => (mantissa, -1074),
        _ => (mantissa | 1 << 52, exponent - 1075),
    };
    let magnitude = match power + fraction {
        up @ 0.. => mantissa << up,
        down @ -100..0 => (mantissa + (1 << (-down - 1))) >> -down,
        _ => 0,
    };
    if x.is_sign_negative() {
        -magnitude
    } else {
        magnitude
    }
}

fn naive<W: Word>(x: f64, fraction: i32) -> W {
    W::truncate(units(x, fraction) as u64)
}

fn holds_to_the_definition<T: Real, W: Word>(values: &[T], weight: f64, clients: usize) {
    const BOUND: f64 = 5.0;
    let point = Fixed::<W>::for_range(BOUND, clients).unwrap();
    let mean = WeightedMean::<W>::new(BOUND, 300.0, clients).unwrap();
    let (products, weights) = (mean.products.fraction(), mean.weights.fraction());
    let doubles: Vec<f64> = values.iter().map(|value| (*value).into()).collect();
    let product = |value: &f64| naive::<W>(value * weight, products);

    // Refused values, and the index that the error names.
    let first = doubles.iter().position(|v| v.is_nan() || v.abs() > BOUND);
    let named = |result: Result<Vec<W>, FixedError>| match result {
        Ok(_) => None,
        Err(FixedError::OutOfRange { index, .. }) => Some(index),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(named(point.encode(values)), first);
    assert_eq!(named(mean.encode(values, weight)), first);

    // The words of all other values.
    let inside: Vec<T> = values
        .iter()
        .copied()
        .filter(|value| (*value).into().abs() <= BOUND)
        .collect();
    let doubles_inside = inside.iter().map(|value| (*value).into());
    let words: Vec<W> = doubles_inside
        .clone()
        .map(|value| naive(value, point.fraction()))
        .collect();
    assert_eq!(point.encode(&inside).unwrap(), words);
    let mut words: Vec<W> = doubles_inside.map(|value| product(&value)).collect();
    words.push(naive(weight, weights));
    assert_eq!(mean.encode(&inside, weight).unwrap(), words);

    // Clipped values.
    let first = doubles.iter().position(|v| !v.is_finite());
    let words_of = |encoded: Result<Clipped<W>, FixedError>| encoded.map(|it| it.words);
    assert_eq!(named(words_of(point.encode_clipped(values))), first);
    let encoded = words_of(mean.encode_clipped(values, weight));
    assert_eq!(named(encoded), first);
    if first.is_none() {
        let clipped = doubles.iter().filter(|v| v.abs() > BOUND).count();
        let within: Vec<f64> = doubles.iter().map(|v| v.clamp(-BOUND, BOUND)).collect();
        let words = within.iter().map(|v| naive(*v, point.fraction())).collect();
        let expected = Clipped { words, clipped };
        assert_eq!(point.encode_clipped(values).unwrap(), expected);
        let mut words: Vec<W> = within.iter().map(product).collect();
        words.push(naive(weight, weights));
        let expected = Clipped { words, clipped };
        assert_eq!(mean.encode_clipped(values, weight).unwrap(), expected);
    }
}

proptest! {
    #[test]
    fn sums_come_out_and_never_overflow(
        shares in prop::collection::vec(-1.0f64..=1.0, 1..40), magnitude in -30i32..30,
    ) {
        let bound = 2f64.powi(magnitude) * 1.37;
        let values: Vec<f64> = shares.iter().map(|share| share * bound).collect();
        check::<u64>(&values, bound);
        check::<u32>(&values, bound);
        // Extremes of one sign: their sum has that sign.
        for exact in [bound, 2f64.powi(magnitude)] {
            check::<u64>(&vec![exact; values.len()], exact);
            check::<u32>(&vec![exact; values.len()], exact);
            check::<u64>(&vec![-exact; 64], exact);
        }
        check::<u32>(&vec![-bound; values.len()], bound);
    }

    #[test]
    fn means_come_out(
        rows in prop::collection::vec((-5.0f64..=5.0, -5.0f64..=5.0, 0.0f64..=1000.0), 1..20),
    ) {
        let mean = WeightedMean::<u64>::new(5.0, 1000.0, rows.len()).unwrap();
        let words: Vec<_> =
            rows.iter().map(|(a, b, w)| mean.encode(&[*a, *b], *w).unwrap()).collect();
        let weight: f64 = rows.iter().map(|row| row.2).sum();
        prop_assume!(weight > 1.0);
        let got = mean.decode(&sum(&words)).unwrap();
        let a: f64 = rows.iter().map(|row| row.0 * row.2).sum::<f64>() / weight;
        let b: f64 = rows.iter().map(|row| row.1 * row.2).sum::<f64>() / weight;
        prop_assert!((got.values[0] - a).abs() < 1e-9 && (got.values[1] - b).abs() < 1e-9);
        prop_assert!((got.weight - weight).abs() < 1e-9);
    }

    #[test]
    fn doubles_become_the_words_of_the_definition(
        values in prop::collection::vec(double(), 0..40), weight in 0.0f64..=300.0,
        clients in 1usize..50,
    ) {
        holds_to_the_definition::<f64, u64>(&values, weight, clients);
        holds_to_the_definition::<f64, u32>(&values, weight, clients);
    }

    #[test]
    fn floats_become_the_words_of_the_definition(
        values in prop::collection::vec(double(), 0..40), weight in 0.0f64..=300.0,
        clients in 1usize..50,
    ) {
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        holds_to_the_definition::<f32, u64>(&values, weight, clients);
        holds_to_the_definition::<f32, u32>(&values, weight, clients);
    }
}

// SUM-32.
#[test]
fn what_does_not_fit_is_refused_or_clipped_on_demand() {
    let point = Fixed::<u32>::for_range(2.0, 100).unwrap();
    assert!(point.encode(&[2.0, -2.0]).is_ok());
    let error = point.encode(&[0.0, 2.1]).unwrap_err();
    assert_eq!(error.to_string(), "value 1 is 2.1; it must be from -2 to 2");
    assert!(point.encode(&[f64::NAN]).is_err());
    assert!(point.encode_clipped(&[f64::NAN]).is_err());
    let expected = Clipped {
        words: point.encode(&[0.5, 2.0, -2.0]).unwrap(),
        clipped: 2,
    };
    assert_eq!(point.encode_clipped(&[0.5, 7.0, -9.0]).unwrap(), expected);
    for infinite in [f32::INFINITY, f32::NEG_INFINITY] {
        let error = point.encode_clipped(&[0.5, infinite]).unwrap_err();
        let due = format!("value 1 is {infinite}; it must be from -2 to 2");
        assert_eq!(error.to_string(), due);
    }
    assert!(
        Fixed::<u64>::for_range(1e300, 3)
            .unwrap()
            .encode(&[1e300])
            .is_ok()
    );
    assert!(Fixed::<u32>::with_fraction(31, 3).is_err());
}

#[test]
fn bounds_are_positive_and_finite_and_named() {
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let due = |name| format!("{name} is {wrong}; it must be above 0 and finite");
        let error = Fixed::<u32>::for_range(wrong, 3).unwrap_err();
        assert_eq!(error.to_string(), due("bound"));
        let error = WeightedMean::<u64>::new(wrong, 1.0, 3).unwrap_err();
        assert_eq!(error.to_string(), due("bound"));
        let error = WeightedMean::<u64>::new(1.0, wrong, 3).unwrap_err();
        assert_eq!(error.to_string(), due("max_weight"));
    }
    let error = WeightedMean::<u64>::new(1e200, 1e200, 3).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bound times max_weight is inf; it must be above 0 and finite"
    );
}

#[test]
fn ties_are_rounded_away_from_zero() {
    let point = Fixed::<u64>::with_fraction(1, 3).unwrap();
    let values = [0.25f32, -0.25, 0.75, -0.75, 0.2, -0.2];
    let units = [1, -1, 2, -2, 0, 0].map(|units: i64| units as u64);
    assert_eq!(point.encode(&values).unwrap(), units);
}

// SUM-33.
#[test]
fn a_weight_is_refused_and_never_clipped() {
    let mean = WeightedMean::<u64>::new(1.0, 10.0, 3).unwrap();
    for weight in [11.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = |error: FixedError| matches!(error, FixedError::Weight { .. });
        assert!(refused(mean.encode(&[1.0], weight).unwrap_err()));
        assert!(refused(mean.encode_clipped(&[1.0], weight).unwrap_err()));
    }
    let error = mean.encode(&[1.0], -1.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the weight is -1; it must be from 0 to 10"
    );
    assert!(mean.encode(&[1.5], 1.0).is_err());
    assert_eq!(mean.encode_clipped(&[1.5], 1.0).unwrap().clipped, 1);
}

#[test]
fn a_mean_comes_with_its_weight() {
    let mean = WeightedMean::<u32>::new(1.0, 10.0, 2).unwrap();
    let nothing = mean.encode(&[1.0], 0.0).unwrap();
    assert_eq!(mean.decode(&nothing), None);
    assert_eq!(mean.decode(&[]), None);
    let parts = [mean.encode(&[1.0f32], 2.0), mean.encode(&[0.0f32], 6.0)];
    let total = sum(&parts.map(Result::unwrap));
    let expected = Mean {
        values: vec![0.25],
        weight: 8.0,
    };
    assert_eq!(mean.decode(&total), Some(expected));
}
