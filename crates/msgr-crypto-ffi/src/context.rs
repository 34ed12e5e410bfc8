//! One EVP_CIPHER_CTX for AES-128-GCM: each method is one call of libcrypto.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use openssl_sys::{EVP_CIPHER, EVP_CIPHER_CTX, EVP_CTRL_GCM_GET_TAG, EVP_CTRL_GCM_SET_TAG};

use crate::error::CallError;
use crate::functions::{CipherFunctions, CtrlFn, Functions};

/// What a context does.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Plaintext to ciphertext and tag: what is sent.
    Encrypt,
    /// Ciphertext and tag to plaintext: what is received.
    Decrypt,
}

/// A context with cipher and key set. Every message begins with [`Context::restart`].
#[derive(Debug)]
pub struct Context<'lib> {
    pub(crate) ctx: NonNull<EVP_CIPHER_CTX>,
    pub(crate) cipher: CipherFunctions,
    pub(crate) ctrl: CtrlFn,
    functions: &'lib Functions,
    direction: Direction,
}

impl<'lib> Context<'lib> {
    pub(crate) fn new(
        functions: &'lib Functions,
        direction: Direction,
        key: &[u8; 16],
    ) -> Result<Self, CallError> {
        // SAFETY: takes nothing.
        let ctx = NonNull::new(unsafe { (functions.new)() });
        let mut context = Self {
            ctx: ctx.ok_or(CallError::Failed("EVP_CIPHER_CTX_new"))?,
            cipher: match direction {
                Direction::Encrypt => functions.encrypt,
                Direction::Decrypt => functions.decrypt,
            },
            ctrl: functions.ctrl,
            functions,
            direction,
        };
        // SAFETY: takes nothing and returns a constant.
        let algorithm = unsafe { (functions.aes_128_gcm)() };
        if algorithm.is_null() {
            return Err(CallError::Failed("EVP_aes_128_gcm"));
        }
        context.init(algorithm, Some(key), None)?;
        Ok(context)
    }

    /// What it does.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// `EVP_*Init_ex`. What is null or none stays as it is.
    #[inline]
    fn init(
        &mut self,
        algorithm: *const EVP_CIPHER,
        key: Option<&[u8; 16]>,
        nonce: Option<&[u8; 12]>,
    ) -> Result<(), CallError> {
        // SAFETY: the context is live; the algorithm is null or AES-128-GCM, which takes a key of 16 bytes
        // and by default a nonce of 12.
        let result = unsafe {
            (self.cipher.init)(
                self.ctx.as_ptr(),
                algorithm,
                ptr::null_mut(),
                key.map_or(ptr::null(), |key| key.as_ptr()),
                nonce.map_or(ptr::null(), |nonce| nonce.as_ptr()),
            )
        };
        check(result, "EVP_CipherInit_ex")
    }

    /// Begins a message with this nonce; the key stays. `EVP_*Init_ex(ctx, 0, 0, 0, nonce)`, which
    /// is what Ceph does once a unit.
    ///
    /// # Errors
    /// When libcrypto fails.
    #[inline]
    pub fn restart(&mut self, nonce: &[u8; 12]) -> Result<(), CallError> {
        self.init(ptr::null(), None, Some(nonce))
    }

    /// Begins a message with another key: the key schedule and the powers of H are computed anew.
    ///
    /// # Errors
    /// When libcrypto fails.
    #[inline]
    pub fn rekey(&mut self, key: &[u8; 16], nonce: &[u8; 12]) -> Result<(), CallError> {
        self.init(ptr::null(), Some(key), Some(nonce))
    }

    /// `EVP_*Update`.
    ///
    /// # Safety
    /// 1. `input` points to `len` bytes that can be read, `output` to as many that can be written.
    /// 2. They are the same bytes, or do not overlap.
    #[inline]
    unsafe fn update_bytes(
        &mut self,
        input: *const u8,
        output: *mut u8,
        len: usize,
    ) -> Result<(), CallError> {
        let too_long = CallError::Length {
            input: len,
            output: len,
        };
        let len = c_int::try_from(len).map_err(|_| too_long)?;
        let mut n_out: c_int = 0;
        // SAFETY: the context is live; GCM is a stream mode, so it writes exactly as many bytes as it
        // reads, for which there is room by (1); EVP permits both cases of (2).
        let result =
            unsafe { (self.cipher.update)(self.ctx.as_ptr(), output, &mut n_out, input, len) };
        check(result, "EVP_CipherUpdate")
    }

