//! The functions of libcrypto that are used, as pointers, found in a loaded file.

use std::ffi::{c_char, c_int, c_uchar, c_ulong, c_void};

use libloading::os::unix::Library as Handle;
use openssl_sys::{ENGINE, EVP_CIPHER, EVP_CIPHER_CTX};

/// `EVP_EncryptInit_ex`, `EVP_DecryptInit_ex`: context, cipher, engine, key, nonce.
pub(crate) type InitFn = unsafe extern "C" fn(
    *mut EVP_CIPHER_CTX,
    *const EVP_CIPHER,
    *mut ENGINE,
    *const c_uchar,
    *const c_uchar,
) -> c_int;
/// `EVP_EncryptUpdate`, `EVP_DecryptUpdate`: context, output, its length, input, its length.
pub(crate) type UpdateFn = unsafe extern "C" fn(
    *mut EVP_CIPHER_CTX,
    *mut c_uchar,
    *mut c_int,
    *const c_uchar,
    c_int,
) -> c_int;
/// `EVP_EncryptFinal_ex`, `EVP_DecryptFinal_ex`: context, output, its length.
pub(crate) type FinalFn =
    unsafe extern "C" fn(*mut EVP_CIPHER_CTX, *mut c_uchar, *mut c_int) -> c_int;
/// `EVP_CIPHER_CTX_ctrl`: context, request, argument, data.
pub(crate) type CtrlFn =
    unsafe extern "C" fn(*mut EVP_CIPHER_CTX, c_int, c_int, *mut c_void) -> c_int;
/// `OPENSSL_init_crypto`: options, settings.
pub(crate) type InitCryptoFn = unsafe extern "C" fn(u64, *const c_void) -> c_int;
/// `OPENSSL_info` (3.0 and later).
pub(crate) type InfoFn = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions of one direction.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CipherFunctions {
    pub(crate) init: InitFn,
    pub(crate) update: UpdateFn,
    pub(crate) finish: FinalFn,
}

/// What a library offers. Every pointer is valid as long as the library is loaded,
/// which is until the process ends (see [`Functions::load`]).
#[derive(Copy, Clone, Debug)]
pub(crate) struct Functions {
    pub(crate) new: unsafe extern "C" fn() -> *mut EVP_CIPHER_CTX,
    pub(crate) free: unsafe extern "C" fn(*mut EVP_CIPHER_CTX),
    pub(crate) aes_128_gcm: unsafe extern "C" fn() -> *const EVP_CIPHER,
    pub(crate) encrypt: CipherFunctions,
    pub(crate) decrypt: CipherFunctions,
    pub(crate) ctrl: CtrlFn,
    pub(crate) version: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(crate) version_num: unsafe extern "C" fn() -> c_ulong,
    pub(crate) init: InitCryptoFn,
    pub(crate) info: Option<InfoFn>,
}

impl Functions {
    /// Those of a loaded file (or of this program's libraries), or the name of the first one that is missing.
    ///
    /// The types are those of `openssl/evp.h` since 1.1.0. The handle must never be closed: the
    /// caller forgets it, because libcrypto registers handlers for the exit of threads and of the
    /// process.
    pub(crate) fn load(handle: &Handle) -> Result<Self, &'static str> {
        macro_rules! find {
            ($name:literal) => {{
                // SAFETY: the type is that of the field, which is the function's declared type; the
                // library stays loaded.
                match unsafe { handle.get(concat!($name, "\0").as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => return Err($name),
                }
            }};
        }
        Ok(Self {
            version: find!("OpenSSL_version"),
            version_num: find!("OpenSSL_version_num"),
            new: find!("EVP_CIPHER_CTX_new"),
            free: find!("EVP_CIPHER_CTX_free"),
            aes_128_gcm: find!("EVP_aes_128_gcm"),
            encrypt: CipherFunctions {
                init: find!("EVP_EncryptInit_ex"),
                update: find!("EVP_EncryptUpdate"),
                finish: find!("EVP_EncryptFinal_ex"),
            },
            decrypt: CipherFunctions {
                init: find!("EVP_DecryptInit_ex"),
                update: find!("EVP_DecryptUpdate"),
                finish: find!("EVP_DecryptFinal_ex"),
            },
            ctrl: find!("EVP_CIPHER_CTX_ctrl"),
            init: find!("OPENSSL_init_crypto"),
            // SAFETY: as above.
            info: unsafe { handle.get::<InfoFn>(b"OPENSSL_info\0") }
                .ok()
                .map(|symbol| *symbol),
        })
    }
}
