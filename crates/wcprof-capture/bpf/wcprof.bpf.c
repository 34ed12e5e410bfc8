/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * iter/task: a record for each thread of the targets, read by user space once a tick; where the
 * kernel has sleepable iterators, with a copy of its stack.
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

/* Looks at a thread whose stack copy was torn. */
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
	if (task->mm) {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

		r->status |= STATUS_HAS_MM | STATUS_HAS_REGS;
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
 * did not run meanwhile; if it did, looks again: where it is now is as fair a sample as where it
 * was. Gives the bytes copied.
 */
static __attribute__((always_inline)) u32 copy_stack(struct task_record *r,
						     struct task_struct *task, u32 slot,
						     struct scratch *to)
{
	struct want *want = bpf_map_lookup_elem(&wants, &slot);

	if (!want || want->host_tid != r->host_tid)
		return 0;
#pragma unroll
	for (int i = 0; i < ATTEMPTS; i++) {
		u64 sp = r->sp;
		u64 len = want->bytes;

		if (!(r->status & STATUS_HAS_REGS) || r->status & STATUS_ON_CPU)
			return 0;
		if (sp < want->start || sp >= want->end)
			return 0;
		if (len > want->end - sp)
			len = want->end - sp;
		len &= ~7ULL;
		if (len == 0 || len > MAX_STACK)
			return 0;
		if (bpf_copy_from_user_task(to->bytes, len, (void *)sp, task, 0))
			return 0;
		if (!has_run(r, task))
			return len;
		observe(r, task);
	}
	if (!(r->status & STATUS_ON_CPU))
		r->status |= STATUS_TORN;
	return 0;
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

	u32 state = state_of(task);
	u32 flags = task->flags;
	u64 switches = task->nvcsw + task->nivcsw;

	/* Of one of its threads: each read is a cache miss. */
	if (host_tid == host_tgid)
		cfg->n_threads = task->signal->nr_threads;

	u64 start_boottime = task->start_boottime;
	u32 slot = host_tid & (SEEN_SLOTS - 1);
	struct seen *seen = cfg->generation ? bpf_map_lookup_elem(&seen_tasks, &slot) : 0;

	if (seen && state && !(flags & PF_EXITING) && seen->switches == switches &&
	    seen->start_boottime == start_boottime && seen->host_tid == host_tid &&
	    seen->state == state && seen->generation == cfg->generation && !on_cpu_of(task) &&
	    (!cfg->mention || seen->name_hash == name_hash(task))) {
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
			len = copy_stack(&r, task, slot, stack);
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
	if (seen) {
		/* What is seen while the thread still runs is no blocked state; a torn stack is
		 * copied again. */
		seen->state = r.status & (STATUS_ON_CPU | STATUS_TORN) ? 0 : r.state;
		seen->switches = r.nvcsw + r.nivcsw;
		seen->start_boottime = start_boottime;
		seen->host_tid = host_tid;
		seen->name_hash = name_hash(task);
		seen->generation = cfg->generation;
	}
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

SEC("perf_event")
int wcprof_filter(struct bpf_perf_event_data *ctx)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&host_targets, &tgid) != 0;
}
