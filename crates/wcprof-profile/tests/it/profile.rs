//! Spans to profiles: names, stacks, pools, sums.

use crate::support;

use support::{MS, Maker, kernel, syscall};
use wcprof_profile::model::{Profile, ProfileStack, State};
use wcprof_profile::{
    GroupBy, NOT_SAMPLED, Rules, ThreadFilter, Trees, View, cpu_by_category, function_groups, globs,
};
use wcprof_types::{StackEnd, ThreadState, Wait};

fn names(profile: &Profile, row: usize) -> Vec<&str> {
    let stack = profile.rows[row].stack.unwrap();
    profile.stacks[stack.0 as usize]
        .frames
        .iter()
        .map(|f| profile.functions[f.0 as usize].name.as_str())
        .collect()
}

/// Check that inline functions are frames between their caller and callee, root first.
#[test]
fn inline_order() {
    let mut m = Maker::new();
    let t = m.thread(1, "t");
    m.on_cpu(t, &["main", "inner()+middle()+outer()", "leaf()"], 1);
    assert_eq!(
        names(&m.profile(), 0),
        ["main", "outer()", "middle()", "inner()", "leaf()"]
    );
}

/// Check the names of frames without symbols: the function's start in the file, the address
/// outside modules, the kernel's place, which is left out below user frames.
#[test]
fn unnamed() {
    let mut m = Maker::new();
    let t = m.thread(1, "t");
    m.on_cpu(t, &["?1a2b40", "0x7f0012345678", "k:do_idle"], 1);
    m.on_cpu(t, &["k:io_wq_worker"], 1);
    let profile = m.profile();
    assert_eq!(names(&profile, 0), ["libc.so.6+0x1a2b40", "0x7f0012345678"]);
    assert_eq!(names(&profile, 1), ["io_wq_worker"]);
    for function in &profile.functions {
        assert_eq!(
            function.resolved,
            function.module == "[kernel]",
            "{function:?}"
        );
    }
}

/// Check that without any symbols a frame of a program that is not position independent shows its
/// address in the file.
#[test]
fn no_symbols() {
    let mut m = Maker::new();
    let t = m.thread(1, "t");
    m.on_cpu(t, &["main"], 1);
    m.tables.names.symbols = None;
    assert_eq!(names(&m.profile(), 0), ["ceph-osd+0x400000"]);
}

/// Check that spans alike become one row, across addresses of one function, and that sums and
/// counts are kept.
#[test]
fn rows_merge() {
    let mut m = Maker::new();
    let (a, b) = (m.thread(1, "a"), m.thread(2, "b"));
    for _ in 0..3 {
        m.on_cpu(a, &["main", "work()"], 10);
        m.on_cpu(b, &["main", "work()"], 1);
    }
    let profile = m.profile();
    let rows: Vec<_> = profile
        .rows
        .iter()
        .map(|r| (r.thread, r.weight, r.n_samples))
        .collect();
    assert_eq!(rows, [(0, 30, 3), (1, 3, 3)]);
    assert_eq!(profile.rows[0].stack, profile.rows[1].stack);
}

/// Check that a thread without a user stack is shown by its kernel place.
#[test]
fn kernel_place() {
    let mut m = Maker::new();
    let t = m.thread(1, "iou-wrk-7");
    let none = m.stack(&[], StackEnd::NoUserStack);
    let wait = m.wait(kernel("io_wq_worker"));
    m.span(t, ThreadState::Blocked, Some(wait), Some(none), 5);
    m.span(t, ThreadState::Blocked, Some(wait), None, 5);
    let profile = m.profile();
    assert_eq!(names(&profile, 0), ["io_wq_worker"]);
    assert_eq!(profile.rows.len(), 1);
    assert_eq!(profile.rows[0].state, State::Idle);
}

