//! A file, or the linked library, to a libcrypto that can be called.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::fs::Metadata;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::Library as Handle;

use crate::context::{Context, Direction};
use crate::error::{CallError, LibraryError};
use crate::functions::Functions;
use crate::kernel::{Capabilities, GcmKernel};
use crate::version::VersionNumber;

/// `OPENSSL_INIT_NO_LOAD_CONFIG` of `openssl/crypto.h`.
const INIT_NO_LOAD_CONFIG: u64 = 0x80;
/// `OPENSSL_INFO_CPU_SETTINGS` of `openssl/crypto.h`.
const INFO_CPU_SETTINGS: i32 = 1008;
/// `OPENSSL_VERSION` of `openssl/crypto.h`: the whole version text.
const VERSION_TEXT: i32 = 0;

/// A libcrypto of OpenSSL, loaded until the process ends.
#[derive(Debug)]
pub struct Library {
    functions: Functions,
    /// The file; `None` when it is part of this program.
    pub path: Option<PathBuf>,
    /// What it says of itself: `OpenSSL 3.0.22 25 Aug 2026`.
    pub version: String,
    version_number: VersionNumber,
}

impl Library {
    /// The library that this program is linked with: the system's.
    ///
    /// # Errors
    /// When it is not OpenSSL, or has no AES-128-GCM.
    pub fn system() -> Result<Self, LibraryError> {
        openssl_sys::init();
        let functions = Functions::load(&Handle::this()).map_err(|symbol| {
            let path = "libcrypto.so".into();
            LibraryError::NoSymbol { path, symbol }
        })?;
        let path = file_of(functions.decrypt.update as *const c_void);
        Self::checked(functions, path)
    }

    /// Loads a file and calls into it. **Its code runs with the rights of this process**, its
    /// constructors before anything can be checked: only for files that the user trusts.
    ///
    /// OpenSSL's configuration file is not read, since it can load further code. The file's symbols
    /// are preferred to those of libraries that are loaded already, and it stays loaded.
    ///
    /// # Errors
    /// When the dynamic linker refuses it, or it is not OpenSSL 1.1.1 or later.
    pub fn open(path: &Path) -> Result<Self, LibraryError> {
        let load_error = |reason: String| LibraryError::Load {
            path: path.to_owned(),
            reason,
        };
        // The linker would look a name without a slash up in its own folders, open a FIFO without
        // end, and complain of a folder in words that do not help.
        let resolved = path.canonicalize().and_then(|p| Ok((p.metadata()?, p)));
        let (metadata, path_of_file) = resolved.map_err(|error| load_error(error.to_string()))?;
        if !metadata.is_file() {
            return Err(load_error("it is not a regular file".into()));
        }
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        // SAFETY: the caller trusts the file, as the documentation demands.
        let handle = unsafe { Handle::open(Some(&path_of_file), flags) }.map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            load_error(source.unwrap_or_else(|| error.to_string()))
        })?;
        let found = Functions::load(&handle);
        // libcrypto registers handlers for the exit of threads and of the process.
        std::mem::forget(handle);
        let path = path.to_owned();
        let functions = match found {
            Ok(functions) => functions,
            Err(symbol) => return Err(LibraryError::NoSymbol { path, symbol }),
        };
        if let Some(found) = file_of(functions.decrypt.update as *const c_void) {
            let is_same = |m: Metadata| (m.dev(), m.ino()) == (metadata.dev(), metadata.ino());
            if !found.metadata().is_ok_and(is_same) {
                return Err(LibraryError::Dependency { path, found });
            }
        }
        Self::checked(functions, Some(path))
    }

    fn checked(functions: Functions, path: Option<PathBuf>) -> Result<Self, LibraryError> {
        // SAFETY: OpenSSL returns a constant string.
        let version = unsafe { text((functions.version)(VERSION_TEXT)) };
        // SAFETY: takes nothing and returns a number.
        let number = unsafe { (functions.version_num)() };
        let file = path.clone().unwrap_or_else(|| "libcrypto.so".into());
        // BoringSSL and AWS-LC say `OpenSSL 1.1.1 (compatible; ...)`.
        if !version.starts_with("OpenSSL ") || version.contains("compatible") {
            let path = file;
            return Err(LibraryError::Foreign { path, version });
        }
        // SAFETY: no settings; safe to call more than once.
        unsafe { (functions.init)(INIT_NO_LOAD_CONFIG, std::ptr::null()) };
        let library = Self {
            functions,
            path,
            version,
            version_number: VersionNumber::from_number(number),
        };
        let mut both = [Direction::Encrypt, Direction::Decrypt].into_iter();
        both.try_for_each(|direction| library.context(direction, &[0; 16]).map(drop))
            .map_err(|reason| LibraryError::NoCipher { path: file, reason })?;
        Ok(library)
    }

    /// A context for AES-128-GCM with this key.
    ///
    /// # Errors
    /// When libcrypto has no memory or no such cipher.
    pub fn context(&self, direction: Direction, key: &[u8; 16]) -> Result<Context<'_>, CallError> {
        Context::new(&self.functions, direction, key)
    }

    /// CPU features that this library uses: after `OPENSSL_ia32cap` of this process's environment
    /// where the library reports them (since 3.0), else all that the CPU has.
    pub fn capabilities(&self) -> Capabilities {
        let known = self.functions.info.and_then(|info| {
            // SAFETY: OPENSSL_info returns a constant string, or null.
            Capabilities::from_cpu_settings(&unsafe { text(info(INFO_CPU_SETTINGS)) })
        });
        known.unwrap_or_else(Capabilities::of_this_cpu)
    }

    /// The kernel that does its AES-128-GCM here.
    pub fn gcm_kernel(&self) -> GcmKernel {
        match cfg!(target_arch = "x86_64") {
            true => GcmKernel::pick(self.version_number, &self.capabilities()),
            false => GcmKernel::Unknown,
        }
    }
}

