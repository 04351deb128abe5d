//! The time of each stage, for one thread.
use std::time::Instant;
use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Cpu, Prg};
use undertone_lwe::*;
use undertone_party::SessionId;

fn main() {
    let args: Vec<usize> = std::env::args()
        .skip(1)
        .map(|a| a.parse().unwrap())
        .collect();
    let (bits, n) = (args[0], args[1]);
    let session = SessionId([7; 32]);
    let params = Params::of(bits).unwrap();
    let mut prg = Prg::new(&[1; 32]);
    let mut codes = || {
        BitMatrix::from_words(
            n,
            bits,
            (0..n * bits.div_ceil(64)).map(|_| prg.next_u64()).collect(),
        )
    };
    let (x, y) = (codes(), codes());
    let pairs = (n * n) as f64;
    let mut last = Instant::now();
    let mut lap = |name: &str| {
        println!(
            "{name:20} {:.4} us/distance",
            last.elapsed().as_secs_f64() * 1e6 / pairs
        );
        last = Instant::now();
    };
    let ring = Ring::new(Cpu::detect(), session, params);
    lap("ring");
    let owner = KeyOwner::new(
        params,
        session,
        Suite::Aes128Ctr,
        Seed::from_bytes([1; 32]),
        n,
    );
    lap("secrets");
    let columns = owner.columns(&ring, 0..n);
    lap("columns");
    let keys = owner.keys(&columns, &y, 0..n);
    lap("keys");
    let mut held = Columns::new(params, n);
    held.part(
        Masks::new(params, Suite::Aes128Ctr, Seed::from_bytes([2; 32]), n),
        0,
    );
    held.push(&keys).unwrap();
    lap("push");
    let mut hint =
        Evaluator::new(params, session, Suite::Aes128Ctr, Seed::from_bytes([3; 32])).hint(held);
    let mut tiles = Vec::new();
    while let Some(tile) = hint.next(&ring, &x) {
        tiles.push(tile);
    }
    lap("evaluate");
    let weights = vec![0; n];
    let mut all = Vec::new();
    let mut t = [0.0; 3];
    for tile in &tiles {
        let c = Instant::now();
        let headers = Headers::new(params, &tile.headers);
        t[0] += c.elapsed().as_secs_f64();
        let mut answers = vec![0; headers.rows() * n];
        let each = undertone_kernel::pack::packed_len(params.v, n);
        for (answers, bytes) in answers.chunks_mut(n).zip(tile.answers[0].chunks(each)) {
            undertone_kernel::pack::unpack_words(params.v, bytes, answers);
        }
        t[1] += c.elapsed().as_secs_f64();
        all.push(owner.open(&headers, &answers, 0..n, &weights));
        t[2] += c.elapsed().as_secs_f64();
    }
    lap("open");
    println!("{:?}", t.map(|t| t * 1e6 / pairs));
}