/// Check that a kernel worker has its kernel stack whether or not the kernel's functions are asked for, that its wait is
/// what the innermost function beyond the scheduler waits for, and that its CPU time, and time without a stack, are no
/// other function's.
#[test]
fn kernel_workers() {
    let mut m = Maker::new();
    let user = m.thread(1, "main");
    m.on_cpu(user, &["main", "submit_reads"], 5);
    let worker = m.thread(2, "iou-wrk-1");
    let root = ["k:ret_from_fork", "k:io_wq_worker", "k:io_write"];
    let copies = m.stack(&[&root[..], &["k:memcpy"]].concat(), StackEnd::NoUserStack);
    m.span(worker, ThreadState::OnCpu, None, Some(copies), 60);
    m.span(worker, ThreadState::OnCpu, None, None, 20);
    let waits = [
        &root[..],
        &["k:rq_qos_wait", "k:io_schedule", "k:__schedule"],
    ]
    .concat();
    let waits = m.stack(&waits, StackEnd::NoUserStack);
    let wait = m.wait(Wait::default());
    m.span(worker, ThreadState::Blocked, Some(wait), Some(waits), 30);
    let other = m.thread(3, "made-by-a-module");
    let unknown = m.stack(
        &["k:ret_from_fork", "k:module_thread"],
        StackEnd::NoUserStack,
    );
    m.span(other, ThreadState::OnCpu, None, Some(unknown), 10);
    // As Linux 6.12 shows it, with the module of a function that is in one.
    let vhost = m.thread(4, "vhost-1");
    let relay = [
        "k:ret_from_fork",
        "k:vhost_task_fn",
        "k:vhost_run_work_list [vhost]",
        "k:_raw_spin_unlock_irqrestore",
    ];
    let relay = m.stack(&relay, StackEnd::NoUserStack);
    m.span(vhost, ThreadState::OnCpu, None, Some(relay), 15);
    let profile = m.profile();
    assert_eq!(profile, m.profile_with_kernel());
    let row = |weight| {
        profile
            .rows
            .iter()
            .position(|row| row.weight == weight)
            .unwrap()
    };
    assert_eq!(
        names(&profile, row(60)),
        ["ret_from_fork", "io_wq_worker", "io_write", "memcpy"]
    );
    assert_eq!(profile.rows[row(30)].state, State::Disk);
    let categories = Rules::builtin().unwrap().categories().unwrap();
    let kinds = cpu_by_category(&profile, &categories);
    let kinds: Vec<_> = kinds
        .iter()
        .map(|k| (k.name.as_deref(), k.weight))
        .collect();
    let expected = [
        (Some("kernel worker of io_uring"), 60),
        (Some(NOT_SAMPLED), 20),
        (Some("vhost"), 15),
        (Some("kernel worker"), 10),
        (None, 5),
    ];
    assert_eq!(kinds, expected);
}

/// Functions of the kernel (`/proc/kallsyms`) whose names begin like those of a program that a built-in rule is for.
const KERNEL_NAMES: [&str; 18] = [
    "tlb_flush_mmu",
    "tlb_finish_mmu",
    "tb_switch_alloc",
    "helper_rfc4106_encrypt",
    "raw_notifier_call_chain",
    "raw_spin_rq_lock_nested",
    "virtio_queue_rq",
    "buffer_migrate_folio",
    "aio_complete",
    "rbd_queue_rq",
    "osd_req_op_init",
    "poll",
    "free",
    "send",
    "decode",
    "malloc",
    "do_st_xstate",
    "AES_encrypt",
];

/// Check that what a program calls its functions says nothing of the kernel's.
#[test]
fn kernel_names() {
    let categories = Rules::builtin().unwrap().categories().unwrap();
    let kernel: Vec<_> = KERNEL_NAMES
        .into_iter()
        .filter_map(|name| Some((name, categories.of(name, "[kernel]")?)))
        .collect();
    assert_eq!(kernel, [("aio_complete", "files and devices")]);
    assert_eq!(
        categories.of("tlb_fill", "qemu-system-x86_64"),
        Some("emulation")
    );
    assert_eq!(categories.of("malloc", "libc.so.6"), Some("malloc, free"));
    for (name, kind) in [
        ("memcpy_orig", "copying memory"),
        ("_copy_to_iter", "copying memory"),
        ("tcp_sendmsg_locked", "sockets"),
        ("crc32c_x86_3way", "checksums"),
        ("ZSTD_compressBlock_fast", "compression"),
        ("blk_mq_submit_bio", "files and devices"),
        ("futex_wake", "waking threads"),
        ("aesni_xts_encrypt", "encryption"),
    ] {
        assert_eq!(categories.of(name, "[kernel]"), Some(kind), "{name}");
    }
}

