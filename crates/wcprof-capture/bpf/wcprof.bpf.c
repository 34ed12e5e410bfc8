/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * syscall (wcprof_pass): run by user space once a tick; puts a record for each thread of a process
 * that ran since the last tick into memory that it shares with user space, with a copy of its
 * stack. Needs Linux 6.10 and the initial pid namespace.
 * iter/task: the same on other kernels, of all targets, read by user space as a file, and with
 * kernel stacks when they are asked for; where the kernel has sleepable iterators, with copies of
 * stacks. Opening the file and the kernel's own iterator cost several times as much as looking at
 * the threads.
 * perf_event: keeps the samples of the targets and drops all others.
 *
 * Neither writes to anything but its own maps. Kernel memory is read by typed loads (which fault
 * softly), so that the programs also load where probe reads are locked down, except in a nested
 * pid namespace.
 */
#include "wcprof.h"

/* include/linux/sched.h; the same since they exist. */
#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_USER_WORKER 0x4000
#define PF_KTHREAD 0x200000

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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct config);
} config SEC(".maps");

/* Timer samples that the filter kept. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} kept SEC(".maps");

/*
 * What the last full record of a thread said. Threads started together have neighboring entries:
 * with cold caches a pass takes two thirds of the time it takes with task storage. Two threads
 * that share an entry only get full records each time.
 */
#define SEEN_SLOTS 65536

struct seen {
	u64 switches;
	u64 start_boottime;
	s32 host_tid;
	u32 state;
	u32 generation;
	u32 name_hash;
};

/* Indexed by the low bits of the tid in the initial pid namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_SLOTS);
	__type(key, u32);
	__type(value, struct seen);
} seen_tasks SEC(".maps");

/* Which part of a thread's stack user space needs, same index; it writes them, the program reads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_SLOTS);
	__type(key, u32);
	__type(value, struct want);
} wants SEC(".maps");

struct scratch {
	u8 bytes[MAX_STACK];
	u8 kernel[MAX_KERNEL];
};

/* One pass at a time writes it: each loaded program has maps of its own, and one reader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct pass);
} pass SEC(".maps");

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

static __attribute__((always_inline)) u32 name_hash(struct task_struct *task)
{
	u64 *comm = (u64 *)task->comm;
	u64 mixed = comm[0] * 0x9e3779b97f4a7c15ULL ^ comm[1] * 0xc2b2ae3d27d4eb4fULL;

	return mixed >> 32 ^ mixed;
}

static __attribute__((always_inline)) u32 on_cpu_of(struct task_struct *task)
{
	if (field_exists(task->on_cpu))
		return task->on_cpu;
	return task == bpf_get_current_task_btf();
}

/* What changes while a thread lives. */
static __attribute__((always_inline)) void observe(struct task_record *r, struct task_struct *task)
{
	r->status = 0;
	r->state = state_of(task);
	r->time = bpf_ktime_get_ns();
	r->nvcsw = task->nvcsw;
	r->nivcsw = task->nivcsw;
	r->run_time = task->se.sum_exec_runtime;
	if (on_cpu_of(task))
		r->status |= STATUS_ON_CPU;
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

		r->status |= STATUS_IS_USER | STATUS_HAS_REGS;
		r->ip = regs->ip;
		r->sp = regs->sp;
		r->bp = regs->bp;
		r->orig_ax = regs->orig_ax;
		r->ax = regs->ax;
		r->di = regs->di;
		r->si = regs->si;
		r->dx = regs->dx;
		r->r10 = regs->r10;
	}
}

/* Whether the thread was put on a CPU since `r`. */
static __attribute__((always_inline)) int has_run(struct task_record *r, struct task_struct *task)
{
	if (field_exists(task->sched_info.pcount) && task->sched_info.pcount != r->pcount)
		return 1;
	return task->nvcsw != r->nvcsw || task->nivcsw != r->nivcsw || on_cpu_of(task);
}

/*
 * Copies what is wanted of the stack of a thread that is off-CPU and proves by its counts that it
 * did not run meanwhile; otherwise the record is torn. Gives the bytes copied.
 */
static __attribute__((always_inline)) u32 copy_once(struct task_record *r,
						    struct task_struct *task, u32 slot, u8 *to)
{
	struct want *want = bpf_map_lookup_elem(&wants, &slot);
	u64 sp = r->sp;
	u64 len;

