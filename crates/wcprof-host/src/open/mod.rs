//! Opens files that others chose: of a live process, below a root folder, on this machine. The result is
//! always a regular file, open for reading.
//!
//! The owner of a process chooses the paths that its mappings, links and traces name. Such a path may lead
//! to a FIFO (opening it hangs), to a device (opening it has side effects), to a server that never answers,
//! or out of a container. Therefore:
//!
//! - A path is resolved to a handle (`O_PATH`) first, which opens nothing. A regular file is then opened
//!   through its handle, so that nobody can exchange it in between.
//! - Below a [`Root`] no link leads out of it, and magic links of `/proc` are refused.
//! - `/proc/PID/root`, `exe` and `map_files` are magic links, too. They are entered on purpose, here alone.
//! - Whoever may have to ask a server that hangs is a thread, which is left behind if nobody answers: also when a file is
//!   closed, so that files of targets are [`TargetFile`]s.

mod closing;
mod copy;
mod file_system;
mod in_time;
mod live;
mod reason;
mod regular;
mod room;

pub(crate) use closing::prepare;
pub use closing::{TargetFile, closing_cpu_ns};
pub(crate) use in_time::do_in_time;
pub use in_time::{
    Remote, look_in_time, open_below_in_time, open_regular_in_time, read_code_in_time,
};
pub use live::{HeldFile, LiveFiles, mapped_file};
pub use reason::{NoFile, OpenError};
pub(crate) use regular::open_handle;
pub use regular::{FileIdentity, Root, open_regular};
