//! Tests of which module files are trusted.

use super::*;

/// Check that without a build-id the file on this machine is not trusted.
#[test]
fn local_needs_build_id() {
    let mut module = ModuleIdentity {
        path: "/proc/version".to_owned(),
        build_id: None,
        pid: None,
        start: None,
    };
    let refused = LocalFiles.open(&module).unwrap_err();
    assert!(matches!(refused.reason, NoFile::NoBuildId), "{refused}");
    module.path = "[vdso]".to_owned();
    let refused = LocalFiles.open(&module).unwrap_err();
    assert!(matches!(refused.reason, NoFile::NotAFile), "{refused}");
}