	if (!want || want->host_tid != r->host_tid)
		return 0;
	if (!(r->status & STATUS_HAS_REGS) || r->status & STATUS_ON_CPU)
		return 0;
	if (sp < want->start || sp >= want->end)
		return 0;
	len = want->bytes;
	if (len > want->end - sp)
		len = want->end - sp;
	len &= ~7ULL;
	if (len == 0 || len > MAX_STACK)
		return 0;
	if (bpf_copy_from_user_task(to, len, (void *)sp, task, 0))
		return 0;
	if (!has_run(r, task))
		return len;
	r->status |= STATUS_TORN;
	return 0;
}

/* The same; when it is torn, looks again: where the thread is now is as fair a sample as where it
 * was. */
static __attribute__((always_inline)) u32 copy_stack(struct task_record *r,
						     struct task_struct *task, u32 slot, u8 *to)
{
	u32 len = copy_once(r, task, slot, to);
#pragma unroll
	for (int i = 1; i < ATTEMPTS; i++) {
		if (!(r->status & STATUS_TORN))
			return len;
		observe(r, task);
		len = copy_once(r, task, slot, to);
	}
	return len;
}

/*
 * Copies the kernel stack of a blocked thread that proves by its counts that it did not run since it
 * was looked at. Gives the bytes copied.
 */
static __attribute__((always_inline)) u32 copy_kernel(struct task_record *r,
						      struct task_struct *task,
						      struct scratch *to)
{
	long len;

	if (r->status & (STATUS_ON_CPU | STATUS_TORN) || !r->state)
		return 0;
	len = bpf_get_task_stack(task, to->kernel, MAX_KERNEL, 0);
	if (len <= 0 || len > MAX_KERNEL || has_run(r, task))
		return 0;
	return len & ~7UL;
}

/* Whether a thread is blocked and has not run since its last full record; never in generation 0.
 * One condition, because the verifier follows each branch in a loop again and again. */
static __attribute__((always_inline)) int is_unchanged(struct seen *seen, struct config *cfg,
						       struct task_struct *task)
{
	u32 state = state_of(task);
	u64 differs = (seen->switches ^ (task->nvcsw + task->nivcsw)) |
		      (seen->start_boottime ^ task->start_boottime) |
		      (u32)(seen->host_tid ^ task->pid) | (seen->state ^ state) |
		      (seen->generation ^ cfg->generation) | (task->flags & PF_EXITING) |
		      on_cpu_of(task);

	if (cfg->mention)
		differs |= seen->name_hash ^ name_hash(task);
	return state && cfg->generation && !differs;
}

static __attribute__((always_inline)) void remember(struct seen *seen, struct config *cfg,
						    struct task_record *r,
						    struct task_struct *task)
{
	/* What is seen while the thread still runs is no blocked state; a torn stack is copied
	 * again. */
	seen->state = r->status & (STATUS_ON_CPU | STATUS_TORN) ? 0 : r->state;
	seen->switches = r->nvcsw + r->nivcsw;
	seen->start_boottime = r->start_boottime;
	seen->host_tid = r->host_tid;
	seen->name_hash = name_hash(task);
	seen->generation = cfg->generation;
}

