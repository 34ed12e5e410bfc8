/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * syscall (wcprof_pass): run by user space once a tick. Puts a record for each thread of a process
 * that ran since the last tick into memory shared with user space, with copies of its stacks. Needs
 * Linux 6.10 and the initial pid namespace.
 * iter/task: the same for all threads that the kernel's iterator visits, where wcprof_pass does not
 * work. User space reads a file to run it. The sleepable one copies stacks (Linux 5.18). The
 * iterator and its file cost several times as much as looking at the threads.
 * perf_event: keeps the samples of the targets, and the memory below their stack pointers, and drops all
 * others.
 *
 * None of them writes to anything but its own maps. Kernel memory is read by typed loads (which fault
 * softly), so that the programs also load where probe reads are locked down, except in a nested
 * pid namespace.
 */
#include "wcprof.h"

/* include/linux/sched.h; the same since they exist. */
#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_USER_WORKER 0x4000
#define PF_KTHREAD 0x200000

/* include/linux/sched/jobctl.h; since 5.2 */
#define JOBCTL_TRAP_FREEZE (1UL << 23)

/* arch/x86/entry/syscalls/syscall_64.tbl */
#define FUTEX_CALL 202

/* Looks at a thread while copies of its stack are torn. */
#define ATTEMPTS 3

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Process ids in the reader's pid namespace, for the iterator. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} targets SEC(".maps");

/* Process ids in the initial pid namespace, for the perf filter; kept by the iterator's reader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} host_targets SEC(".maps");

/* Timer samples that the filter kept. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} kept SEC(".maps");

/*
 * What the last record of a thread said. Threads started together have neighboring entries: with
 * cold caches a pass takes two thirds of the time it takes with task storage. Two threads that share
 * an entry are never unchanged.
 */
#define SEEN_SLOTS 65536

struct seen {
	u64 switches;
	u64 start_boottime;
	s32 host_tid;
	u32 state;
	u32 generation;
};

/* Indexed by the low bits of the tid in the initial pid namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_SLOTS);
	__type(key, u32);
	__type(value, struct seen);
} seen_tasks SEC(".maps");

/* Which part of a thread's stack user space needs, same index; it writes them, the programs read. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_SLOTS);
	__type(key, u32);
	__type(value, struct want);
} wants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct shared);
} shared SEC(".maps");

/* By CPU. User space gives it an entry for each. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct cpu_red_zones);
} red_zones SEC(".maps");

/* With more than this in use the records may have no room for another one. */
#define MAX_LEN (PASS_BYTES - sizeof(struct task_record) - RED_ZONE - MAX_STACK - MAX_KERNEL)

/* The number of `pid` in the pid namespace `level` levels below the initial one; 0: not visible. */
static __attribute__((always_inline)) s32 number_at(struct pid *pid, u32 level)
{
	s32 nr = 0;

	if (!pid || pid->level < level)
		return 0;
	bpf_probe_read_kernel(&nr, sizeof(nr),
			      (void *)&pid->numbers[0] + (u64)level * sizeof(struct upid));
	return nr;
}

static __attribute__((always_inline)) u32 state_of(struct task_struct *task)
{
	if (field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___before_5_14 *)task)->state;
}

/*
 * Whether the thread is on a CPU. Read before what changes when it leaves the CPU (counts, run time,
 * state): a thread that is off-CPU has settled them, until it runs again and changes them. Read after
 * them, one that leaves its CPU in between would look as if it had not run at all.
 */
static __attribute__((always_inline)) u32 on_cpu_of(struct task_struct *task)
{
	u32 on_cpu = task == bpf_get_current_task_btf();

	if (field_exists(task->on_cpu))
		on_cpu = task->on_cpu;
	barrier();
	return on_cpu;
}

/* What changes while a thread lives. */
static __attribute__((always_inline)) void observe(struct task_record *r, struct task_struct *task)
{
	r->time = bpf_ktime_get_ns();
	r->status = on_cpu_of(task) ? STATUS_ON_CPU : 0;
	r->nvcsw = task->nvcsw;
	r->nivcsw = task->nivcsw;
	r->run_time = task->se.sum_exec_runtime;
	r->state = state_of(task);
	if (task->jobctl & JOBCTL_TRAP_FREEZE)
		r->status |= STATUS_FREEZER_TRAP;
	if (field_exists(task->sched_info.last_queued)) {
		r->status |= STATUS_HAS_QUEUE_TIME;
		r->run_delay = task->sched_info.run_delay;
		r->pcount = task->sched_info.pcount;
		r->last_queued = task->sched_info.last_queued;
		r->reader_arrival = bpf_get_current_task_btf()->sched_info.last_arrival;
	}
	/* Registers that are newer than the counts are found out, older ones would not be. */
	barrier();
	/* Not by `mm`: each load of a pointer has the verifier search all types by name. */
	if (!(task->flags & PF_KTHREAD)) {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

		r->status |= STATUS_IS_USER;
		r->ip = regs->ip;
		r->sp = regs->sp;
		r->bp = regs->bp;
		r->bx = regs->bx;
		r->orig_ax = regs->orig_ax;
		r->ax = regs->ax;
		r->di = regs->di;
		r->si = regs->si;
		r->dx = regs->dx;
		r->r8 = regs->r8;
		r->r9 = regs->r9;
		r->r10 = regs->r10;
		r->r11 = regs->r11;
	}
}

