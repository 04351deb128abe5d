//! A reader reads what a writer wrote, and refuses everything else.
#![allow(missing_docs, clippy::unwrap_used)]

use undertone_party::codec::{DecodeError, Reader, Writer};

#[test]
fn every_field_is_read_as_it_was_written() {
    let mut w = Writer::with_capacity(100);
    w.u8(1);
    w.u16(0x0203);
    w.u32(0x0405_0607);
    w.u64(0x0809_0a0b_0c0d_0e0f);
    w.u64s(&[16, 17]);
    w.f64s(&[1.5, -0.0]);
    w.raw(b"end");
    let bytes = w.finish();
    assert_eq!(&bytes[..7], [1, 3, 2, 7, 6, 5, 4]);
    assert_eq!(bytes.len(), 1 + 2 + 4 + 8 + 16 + 16 + 3);
    let mut r = Reader::new(&bytes);
    assert_eq!(r.u8("a"), Ok(1));
    assert_eq!(r.u16("b"), Ok(0x0203));
    assert_eq!(r.u32("c"), Ok(0x0405_0607));
    assert_eq!(r.u64("d"), Ok(0x0809_0a0b_0c0d_0e0f));
    assert_eq!(r.u64s(2, "e").unwrap().collect::<Vec<_>>(), [16, 17]);
    let doubles = r.u64s(2, "f").unwrap().map(f64::from_bits);
    let signs = doubles.map(|x| (x, x.is_sign_negative()));
    assert_eq!(signs.collect::<Vec<_>>(), [(1.5, false), (0.0, true)]);
    assert_eq!(r.remaining(), 3);
    assert_eq!(r.array::<3>("g"), Ok(*b"end"));
    assert_eq!(r.finish(), Ok(()));
}

#[test]
fn capacity_is_reserved_once() {
    let mut w = Writer::with_capacity(64);
    w.u64s(&[7; 8]);
    assert_eq!(w.finish().capacity(), 64);
    // Room for all values, and not for much more.
    let mut w = Writer::default();
    w.u64s(&[7; 100]);
    assert!((800..1600).contains(&w.finish().capacity()));
    let mut w = Writer::default();
    w.f64s(&[7.0; 100]);
    assert!((800..1600).contains(&w.finish().capacity()));
}

/// FRAME-10
#[test]
fn numbers_are_below_their_bound() {
    let bytes = [9u32, 10, 11].map(u32::to_le_bytes).concat();
    let mut r = Reader::new(&bytes);
    assert_eq!(r.index(10, "row"), Ok(9));
    for value in [10, 11] {
        let refused = DecodeError::OutOfRange {
            what: "row",
            value,
            bound: "0..10".into(),
        };
        assert_eq!(r.index(10, "row"), Err(refused));
    }
    assert_eq!(
        r.index(10, "row"),
        Err(DecodeError::Short {
            what: "row",
            need: 4,
            have: 0
        })
    );
}

/// FRAME-10
#[test]
fn what_is_left_over_or_missing_is_refused() {
    assert_eq!(
        Reader::new(&[1, 2]).finish(),
        Err(DecodeError::Trailing { extra: 2 })
    );
    let mut r = Reader::new(&[0; 15]);
    let short = |need| DecodeError::Short {
        what: "words",
        need,
        have: 15,
    };
    assert_eq!(r.u64s(2, "words").err(), Some(short(16)));
    assert_eq!(r.u64s(usize::MAX, "words").err(), Some(short(usize::MAX)));
    assert_eq!(r.remaining(), 15);
}