static __attribute__((always_inline)) int visit(struct bpf_iter__task *ctx, const int copies,
						const int kernel)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct task_struct *reader = bpf_get_current_task_btf();
	u32 zero = 0;
	struct config *cfg = bpf_map_lookup_elem(&config, &zero);

	if (!cfg)
		return 0;
	/* Not by `seq_num`: it is still 0 at the end of a pass over one thread. */
	if (cfg->session != ctx->meta->session_id) {
		cfg->session = ctx->meta->session_id;
		cfg->n_records = cfg->n_threads = cfg->n_unmentioned = 0;
	}
	if (!task) {
		struct end_record end = {
			.kind = KIND_END,
			.n_records = cfg->n_records,
			.n_threads = cfg->n_threads,
			.n_unmentioned = cfg->n_unmentioned,
			.time = bpf_ktime_get_ns(),
		};

		bpf_seq_write(seq, &end, sizeof(end));
		return 0;
	}

	u32 level = reader->thread_pid->level;
	s32 host_tid = task->pid;
	s32 host_tgid = task->tgid;
	s32 tid, tgid;

	if (level == 0) {
		tid = host_tid;
		tgid = host_tgid;
	} else {
		tid = number_at(task->thread_pid, level);
		tgid = number_at(task->group_leader->thread_pid, level);
	}
	if (cfg->filter && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;

	u32 flags = task->flags;

	/* Of one of its threads: each read is a cache miss. */
	if (host_tid == host_tgid)
		cfg->n_threads = task->signal->nr_threads;

	u64 start_boottime = task->start_boottime;
	u32 slot = host_tid & (SEEN_SLOTS - 1);
	struct seen *seen = cfg->generation ? bpf_map_lookup_elem(&seen_tasks, &slot) : 0;

	if (seen && is_unchanged(seen, cfg, task)) {
		struct unchanged_record unchanged = {
			.kind = KIND_UNCHANGED,
			.tid = tid,
		};

		if (!cfg->mention)
			cfg->n_unmentioned++;
		else if (!bpf_seq_write(seq, &unchanged, sizeof(unchanged)))
			cfg->n_records++;
		return 0;
	}

	struct task_record r = {
		.kind = KIND_TASK,
		.exit_state = task->exit_state,
		.tid = tid,
		.tgid = tgid,
		.host_tid = host_tid,
		.host_tgid = host_tgid,
		.flags = flags,
		.exec_id = task->self_exec_id,
		.start_boottime = start_boottime,
	};

	((u64 *)r.comm)[0] = ((u64 *)task->comm)[0];
	((u64 *)r.comm)[1] = ((u64 *)task->comm)[1];
	observe(&r, task);

	struct scratch *stack = 0;
	u32 len = 0, kernel_len = 0;

	if (copies && !(flags & (PF_EXITING | PF_IO_WORKER | PF_USER_WORKER))) {
		stack = bpf_map_lookup_elem(&scratch, &zero);
		if (stack)
			len = copy_stack(&r, task, slot, stack->bytes);
	}
	if (kernel && !(flags & PF_EXITING)) {
		if (!stack)
			stack = bpf_map_lookup_elem(&scratch, &zero);
		if (stack)
			kernel_len = copy_kernel(&r, task, stack);
	}
	r.stack_len = len;
	r.kernel_len = kernel_len;
	/* When the buffer is full, a write fails and the program is called again for the task. */
	if (bpf_seq_write(seq, &r, sizeof(r)))
		return 0;
	if (stack && len && len <= MAX_STACK && bpf_seq_write(seq, stack->bytes, len))
		return 0;
	if (kernel && stack && kernel_len && kernel_len <= MAX_KERNEL &&
	    bpf_seq_write(seq, stack->kernel, kernel_len))
		return 0;
	cfg->n_records++;
	if (seen)
		remember(seen, cfg, &r, task);
	return 0;
}

SEC("iter/task")
int wcprof_tasks(struct bpf_iter__task *ctx)
{
	return visit(ctx, 0, 0);
}

SEC("iter.s/task")
int wcprof_stacks(struct bpf_iter__task *ctx)
{
	return visit(ctx, 1, 0);
}

SEC("iter/task")
int wcprof_tasks_k(struct bpf_iter__task *ctx)
{
	return visit(ctx, 0, 1);
}

SEC("iter.s/task")
int wcprof_stacks_k(struct bpf_iter__task *ctx)
{
	return visit(ctx, 1, 1);
}

/* The first half of a pass: which threads have changed. Nothing in it sleeps, so that the kernel's
 * list of threads can be walked. */
static __attribute__((always_inline)) void list_changed(struct pass *p, struct config *cfg,
							struct task_struct *leader)
{
	struct bpf_iter_task it;
	struct task_struct *task;

	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, leader, BPF_TASK_ITER_PROC_THREADS);
	while ((task = bpf_iter_task_next(&it))) {
		u32 slot = task->pid & (SEEN_SLOTS - 1);
		struct seen *seen = bpf_map_lookup_elem(&seen_tasks, &slot);
		u32 at = p->n_changed;
		u32 len = p->len;

		if (seen && is_unchanged(seen, cfg, task)) {
			if (!cfg->mention) {
				p->n_unmentioned++;
			} else if (len <= PASS_BYTES - sizeof(struct unchanged_record)) {
				struct unchanged_record *u = (void *)(p->records + len);

				*(u32 *)u = KIND_UNCHANGED;
				u->tid = task->pid;
				p->len = len + sizeof(*u);
				p->n_records++;
			} else {
				p->n_overflow++;
			}
		} else if (at < PASS_THREADS) {
			p->changed[at] = task->pid;
			p->n_changed = at + 1;
		} else {
			p->n_overflow++;
		}
	}
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
}

/* 1 for 0, else 0. Without a branch, of which the verifier would follow both sides. */
#define IS_ZERO(x) (((u64)(u32)(x) - 1) >> 63)

/*
 * 1 for a blocked thread that user space must look at at once: its stack is not copied, or what its
 * call waits for (a file, a lock) is to be read while it waits. A futex that is waited on with the
 * value 0 is glibc's condition variable or semaphore, no lock (FUTEX_WAIT and FUTEX_WAIT_BITSET).
 */