/// The file that holds this function; `None` when it is the program itself or nothing is known.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and writes no more than a Dl_info.
    let found = unsafe { libc::dladdr(function, info.as_mut_ptr()) };
    // SAFETY: all bytes zero is a valid Dl_info, and dladdr wrote a valid one.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives the path as a string that lives as long as the object is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    path.is_absolute().then_some(path)
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// 1. `text` is null or points to a string that ends with a zero byte.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's duty.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check versions of both numbering schemes, as `openssl version` writes them.
    #[test]
    fn version_numbers() {
        for (number, parts) in [
            (0x3000_0160, (3, 0, 22)),
            (0x3050_0070, (3, 5, 7)),
            (0x1010_117f, (1, 1, 1)),
        ] {
            let (major, minor, patch) = parts;
            let version = VersionNumber(major, minor, patch);
            assert_eq!(VersionNumber::from_number(number), version);
        }
    }

    /// Check that the linked library is found, names its file, and its kernel fits its CPU.
    #[test]
    fn system() {
        let library = Library::system().unwrap();
        assert!(library.version.starts_with("OpenSSL "), "{library:?}");
        let VersionNumber(major, minor, patch) = library.version_number;
        let prefix = format!("OpenSSL {major}.{minor}.{patch}");
        assert!(library.version.starts_with(&prefix), "{library:?}");
        let has_aes = library.capabilities().0.contains(&"aes");
        assert_eq!(library.gcm_kernel() == GcmKernel::Software, !has_aes);
    }

    /// Check that the linked library's file can be loaded a second time, by its path.
    #[test]
    fn open_by_path() {
        let system = Library::system().unwrap();
        let Some(path) = &system.path else {
            eprintln!("SKIPPED open_by_path: libcrypto is part of this program");
            return;
        };
        let library = Library::open(path).unwrap();
        assert_eq!(library.version, system.version);
        assert_eq!(library.gcm_kernel(), system.gcm_kernel());
        assert_eq!(library.path.as_ref(), Some(path));
    }

    /// Check that what is no libcrypto is refused with the reason.
    #[test]
    fn refused() {
        let error = |path: &str| Library::open(Path::new(path)).unwrap_err().to_string();
        assert!(error("/nowhere/libcrypto.so.3").contains("No such file"));
        assert!(error("/dev/null").contains("not a regular file"));
        assert!(error("/proc/self/status").contains("failed to load"));
        // The C library is a library, but no libcrypto.
        let libc = file_of(libc::getpid as *const c_void).unwrap();
        let text = error(libc.to_str().unwrap());
        assert!(text.contains("`OpenSSL_version`"), "{text}");
    }
}
