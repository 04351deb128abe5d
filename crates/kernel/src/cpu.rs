//! Detection of the processor's instructions.

use std::sync::OnceLock;

/// The environment variable that lowers the level: `portable`, `neon`, `avx2` or `avx512`.
pub const VARIABLE: &str = "UNDERTONE_SIMD";

/// A set of instructions that a kernel has a path for, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The instructions of every target of the compiler.
    Portable,
    /// NEON, AES and PMULL, little-endian: ARM's 64-bit processors but the smallest.
    Neon,
    /// AVX2, FMA, POPCNT, AES-NI, PCLMULQDQ: Haswell, Zen, and later.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, VBMI2, IFMA, VNNI and VPOPCNTDQ, VAES, VPCLMULQDQ: Ice Lake, Zen 4,
    /// and later.
    Avx512,
}

/// Proof that this processor runs the instructions of a [`Level`].
///
/// Only detection makes one, so a kernel may rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    level: Level,
}

impl Cpu {
    /// The best level of this processor, or the level that [`VARIABLE`] names if that is lower.
    pub fn detect() -> Self {
        static CPU: OnceLock<Cpu> = OnceLock::new();
        *CPU.get_or_init(|| {
            let wanted = std::env::var(VARIABLE).unwrap_or_default();
            let best = available();
            let named = LEVELS.iter().find(|(name, _)| *name == wanted);
            Self {
                level: named.map_or(best, |(_, level)| best.min(*level)),
            }
        })
    }

    /// The level that uses no instruction beyond the target's.
    pub fn portable() -> Self {
        Self {
            level: Level::Portable,
        }
    }

    /// Every level from portable to that of [`detect`](Self::detect), for tests that compare them.
    pub fn all() -> impl Iterator<Item = Self> {
        let best = Self::detect().level;
        let levels = LEVELS.iter().map(|(_, level)| *level);
        levels
            .filter(move |level| *level <= best)
            .map(|level| Self { level })
    }

    /// The level.
    pub fn level(self) -> Level {
        self.level
    }
}

/// The levels of this architecture and their names, lowest first.
const LEVELS: &[(&str, Level)] = if cfg!(target_arch = "x86_64") {
    &[
        ("portable", Level::Portable),
        ("avx2", Level::Avx2),
        ("avx512", Level::Avx512),
    ]
} else {
    &[("portable", Level::Portable), ("neon", Level::Neon)]
};

#[cfg(target_arch = "x86_64")]
fn available() -> Level {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("pclmulqdq");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512ifma")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512vpopcntdq")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Portable,
    }
}

#[cfg(target_arch = "aarch64")]
fn available() -> Level {
    use std::arch::is_aarch64_feature_detected;

    // The feature is PMULL, too.
    let neon = is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("aes");
    if neon && cfg!(target_endian = "little") {
        Level::Neon
    } else {
        Level::Portable
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn available() -> Level {
    Level::Portable
}