/// Check functions that Ceph 16's plugins export (`nm -D libec_isa.so libec_jerasure.so libec_shec.so`), in these and in a program
/// that has them linked in; and that arithmetic of finite fields elsewhere is not theirs.
#[test]
fn erasure_coding() {
    let categories = Rules::builtin().unwrap().categories().unwrap();
    for name in [
        "ec_encode_data_avx2",
        "gf_multby_one",
        "jerasure_matrix_encode",
        "ErasureCodeIsaDefault::isa_encode",
        "ceph::ErasureCode::encode",
        "region_sse2_xor",
        "shec_matrix_decode",
        "ECUtil::encode",
    ] {
        for module in ["libec_isa.so", "ceph-osd-crimson"] {
            assert_eq!(
                categories.of(name, module),
                Some("erasure coding"),
                "{name}"
            );
        }
    }
    assert_eq!(
        categories.of("gf_mul", "libcrypto.so.3"),
        Some("encryption")
    );
    assert_eq!(
        categories.of("ECCommon::RMWPipeline::start_rmw", "ceph-osd"),
        Some("PG and requests")
    );
}

/// The kinds of work of all CPU time by the built-in rules, with their time.
fn assert_kinds(m: &Maker, expected: &[(Option<&str>, u64)]) {
    let categories = Rules::builtin().unwrap().categories().unwrap();
    let kinds = cpu_by_category(&m.profile(), &categories);
    let kinds: Vec<_> = kinds
        .iter()
        .map(|k| (k.name.as_deref(), k.weight))
        .collect();
    assert_eq!(kinds, expected);
}

/// Check that code in no file is a kind of its own where it ran itself, and not what it called.
#[test]
fn code_made_at_run_time() {
    let mut m = Maker::new();
    let thread = m.thread(1, "main");
    for (stack, ns) in [
        (&["main", "[code in 0x7f00]"][..], 50),
        (&["main", "[code in 0x7f00]", "libc:malloc"], 20),
        (&["main", "[code in 0x7f00]", "look_up"], 10),
    ] {
        let stack = m.stack(stack, StackEnd::Root);
        m.span(thread, ThreadState::OnCpu, None, Some(stack), ns);
    }
    assert_kinds(
        &m,
        &[
            (Some("code made at run time"), 50),
            (Some("malloc, free"), 20),
            (None, 10),
        ],
    );
}

/// Check that a thread which ends, and has no user stack left, is neither a kernel worker nor anything else: its way into the
/// kernel, a system call or a signal at an interrupt, is a program's.
#[test]
fn ending_threads() {
    let mut m = Maker::new();
    let thread = m.thread(1, "main");
    let exit = [
        "k:do_group_exit",
        "k:do_exit",
        "k:exit_mmap",
        "k:tlb_flush_mmu",
        "k:unmap_page_range",
    ];
    let call = [
        "k:entry_SYSCALL_64_after_hwframe",
        "k:do_syscall_64",
        "k:__x64_sys_exit_group",
    ];
    let signal = [
        "k:asm_sysvec_apic_timer_interrupt",
        "k:irqentry_exit_to_user_mode",
        "k:get_signal",
    ];
    for root in [call, signal] {
        let stack = m.stack(&[&root[..], &exit].concat(), StackEnd::NoUserStack);
        m.span(thread, ThreadState::OnCpu, None, Some(stack), 30);
    }
    let exec = [&call[..2], &["k:begin_new_exec"]].concat();
    let exec = m.stack(&exec, StackEnd::NoUserStack);
    m.span(thread, ThreadState::OnCpu, None, Some(exec), 10);
    assert_kinds(
        &m,
        &[(Some("ending threads and processes"), 60), (None, 10)],
    );
}

