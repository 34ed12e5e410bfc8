//! Calibrations, reports, observations and advice to text for people. Names that come from files and
//! processes are made harmless.

mod advice;
mod calibration;
mod model;
mod observed;
mod table;
mod verify;

pub use advice::{advice_text, verdict_sentence};
pub use calibration::{calibration_text, heading};
pub use model::model_text;
pub use observed::observed_text;
pub use verify::verify_text;
