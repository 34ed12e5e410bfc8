//! Why a library or a call of it can not be used.

use std::path::PathBuf;

/// A library that can not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// The dynamic linker refuses the file.
    #[error("failed to load `{}`: {reason}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The dynamic linker's words.
        reason: String,
    },
    /// A library, but not a libcrypto.
    #[error("`{}` has no symbol `{symbol}`: it is no libcrypto of OpenSSL 1.1.1 or later", path.display())]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The first symbol that is missing.
        symbol: &'static str,
    },
    /// The symbols come from another file, which `path` depends on (`libssl.so` on `libcrypto.so`).
    #[error("`{}` takes `EVP_DecryptUpdate` from `{}`: give that file instead", path.display(), found.display())]
    Dependency {
        /// The file that was asked for.
        path: PathBuf,
        /// The file that has the function.
        found: PathBuf,
    },
    /// BoringSSL, AWS-LC, LibreSSL and others have functions of the same names, but other kernels and
    /// per-call costs, and they are not what Ceph links.
    #[error("`{}` is `{version}`, not OpenSSL: calls through its EVP functions say nothing about OpenSSL's", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it says of itself.
        version: String,
    },
    /// AES-128-GCM can not be had, as under a FIPS policy without a provider.
    #[error("`{}` has no AES-128-GCM: {reason}", path.display())]
    NoCipher {
        /// The file.
        path: PathBuf,
        /// The call that failed.
        reason: CallError,
    },
}

/// A call of libcrypto that failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// libcrypto returned an error.
    #[error("{0} failed")]
    Failed(&'static str),
    /// `EVP_DecryptFinal_ex` found that data, nonce or tag are not what was encrypted.
    #[error("the tag does not match")]
    TagMismatch,
    /// The output is shorter than the input, or the input longer than an `int` counts.
    #[error("an update of {input} bytes does not fit {output} bytes of output")]
    Length {
        /// Bytes to encrypt or decrypt.
        input: usize,
        /// Bytes there is room for.
        output: usize,
    },
}
