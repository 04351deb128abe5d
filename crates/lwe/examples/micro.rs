//! Kernels.
use std::time::Instant;
use undertone_kernel::negacyclic::Eight;
use undertone_kernel::*;
use undertone_lwe::*;
use undertone_party::SessionId;
fn time(name: &str, per: f64, f: &mut dyn FnMut()) {
    f();
    let mut best = f64::MAX;
    for _ in 0..9 {
        let c = Instant::now();
        f();
        best = best.min(c.elapsed().as_secs_f64());
    }
    println!("{name:24} {:.3} us", best * 1e6 / per);
}
fn main() {
    let params = Params::of(4096).unwrap();
    let cpu = Cpu::detect();
    let ring = Ring::new(cpu, SessionId([7; 32]), params);
    let w = vec![Eight([5; 8]); 4096];
    let mut out = vec![Eight([5; 8]); 1792];
    let mut sc = Scratch::default();
    time("ring.row a row", 8.0, &mut || {
        ring.row(cpu, &mut sc, &w, &mut out)
    });
    let s = vec![Eight([1; 8]); 1792];
    let mut c = vec![Eight([5; 8]); 4096];
    time("ring.column a row", 8.0, &mut || {
        ring.column(cpu, &mut sc, &s, &mut c)
    });
    undertone_lwe::micro(cpu, time);
}
