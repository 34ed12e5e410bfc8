//! Waits and stacks to states, by the built-in rules and by a user's.

use crate::support;

use std::sync::LazyLock;

use support::{Maker, kernel, syscall, syscall_fd, syscall_op};
use wcprof_profile::Rules;
use wcprof_profile::model::State;
use wcprof_types::{FdKind, StackEnd, ThreadState, Wait};

/// A thread that is parked below functions, as rustc 1.95 names it.
fn parked(below: &[&'static str]) -> Vec<&'static str> {
    let park = [
        "<std::thread::thread::Thread>::park",
        "<std::sys::sync::thread_parking::futex::Parker>::park",
        "std::sys::pal::unix::futex::futex_wait",
        "libc:syscall",
    ];
    [below, &park].concat()
}

fn state_of(comm: &str, wait: Wait, root_first: &[&str]) -> State {
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::builtin().unwrap());
    state_with(&RULES, comm, wait, root_first)
}

fn state_with(rules: &Rules, comm: &str, wait: Wait, root_first: &[&str]) -> State {
    let mut maker = Maker::new();
    let thread = maker.thread(101, comm);
    maker.blocked(thread, wait, root_first, 10);
    let profile = maker.profile_with(rules);
    assert_eq!(profile.rows.len(), 1);
    profile.rows[0].state
}

/// Check the default state of system calls that need no stack.
#[test]
fn by_system_call() {
    for (wait, state) in [
        (syscall("epoll_wait"), State::PlaceUnknown),
        (syscall("epoll_pwait"), State::PlaceUnknown),
        (syscall("poll"), State::PlaceUnknown),
        (syscall("ppoll"), State::PlaceUnknown),
        (syscall("select"), State::PlaceUnknown),
        (syscall("pselect6"), State::PlaceUnknown),
        (syscall("io_getevents"), State::PlaceUnknown),
        (syscall("io_uring_enter"), State::PlaceUnknown),
        (syscall("rt_sigtimedwait"), State::PlaceUnknown),
        (syscall("pause"), State::PlaceUnknown),
        (syscall("semtimedop"), State::PlaceUnknown),
        (syscall("nanosleep"), State::Sleep),
        (syscall("clock_nanosleep"), State::Sleep),
        (syscall_fd("recvmsg", FdKind::Socket), State::Net),
        (syscall("sendmsg"), State::Net),
        (syscall("accept4"), State::Net),
        (syscall("connect"), State::Net),
        (syscall_fd("read", FdKind::Socket), State::Net),
        (syscall_fd("write", FdKind::Socket), State::Net),
        (syscall_fd("read", FdKind::Regular), State::Disk),
        (syscall_fd("pread64", FdKind::Block), State::Disk),
        (syscall_fd("pwritev2", FdKind::Block), State::Disk),
        (syscall("fdatasync"), State::Disk),
        (syscall("fsync"), State::Disk),
        (syscall_fd("read", FdKind::Anon), State::PlaceUnknown),
        (syscall_fd("read", FdKind::Pipe), State::Blocked),
        (syscall_fd("read", FdKind::Unknown), State::Blocked),
        (syscall_op("ioctl", 0xae80), State::Idle),
        (syscall_op("ioctl", 1), State::Blocked),
        (syscall("wait4"), State::Blocked),
        (syscall("waitid"), State::Blocked),
        (syscall("futex"), State::PlaceUnknown),
        (syscall("restart_syscall"), State::PlaceUnknown),
        (Wait::default(), State::Blocked),
        (kernel("io_wqe_worker"), State::Idle),
        (kernel("io_wq_worker"), State::Idle),
        (kernel("vhost_worker"), State::Idle),
        (kernel("vhost_task_fn"), State::Idle),
        (kernel("blkdev_issue_flush"), State::Disk),
        (kernel("rq_qos_wait"), State::Disk),
        (kernel("__sync_dirty_buffer"), State::Disk),
        (kernel("jbd2_log_wait_commit"), State::Disk),
        (kernel("pipe_wait_readable"), State::Blocked),
    ] {
        let name = format!("{wait:?}");
        assert_eq!(state_of("t", wait, &["main"]), state, "{name}");
    }
}

/// Check that the stack tells a lock from a condition, also where glibc's inner functions have no
/// names.
#[test]
fn futex_by_stack() {
    let root = "start_thread";
    for (op, stack, state) in [
        (
            128,
            &["work()", "libc:pthread_mutex_lock", "?85120"][..],
            State::Lock,
        ),
        (
            128,
            &[
                "work()",
                "libc:___pthread_mutex_lock",
                "libc:__lll_lock_wait",
            ],
            State::Lock,
        ),
        (
            128,
            &["f", "libc:pthread_rwlock_wrlock", "?8000", "?9000"],
            State::Lock,
        ),
        (
            128,
            &["malloc", "libc:__lll_lock_wait_private"],
            State::Lock,
        ),
        (134, &["unnamed"], State::Lock),
        (
            393,
            &[
                "loop()",
                "libc:pthread_cond_wait@@GLIBC_2.3.2",
                "?85bd8",
                "?85000",
            ],
            State::PlaceUnknown,
        ),
        (
            137,
            &[
                "std::condition_variable::wait(std::unique_lock<std::mutex>&)",
                "libc:pthread_cond_wait",
                "?1",
            ],
            State::PlaceUnknown,
        ),
        (
            393,
            &[
                "loop()",
                "libc:___pthread_cond_timedwait64",
                "libc:__futex_abstimed_wait_common",
            ],
            State::PlaceUnknown,
        ),
        (
            128,
            &["loop()", "libc:pthread_cond_wait", "?85120"],
            State::Lock,
        ),
        // As glibc 2.28 waits, and takes the mutex again.
        (
            128,
            &["loop()", "libc:pthread_cond_wait@@GLIBC_2.3.2"],
            State::PlaceUnknown,
        ),
        (
            128,
            &[
                "loop()",
                "libc:__pthread_cond_wait",
                "libc:__pthread_cond_wait_common",
                "libc:futex_wait_cancelable",
            ],
            State::PlaceUnknown,
        ),
        (
            128,
            &[
                "loop()",
                "libc:__pthread_cond_wait",
                "libc:__pthread_cond_wait_common",
                "libc:__pthread_mutex_cond_lock",
                "libc:__lll_lock_wait",
            ],
            State::Lock,
        ),
        (
            393,
            &["loop()", "libc:sem_wait", "?85120"],
            State::PlaceUnknown,
        ),
        (
            393,
            &["loop()", "libc:__new_sem_wait_slow64.constprop.0"],
            State::PlaceUnknown,
        ),
        (
            137,
            &["std::sys::sync::mutex::futex::Mutex::lock_contended"],
            State::Lock,
        ),
        (
            137,
            &["std::sys::sync::condvar::futex::Condvar::wait"],
            State::PlaceUnknown,
        ),
        (
            137,
            &["<std::sys::sync::condvar::futex::Condvar>::wait_optional_timeout"],
            State::PlaceUnknown,
        ),
        (
            137,
            &[
                "std::thread::park",
                "std::sys::sync::thread_parking::futex::Parker::park",
            ],
            State::PlaceUnknown,
        ),
        (137, &parked(&[]), State::PlaceUnknown),
        (
            137,
            &parked(&["std::sync::mpmc::list::Channel<T>::recv"]),
            State::PlaceUnknown,
        ),
        (
            137,
            &parked(&["std::sync::mpmc::array::Channel<T>::send"]),
            State::Blocked,
        ),
        (
            137,
            &parked(&["<crossbeam_channel::flavors::zero::Channel<u64>>::send"]),
            State::Blocked,
        ),
        (
            137,
            &parked(&["std::thread::scoped::scope"]),
            State::Blocked,
        ),
        (
            137,
            &parked(&[
                "std::thread::scoped::scope",
                "crate::main::{closure#0}",
                "std::sync::mpmc::list::Channel<T>::recv",
                "std::sync::mpmc::list::Channel<T>::recv::{{closure}}",
            ]),
            State::PlaceUnknown,
        ),
        (
            128,
            &["parking_lot::raw_mutex::RawMutex::lock_slow", "x"],
            State::Lock,
        ),
        (
            128,
            &["sync.(*Mutex).lockSlow", "runtime.futex"],
            State::Lock,
        ),
        (
            128,
            &[
                "tcmalloc::CentralFreeList::Populate(int)",
                "SpinLock::SlowLock()",
                "base::internal::SpinLockDelay(int volatile*, int, int)",
            ],
            State::Lock,
        ),
        (
            265,
            &["main", "libc:pthread_join", "libc:__pthread_clockjoin_ex"],
            State::Blocked,
        ),
        (
            393,
            &["g", "libc:thrd_join", "libc:pthread_join", "?86000"],
            State::Blocked,
        ),
        (
            128,
            &["g", "libc:pthread_barrier_wait", "?86000"],
            State::Blocked,
        ),
        (
            128,
            &["g", "libc:pthread_cond_broadcast", "?86000"],
            State::Lock,
        ),
        (
            128,
            &[
                "g",
                "libc:pthread_cond_broadcast",
                "libc:__condvar_quiesce_and_switch_g1",
            ],
            State::Lock,
        ),
        (
            393,
            &["g", "libc:pthread_mutex_clocklock [or 1 other]", "?86000"],
            State::Lock,
        ),
        (
            393,
            &["g", "libc:__pthread_mutex_clocklock_common"],
            State::Lock,
        ),
        (128, &["nothing", "known"], State::PlaceUnknown),
    ] {
        let mut frames = vec![root];
        frames.extend_from_slice(stack);
        assert_eq!(
            state_of("t", syscall_op("futex", op), &frames),
            state,
            "{frames:?}"
        );
    }
}

/// Check that the built-in rules override the table: synchronous calls, timers, the main loop.
#[test]
fn builtin_rules() {
    let cond = || syscall_op("futex", 393);
    for (comm, wait, stack, state) in [
        (
            "fio",
            cond(),
            &[
                "main",
                "librbd::Image::read(unsigned long, unsigned long, ceph::buffer::v15_2_0::list&)",
                "C_SaferCond::wait()",
                "libc:pthread_cond_wait",
            ][..],
            State::Blocked,
        ),
        (
            "fio",
            cond(),
            &["rbd_read", "libc:pthread_cond_wait"],
            State::Blocked,
        ),
        (
            "rados",
            cond(),
            &[
                "librados::v14_2_0::IoCtx::operate(std::string const&)",
                "libc:pthread_cond_wait",
            ],
            State::Blocked,
        ),
        (
            "tp_osd_tp",
            cond(),
            &[
                "ShardedThreadPool::shardedthreadpool_worker(unsigned int)",
                "OSD::ShardedOpWQ::_process(unsigned int, ceph::heartbeat_handle_d*)",
                "libc:pthread_cond_wait",
            ],
            State::Idle,
        ),
        (
            "safe_timer",
            syscall("clock_nanosleep"),
            &[
                "SafeTimerThread::entry()",
                "CommonSafeTimer<std::mutex>::timer_thread()",
            ],
            State::Idle,
        ),
        (
            "safe_timer",
            syscall_op("futex", 128),
            &[
                "CommonSafeTimer<std::mutex>::timer_thread()",
                "libc:pthread_mutex_lock",
            ],
            State::Lock,
        ),
        (
            "qemu",
            syscall("futex"),
            &["call_rcu_thread", "qemu_event_wait"],
            State::Idle,
        ),
        (
            "mariadbd",
            cond(),
            &[
                "MDL_wait::timed_wait(MDL_context_owner*, timespec*)",
                "libc:pthread_cond_timedwait",
            ],
            State::Lock,
        ),
        (
            "mariadbd",
            cond(),
            &["lock_wait(que_thr_t*)", "libc:pthread_cond_wait"],
            State::Lock,
        ),
        (
            "mariadbd",
            cond(),
            &[
                "Interruptible_wait::wait(st_mysql_cond*, st_mysql_mutex*)",
                "libc:pthread_cond_timedwait",
            ],
            State::Sleep,
        ),
        (
            "python3",
            cond(),
            &["PyThread_acquire_lock_timed", "libc:sem_clockwait"],
            State::PlaceUnknown,
        ),
        (
            "python3",
            cond(),
            &["take_gil", "libc:pthread_cond_timedwait"],
            State::Lock,
        ),
        (
            "java",
            cond(),
            &["Parker::park(bool, long)", "libc:pthread_cond_wait"],
            State::PlaceUnknown,
        ),
        (
            "java",
            cond(),
            &[
                "void java.util.concurrent.locks.ReentrantLock.lock()",
                "Unsafe_Park",
                "Parker::park(bool, long)",
                "libc:pthread_cond_wait",
            ],
            State::Lock,
        ),
    ] {
        assert_eq!(state_of(comm, wait, stack), state, "{comm} {stack:?}");
    }
}

/// Check that a backend of PostgreSQL 18 which waits for its io workers waits for the disk, also where local functions
/// have no names.
#[test]
fn io_workers() {
    let mut maker = Maker::new();
    let process = maker.process(200, "postgres");
    let thread = maker.thread_of(process, 200, "postgres");
    let stack = [
        "WaitReadBuffers",
        "?1",
        "ConditionVariableSleep",
        "WaitLatch",
        "WaitEventSetWait",
    ];
    maker.blocked(thread, syscall("epoll_wait"), &stack, 10);
    assert_eq!(maker.profile().rows[0].state, State::Disk);
}

/// Check that states other than blocked are taken as they are, whatever the stack says.
#[test]
fn other_states() {
    for (raw, state) in [
        (ThreadState::OnCpu, State::OnCpu),
        (ThreadState::Guest, State::Guest),
        (ThreadState::VmExit, State::VmExit),
        (ThreadState::Runnable, State::Runnable),
        (ThreadState::StealIrq, State::StealIrq),
    ] {
        let mut maker = Maker::new();
        let thread = maker.thread(101, "t");
        let stack = maker.stack(&["libc:pthread_mutex_lock"], StackEnd::Root);
        let wait = maker.wait(syscall("epoll_wait"));
        maker.span(thread, raw, Some(wait), Some(stack), 5);
        assert_eq!(maker.profile().rows[0].state, state);
    }
}

/// Check that a gateway's threads that wait for the end and for messages are idle, and its reads elsewhere
/// are not.
#[test]
fn gateway() {
    let rules = Rules::builtin().unwrap();
    let check = |call: &str, stack: &[&str]| state_with(&rules, "radosgw", syscall(call), stack);
    let main = "radosgw_Main(int, char const**)";
    let waiting = ["main", main, "safe_read_exact", "safe_read", "read"];
    assert_eq!(check("read", &waiting), State::Idle);
    let busy = ["main", main, "a", "b", "c", "d", "e", "read"];
    assert_ne!(check("read", &busy), State::Idle);
    let manager = [
        "start_thread",
        "rgw::amqp::Manager::run()",
        "clock_nanosleep",
    ];
    assert_eq!(check("clock_nanosleep", &manager), State::Idle);
    assert_ne!(
        check("clock_nanosleep", &["f", "clock_nanosleep"]),
        State::Idle
    );
}

/// Check that a user's rule precedes the built-in ones and can look at everything it may name.
#[test]
fn user_rules() {
    let file = r#"
        [[state]]
        state = "disk"
        when = ["idle"]
        stack = ['^my_wait$']
        leaf = 2
        module = ["ceph-*"]
        without = ['^other$']
        syscall = ["epoll_wait"]
        pool = ["worker-*"]
        process = ["ceph-osd"]
        why = "an example"
    "#;
    let rules = Rules::with_user_files(&[("my.toml", file)]).unwrap();
    let check = |comm: &str, wait: Wait, stack: &[&str]| state_with(&rules, comm, wait, stack);
    let epoll = || syscall("epoll_wait");
    assert_eq!(
        check("worker-1", epoll(), &["my_wait", "leaf"]),
        State::Disk
    );
    assert_eq!(
        check("worker-1", epoll(), &["my_wait", "a", "leaf"]),
        State::PlaceUnknown
    );
    assert_eq!(
        check("worker-1", epoll(), &["libc:my_wait", "leaf"]),
        State::PlaceUnknown
    );
    assert_eq!(
        check("worker-1", epoll(), &["other", "my_wait"]),
        State::PlaceUnknown
    );
    assert_eq!(check("reader", epoll(), &["my_wait"]), State::PlaceUnknown);
    assert_eq!(
        check("worker-1", syscall("poll"), &["my_wait"]),
        State::PlaceUnknown
    );
}

/// Check that a mistake in a rules file names the file, the line and the mistake.
#[test]
fn mistakes() {
    for (text, line, what) in [
        (
            "[[state]]\nstate = \"bored\"\n",
            2,
            "unknown state \"bored\"",
        ),
        (
            "[[state]]\nstate = \"idle\"\nstack = ['(']\n",
            3,
            "bad regular expression",
        ),
        (
            "[[state]]\nstate = \"idle\"\nsyscall = [\"read\",\n\"reed\"]\n",
            4,
            "unknown system call \"reed\"",
        ),
        (
            "[[state]]\nstate = \"idle\"\nfd = [\"sock\"]\n",
            3,
            "unknown kind of descriptor",
        ),
        ("[[state]]\nstate = \"idle\"\nleaf = 3\n", 3, "`leaf` needs"),
        (
            "[[state]]\nstate = \"idle\"\nstak = []\n",
            3,
            "unknown field `stak`",
        ),
        (
            "[[state]]\nstate = \"idle\"\npool = [\"[\"]\n",
            3,
            "error parsing glob",
        ),
        ("\n[[pool]]\nname = \"x\"\n", 2, "missing field `comm`"),
        (
            "[[default]]\nstate = \"idle\"\nwhen = [\"lock\"]\n",
            3,
            "`when` is for [[state]]",
        ),
        ("x = [\n", 1, ""),
    ] {
        let error = Rules::with_user_files(&[("my.toml", text)]).unwrap_err();
        assert_eq!(error.file, "my.toml");
        assert!(error.what.contains(what), "{error}");
        assert_eq!(error.line, line, "{error}");
        assert!(
            error
                .to_string()
                .starts_with("failed to read rules `my.toml`, line ")
        );
    }
}

/// Functions of Linux 6.1 to 6.18 in which a task sleeps until block I/O, a journal or a file system is done with it (callers
/// of `io_schedule` and its kind in `mm/`, `fs/`, `block/` and `drivers/`), by their names in `/proc/kallsyms` and the source.
const DISK_PLACES: &str = "
    __wait_on_buffer __lock_buffer fsync_buffers_list osync_buffers_list sync_mapping_buffers
    sync_dirty_buffer __sync_dirty_buffer write_dirty_buffer __bread_gfp __bh_read __bh_read_batch
    submit_bh_wbc mpage_readahead folio_wait_bit folio_wait_bit_common __folio_lock __folio_lock_killable
    __folio_lock_or_retry folio_wait_writeback folio_wait_writeback_killable folio_wait_stable
    folio_wait_private_2 filemap_fdatawait_range __filemap_fdatawait_range filemap_write_and_wait_range
    file_write_and_wait_range file_fdatawait_range filemap_fault filemap_get_pages filemap_read
    do_read_cache_folio truncate_inode_pages_range invalidate_inode_pages2_range balance_dirty_pages
    balance_dirty_pages_ratelimited_flags swap_read_folio do_swap_page mempool_alloc_noprof
    wait_on_page_bit_common __lock_page wait_on_page_writeback wait_for_stable_page swap_readpage
    mempool_alloc inode_wait_for_writeback inode_sleep_on_writeback wb_wait_for_completion sync_inodes_sb
    wait_sb_inodes writeback_inodes_sb_nr __writeback_inodes_sb_nr writeback_single_inode
    __writeback_single_inode write_inode_now sync_inode_metadata sync_filesystem sync_blockdev vfs_fsync_range
    io_schedule io_schedule_timeout submit_bio_wait bio_await blk_execute_rq blk_mq_get_tag
    __blk_mq_alloc_requests blk_mq_freeze_queue_wait blk_queue_enter __bio_queue_enter blkdev_issue_flush
    blkdev_issue_discard __blkdev_direct_IO_simple rq_qos_wait wbt_wait ioc_rqos_throttle
    blkcg_maybe_throttle_current __blkcg_punt_bio_submit iomap_dio_rw __iomap_dio_rw iomap_read_folio
    inode_dio_wait __blockdev_direct_IO dio_await_completion jbd2_log_wait_commit
    jbd2_journal_commit_transaction __jbd2_log_wait_for_space jbd2_complete_transaction
    wait_transaction_locked wait_transaction_switching do_get_write_access add_transaction_credits
    start_this_handle ext4_sync_file ext4_fc_commit ext4_bread ext4_read_bh ext4_wait_block_bitmap
    ext4_do_writepages ext4_evict_inode xlog_wait_on_iclog xlog_grant_head_wait xlog_cil_force_seq
    xfs_buf_iowait xfs_log_force_seq xfs_file_fsync __xfs_buf_submit _xfs_buf_read wait_current_trans
    wait_for_commit btrfs_wait_ordered_range btrfs_commit_transaction wait_log_commit
    wait_on_extent_buffer_writeback wait_extent_bit lock_extent read_extent_buffer_pages
    f2fs_wait_on_all_pages f2fs_issue_flush md_write_start md_flush_request raid5_get_active_stripe
    raid5_make_request wait_barrier _wait_barrier wait_read_barrier regular_request_wait md_super_wait
    dm_submit_bio dm_bufio_read dm_wait_for_completion __closure_sync nvme_submit_sync_cmd
    __nvme_submit_sync_cmd scsi_execute_cmd sd_sync_cache request_wait_answer fuse_fsync_common
    fuse_wait_on_page_writeback nfs_wait_bit_killable nfs_wait_on_request rpc_wait_bit_killable
    nfs4_proc_commit
";

/// Others: of locks, the network, memory, events, other threads, and a server's wait for requests.
const OTHER_PLACES: &str = "
    futex_do_wait ep_poll anon_pipe_read pipe_wait_readable do_exit do_wait migration_entry_wait_on_locked reclaim_throttle
    handle_userfault rwsem_down_write_slowpath __mutex_lock.constprop.0 fuse_dev_do_read.constprop.0 synchronize_rcu
    percpu_rwsem_wait sk_wait_data do_nanosleep __refrigerator unix_wait_for_peer rcu_barrier wait_on_pipe
    __wait_on_freeing_inode blink_wait bitmap_wait
";

/// Check the places of threads without a user stack: a worker that waits for a disk, and no other one.
#[test]
fn kernel_places() {
    let wrong = |names: &'static str, is_disk: bool| {
        let is = |name: &str| state_of("iou-wrk-7", kernel(name), &[]) == State::Disk;
        let names = names.split_whitespace();
        names.filter(|name| is(name) != is_disk).collect::<Vec<_>>()
    };
    assert_eq!(wrong(DISK_PLACES, true), [""; 0]);
    assert_eq!(wrong(OTHER_PLACES, false), [""; 0]);
}
