//! Calibrations, reports, observations and advice to text for people. Names that come from files and
//! processes are made harmless.

mod advice;
mod calibration;
mod model;
mod observed;
mod table;
mod verdict;
mod verify;

pub use advice::advice_text;
pub use calibration::{calibration_text, heading};
pub use model::model_text;
pub use observed::observed_text;
pub(crate) use table::format_bytes;
pub use verdict::verdict_sentence;
pub use verify::verify_text;
