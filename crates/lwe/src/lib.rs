//! Inner products of bits from module learning with errors.
#![forbid(unsafe_code)]

mod evaluator;
mod masks;
mod matrix;
mod owner;
mod params;
mod sample;
pub mod table;

pub use evaluator::{Columns, Evaluator, Hint, KeyError, TILE_ROWS, Tile};
pub use masks::{Masks, SEED};
pub use matrix::{Dense, Matrix, Ring, Scratch};
pub use owner::{Headers, KeyOwner};
pub use params::{CLASSES, MAX_BITS, MAX_COLUMNS, Params};
#[doc(hidden)]
pub fn micro(cpu: undertone_kernel::Cpu, time: fn(&str, f64, &mut dyn FnMut())) {
    let params = Params::of(4096).unwrap();
    let s = table::Samplers::of(params);
    let words = |b: u8| {
        sample::Words::new(
            undertone_kernel::mask::Suite::Aes128Ctr,
            &undertone_kdf::Seed::from_bytes([b; 32]),
        )
    };
    let mut out = vec![0u64; 1792];
    time("eta, each", 1792.0, &mut || {
        out.fill(0);
        sample::Gaussian::new(&s.header, 1, words(1)).replace(cpu, &mut out)
    });
    let mut out = vec![0u64; 500];
    time("flood, each", 500.0, &mut || {
        out.fill(77);
        sample::Gaussian::new(&s.answer, params.t, words(1)).replace(cpu, &mut out)
    });
    let mut lanes = vec![undertone_kernel::negacyclic::Eight([0; 8]); 4096];
    let row = vec![0x123456789abcdef; 64];
    time("coset, each", 4096.0, &mut || {
        sample::coset(cpu, params, &s.coset, &row, words(1), 3, &mut lanes)
    });
    let mut out = vec![0u64; 4096];
    time("binomial, each", 4096.0, &mut || {
        sample::binomial(&mut words(1), &mut out)
    });
    let mut raw = vec![0u64; 8192];
    time("stream, each 16 bytes", 4096.0, &mut || {
        words(1).fill(&mut raw)
    });
    let mut bytes = vec![0u8; 65536];
    let mut steps = vec![0u8; 4096];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (i * 7919 >> 5) as u8;
    }
    time("cdt 128, each", 4096.0, &mut || {
        undertone_kernel::cdt::sample(cpu, &s.coset, &row, &bytes, &mut steps)
    });
    time("cdt 63, each", 4096.0, &mut || {
        undertone_kernel::cdt::sample(cpu, &s.header.table, &row, &bytes, &mut steps)
    });
    let values = vec![0x123456789u64; 4096];
    let mut packed = Vec::new();
    time("pack 36, each", 4096.0, &mut || {
        packed.clear();
        undertone_kernel::pack::pack_words(36, &values, &mut packed)
    });
    let mut back = vec![0; 4096];
    time("unpack 36, each", 4096.0, &mut || {
        undertone_kernel::pack::unpack_words(36, &packed, &mut back)
    });
}
