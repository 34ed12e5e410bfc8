//! Addresses and debug files in, functions, inline frames and source lines out, in bounded memory.
//!
//! Debug files are large, and stored compressed: a copy of that of ceph-osd takes 650 MB. So no section
//! is ever held whole. `.debug_info` is expanded from start to end once; `.debug_aranges` says which
//! units hold an address, and only those are read, one after the other, and dropped. What remains of
//! them is small: for each address its functions, as places of strings and source files. Then
//! `.debug_line` and `.debug_str` are gone through for just those.
//!
//! A file ten times as large takes ten times as long, and as much memory. What would need more, such as
//! a single unit larger than the [`Budget`], is left out and reported.
//!
//! ```
//! use dwarf_stream::elf::ElfFile;
//! use dwarf_stream::{Budget, DwarfFiles, look_up};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let elf = ElfFile::from_file(std::fs::File::open("/proc/self/exe")?)?;
//! let files = DwarfFiles {
//!     main: &elf,
//!     supplementary: None,
//!     split: None,
//! };
//! // Addresses as the file states them, sorted.
//! let found = look_up(files, &[0x1000, 0x2000], &Budget::new(64 << 20))?;
//! for frame in &found.frames[0] {
//!     println!("{:?} at {:?}:{:?}", frame.name, frame.file, frame.line);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod allowance;
mod aranges;
mod budget;
mod cancel;
pub mod elf;
mod error;
mod files;
mod functions;
pub mod go;
mod lines;
mod lookup;
mod path;
mod references;
mod scan;
mod split;
mod table;
mod tables;
mod text;
mod unit;
mod unit_frames;
mod unit_reader;
mod units;
mod wanted;

pub use budget::Budget;
pub use cancel::Cancel;
pub use error::DwarfError;
pub use files::{DwarfFiles, SplitFile, SplitFiles};
pub use lookup::{DwarfFrame, DwarfFrames, look_up};
