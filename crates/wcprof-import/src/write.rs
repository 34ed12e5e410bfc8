//! A trace in memory to a trace file.

use std::io::Write;

use wcprof_trace::model::Trace;
use wcprof_trace::{TraceError, TraceWriter};

/// Writes a whole trace. The writer must be new: ids are those of the trace.
///
/// # Errors
/// When writing fails.
pub fn write<W: Write>(trace: &Trace, writer: &mut TraceWriter<W>) -> Result<(), TraceError> {
    let tables = &trace.tables;
    for process in &tables.processes {
        writer.add_process(process.clone())?;
    }
    for module in &tables.modules {
        writer.add_module(module.clone())?;
    }
    let mut ids = Vec::with_capacity(tables.threads.len());
    for thread in &tables.threads {
        let id = writer.add_thread(
            thread.process,
            thread.tid,
            thread.start,
            thread.names.first().map_or("", |(_, name)| name),
        )?;
        for (seen, name) in thread.names.iter().skip(1) {
            writer.thread_name(id, *seen, name)?;
        }
        writer.thread_seen(id, thread.start, thread.end, thread.n_ticks)?;
        ids.push(id);
    }
    for frame in &tables.frames {
        writer.intern_frame(frame.clone())?;
    }
    for node in &tables.nodes {
        writer.intern_node(node.caller, node.frame)?;
    }
    for stack in &tables.stacks {
        writer.intern_leaf(stack.leaf, stack.end)?;
    }
    for wait in &tables.waits {
        writer.intern_wait(wait.clone())?;
    }
    for span in &trace.spans {
        writer.span(span)?;
    }
    writer.finish(&tables.stats)?;
    if let Some(symbols) = &tables.symbols {
        writer.write_symbols(symbols)?;
    }
    if !tables.local_names.names.frames.is_empty() {
        writer.write_local_names(&tables.local_names)?;
    }
    Ok(())
}
