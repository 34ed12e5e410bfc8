//! `wcprof attach`.

use std::time::Duration;
use wcprof_symbols::SymbolOptions;
use wcprof_trace::TraceReader;
use wcprof_types::Pid;

use crate::cli::AttachArgs;
use crate::failure::Failure;
use crate::names;
use crate::session::{SessionOptions, default_trace_path, record};

pub(crate) fn run(args: &AttachArgs) -> Result<(), Failure> {
    let pid = Pid(args.pid);
    let trace_path = args
        .output
        .clone()
        .unwrap_or_else(|| default_trace_path(pid));
    let session = record(&SessionOptions {
        pid,
        duration: Some(args.duration)
            .filter(|d| *d > 0.0)
            .map(Duration::from_secs_f64),
        rate_hz: args.rate,
        max_cpu_percent: args.max_cpu,
        engine: args.engine,
        threads: args.threads.clone(),
        exclude_threads: args.exclude_threads.clone(),
        trace: trace_path.clone(),
    })?;
    println!(
        "{:?} {:?} {:?}",
        session.recorded.stats, session.recorded.problems, session.trouble
    );
    let (trace, _) = TraceReader::open(&trace_path)?.read_all()?;
    let (table, _) = names::of_recording(
        &trace.tables,
        &session.recorded.files,
        &SymbolOptions::default(),
    );
    let mut map = std::collections::BTreeMap::new();
    for s in &trace.spans {
        let t = &trace.tables.threads[s.thread.0 as usize];
        let mut key = format!("{}/{};", t.name(), t.tid);
        if let Some(st) = s.stack {
            let st = trace.tables.stacks[st.0 as usize];
            let mut frames = vec![format!("({})", st.end.reason())];
            let mut n = st.leaf;
            while let Some(x) = n {
                let node = trace.tables.nodes[x.0 as usize];
                match table.frames.get(&node.frame) {
                    Some(f) => {
                        for f in f {
                            frames.push(f.name.clone())
                        }
                    }
                    None => {
                        frames.push(format!("{:?}", trace.tables.frames[node.frame.0 as usize]))
                    }
                }
                n = node.caller;
            }
            key += &frames.into_iter().rev().collect::<Vec<_>>().join(";");
        }
        key += &format!(" {:?}", s.state);
        *map.entry(key).or_insert(0) += s.weight / 1000;
    }
    for (k, v) in map {
        println!("{k} {v}");
    }
    for t in &trace.tables.threads {
        println!(
            "{} {} {:?}..{:?} {}",
            t.name(),
            t.tid,
            t.start,
            t.end,
            t.n_ticks
        );
    }
    Ok(())
}
