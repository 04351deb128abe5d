//! What reports say about the machine on which they were measured.

use undertone::kernel::Cpu;
use undertone::kernel::cpu::Level;

/// The vector instructions in use.
pub(crate) fn simd() -> String {
    let name = match Cpu::detect().level() {
        Level::Portable => "portable",
        Level::Neon => "NEON",
        Level::Avx2 => "AVX2",
        Level::Avx512 => "AVX-512",
    };
    name.to_owned()
}

/// The processor's name, or its architecture where the system does not give one.
pub(crate) fn processor() -> String {
    let read = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = read
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or_else(
        || std::env::consts::ARCH.into(),
        |(_, name)| name.trim().into(),
    )
}

/// The largest resident set of this process so far, where the system reports it.
pub(crate) fn peak_memory_mib() -> Option<f64> {
    undertone::node::memory::peak().map(mib)
}

/// Bytes in MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
