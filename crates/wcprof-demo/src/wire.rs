//! Encrypted frames and their decryption, shaped like Ceph's messenger v2.1 in secure mode.
//!
//! A frame is two GCM units with a nonce and a tag each: 80 bytes of preamble with inline data,
//! then the rest. Names follow Ceph's `crypto_onwire.cc` and `frames_v2.cc`, so that rules written
//! for an OSD match here too.

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;

/// Preamble block (32 bytes) and inline data (48 bytes).
pub(crate) const PREAMBLE_LEN: usize = 80;
/// Data of one message.
pub(crate) const PAYLOAD_LEN: usize = 16 * 1024;

const KEY: [u8; 16] = *b"wcprof demo key.";
const TAG_LEN: usize = 16;

/// One encrypted GCM unit.
struct Unit {
    nonce: [u8; 12],
    ciphertext: Vec<u8>,
    tag: [u8; TAG_LEN],
}

/// One encrypted frame.
pub(crate) struct EncryptedFrame {
    preamble: Unit,
    payload: Unit,
}

/// Frame `number`, encrypted as by a client.
pub(crate) fn encrypt_frame(number: u64) -> Result<EncryptedFrame, ErrorStack> {
    let fill = |i: usize| (number as usize).wrapping_add(i / 7) as u8;
    let mut preamble: Vec<u8> = (0..PREAMBLE_LEN).map(fill).collect();
    preamble[..8].copy_from_slice(&number.to_le_bytes());
    let payload: Vec<u8> = (0..PAYLOAD_LEN).map(fill).collect();
    Ok(EncryptedFrame {
        preamble: encrypt_unit(2 * number, &preamble)?,
        payload: encrypt_unit(2 * number + 1, &payload)?,
    })
}

fn encrypt_unit(counter: u64, plaintext: &[u8]) -> Result<Unit, ErrorStack> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    let mut ctx = CipherCtx::new()?;
    ctx.encrypt_init(Some(Cipher::aes_128_gcm()), Some(&KEY), Some(&nonce))?;
    let mut ciphertext = vec![0; plaintext.len()];
    ctx.cipher_update(plaintext, Some(&mut ciphertext))?;
    ctx.cipher_final(&mut [0; TAG_LEN])?;
    let mut tag = [0; TAG_LEN];
    ctx.tag(&mut tag)?;
    Ok(Unit {
        nonce,
        ciphertext,
        tag,
    })
}

/// The receiving side of one connection.
#[allow(non_camel_case_types)] // the model's name, which rules look for
pub(crate) struct AES128GCM_OnWireRxHandler {
    ctx: CipherCtx,
}

impl AES128GCM_OnWireRxHandler {
    pub(crate) fn new() -> Result<Self, ErrorStack> {
        let mut ctx = CipherCtx::new()?;
        ctx.decrypt_init(Some(Cipher::aes_128_gcm()), Some(&KEY), None)?;
        Ok(Self { ctx })
    }

    #[inline(never)]
    fn reset_rx_handler(&mut self, nonce: &[u8; 12]) -> Result<(), ErrorStack> {
        self.ctx.decrypt_init(None, None, Some(nonce))
    }

    #[inline(never)]
    fn authenticated_decrypt_update(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), ErrorStack> {
        self.ctx.cipher_update(input, Some(output)).map(|_| ())
    }

    #[inline(never)]
    fn authenticated_decrypt_final(&mut self, tag: &[u8; TAG_LEN]) -> Result<(), ErrorStack> {
        self.ctx.set_tag(tag)?;
        self.ctx.cipher_final(&mut [0; TAG_LEN]).map(|_| ())
    }

    fn decrypt_unit(&mut self, unit: &Unit, output: &mut [u8]) -> Result<(), ErrorStack> {
        self.reset_rx_handler(&unit.nonce)?;
        self.authenticated_decrypt_update(&unit.ciphertext, output)?;
        self.authenticated_decrypt_final(&unit.tag)
    }
}

/// Reassembles messages; owns the buffers they are decrypted into.
pub(crate) struct FrameAssembler {
    rx: AES128GCM_OnWireRxHandler,
    preamble: Vec<u8>,
    payload: Vec<u8>,
}

impl FrameAssembler {
    pub(crate) fn new() -> Result<Self, ErrorStack> {
        Ok(Self {
            rx: AES128GCM_OnWireRxHandler::new()?,
            preamble: vec![0; PREAMBLE_LEN],
            payload: vec![0; PAYLOAD_LEN],
        })
    }

    /// Decrypt and verify the first unit; returns the frame's number.
    #[inline(never)]
    pub(crate) fn disassemble_preamble(
        &mut self,
        frame: &EncryptedFrame,
    ) -> Result<u64, ErrorStack> {
        self.rx.decrypt_unit(&frame.preamble, &mut self.preamble)?;
        let mut number = [0; 8];
        number.copy_from_slice(&self.preamble[..8]);
        Ok(u64::from_le_bytes(number))
    }

    /// Decrypt and verify the rest; returns the message's data.
    #[inline(never)]
    pub(crate) fn disasm_remaining_secure_rev1(
        &mut self,
        frame: &EncryptedFrame,
    ) -> Result<&[u8], ErrorStack> {
        self.rx.decrypt_unit(&frame.payload, &mut self.payload)?;
        Ok(&self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a frame decrypts to what was encrypted.
    #[test]
    fn round_trip() {
        let frame = encrypt_frame(77).unwrap();
        let mut assembler = FrameAssembler::new().unwrap();
        assert_eq!(assembler.disassemble_preamble(&frame).unwrap(), 77);
        let payload = assembler.disasm_remaining_secure_rev1(&frame).unwrap();
        assert_eq!(payload.len(), PAYLOAD_LEN);
        assert_eq!(payload[..8], [77, 77, 77, 77, 77, 77, 77, 78]);
    }

    /// Check that the tag is verified: one flipped bit is refused, and the next frame still works.
    #[test]
    fn tag_is_verified() {
        let good = encrypt_frame(1).unwrap();
        let mut bad = encrypt_frame(2).unwrap();
        bad.payload.ciphertext[9000] ^= 4;
        let mut assembler = FrameAssembler::new().unwrap();
        assert_eq!(assembler.disassemble_preamble(&bad).unwrap(), 2);
        assert!(assembler.disasm_remaining_secure_rev1(&bad).is_err());
        assert!(assembler.disasm_remaining_secure_rev1(&good).is_ok());
    }
}
