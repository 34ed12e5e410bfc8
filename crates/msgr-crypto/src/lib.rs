//! Encryption of Ceph's messenger in secure mode (AES-128-GCM): what it costs, and what would lower
//! that.
#![forbid(unsafe_code)]

pub mod advice;
pub mod calibration;
mod file_error;
mod frame;
pub mod host;
pub mod measure;
pub mod model;
pub mod observed;
pub mod plot;
pub mod run;
pub mod shapes;
pub mod strategy;
pub mod text;
pub mod verify;

pub use file_error::FileError;