static __attribute__((always_inline)) u32 is_urgent(struct pass *p, struct task_record *r,
						    u32 stack_len)
{
	u64 call = r->orig_ax;
	u32 is_blocked = (1 - IS_ZERO(r->state)) & IS_ZERO(r->status & STATUS_ON_CPU);
	u32 is_quiet = p->quiet_calls[call / 64 & (CALL_WORDS - 1)] >> (call & 63) &
		       IS_ZERO(call / 64 / CALL_WORDS);
	u32 is_condition = IS_ZERO(call ^ FUTEX_CALL) & IS_ZERO(r->dx) & IS_ZERO(r->si & 0x76);

	return is_blocked & (IS_ZERO(stack_len) | IS_ZERO(is_quiet | is_condition));
}

/* The second half: the record of a changed thread, and its stack behind it. Gives whether it is
 * torn. */
static __attribute__((always_inline)) int add_changed(struct pass *p, struct config *cfg,
						      struct task_struct *task, u32 len)
{
	struct task_record *r = (void *)(p->records + len);
	u32 slot = task->pid & (SEEN_SLOTS - 1);
	u32 stack_len = 0;

	r->kind = KIND_TASK;
	r->exit_state = task->exit_state;
	r->tid = r->host_tid = task->pid;
	r->tgid = r->host_tgid = task->tgid;
	r->flags = task->flags;
	r->exec_id = task->self_exec_id;
	r->start_boottime = task->start_boottime;
	r->run_delay = r->pcount = r->last_queued = r->reader_arrival = 0;
	((u64 *)r->comm)[0] = ((u64 *)task->comm)[0];
	((u64 *)r->comm)[1] = ((u64 *)task->comm)[1];
	observe(r, task);
	if (!(r->flags & (PF_EXITING | PF_IO_WORKER | PF_USER_WORKER)))
		stack_len = copy_once(r, task, slot, p->records + len + sizeof(*r));
	if (r->status & STATUS_TORN && p->attempt < ATTEMPTS)
		return 1;
	r->stack_len = stack_len;
	r->kernel_len = 0;
	p->len = len + sizeof(*r) + stack_len;
	p->n_records++;
	p->n_urgent += is_urgent(p, r, stack_len);
	if (cfg->generation) {
		struct seen *seen = bpf_map_lookup_elem(&seen_tasks, &slot);

		if (seen)
			remember(seen, cfg, r, task);
	}
	return 0;
}

/* The library that reads the object knows no section `syscall`; the loader gives the type. */
SEC("raw_tp/wcprof_pass")
int wcprof_pass(void *ctx)
{
	u32 zero = 0;
	struct config *cfg = bpf_map_lookup_elem(&config, &zero);
	struct pass *p = bpf_map_lookup_elem(&pass, &zero);
	u32 *n_kept = bpf_map_lookup_elem(&kept, &zero);
	struct bpf_iter_num it;
	int *i;

	if (!cfg || !p || !n_kept)
		return 0;
	p->begin = bpf_ktime_get_ns();
	p->n_kept = *n_kept;
	p->len = p->base;
	p->next = p->first;
	p->attempt = 1;
	if (!p->first) {
		struct task_struct *leader = bpf_task_from_pid(p->host_tgid);

		p->n_changed = p->n_records = p->n_unmentioned = p->n_overflow = 0;
		p->n_urgent = 0;
		if (leader) {
			if (leader->tgid == p->host_tgid)
				list_changed(p, cfg, leader);
			bpf_task_release(leader);
		}
	}
	bpf_iter_num_new(&it, 0, PASS_THREADS);
	while ((i = bpf_iter_num_next(&it))) {
		struct task_struct *task;
		u32 at = p->next;
		u32 len = p->len;
		int torn = 0;

		if (at >= p->n_changed || at >= PASS_THREADS ||
		    len > PASS_BYTES - sizeof(struct task_record) - MAX_STACK)
			break;
		task = bpf_task_from_pid(p->changed[at]);
		/* It may have ended, and its number be another's. */
		if (task && task->tgid == p->host_tgid)
			torn = add_changed(p, cfg, task, len);
		if (task)
			bpf_task_release(task);
		/* Where a torn one is now is as fair a sample as where it was. */
		if (torn) {
			p->attempt++;
		} else {
			p->next = at + 1;
			p->attempt = 1;
		}
	}
	bpf_iter_num_destroy(&it);
	p->time = bpf_ktime_get_ns();
	return 0;
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
	return 1;
}