/* Whether the thread was put on a CPU since `r`. */
static __attribute__((always_inline)) int has_run(struct task_record *r, struct task_struct *task)
{
	if (on_cpu_of(task))
		return 1;
	if (field_exists(task->sched_info.pcount) && task->sched_info.pcount != r->pcount)
		return 1;
	return task->nvcsw != r->nvcsw || task->nivcsw != r->nivcsw;
}

/*
 * Copies what is wanted of the stack of a thread that is off-CPU and proves by its counts that it
 * did not run meanwhile; otherwise the record is torn. The bytes copied are in the record, not in a
 * register: the verifier would follow each way to a number of its own to the end of the program.
 */
static __attribute__((always_inline)) void copy_stack(struct task_record *r,
						      struct task_struct *task, u32 slot,
						      u32 is_wanted)
{
	struct want *want = bpf_map_lookup_elem(&wants, &slot);
	u64 sp = r->sp;
	u64 below, len;

	if (!want || want->host_tid != r->host_tid)
		return;
	if (!(r->status & STATUS_IS_USER) || r->status & STATUS_ON_CPU)
		return;
	if (r->flags & (PF_EXITING | PF_IO_WORKER | PF_USER_WORKER))
		return;
	if (sp < want->start || sp >= want->end)
		return;
	len = want->bytes;
	if (len > want->end - sp)
		len = want->end - sp;
	/* What lies further out user space reads, if the thread does not run before. */
	if (len > MAX_STACK)
		len = MAX_STACK;
	len = (len & ~7ULL) * is_wanted;
	if (len == 0)
		return;
	below = sp - want->start;
	if (below > RED_ZONE)
		below = RED_ZONE;
	below &= ~7ULL;
	len += below;
	/* For the verifier of Linux 6.1, which forgets bounds in a product. */
	asm volatile("" : "+r"(len));
	if (len > RED_ZONE + MAX_STACK)
		return;
	if (bpf_copy_from_user_task(r + 1, len, (void *)(sp - below), task, 0))
		return;
	if (has_run(r, task)) {
		r->status |= STATUS_TORN;
	} else {
		r->stack_len = len;
		r->stack_below = below;
	}
}

/*
 * Copies the kernel stack of a blocked thread that proves by its counts that it did not run since it
 * was looked at, and that of a worker without a user stack wherever it is off-CPU. The bytes copied are
 * in the record.
 */
static __attribute__((always_inline)) void copy_kernel(struct task_record *r,
						       struct task_struct *task)
{
	u64 at = r->stack_len;
	long len;

	if (r->status & (STATUS_ON_CPU | STATUS_TORN) || r->flags & PF_EXITING || at > RED_ZONE + MAX_STACK)
		return;
	if (!r->state && !(r->flags & (PF_IO_WORKER | PF_USER_WORKER)))
		return;
	len = bpf_get_task_stack(task, (u8 *)(r + 1) + at, MAX_KERNEL, 0);
	if (len <= 0 || len > MAX_KERNEL || has_run(r, task))
		return;
	r->kernel_len = len & ~7UL;
}

/* 1 for 0, else 0. Without a branch, of which the verifier would follow both sides. */
#define IS_ZERO(x) (((u64)(u32)(x) - 1) >> 63)

/* 1 for a thread that is blocked and has not run since its last record, else 0. */
static __attribute__((always_inline)) u32 is_unchanged(struct seen *seen, struct shared *s,
						       struct task_struct *task)
{
	u32 on_cpu = on_cpu_of(task);
	u32 state = state_of(task);
	u64 differs = (seen->switches ^ (task->nvcsw + task->nivcsw)) |
		      (seen->start_boottime ^ task->start_boottime) |
		      (u32)(seen->host_tid ^ task->pid) | (seen->state ^ state) |
		      (seen->generation ^ s->generation) | (task->flags & PF_EXITING) | on_cpu;

