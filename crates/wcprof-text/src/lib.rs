//! Text for people: names from a target made harmless, lines cut to the width of a terminal, wrapped
//! paragraphs, numbers with units, and JSON that a terminal can show.
#![forbid(unsafe_code)]

mod columns;
mod escape;
mod json;
mod paragraph;
mod time;
mod units;

pub use columns::{columns, cut, first_columns};
pub use escape::{folded_name, is_invisible, one_line, terminal_name, xml_escaped, xml_text};
pub use json::printable_json;
pub use paragraph::wrap;
pub use time::{parse_short_time, parse_time, time_in};
pub use units::{and_more, bytes, count, duration, percent};
