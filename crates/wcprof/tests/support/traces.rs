//! The program, run on the saved traces.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support;

pub const OSD: &str = "ceph-osd-secure-randread.wct";
pub const QEMU: &str = "qemu-librbd-writeback.wct";

/// Where they are.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces")
}

/// Runs in their folder, so that outputs name them without a path.
pub fn wcprof(args: &[&str]) -> Output {
    let mut command = support::command(args);
    command.current_dir(fixtures());
    command.output().expect("the program runs")
}