/// Check pools: by rule, by number, alone, and apart by process.
#[test]
fn pools() {
    let mut m = Maker::new();
    for (tid, comm) in [
        "msgr-worker-2",
        "tp_osd_tp",
        "tp_osd_tp",
        "CPU 0/KVM",
        "IO mon_iothread",
        "IO iothread1",
        "rocksdb:low0",
        "reactor_3",
        "reader 1",
        "reader 2",
        "solo 7",
        "CPU 1/KVM",
    ]
    .into_iter()
    .enumerate()
    {
        m.thread(tid as i32 + 1, comm);
    }
    let other = m.process(200, "ceph-osd");
    m.thread_of(other, 50, "tp_osd_tp");
    let profile = m.profile();
    let pools: Vec<_> = profile
        .pools
        .iter()
        .map(|p| (p.name.as_str(), p.pid.0, p.threads.len()))
        .collect();
    assert_eq!(
        pools,
        [
            ("msgr-worker-N", 100, 1),
            ("tp_osd_tp", 100, 2),
            ("CPU N/KVM", 100, 2),
            ("mon_iothread", 100, 1),
            ("iothreads", 100, 1),
            ("rocksdb:low", 100, 1),
            ("reactor_N", 100, 1),
            ("reader N", 100, 2),
            ("solo 7", 100, 1),
            ("tp_osd_tp", 200, 1),
        ]
    );
    for (at, thread) in profile.threads.iter().enumerate() {
        assert!(profile.pools[thread.pool].threads.contains(&at));
    }
}

/// Check that stacks of Go end where its runtime goes on with another stack: what lies beyond is nobody's caller.
#[test]
fn roots_of_go() {
    let mut m = Maker::new();
    let t = m.thread(1, "go");
    m.on_cpu(t, &["bogus", "runtime.mcall", "runtime.park_m"], MS);
    m.on_cpu(
        t,
        &["bogus", "runtime.morestack.abi0", "runtime.newstack"],
        MS,
    );
    m.on_cpu(t, &["main", "my_runtime.mcall", "f"], MS);
    let profile = m.profile();
    let names = |stack: &ProfileStack| {
        let names = stack
            .frames
            .iter()
            .map(|f| &profile.functions[f.0 as usize].name);
        names.cloned().collect::<Vec<_>>().join(";")
    };
    let stacks: Vec<String> = profile.stacks.iter().map(names).collect();
    assert_eq!(
        stacks,
        [
            "runtime.mcall;runtime.park_m",
            "runtime.morestack.abi0;runtime.newstack",
            "main;my_runtime.mcall;f"
        ]
    );
}

/// Check that the stand-in for exited threads has its name and, as its lifetime, its weights.
#[test]
fn exited() {
    let mut m = Maker::new();
    let t = m.thread(0, "");
    m.span(t, ThreadState::OnCpu, None, None, 7 * MS);
    let profile = m.profile();
    assert_eq!(profile.threads[0].comm, "[exited threads, not sampled]");
    assert_eq!(profile.threads[0].observed_ns, 7 * MS);
}

/// Check that threads are chosen by name or pool.
#[test]
fn filters() {
    let mut m = Maker::new();
    for (tid, comm) in ["msgr-worker-0", "msgr-worker-1", "tp_osd_tp"]
        .into_iter()
        .enumerate()
    {
        let t = m.thread(tid as i32 + 1, comm);
        m.on_cpu(t, &["main"], 1);
    }
    let profile = m.profile();
    let shown = |include: &[&str]| {
        let threads = ThreadFilter {
            threads: globs(include).unwrap(),
            ..ThreadFilter::default()
        };
        let trees = Trees::new(
            &profile,
            &View {
                threads,
                ..View::default()
            },
        );
        trees.groups.len()
    };
    assert_eq!(shown(&[]), 3);
    assert_eq!(shown(&["msgr-worker-N"]), 2);
    assert_eq!(shown(&["*-1", "tp_*"]), 2);
    assert_eq!(shown(&["other"]), 0);
}

/// Check that recursion counts once in a function's total and that idle time is left out.
#[test]
fn totals() {
    let mut m = Maker::new();
    let t = m.thread(1, "t");
    m.on_cpu(t, &["main", "rec()", "rec()", "rec()"], 10);
    m.blocked(t, syscall("epoll_wait"), &["main", "epoll"], 90);
    let profile = m.profile();
    let groups = function_groups(&profile, &View::default());
    let functions = groups.iter().flat_map(|group| &group.functions);
    let weights: Vec<_> = functions
        .map(|w| {
            let name = profile.functions[w.function.0 as usize].name.as_str();
            (name, w.total_weight, w.self_weight)
        })
        .collect();
    // Frames of different addresses are still one function.
    assert_eq!(weights, [("main", 10, 0), ("rec()", 10, 10)]);
}