	return (1 - IS_ZERO(state)) & IS_ZERO(differs | differs >> 32);
}

static __attribute__((always_inline)) void remember(struct seen *seen, struct shared *s,
						    struct task_record *r)
{
	/* What is seen while the thread still runs is no blocked state; a torn stack is copied
	 * again. */
	seen->state = r->status & (STATUS_ON_CPU | STATUS_TORN) ? 0 : r->state;
	seen->switches = r->nvcsw + r->nivcsw;
	seen->start_boottime = r->start_boottime;
	seen->host_tid = r->host_tid;
	seen->generation = s->generation;
}

/*
 * 1 for a blocked thread that user space must look at at once: its stack is not copied, or not all of it,
 * or what its call waits for (a file, a lock) is to be read while it waits. A futex that is waited on with the
 * value 0 is glibc's condition variable or semaphore, no lock (FUTEX_WAIT and FUTEX_WAIT_BITSET).
 */
static __attribute__((always_inline)) u32 is_urgent(struct shared *s, struct task_record *r)
{
	u64 call = r->orig_ax;
	u32 is_blocked = (1 - IS_ZERO(r->state)) & IS_ZERO(r->status & STATUS_ON_CPU);
	u32 is_quiet = s->quiet_calls[call / 64 & (CALL_WORDS - 1)] >> (call & 63) &
		       IS_ZERO(call / 64 / CALL_WORDS);
	u32 is_condition = IS_ZERO(call ^ FUTEX_CALL) & IS_ZERO(r->dx) & IS_ZERO(r->si & 0x76);

	u32 is_whole = IS_ZERO(r->stack_len / MAX_STACK) & (1 - IS_ZERO(r->stack_len));

	return is_blocked & (1 - (is_whole & (is_quiet | is_condition)));
}

/*
 * Puts the record of a thread behind the others. Gives whether to look at the thread again: it ran
 * while its stack was copied, and where it is now is as fair a sample as where it was.
 */
static __attribute__((always_inline)) int look_at(struct shared *s, struct task_struct *task,
						  s32 tid, s32 tgid, const int copies)
{
	u64 len = s->len;
	u32 slot = task->pid & (SEEN_SLOTS - 1);
	struct seen *seen = bpf_map_lookup_elem(&seen_tasks, &slot);
	struct task_record *r;
	u32 unchanged;

	if (!seen || len > MAX_LEN) {
		s->pass.n_missed++;
		return 0;
	}
	unchanged = is_unchanged(seen, s, task);
	if (unchanged && !s->list) {
		s->pass.n_unlisted++;
		return 0;
	}
	r = (void *)(s->records.bytes + len);
	r->exit_state = task->exit_state;
	r->tid = tid;
	r->tgid = tgid;
	r->host_tid = task->pid;
	r->host_tgid = task->tgid;
	r->flags = task->flags;
	r->exec_id = task->self_exec_id;
	r->start_boottime = task->start_boottime;
	r->run_delay = r->pcount = r->last_queued = r->reader_arrival = 0;
	r->stack_len = r->kernel_len = r->stack_below = 0;
	((u64 *)r->comm)[0] = ((u64 *)task->comm)[0];
	((u64 *)r->comm)[1] = ((u64 *)task->comm)[1];
	observe(r, task);
	if (copies)
		copy_stack(r, task, slot, (1 - unchanged) & s->copies);
	if (r->status & STATUS_TORN && s->pass.attempt + 1 < ATTEMPTS) {
		s->pass.attempt++;
		return 1;
	}
	if (s->kernel)
		copy_kernel(r, task);
	remember(seen, s, r);
	s->pass.attempt = 0;
	s->len = len + sizeof(*r) + r->stack_len + r->kernel_len;
	s->pass.n_records++;
	s->pass.n_urgent += is_urgent(s, r);
	return 0;
}

