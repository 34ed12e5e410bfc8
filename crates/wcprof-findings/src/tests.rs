//! Rules against hand-made profiles, and what their findings print.

mod builder;
mod format;
mod rule_files;
mod rules;
