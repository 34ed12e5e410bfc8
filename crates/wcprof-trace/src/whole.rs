//! Tables in memory to a trace file.

use std::io::Write;

use crate::error::TraceError;
use crate::model::Tables;
use crate::writer::TraceWriter;

impl<W: Write> TraceWriter<W> {
    /// Adds all that the spans of a trace refer to, and what was seen of locks: everything but
    /// spans, names of functions, sources and statistics. The writer must be new: ids are then those
    /// of `tables`.
    ///
    /// # Errors
    /// When writing fails, or tables are inconsistent.
    pub fn add_tables(&mut self, tables: &Tables) -> Result<(), TraceError> {
        for setup in &tables.setups {
            self.add_setup(setup)?;
        }
        for process in &tables.processes {
            self.add_process(process.clone())?;
        }
        for (process, end) in &tables.process_ends {
            self.process_ended(*process, end)?;
        }
        for module in &tables.modules {
            self.add_module(module.clone())?;
        }
        for thread in &tables.threads {
            let name = thread.names.first().map_or("", |(_, name)| name);
            let id = self.add_thread(thread.process, thread.tid, thread.start, name)?;
            for (seen, name) in thread.names.iter().skip(1) {
                self.thread_name(id, *seen, name)?;
            }
            self.thread_seen(id, thread.start, thread.end, thread.n_ticks)?;
        }
        for frame in &tables.frames {
            self.intern_frame(frame.clone())?;
        }
        for node in &tables.nodes {
            self.intern_node(node.caller, node.frame)?;
        }
        for stack in &tables.stacks {
            self.intern_leaf(stack.leaf, stack.end)?;
        }
        for wait in &tables.waits {
            self.intern_wait(wait.clone())?;
        }
        for (thread, own) in &tables.locks.own_tids {
            self.own_tid(*thread, *own)?;
        }
        for look in &tables.locks.looks {
            self.lock_look(look)?;
        }
        for (thread, tick) in &tables.locks.moved {
            self.waiter_moved(*thread, *tick)?;
        }
        if tables.locks.n_skipped > 0 {
            self.locks_skipped(tables.locks.n_skipped)?;
        }
        Ok(())
    }
}
