//! Powers of any bases, and powers of one base with tables.

use zeroize::Zeroizing;

use super::{LANES, Number, Row, look_up, number};
use crate::cpu::Cpu;

/// Residues that can be multiplied, eight at a time, in Montgomery form.
pub trait Ring: Sync + private::Sealed {
    /// Rows of a residue.
    fn rows(&self) -> usize;
    /// The processor whose paths are used.
    fn cpu(&self) -> Cpu;
    /// The residue 1.
    fn one(&self) -> Number;
    /// `a·b`.
    fn multiply(&self, a: &[Row], b: &[Row], out: &mut [Row]);
    /// `a²`.
    fn square(&self, a: &[Row], out: &mut [Row]);
    /// Brings a product to the canonical number of its residue.
    fn settle(&self, x: &mut [Row]);
}

mod private {
    use crate::mont::{Modulus, Squared};

    pub trait Sealed {}
    impl Sealed for Modulus {}
    impl Sealed for Squared {}
}

/// Bits of a window of the exponent. A digit is a whole number of windows.
const WINDOW: usize = 4;

/// `base^exponent`. Each lane has its own exponent, a plain number. The time depends only on the
/// number of rows of the exponent.
pub fn power<R: Ring>(ring: &R, base: &[Row], exponent: &[Row]) -> Number {
    let len = ring.rows();
    let mut table = Zeroizing::new(vec![Row::ZERO; len << WINDOW]);
    table[..len].copy_from_slice(&ring.one());
    table[len..2 * len].copy_from_slice(base);
    for entry in 2..1 << WINDOW {
        let (before, after) = table.split_at_mut(entry * len);
        let half = &before[entry / 2 * len..][..len];
        match entry % 2 {
            0 => ring.square(half, &mut after[..len]),
            _ => ring.multiply(&before[(entry - 1) * len..], base, &mut after[..len]),
        }
    }
    let mut out = ring.one();
    let mut next = out.clone();
    let mut factor = out.clone();
    let windows = exponent.len() * super::RADIX as usize / WINDOW;
    for at in (0..windows).rev() {
        for _ in 0..WINDOW / 2 {
            ring.square(&out, &mut next);
            ring.square(&next, &mut out);
        }
        let index = number::window(exponent, WINDOW * at, WINDOW);
        look_up::own(ring.cpu(), &table, &index, &mut factor);
        ring.multiply(&out, &factor, &mut next);
        out.copy_from_slice(&next);
    }
    out
}

/// The powers of one base: a table of `base^(i·2^{wk})` for each window k of w bits.
#[derive(Clone)]
pub struct FixedBase {
    table: Number,
    width: usize,
    bits: usize,
}

impl std::fmt::Debug for FixedBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FixedBase({} bits by {}, ..)", self.bits, self.width)
    }
}

impl FixedBase {
    /// Bits of an exponent for each look-up. It is smaller where a look-up costs more.
    fn width(cpu: Cpu) -> usize {
        match cpu.level() {
            crate::cpu::Level::Avx512 => 6,
            _ => 5,
        }
    }

    /// The table of a base, which is in all lanes, for exponents of up to `bits` bits. The ring has
    /// one modulus in all lanes.
    pub fn new<R: Ring>(ring: &R, base: &[Row], bits: usize) -> Self {
        let (len, width) = (ring.rows(), Self::width(ring.cpu()));
        let windows = bits.div_ceil(width);
        let mut table = Zeroizing::new(Vec::with_capacity(windows * (len << (width - 3))));
        let mut base = Zeroizing::new(base.to_vec());
        let mut next = Zeroizing::new(base.clone());
        for _ in 0..windows {
            let mut bases = Vec::with_capacity(width);
            for _ in 0..width {
                bases.push(base.clone());
                ring.square(&base, &mut next);
                std::mem::swap(&mut base, &mut next);
            }
            table.extend_from_slice(&subsets(ring, &bases));
        }
        Self { table, width, bits }
    }

    /// `base^exponent` for many exponents, eight after eight, `rows` rows each. Only the bits that
    /// the table was made for count. Many exponents at once are faster, because the table is read
    /// once.
    ///
    /// # Panics
    /// When the length of `exponents` is not a multiple of `rows`.
    pub fn power<R: Ring>(&self, ring: &R, exponents: &[Row], rows: usize) -> Number {
        assert!(exponents.len().is_multiple_of(rows), "exponents");
        let len = ring.rows();
        let mut out = Zeroizing::new(ring.one().repeat(exponents.len() / rows));
        let mut next = Zeroizing::new(vec![Row::ZERO; len]);
        let mut factor = Zeroizing::new(vec![Row::ZERO; len]);
        let windows = self.table.chunks_exact(len << (self.width - 3));
        for (at, window) in windows.enumerate() {
            let first = self.width * at;
            let width = self.width.min(self.bits - first);
            let each = out.chunks_exact_mut(len).zip(exponents.chunks_exact(rows));
            for (out, exponent) in each {
                let index = number::window(exponent, first, width);
                look_up::shared(ring.cpu(), window, &index, &mut factor);
                ring.multiply(out, &factor, &mut next);
                out.copy_from_slice(&next);
            }
        }
        out
    }
}

/// The products of all subsets of three or more bases, each of which is in all lanes. Entry i is
/// the product of the bases whose bit is set in i. The layout is that of [`look_up::shared`].
pub(super) fn subsets<R: Ring>(ring: &R, bases: &[Number]) -> Number {
    let len = ring.rows();
    let one = ring.one();
    let mut out = Zeroizing::new(vec![Row::ZERO; len << (bases.len() - 3)]);
    let sometimes = |bit: usize| {
        let mut rows = one.clone();
        for (row, base) in rows.iter_mut().zip(&*bases[bit]) {
            for lane in (0..LANES).filter(|lane| lane >> bit & 1 == 1) {
                row.0[lane] = base.0[lane];
            }
        }
        rows
    };
    let mut two = one.clone();
    ring.multiply(&sometimes(0), &sometimes(1), &mut two);
    ring.multiply(&two, &sometimes(2), &mut out[..len]);
    for (bit, base) in bases.iter().enumerate().skip(3) {
        let half = len << (bit - 3);
        let (before, after) = out.split_at_mut(half);
        let pairs = before.chunks_exact(len).zip(after.chunks_exact_mut(len));
        pairs.for_each(|(entry, new)| ring.multiply(entry, base, new));
    }
    out
}
