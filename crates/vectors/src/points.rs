//! Points that a careless implementation accepts: of low order, or not in canonical encoding.

use num_bigint::BigUint;
use sha2::{Digest, Sha512};

/// A y-coordinate of two points of order 8 on Edwards25519, which differ in bit 255.
const EIGHTH: [u8; 32] = [
    0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
    0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
];

/// The y-coordinate of the two others.
const OTHER_EIGHTH: [u8; 32] = [
    0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
    0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
];

/// The u-coordinates of points of order 8 on Curve25519.
const MONTGOMERY_EIGHTHS: [[u8; 32]; 2] = [
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4,
        0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49,
        0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef,
        0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f,
        0x11, 0x57,
    ],
];

/// The number p + k or, for a negative k, p − |k|.
fn near_p(k: i8) -> [u8; 32] {
    let mut bytes = [0xff; 32];
    bytes[0] = 0xed_u8.wrapping_add_signed(k);
    bytes[31] = 0x7f;
    bytes
}

fn small(number: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = number;
    bytes
}

/// The same with bit 255.
fn high(mut bytes: [u8; 32]) -> [u8; 32] {
    bytes[31] |= 0x80;
    bytes
}

/// Public keys of X25519 that are refused: all of low order, in every encoding, and others that are
/// not canonical.
pub(crate) fn agreement() -> Vec<(&'static str, [u8; 32])> {
    let [eighth, other] = MONTGOMERY_EIGHTHS;
    vec![
        ("the base point, with bit 255", high(small(9))),
        ("the base point plus the prime", near_p(9)),
        ("the point of order 2", small(0)),
        ("a point of order 4", small(1)),
        ("a point of order 4 on the twist", near_p(-1)),
        ("a point of order 8", eighth),
        ("the other point of order 8", other),
        ("the prime, for the point of order 2", near_p(0)),
        ("the prime plus 1, for a point of order 4", near_p(1)),
        ("the point of order 2, with bit 255", high(small(0))),
        ("a point of order 4, with bit 255", high(small(1))),
        (
            "a point of order 4 on the twist, with bit 255",
            high(near_p(-1)),
        ),
        ("the prime, with bit 255", high(near_p(0))),
        ("the prime plus 1, with bit 255", high(near_p(1))),
        ("a point of order 8, with bit 255", high(eighth)),
        ("the other point of order 8, with bit 255", high(other)),
    ]
}

/// All encodings of the eight points of low order on Edwards25519: eight canonical ones, and six
/// that are not.
pub(crate) fn low_order() -> Vec<(&'static str, [u8; 32])> {
    vec![
        ("the identity", small(1)),
        ("the point of order 2", near_p(-1)),
        ("a point of order 4", small(0)),
        ("the other point of order 4", high(small(0))),
        ("a point of order 8", EIGHTH),
        ("its negative", high(EIGHTH)),
        ("another point of order 8", OTHER_EIGHTH),
        ("the negative of that", high(OTHER_EIGHTH)),
        ("the identity, with the sign of -0", high(small(1))),
        (
            "the point of order 2, with the sign of -0",
            high(near_p(-1)),
        ),
        ("the identity, with y = p + 1", near_p(1)),
        (
            "the identity, with y = p + 1 and the sign of -0",
            high(near_p(1)),
        ),
        ("a point of order 4, with y = p", near_p(0)),
        ("the other point of order 4, with y = p", high(near_p(0))),
    ]
}

/// A point of another order that is not encoded canonically.
pub(crate) const NOT_CANONICAL: (&str, [u8; 32]) = {
    let mut bytes = [0xff; 32];
    (bytes[0], bytes[31]) = (0xf0, 0x7f);
    ("a point of another order, with y = p + 3", bytes)
};

/// The s of a signature of `message` whose R is `r`, with the secret scalar as its only part: right
/// for a verifier that takes any point of low order for the identity.
pub(crate) fn response(
    secret: &[u8; 32],
    public: &[u8; 32],
    r: &[u8; 32],
    message: &[u8],
) -> [u8; 32] {
    let order = (BigUint::from(1_u8) << 252)
        + BigUint::from(27_742_317_777_372_353_535_851_937_790_883_648_493_u128);
    let mut scalar = Sha512::digest(secret)[..32].to_vec();
    scalar[0] &= 248;
    scalar[31] = scalar[31] & 63 | 64;
    let challenge = Sha512::new_with_prefix([r, public.as_slice(), message].concat()).finalize();
    let product = BigUint::from_bytes_le(&scalar) * BigUint::from_bytes_le(&challenge);
    let reduced: BigUint = product % order;
    let mut bytes = reduced.to_bytes_le();
    bytes.resize(32, 0);
    let mut response = [0; 32];
    response.copy_from_slice(&bytes);
    response
}
