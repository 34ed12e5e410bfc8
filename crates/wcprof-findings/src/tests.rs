//! Rules against hand-made profiles, and what their findings print.

mod accounts;
mod builder;
mod counters;
mod format;
mod locks;
mod reactors;
mod rule_files;
mod rules;
