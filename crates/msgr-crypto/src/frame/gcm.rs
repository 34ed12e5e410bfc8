//! One AES-128-GCM unit through the safe interface of the openssl crate.

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;

use super::{BLOCK_BYTES, KEY_BYTES, NONCE_BYTES, TAG_BYTES};

/// A context whose key stays; each unit sets a nonce alone, as Ceph does.
pub(super) struct Gcm {
    ctx: CipherCtx,
    encrypts: bool,
}

impl std::fmt::Debug for Gcm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gcm").finish_non_exhaustive()
    }
}

impl Gcm {
    pub(super) fn encrypting(key: &[u8; KEY_BYTES]) -> Result<Self, ErrorStack> {
        let mut ctx = CipherCtx::new()?;
        ctx.encrypt_init(Some(Cipher::aes_128_gcm()), Some(key), None)?;
        Ok(Self {
            ctx,
            encrypts: true,
        })
    }

    pub(super) fn decrypting(key: &[u8; KEY_BYTES]) -> Result<Self, ErrorStack> {
        let mut ctx = CipherCtx::new()?;
        ctx.decrypt_init(Some(Cipher::aes_128_gcm()), Some(key), None)?;
        Ok(Self {
            ctx,
            encrypts: false,
        })
    }

    pub(super) fn begin(&mut self, nonce: &[u8; NONCE_BYTES]) -> Result<(), ErrorStack> {
        match self.encrypts {
            true => self.ctx.encrypt_init(None, None, Some(nonce)),
            false => self.ctx.decrypt_init(None, None, Some(nonce)),
        }
    }

    /// Appends what `input` becomes.
    pub(super) fn update(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), ErrorStack> {
        let at = output.len();
        // The crate asks for a block more than GCM writes.
        output.resize(at + input.len() + BLOCK_BYTES, 0);
        let room = Some(&mut output[at..]);
        let n = self.ctx.cipher_update(input, room)?;
        output.truncate(at + n);
        Ok(())
    }

    /// The tag of an encrypted unit.
    pub(super) fn tag(&mut self) -> Result<[u8; TAG_BYTES], ErrorStack> {
        self.ctx.cipher_final(&mut [0; BLOCK_BYTES])?;
        let mut tag = [0; TAG_BYTES];
        self.ctx.tag(&mut tag)?;
        Ok(tag)
    }

    /// Whether the tag of a decrypted unit is this one.
    pub(super) fn verify(&mut self, tag: &[u8]) -> Result<bool, ErrorStack> {
        self.ctx.set_tag(tag)?;
        Ok(self.ctx.cipher_final(&mut [0; BLOCK_BYTES]).is_ok())
    }

    /// A whole unit, if its tag matches.
    pub(super) fn open(
        &mut self,
        nonce: &[u8; NONCE_BYTES],
        sealed: &[u8],
        tag: &[u8],
    ) -> Result<Option<Vec<u8>>, ErrorStack> {
        self.begin(nonce)?;
        let mut plain = Vec::with_capacity(sealed.len() + BLOCK_BYTES);
        self.update(sealed, &mut plain)?;
        Ok(self.verify(tag)?.then_some(plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
        digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()
    }

    /// Check test cases 1 to 3 of the GCM specification (McGrew, Viega; submitted to NIST): AES-128,
    /// nonces of 96 bits, no additional data. Each in one call and cut into many.
    #[test]
    fn known_answers() {
        for (key, nonce, plain, sealed, tag) in [
            (
                "00000000000000000000000000000000",
                "000000000000000000000000",
                "",
                "",
                "58e2fccefa7e3061367f1d57a4e7455a",
            ),
            (
                "00000000000000000000000000000000",
                "000000000000000000000000",
                "00000000000000000000000000000000",
                "0388dace60b6a392f328c2b971b2fe78",
                "ab6e47d42cec13bdf53a67b21257bddf",
            ),
            (
                "feffe9928665731c6d6a8f9467308308",
                "cafebabefacedbaddecaf888",
                "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                 1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
                "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
                 21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
                "4d5c2af327cd64a62cf35abd2ba6fab4",
            ),
        ] {
            let key = bytes(key).try_into().unwrap();
            let nonce = bytes(nonce).try_into().unwrap();
            let (plain, sealed, tag) = (bytes(plain), bytes(sealed), bytes(tag));
            for piece in [1, 7, 16, 1000] {
                let mut gcm = Gcm::encrypting(&key).unwrap();
                gcm.begin(&nonce).unwrap();
                let mut out = Vec::new();
                for piece in plain.chunks(piece) {
                    gcm.update(piece, &mut out).unwrap();
                }
                assert_eq!(out, sealed);
                assert_eq!(gcm.tag().unwrap()[..], tag);
            }
            let mut gcm = Gcm::decrypting(&key).unwrap();
            assert_eq!(gcm.open(&nonce, &sealed, &tag).unwrap(), Some(plain));
            let mut wrong = tag.clone();
            wrong[15] ^= 1;
            assert_eq!(gcm.open(&nonce, &sealed, &wrong).unwrap(), None);
        }
    }
}
