//! Detection of the processor's instructions.

use std::sync::OnceLock;

/// The environment variable that lowers the level: `portable`, `avx2` or `avx512`.
pub const VARIABLE: &str = "UNDERTONE_SIMD";

/// A set of instructions that a kernel has a path for, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The instructions of every target of the compiler.
    Portable,
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
            let wanted = match std::env::var(VARIABLE).as_deref() {
                Ok("portable") => Level::Portable,
                Ok("avx2") => Level::Avx2,
                _ => Level::Avx512,
            };
            Self {
                level: wanted.min(available()),
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
        [Level::Portable, Level::Avx2, Level::Avx512]
            .into_iter()
            .filter(move |level| *level <= best)
            .map(|level| Self { level })
    }

    /// The level.
    pub fn level(self) -> Level {
        self.level
    }
}

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

#[cfg(not(target_arch = "x86_64"))]
fn available() -> Level {
    Level::Portable
}
