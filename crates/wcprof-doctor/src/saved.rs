//! A snapshot as JSON text, and back.

use thiserror::Error;
use wcprof_types::snapshot::{SNAPSHOT_SCHEMA, SNAPSHOT_VERSION, Snapshot, limits};
use wcprof_types::{redact_args, redact_variable};

/// Text that is no snapshot.
#[derive(Debug, Error)]
pub enum SavedError {
    /// Not JSON, or not of this form.
    #[error("not a snapshot of wcprof doctor: {0}")]
    Parse(#[from] serde_json::Error),
    /// Another document.
    #[error("not a snapshot of wcprof doctor: its schema is `{0}`")]
    Schema(String),
    /// Written by a newer wcprof.
    #[error("the snapshot has version {0}; this wcprof reads version {SNAPSHOT_VERSION}")]
    Version(u32),
}

/// The snapshot as one line of JSON.
///
/// # Errors
/// None for what was read by wcprof.
pub fn to_saved(snapshot: &Snapshot) -> Result<String, SavedError> {
    Ok(serde_json::to_string(snapshot)?)
}

/// Reads what [`to_saved`] wrote. Secrets, and what is beyond the limits of a snapshot, are removed once more: the text
/// may come from elsewhere.
///
/// # Errors
/// The text is no snapshot, or one of a newer version.
pub fn from_saved(text: &str) -> Result<Snapshot, SavedError> {
    let mut snapshot: Snapshot = serde_json::from_str(text)?;
    if snapshot.schema != SNAPSHOT_SCHEMA {
        let schema = snapshot.schema.chars().take(64).collect();
        return Err(SavedError::Schema(schema));
    }
    if snapshot.version != SNAPSHOT_VERSION {
        return Err(SavedError::Version(snapshot.version));
    }
    cut(&mut snapshot);
    let process = &mut snapshot.process;
    process.cmdline = redact_args(&process.comm, &process.cmdline);
    if let Some(environ) = &mut process.environ {
        let kept = environ.iter().filter_map(|(name, value)| {
            let value = redact_variable(name, value)?;
            Some((name.clone(), value))
        });
        *environ = kept.collect();
    }
    Ok(snapshot)
}

/// Leaves as much as a snapshot of a live process may hold.
fn cut(snapshot: &mut Snapshot) {
    let process = &mut snapshot.process;
    let (mut n_args, mut bytes) = (0, 0);
    for arg in process.cmdline.iter_mut().take(limits::ARGS) {
        arg.truncate(arg.floor_char_boundary(limits::ARG));
        bytes += arg.len() + 1;
        n_args += usize::from(bytes <= limits::CMDLINE);
    }
    process.cmdline_cut |= n_args < process.cmdline.len();
    process.cmdline.truncate(n_args);
    let n_more = process.threads.len().saturating_sub(limits::THREADS) as u64;
    process.n_more_threads = process.n_more_threads.saturating_add(n_more);
    process.threads.truncate(limits::THREADS);
    process.vhost.truncate(limits::THREADS);
    if let Some(libraries) = &mut process.libraries {
        libraries.truncate(limits::LIBRARIES);
    }
    if let Some(fds) = &mut process.fds {
        fds.files.truncate(limits::FILES);
    }
    let host = &mut snapshot.host;
    host.nodes.truncate(limits::NODES);
    host.devices.truncate(limits::DEVICES);
    host.nics.truncate(limits::NICS);
    let of_devices = host.devices.iter_mut().map(|device| &mut device.irqs);
    let of_nics = host.nics.iter_mut().map(|nic| &mut nic.irqs);
    of_devices
        .chain(of_nics)
        .for_each(|irqs| irqs.truncate(limits::IRQS));
    snapshot.unread.truncate(limits::UNREAD);
}

#[cfg(test)]
mod tests {
    use wcprof_types::snapshot::{Nic, ThreadSetup};

    use super::*;

    /// Check that a snapshot from elsewhere holds no more than one that was read, so that it can be judged.
    #[test]
    fn limited() {
        let mut snapshot = Snapshot {
            schema: SNAPSHOT_SCHEMA.into(),
            version: SNAPSHOT_VERSION,
            ..Snapshot::default()
        };
        let thread = ThreadSetup {
            cpus: "0-99999".into(),
            ..ThreadSetup::default()
        };
        snapshot.process.threads = vec![thread; 200_000];
        snapshot.process.cmdline = vec!["-device".into(); 100_000];
        snapshot.process.cmdline[0] = "ä".repeat(1 << 20);
        let irqs = vec![Default::default(); 1000];
        let nic = Nic {
            irqs,
            ..Nic::default()
        };
        snapshot.host.nics = vec![nic; 1000];
        let snapshot = from_saved(&to_saved(&snapshot).unwrap()).unwrap();
        let process = &snapshot.process;
        assert_eq!(
            (process.threads.len(), process.n_more_threads),
            (1024, 198_976)
        );
        assert_eq!((process.cmdline.len(), process.cmdline_cut), (4096, true));
        assert_eq!(process.cmdline[0].len(), 16 << 10);
        let nics = &snapshot.host.nics;
        assert_eq!((nics.len(), nics[31].irqs.len()), (32, 256));
        let mut long = snapshot.clone();
        long.process.cmdline = vec!["x".repeat(16 << 10); 4096];
        let long = from_saved(&to_saved(&long).unwrap()).unwrap();
        assert_eq!(long.process.cmdline.len(), 63);
    }

    /// Check that a snapshot survives, without the secrets that it should not have had.
    #[test]
    fn round_trip() {
        let mut snapshot = Snapshot {
            schema: SNAPSHOT_SCHEMA.into(),
            version: SNAPSHOT_VERSION,
            ..Snapshot::default()
        };
        snapshot.process.cmdline = vec!["x".into(), "--key=AQ==".into()];
        let text = to_saved(&snapshot).unwrap();
        assert!(!text.contains('\n'));
        snapshot.process.cmdline[1] = "--key=***".into();
        assert_eq!(from_saved(&text).unwrap(), snapshot);
    }

    /// Check that other documents and versions are refused by name.
    #[test]
    fn refused() {
        let error = |text: &str| from_saved(text).unwrap_err().to_string();
        assert!(error("{").contains("not a snapshot"));
        assert!(error("[1]").contains("not a snapshot"));
        assert!(error("{\"schema\":\"wcprof-check\"}").contains("wcprof-check"));
        let newer = error("{\"schema\":\"wcprof-snapshot\",\"version\":9}");
        assert!(newer.contains("version 9"), "{newer}");
    }
}