static __attribute__((always_inline)) int visit(struct bpf_iter__task *ctx, const int copies)
{
	struct task_struct *task = ctx->task;
	u32 zero = 0;
	struct shared *s = bpf_map_lookup_elem(&shared, &zero);
	u32 level = bpf_get_current_task_btf()->thread_pid->level;
	u8 full = 1;
	s32 tid, tgid;

	if (!s)
		return 0;
	if (!task) {
		s->pass.end = bpf_ktime_get_ns();
		s->pass.is_done = 1;
		return 0;
	}
	tid = task->pid;
	tgid = task->tgid;
	if (level) {
		tid = number_at(task->thread_pid, level);
		tgid = number_at(task->group_leader->thread_pid, level);
	}
	if (s->filter && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	/* Of one of its threads: each read is a cache miss. */
	if (task->pid == task->tgid)
		s->pass.n_threads = task->signal->nr_threads;
#pragma clang loop unroll(disable)
	for (int i = 0; i < ATTEMPTS; i++)
		if (!look_at(s, task, tid, tgid, copies))
			break;
	/* User space asks for one byte: with it the kernel ends the read before the next thread. */
	if (s->len > MAX_LEN)
		bpf_seq_write(ctx->meta->seq, &full, sizeof(full));
	return 0;
}

SEC("iter/task")
int wcprof_tasks(struct bpf_iter__task *ctx)
{
	return visit(ctx, 0);
}

SEC("iter.s/task")
int wcprof_stacks(struct bpf_iter__task *ctx)
{
	return visit(ctx, 1);
}

/* The first half of a pass: which threads are to be looked at. Nothing in it sleeps, so that the
 * kernel's list of threads can be walked. */
static __attribute__((always_inline)) void list_changed(struct shared *s,
							struct task_struct *leader)
{
	struct bpf_iter_task it;
	struct task_struct *task;

	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, leader, BPF_TASK_ITER_PROC_THREADS);
	while ((task = bpf_iter_task_next(&it))) {
		u32 slot = task->pid & (SEEN_SLOTS - 1);
		struct seen *seen = bpf_map_lookup_elem(&seen_tasks, &slot);
		u32 at = s->pass.n_changed;

		if (seen && !s->list && is_unchanged(seen, s, task)) {
			s->pass.n_unlisted++;
		} else if (at < PASS_THREADS) {
			s->changed[at] = task->pid;
			s->pass.n_changed = at + 1;
		} else {
			s->pass.n_missed++;
		}
	}
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
}

/* The library that reads the object knows no section `syscall`; the loader gives the type. */
SEC("raw_tp/wcprof_pass")
int wcprof_pass(void *ctx)
{
	u32 zero = 0;
	struct shared *s = bpf_map_lookup_elem(&shared, &zero);
	u32 *n_kept = bpf_map_lookup_elem(&kept, &zero);
	struct bpf_iter_num it;

	if (!s || !n_kept)
		return 0;
	s->pass.n_kept = *n_kept;
	if (!s->pass.is_listed) {
		struct task_struct *leader = bpf_task_from_pid(s->host_tgid);

		s->pass.begin = bpf_ktime_get_ns();
		if (leader) {
			if (leader->tgid == s->host_tgid)
				list_changed(s, leader);
			bpf_task_release(leader);
		}
		s->pass.is_listed = 1;
	}
	/* Each torn thread takes further rounds; user space runs the program again for the rest. */
	bpf_iter_num_new(&it, 0, PASS_THREADS);
	while (bpf_iter_num_next(&it)) {
		struct task_struct *task;
		u32 at = s->pass.next;
		int again = 0;

		if (at >= s->pass.n_changed || at >= PASS_THREADS || s->len > MAX_LEN)
			break;
		task = bpf_task_from_pid(s->changed[at]);
		if (task) {
			/* It may have ended, and its number be another's. */
			if (task->tgid == s->host_tgid)
				again = look_at(s, task, task->pid, task->tgid, 1);
			bpf_task_release(task);
		}
		s->pass.next = at + !again;
	}
	bpf_iter_num_destroy(&it);
	s->pass.is_done = s->pass.next >= s->pass.n_changed;
	s->pass.end = bpf_ktime_get_ns();
	return 0;
}

/* Keeps the red zone of a timer sample, whose copy of the stack begins at the stack pointer. */
static __attribute__((always_inline)) void keep_red_zone(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_red_zones *all = bpf_map_lookup_elem(&red_zones, &cpu);
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct red_zone *zone;

	if (!all)
		return;
	zone = &all->zones[all->n & (RED_ZONES - 1)];
	zone->host_tid = task->pid;
	zone->ip = regs->ip;
	zone->sp = regs->sp;
	/* It cannot be read where the page is not there; no stack pointer is 0. */
	if (bpf_probe_read_user(zone->bytes, RED_ZONE, (void *)(zone->sp - RED_ZONE)))
		zone->sp = 0;
	barrier();
	all->n++;
}

SEC("perf_event")
int wcprof_filter(struct bpf_perf_event_data *ctx)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u32 zero = 0;
	u32 *n_kept = bpf_map_lookup_elem(&kept, &zero);

	if (!n_kept || !bpf_map_lookup_elem(&host_targets, &tgid))
		return 0;
	__sync_fetch_and_add(n_kept, 1);
	keep_red_zone();
	return 1;
}