/// Check the order of siblings: by weight, then by name.
#[test]
fn order() {
    let mut m = Maker::new();
    let t = m.thread(1, "t");
    for (name, weight) in [("c", 5), ("b", 5), ("a", 1), ("d", 9)] {
        m.on_cpu(t, &["main", name], weight);
    }
    let profile = m.profile();
    let trees = Trees::new(
        &profile,
        &View {
            by: GroupBy::All,
            ..View::default()
        },
    );
    let order: Vec<_> = trees.groups[0]
        .walk()
        .map(|(_, node, _)| node.label.text(&profile, 0.0).into_owned())
        .collect();
    assert_eq!(order, ["main", "d", "b", "c", "a"]);
}

/// Check that ids a forged trace got wrong neither panic nor make a ring.
#[test]
fn forged_ids() {
    use wcprof_trace::model::{FrameId, NodeId, StackId, StackNode, ThreadId, WaitId};
    let mut m = Maker::new();
    let t = m.thread(1, "t");
    m.on_cpu(t, &["main", "f"], 1);
    m.tables.nodes[0].caller = Some(NodeId(1));
    m.tables.nodes.push(StackNode {
        caller: Some(NodeId(99)),
        frame: FrameId(99),
    });
    m.tables.stacks[0].leaf = Some(NodeId(2));
    m.span(
        t,
        ThreadState::Blocked,
        Some(WaitId(9)),
        Some(StackId(9)),
        1,
    );
    m.span(ThreadId(u32::MAX), ThreadState::OnCpu, None, None, 1);
    let profile = m.profile();
    assert_eq!(profile.rows.len(), 2);
    assert!(profile.rows[1].stack.is_none());
}

/// Check that spans added many at a time give the profile that they give one by one: in any order, on several threads, in
/// a window too, while slices become longer and new places are met.
#[test]
fn many_at_a_time() {
    use support::random::Random;
    use wcprof_profile::{ProfileBuilder, Rules};
    use wcprof_types::TimeNs;
    let mut random = Random::new(7);
    let mut m = Maker::new();
    let threads: Vec<_> = (0..9).map(|tid| m.thread(tid + 1, "t")).collect();
    let stacks: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"]
        .map(|name| m.stack(&["main", name], StackEnd::Root))
        .into();
    let mut below = |n: usize| (random.unit() * n as f64) as usize;
    for at in 0..3000_u64 {
        let stack = stacks.get(below(1 + at as usize / 300));
        let state = match below(3) {
            0 => ThreadState::Blocked,
            _ => ThreadState::OnCpu,
        };
        let thread = threads[below(9)];
        let weight = 1 + below(5) as u64 * MS;
        m.span(thread, state, None, stack.copied(), weight);
        let start = (at * MS / 3).saturating_sub(below(20) as u64 * MS);
        m.move_last(start, start + weight);
    }
    let rules = Rules::builtin().unwrap();
    for window in [None, Some((TimeNs(100 * MS), TimeNs(777 * MS)))] {
        let builder = || match window {
            None => ProfileBuilder::new(),
            Some((from, to)) => ProfileBuilder::new().with_window(from, to),
        };
        let mut one_by_one = builder();
        m.spans.iter().for_each(|span| one_by_one.add_span(span));
        let expected = one_by_one.finish(&m.tables, None, &rules);
        assert!(expected.rows.len() > 60);
        for n in [1, 31, 32, 33, 1000, 3000] {
            let (forwards, backwards, parallel) = (builder(), builder(), builder());
            let chunks = || m.spans.chunks(n);
            chunks().for_each(|spans| forwards.add_spans(spans));
            chunks().rev().for_each(|spans| backwards.add_spans(spans));
            std::thread::scope(|scope| {
                let parallel = &parallel;
                for first in 0..3 {
                    let every_third = chunks().skip(first).step_by(3);
                    scope.spawn(move || every_third.for_each(|spans| parallel.add_spans(spans)));
                }
            });
            for (many, how) in [
                (forwards, "in order"),
                (backwards, "backwards"),
                (parallel, "on threads"),
            ] {
                assert!(
                    many.finish(&m.tables, None, &rules) == expected,
                    "{n} at a time, {how}"
                );
            }
        }
    }
}
