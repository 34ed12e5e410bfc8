//! Loops of bare EVP calls, without a check of anything between them: what the safe calls are
//! compared with. For benchmarks alone.

use std::ffi::{c_int, c_void};
use std::ptr;

use openssl_sys::EVP_CTRL_GCM_SET_TAG;

use crate::Context;

/// `n` times `EVP_*Update` in place over all of `data`; whether all succeeded.
pub fn updates(context: &mut Context<'_>, data: &mut [u8], n: u64) -> bool {
    let Ok(len) = c_int::try_from(data.len()) else {
        return false;
    };
    let mut all = 1;
    let mut n_out: c_int = 0;
    for _ in 0..n {
        // SAFETY: as in `Context::update_in_place`.
        all &= unsafe {
            (context.cipher.update)(
                context.ctx.as_ptr(),
                data.as_mut_ptr(),
                &mut n_out,
                data.as_ptr(),
                len,
            )
        };
    }
    all == 1
}

/// `n` times a message of these parts, in place: nonce, an update a part, tag, final. The data flips
/// between ciphertext and plaintext, so the tags are used alternately, the first one first.
/// Whether every call succeeded.
pub fn messages(
    context: &mut Context<'_>,
    nonce: &[u8; 12],
    parts: &mut [&mut [u8]],
    tags: &[[u8; 16]; 2],
    n: u64,
) -> bool {
    if parts
        .iter()
        .any(|part| c_int::try_from(part.len()).is_err())
    {
        return false;
    }
    let mut all = 1;
    let mut n_out: c_int = 0;
    let mut unused = [0_u8; 16];
    let ctx = context.ctx.as_ptr();
    for i in 0..n {
        let tag = &tags[(i % 2) as usize];
        // SAFETY: as in `Context::restart`, `update_in_place`, `set_tag` and `finish`.
        unsafe {
            all &= (context.cipher.init)(
                ctx,
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                nonce.as_ptr(),
            );
            for part in parts.iter_mut() {
                let data = part.as_mut_ptr();
                all &= (context.cipher.update)(ctx, data, &mut n_out, data, part.len() as c_int);
            }
            let tag = tag.as_ptr().cast_mut().cast::<c_void>();
            all &= (context.ctrl)(ctx, EVP_CTRL_GCM_SET_TAG, 16, tag);
            all &= (context.cipher.finish)(ctx, unused.as_mut_ptr(), &mut n_out);
        }
    }
    all == 1
}
