//! The kernel's uprobe event source (`/sys/bus/event_source/devices/uprobe`), to its number.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices-uprobe` and `kernel/events/core.c`
//! (`perf_uprobe`): `config` bit 0 asks for return probes, `config1` is the path, `config2` the offset.

use std::path::Path;

use wcprof_host::procfs::read_file;

use super::UprobeError;

/// The event source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UprobePmu {
    pub(super) kind: u32,
}

impl UprobePmu {
    /// Looks in `/sys`.
    ///
    /// # Errors
    /// When the kernel has none.
    pub fn find() -> Result<Self, UprobeError> {
        Self::find_in(Path::new("/sys"))
    }

    /// Looks in another sysfs root.
    pub(super) fn find_in(sysfs: &Path) -> Result<Self, UprobeError> {
        let folder = sysfs.join("bus/event_source/devices/uprobe");
        let read = |name: &str| read_file(folder.join(name));
        let text = read("type").map_err(|_| UprobeError::NoPmu(folder.display().to_string()))?;
        let refused = |name: &str, text: &str| UprobeError::Pmu {
            file: folder.join(name).display().to_string(),
            text: text.chars().take(40).collect(),
        };
        let kind = text
            .trim()
            .parse()
            .map_err(|_| refused("type", text.trim()))?;
        // `config = 0` must mean an entry probe.
        let format = read("format/retprobe").unwrap_or_else(|_| "config:0".into());
        match format.trim() {
            "config:0" => Ok(Self { kind }),
            other => Err(refused("format/retprobe", other)),
        }
    }
}
