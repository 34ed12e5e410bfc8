//! A small recording, written by hand.

use wcprof_trace::model::{Frame, Header, Module, Process, Span, Stats, SymbolFrame, SymbolTable};
use wcprof_trace::{TraceError, TraceSink, TraceWriter};
use wcprof_types::{
    Avma, BuildId, FdKind, FdTarget, FileOffset, LoadBias, Pid, RelativeAddress, StackEnd, Svma,
    ThreadState, Tid, TimeNs, Wait,
};

/// All tables have entries, and frames have names.
pub(crate) fn small() -> Result<Vec<u8>, TraceError> {
    let header = Header {
        wcprof_version: "0.1.0".into(),
        engine: "bpf".into(),
        notes: vec!["note".into()],
        rate_hz: 100,
        host: "host".into(),
        kernel: "6.1".into(),
        n_cpus: 2,
        started_unix_ns: 1,
    };
    let mut writer = TraceWriter::new(Vec::new(), &header)?;
    let process = writer.add_process(Process {
        pid: Pid(7),
        comm: "ceph-osd".into(),
        cmdline: vec!["ceph-osd".into(), "-f".into()],
        cgroup: String::new(),
    })?;
    let module = writer.add_module(Module {
        process,
        path: "/usr/lib/libcrypto.so.3".into(),
        build_id: BuildId::new(&[1, 2, 3, 4]),
        start: Avma(0x1000),
        end: Avma(0x9000),
        offset: FileOffset(0),
        bias: LoadBias(0x1000),
        base: Svma(0),
        deleted: false,
    })?;
    let names = ["msgr-worker-0", "tp_osd_tp", "bstore_kv_sync"];
    let mut threads = Vec::new();
    for (tid, name) in (7..).zip(names) {
        threads.push(writer.add_thread(process, Tid(tid), TimeNs(0), name)?);
    }
    writer.thread_name(threads[0], TimeNs(5), "renamed")?;
    let waits = [
        (202, 0, None),
        (74, 0, Some((FdKind::Regular, "/var/lib/ceph/osd/block"))),
        (232, 0, Some((FdKind::Anon, ""))),
    ];
    let mut wait_ids = Vec::new();
    for (syscall, op, fd) in waits {
        wait_ids.push(writer.intern_wait(Wait {
            syscall: Some(syscall),
            op,
            fd: fd.map(|(kind, path)| FdTarget {
                kind,
                path: path.into(),
            }),
            futex: (syscall == 202).then_some(Avma(0x7f00_0010)),
            kernel: "futex_wait".into(),
        })?);
    }
    let mut stacks = Vec::new();
    let mut symbols = SymbolTable::default();
    for leaf in 0..4_u64 {
        let mut frames = Vec::new();
        for depth in 0..3 {
            let frame = match depth + leaf {
                2 => Frame::Unmapped(Avma(0x10)),
                3 => Frame::Kernel("ep_poll".into()),
                n => Frame::Native {
                    module,
                    address: RelativeAddress(0x100 + n * 16),
                    function: Some(RelativeAddress(0x100)),
                },
            };
            let id = writer.intern_frame(frame)?;
            let inline = SymbolFrame {
                name: "a::b(int)".into(),
                file: Some("/src/a.cc".into()),
                line: Some(10),
                inlined: true,
                resolved: true,
            };
            let own = SymbolFrame {
                name: "_aesni_ctr32_ghash_6x".into(),
                inlined: false,
                ..inline.clone()
            };
            symbols.frames.insert(id, vec![inline, own]);
            frames.push(id);
        }
        let end = [StackEnd::Root, StackEnd::NoUnwindInfo][(leaf % 2) as usize];
        stacks.push(writer.intern_stack(frames, end)?);
    }
    let states = [
        ThreadState::OnCpu,
        ThreadState::Blocked,
        ThreadState::Runnable,
    ];
    for tick in 0..12_u64 {
        let at = tick as usize;
        let state = states[at % 3];
        writer.span(&Span {
            thread: threads[at % 3],
            start: TimeNs(tick / 3 * 10_000_000),
            end: TimeNs((tick / 3 + 1) * 10_000_000),
            weight: 10_000_000,
            n_samples: 1,
            state,
            wait: (state == ThreadState::Blocked).then_some(wait_ids[at / 3 % 3]),
            stack: stacks.get(at % 5).copied(),
        })?;
    }
    for thread in threads {
        writer.thread_seen(thread, TimeNs(0), TimeNs(40_000_000), 4)?;
    }
    let stats = Stats {
        duration: TimeNs(40_000_000),
        n_ticks: 4,
        rate_changes: vec![(TimeNs(10_000_000), 50)],
        end_reason: "duration".into(),
        complete: true,
        ..Stats::default()
    };
    writer.finish(&stats)?;
    writer.write_symbols(&symbols)?;
    Ok(writer.into_inner())
}