    /// The next bytes of the message, to another place; bytes of output beyond the input's length
    /// stay as they are. An empty input is passed on, too, as Ceph does.
    ///
    /// # Errors
    /// When the output is shorter than the input, or libcrypto fails.
    #[inline]
    pub fn update(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CallError> {
        if output.len() < input.len() {
            return Err(CallError::Length {
                input: input.len(),
                output: output.len(),
            });
        }
        // SAFETY: (1) the output is no shorter; (2) a slice that is borrowed mutably overlaps with no other.
        unsafe { self.update_bytes(input.as_ptr(), output.as_mut_ptr(), input.len()) }
    }

    /// The next bytes of the message, in place.
    ///
    /// # Errors
    /// When libcrypto fails.
    #[inline]
    pub fn update_in_place(&mut self, data: &mut [u8]) -> Result<(), CallError> {
        let bytes = data.as_mut_ptr();
        // SAFETY: (1) both are the whole slice; (2) they are the very same bytes.
        unsafe { self.update_bytes(bytes, bytes, data.len()) }
    }

    /// Sets the tag that [`Context::finish`] compares with.
    ///
    /// # Errors
    /// When libcrypto fails, as for a context that encrypts.
    #[inline]
    pub fn set_tag(&mut self, tag: &[u8; 16]) -> Result<(), CallError> {
        let tag = tag.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the context is live; libcrypto reads 16 bytes and writes none, though its
        // declaration has no const.
        let result = unsafe { (self.ctrl)(self.ctx.as_ptr(), EVP_CTRL_GCM_SET_TAG, 16, tag) };
        check(result, "EVP_CTRL_GCM_SET_TAG")
    }

    /// Ends a message; a context that decrypts compares the tag.
    ///
    /// # Errors
    /// [`CallError::TagMismatch`] when it is another.
    #[inline]
    pub fn finish(&mut self) -> Result<(), CallError> {
        let mut n_out: c_int = 0;
        // GCM has no last block; there is room for one all the same.
        let mut unused = [0_u8; 16];
        // SAFETY: the context is live; at most a block of 16 bytes is written.
        let result =
            unsafe { (self.cipher.finish)(self.ctx.as_ptr(), unused.as_mut_ptr(), &mut n_out) };
        match (result, self.direction) {
            (1, _) => Ok(()),
            (_, Direction::Decrypt) => Err(CallError::TagMismatch),
            _ => Err(CallError::Failed("EVP_EncryptFinal_ex")),
        }
    }

    /// The tag of a message that was encrypted and ended.
    ///
    /// # Errors
    /// When libcrypto fails.
    #[inline]
    pub fn tag(&mut self) -> Result<[u8; 16], CallError> {
        let mut tag = [0_u8; 16];
        let to = tag.as_mut_ptr().cast::<c_void>();
        // SAFETY: the context is live; libcrypto writes 16 bytes.
        let result = unsafe { (self.ctrl)(self.ctx.as_ptr(), EVP_CTRL_GCM_GET_TAG, 16, to) };
        check(result, "EVP_CTRL_GCM_GET_TAG")?;
        Ok(tag)
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: the context is live, and nothing uses it hereafter.
        unsafe { (self.functions.free)(self.ctx.as_ptr()) };
    }
}

#[inline]
fn check(result: c_int, call: &'static str) -> Result<(), CallError> {
    match result {
        1 => Ok(()),
        _ => Err(CallError::Failed(call)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Library;

    const KEY: [u8; 16] = [7; 16];
    const NONCE: [u8; 12] = [9; 12];

    fn seal(library: &Library, parts: &[&[u8]]) -> (Vec<u8>, [u8; 16]) {
        let mut context = library.context(Direction::Encrypt, &KEY).unwrap();
        context.restart(&NONCE).unwrap();
        let mut out = Vec::new();
        for part in parts {
            let mut sealed = vec![0; part.len()];
            context.update(part, &mut sealed).unwrap();
            out.extend(sealed);
        }
        context.finish().unwrap();
        (out, context.tag().unwrap())
    }

    /// Check that how a message is cut changes nothing, also with empty parts.
    #[test]
    fn parts() {
        let library = Library::system().unwrap();
        let data: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let whole = seal(&library, &[&data]);
        assert_eq!(
            seal(&library, &[&data[..3], &[], &data[3..700], &data[700..]]),
            whole
        );
    }

    /// Check that decryption gives the plaintext back, in place, and a wrong tag is an error.
    #[test]
    fn tags() {
        let library = Library::system().unwrap();
        let data = [5_u8; 333];
        let (mut sealed, tag) = seal(&library, &[&data]);
        let mut context = library.context(Direction::Decrypt, &KEY).unwrap();
        let cipher = sealed.clone();
        for (tag, result) in [(tag, Ok(())), ([0; 16], Err(CallError::TagMismatch))] {
            sealed.copy_from_slice(&cipher);
            context.restart(&NONCE).unwrap();
            context.update_in_place(&mut sealed).unwrap();
            context.set_tag(&tag).unwrap();
            assert_eq!(context.finish(), result);
            assert_eq!(sealed, data);
        }
        context.rekey(&[8; 16], &NONCE).unwrap();
        context.set_tag(&tag).unwrap();
        assert_eq!(context.finish(), Err(CallError::TagMismatch));
    }

    /// Check that an output that is too short is refused before libcrypto writes.
    #[test]
    fn short_output() {
        let library = Library::system().unwrap();
        let mut context = library.context(Direction::Encrypt, &KEY).unwrap();
        context.restart(&NONCE).unwrap();
        let mut out = [0; 15];
        let error = context.update(&[1; 16], &mut out).unwrap_err();
        assert_eq!(
            error,
            CallError::Length {
                input: 16,
                output: 15
            }
        );
        assert_eq!(out, [0; 15]);
    }
}
