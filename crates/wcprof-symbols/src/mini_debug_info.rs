//! `.gnu_debugdata` to the ELF file inside it: the "mini debug info" of Fedora, RHEL and CentOS, an
//! xz-compressed file whose `.symtab` has the functions that `.dynsym` lacks (GDB manual,
//! "MiniDebugInfo").

use std::io::Read;

use dwarf_stream::elf::{ElfError, ElfFile};
use lzma_rust2::XzReader;

const NAME: &str = ".gnu_debugdata";
/// Largest section, bytes, compressed. Real ones take some 5 % of a program's text.
const MAX_STORED: u64 = 64 << 20;
/// Largest file in it, bytes.
const MAX_EXPANDED: u64 = 128 << 20;
/// Memory limit of the decoder, KiB: enough for `xz -9`.
const MAX_DECODER_KIB: u32 = 80 << 10;

/// The file in `.gnu_debugdata`; `Ok(None)` without that section.
pub(crate) fn mini_debug_info(elf: &ElfFile) -> Result<Option<ElfFile>, ElfError> {
    let Some(section) = elf.section(NAME) else {
        return Ok(None);
    };
    let stored = elf.read(section, MAX_STORED)?;
    expand(&stored).and_then(ElfFile::from_bytes).map(Some)
}

fn expand(stored: &[u8]) -> Result<Vec<u8>, ElfError> {
    let mut expanded = Vec::new();
    XzReader::new_mem_limit(stored, true, MAX_DECODER_KIB)
        .take(MAX_EXPANDED + 1)
        .read_to_end(&mut expanded)
        .map_err(|e| ElfError::Compression {
            section: NAME.to_owned(),
            reason: e.to_string(),
        })?;
    let size = expanded.len() as u64;
    if size > MAX_EXPANDED {
        return Err(ElfError::TooLarge {
            what: format!("section {NAME}, expanded,"),
            size,
            limit: MAX_EXPANDED,
        });
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Compresses with `xz`.
    fn xz(flags: &[&str], bytes: &[u8]) -> Vec<u8> {
        let mut child = Command::new("xz")
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    /// Check that all presets, checks and several streams in a row are understood.
    #[test]
    fn as_xz_writes_it() {
        let text = b"wcprof ".repeat(1000);
        for flags in [
            &["-0"][..],
            &["-9e"],
            &["--check=none"],
            &["--check=crc32"],
            &["--check=sha256"],
            &["--x86", "--lzma2"],
        ] {
            let mut stored = xz(flags, &text);
            assert_eq!(expand(&stored).unwrap(), text, "{flags:?}");
            stored.extend(xz(flags, b"more"));
            assert!(expand(&stored).unwrap().ends_with(b"wcprof more"));
        }
    }

    /// Check that what expands without end, or needs a huge dictionary, is refused.
    #[test]
    fn bombs() {
        let zeros = vec![0; usize::try_from(MAX_EXPANDED).unwrap() + 1];
        let error = expand(&xz(&["-0"], &zeros)).unwrap_err().to_string();
        assert_eq!(
            error,
            "section .gnu_debugdata, expanded, has 134217729 bytes, the limit is 134217728"
        );
        let error = expand(&xz(&["--lzma2=preset=0,dict=256MiB"], b"text")).unwrap_err();
        assert!(matches!(error, ElfError::Compression { .. }), "{error}");
    }

    /// Check that bytes cut off or changed anywhere are an error and no panic.
    #[test]
    fn damaged() {
        let stored = xz(&[], &b"0123456789abcdef".repeat(50));
        for len in 1..stored.len() {
            expand(&stored[..len]).unwrap_err();
        }
        for i in 0..stored.len() {
            let mut changed = stored.clone();
            changed[i] ^= 0xff;
            // A change of padding may pass; nothing may panic.
            let _ = expand(&changed);
        }
    }
}
