//! OpenSSL's version and the CPU's features to the AES-GCM kernel that OpenSSL picks.
//!
//! Sources: `crypto/modes/gcm128.c` (`gcm_get_funcs`, MOVBE and AVX for the stitched kernel),
//! `providers/implementations/ciphers/cipher_aes_gcm_hw_aesni.inc` and
//! `crypto/modes/asm/aes-gcm-avx512.pl` (`ossl_vaes_vpclmulqdq_capable`, since 3.1),
//! `doc/man3/OPENSSL_ia32cap.pod` for the bits.

use crate::version::VersionNumber;

/// The code that does the bulk of AES-128-GCM.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GcmKernel {
    /// 512-bit vectors, since OpenSSL 3.1: `aes-gcm-avx512.pl`.
    Avx512,
    /// AES-NI and PCLMULQDQ interleaved in pieces of 96 bytes: `aesni-gcm-x86_64.pl`
    /// (`_aesni_ctr32_ghash_6x`).
    AesniStitched,
    /// AES-NI, then PCLMULQDQ, one after the other.
    AesniSeparate,
    /// No AES instructions.
    Software,
    /// Not an x86-64 processor, or a version that does not say.
    Unknown,
}

impl GcmKernel {
    /// As in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::AesniStitched => "aesni-stitched",
            Self::AesniSeparate => "aesni-separate",
            Self::Software => "software",
            Self::Unknown => "unknown",
        }
    }

    /// The kernel that OpenSSL of this version picks on a CPU with these features.
    pub fn pick(version: VersionNumber, capabilities: &Capabilities) -> Self {
        let avx512 = "avx512f avx512dq avx512bw avx512vl vaes vpclmulqdq";
        if !capabilities.has("aes") {
            return Self::Software;
        }
        if version >= VersionNumber(3, 1, 0) && capabilities.has(avx512) {
            return Self::Avx512;
        }
        match capabilities.has("pclmulqdq movbe avx") {
            true => Self::AesniStitched,
            false => Self::AesniSeparate,
        }
    }
}

/// What matters to AES-GCM: bits of `OPENSSL_ia32cap` (of its second word from 64 on), names as in
/// `/proc/cpuinfo`, and whether this CPU has them and the operating system lets programs use them.
fn features() -> [(u32, &'static str, bool); 11] {
    #[cfg(target_arch = "x86_64")]
    use std::arch::is_x86_feature_detected as has;
    #[cfg(not(target_arch = "x86_64"))]
    macro_rules! has {
        ($name:literal) => {
            false
        };
    }
    [
        (57, "aes", has!("aes")),
        (33, "pclmulqdq", has!("pclmulqdq")),
        (54, "movbe", has!("movbe")),
        (60, "avx", has!("avx")),
        (64 + 5, "avx2", has!("avx2")),
        (64 + 41, "vaes", has!("vaes")),
        (64 + 42, "vpclmulqdq", has!("vpclmulqdq")),
        (64 + 16, "avx512f", has!("avx512f")),
        (64 + 17, "avx512dq", has!("avx512dq")),
        (64 + 30, "avx512bw", has!("avx512bw")),
        (64 + 31, "avx512vl", has!("avx512vl")),
    ]
}

/// CPU features that matter to AES-GCM, by their names in `/proc/cpuinfo`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Capabilities(pub Vec<&'static str>);

impl Capabilities {
    /// Features of this CPU that the operating system lets programs use.
    pub fn of_this_cpu() -> Self {
        let found = features().into_iter().filter(|(.., found)| *found);
        Self(found.map(|(_, name, _)| name).collect())
    }

    /// From what `OPENSSL_info(OPENSSL_INFO_CPU_SETTINGS)` says, after the environment variable
    /// `OPENSSL_ia32cap` was obeyed: `OPENSSL_ia32cap=0x...:0x...`, perhaps with more behind it.
    pub fn from_cpu_settings(text: &str) -> Option<Self> {
        let words = text.strip_prefix("OPENSSL_ia32cap=")?;
        let mut words = words
            .split([' ', ':'])
            .map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let (low, high) = (words.next()??, words.next()??);
        let all = u128::from(low) | u128::from(high) << 64;
        let set = features()
            .into_iter()
            .filter(|(bit, ..)| all >> bit & 1 == 1);
        Some(Self(set.map(|(_, name, _)| name).collect()))
    }

    /// Whether all of these are there; names are separated by blanks.
    fn has(&self, names: &str) -> bool {
        names.split(' ').all(|name| self.0.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURIN: &str = "OPENSSL_ia32cap=0xfffa3203578bffff:0x41c46f4c415f4e07bfd1";

    fn capabilities(low: u64, high: u64) -> Capabilities {
        let text = format!("OPENSSL_ia32cap={low:#x}:{high:#x} env:~0x0");
        Capabilities::from_cpu_settings(&text).unwrap()
    }

    /// Check the kernel by version and features: AVX-512 only since 3.1, and only with all six
    /// features; the stitched kernel only with MOVBE and AVX.
    #[test]
    fn kernels() {
        let zen3 = capabilities(0xfffa_3203_078b_ffff, 0x0040_0684_219c_07ab);
        let low = 0xfffa_3203_078b_ffff;
        let avx512 = 1 << 42 | 1 << 41 | 1 << 31 | 1 << 30 | 1 << 17 | 1 << 16;
        let turin = capabilities(low, avx512);
        let v3_0 = VersionNumber(3, 0, 22);
        let v3_1 = VersionNumber(3, 1, 0);
        for (version, features, kernel) in [
            (v3_0, turin.clone(), GcmKernel::AesniStitched),
            (v3_1, turin.clone(), GcmKernel::Avx512),
            (VersionNumber(4, 0, 0), turin, GcmKernel::Avx512),
            (v3_1, zen3.clone(), GcmKernel::AesniStitched),
            (
                v3_1,
                capabilities(low, avx512 & !(1 << 30)),
                GcmKernel::AesniStitched,
            ),
            (
                v3_1,
                capabilities(low & !(1 << 54), 0),
                GcmKernel::AesniSeparate,
            ),
            (v3_1, capabilities(low & !(1 << 57), 0), GcmKernel::Software),
        ] {
            assert_eq!(GcmKernel::pick(version, &features), kernel, "{features:?}");
        }
        assert_eq!(
            zen3.0,
            [
                "aes",
                "pclmulqdq",
                "movbe",
                "avx",
                "avx2",
                "vaes",
                "vpclmulqdq"
            ]
        );
    }

    /// Check that text of another form is no capabilities.
    #[test]
    fn settings() {
        for text in [
            "",
            "OPENSSL_ia32cap=",
            "OPENSSL_ia32cap=0x1",
            "OPENSSL_armcap=0xbd",
            TURIN,
        ] {
            assert_eq!(Capabilities::from_cpu_settings(text), None, "{text}");
        }
    }
}
