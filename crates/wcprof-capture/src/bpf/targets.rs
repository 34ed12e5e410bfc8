//! Targets that join or leave while the programs run.

use std::os::fd::AsFd;

use wcprof_types::Pid;

use super::load::insert;
use super::{BpfEngine, BpfError, MAX_TARGETS, Way, sys};

impl BpfEngine {
    /// From now on snapshots have the threads of `pid`, too. Its timer samples are dropped until
    /// [`BpfEngine::keep_samples`].
    ///
    /// # Errors
    /// When there are [`MAX_TARGETS`] already, or the programs cannot be told.
    pub fn add_target(&mut self, pid: Pid) -> Result<(), BpfError> {
        if self.targets.contains(&pid) {
            return Ok(());
        }
        if self.targets.len() >= MAX_TARGETS {
            return Err(BpfError::TooManyTargets(self.targets.len() + 1));
        }
        insert(&self.pids, pid.0)?;
        if let (Way::Iterator(links), true, Some(iterator)) =
            (&mut self.way, self.features.link_filter, &self.iterator)
        {
            let link = sys::create_iter_link(iterator.as_fd(), Some(pid))
                .map_err(|e| BpfError::from_io("attach the task iterator", &e))?;
            links.push(link);
        }
        self.targets.push(pid);
        Ok(())
    }

    /// Lets timer samples of a target through, by its number in the initial pid namespace (as its
    /// records have it).
    ///
    /// # Errors
    /// When the program cannot be told.
    pub fn keep_samples(&mut self, host_pid: i32) -> Result<(), BpfError> {
        insert(&self.host_pids, host_pid)
    }

    /// From now on snapshots lack the threads of `pid`; a number that is used again is not taken
    /// for it.
    pub fn remove_target(&mut self, pid: Pid, host_pid: Option<i32>) {
        let Some(at) = self.targets.iter().position(|&target| target == pid) else {
            return;
        };
        self.targets.remove(at);
        if let Way::Iterator(links) = &mut self.way
            && self.features.link_filter
            && at < links.len()
        {
            links.remove(at);
        }
        // An entry that is not there is what was asked for.
        let _ = sys::delete_from_map(&self.pids, &pid.0.to_ne_bytes());
        if let Some(host_pid) = host_pid {
            let _ = sys::delete_from_map(&self.host_pids, &host_pid.to_ne_bytes());
        }
    }
}
