//! AES-128-GCM of a libcrypto that is chosen at run time, by the raw EVP calls that Ceph's messenger
//! makes, behind an interface that can not be misused.
//!
//! It has unsafe code, as the crates that touch a live process, and knows nothing of messages: a [`Library`] gives
//! [`Context`]s, and a context does one call of libcrypto each time.
//! What is added to a call is a bounds check and a check of the result (`benches/crypto_harness.rs`
//! measures it against [`raw`]).

mod context;
mod error;
mod functions;
mod kernel;
mod library;
pub mod raw;
mod version;

pub use context::{Context, Direction};
pub use error::{CallError, LibraryError};
pub use kernel::{Capabilities, GcmKernel};
pub use library::Library;
pub use version::VersionNumber;
