/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The few kernel types that the programs read. Each access is relocated at load time against the
 * running kernel's BTF, so only the names matter here: offsets, order and missing fields do not.
 */
#ifndef WCPROF_KERNEL_H
#define WCPROF_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef int s32;
typedef unsigned int u32;
typedef long long s64;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define field_exists(field) __builtin_preserve_field_info(field, 2)

#define barrier() asm volatile("" ::: "memory")

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_F_MMAPABLE 1024

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct signal_struct {
	int nr_threads;
};

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	unsigned long jobctl;
	/* An int before Linux 7. Unsigned: then the loader may read as many bytes as the kernel's has. */
	unsigned int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	int exit_state;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	u64 start_boottime;
	char comm[16];
	u64 self_exec_id;
	struct signal_struct *signal;
};

/* Before 5.14; the part of the name after the three underscores is ignored. */
struct task_struct___before_5_14 {
	volatile long state;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct pt_regs {
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
};

#pragma clang attribute pop

/* The program's context is not read, only passed. */
struct bpf_perf_event_data;

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_probe_read_user)(void *dst, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *dst, u32 size, const void *from) = (void *)113;
static long (*bpf_seq_write)(struct seq_file *seq, const void *data, u32 len) = (void *)127;
static long (*bpf_get_task_stack)(struct task_struct *task, void *buf, u32 size,
				  u64 flags) = (void *)141;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static long (*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
static long (*bpf_copy_from_user_task)(void *dst, u32 size, const void *user,
				       struct task_struct *task, u64 flags) = (void *)191;

/* State of the kernel's iterators (include/uapi/linux/bpf.h, kernel/bpf/task_iter.c). */
struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_task {
	u64 opaque[3];
} __attribute__((aligned(8)));

/* All threads of a process. */
#define BPF_TASK_ITER_PROC_THREADS 2

/*
 * Functions of the kernel that have no number of their own: the loader puts the type id of the
 * function at the same place of `KERNEL_FUNCTIONS` in src/bpf/load.rs into the call.
 */
static void (*bpf_rcu_read_lock)(void) = (void *)0x10000;
static void (*bpf_rcu_read_unlock)(void) = (void *)0x10001;
static struct task_struct *(*bpf_task_from_pid)(s32 pid) = (void *)0x10002;
static void (*bpf_task_release)(struct task_struct *task) = (void *)0x10003;
static int (*bpf_iter_task_new)(struct bpf_iter_task *it, struct task_struct *task,
				u32 flags) = (void *)0x10004;
static struct task_struct *(*bpf_iter_task_next)(struct bpf_iter_task *it) = (void *)0x10005;
static void (*bpf_iter_task_destroy)(struct bpf_iter_task *it) = (void *)0x10006;
static int (*bpf_iter_num_new)(struct bpf_iter_num *it, int start, int end) = (void *)0x10007;
static int *(*bpf_iter_num_next)(struct bpf_iter_num *it) = (void *)0x10008;
static void (*bpf_iter_num_destroy)(struct bpf_iter_num *it) = (void *)0x10009;

#endif
