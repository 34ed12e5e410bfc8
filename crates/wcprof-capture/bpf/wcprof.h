/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What the programs and user space share. `src/bpf/wire.rs` reads these layouts: change both.
 * All values are in the byte order of the machine.
 */
#ifndef WCPROF_H
#define WCPROF_H

#include "kernel.h"

/* The first byte of every record. */
#define KIND_TASK 1
#define KIND_UNCHANGED 2
#define KIND_END 3

/* Bits of `status`. */
#define STATUS_ON_CPU 1
/* No kernel thread. */
#define STATUS_IS_USER 2
#define STATUS_HAS_REGS 4
#define STATUS_HAS_QUEUE_TIME 8
/* It ran each time its stack was copied. */
#define STATUS_TORN 16

/* Most bytes of a stack that are copied: a record with it fits the kernel's buffer of 32 KiB. */
#define MAX_STACK 16384
/* Most bytes of a kernel stack: 64 return addresses. */
#define MAX_KERNEL 512

/* A thread in full; `stack_len` bytes from `sp` upward follow, then `kernel_len` of its kernel stack:
 * return addresses, leaf first. */
struct task_record {
	u8 kind;
	u8 status;
	u16 exit_state;
	/* As numbered in the pid namespace of the reader, and in the initial one. */
	s32 tid;
	s32 tgid;
	s32 host_tid;
	s32 host_tgid;
	u32 state;
	u32 flags;
	u32 exec_id;
	/* CLOCK_MONOTONIC, ns */
	u64 time;
	u64 nvcsw;
	u64 nivcsw;
	u64 run_time;
	u64 run_delay;
	u64 pcount;
	/* Both in the scheduler's clock: since when the thread is queued (0: it is not), and when
	 * the reader was last put on its CPU. */
	u64 last_queued;
	u64 reader_arrival;
	/* CLOCK_BOOTTIME, ns */
	u64 start_boottime;
	u64 ip;
	u64 sp;
	u64 bp;
	u64 orig_ax;
	u64 ax;
	u64 di;
	u64 si;
	u64 dx;
	u64 r10;
	char comm[16];
	/* A multiple of 8, at most MAX_STACK. */
	u32 stack_len;
	/* The same, at most MAX_KERNEL. */
	u32 kernel_len;
};
_Static_assert(sizeof(struct task_record) == 200, "wire format");

/* A blocked thread that did not run since its last full record. */
struct unchanged_record {
	u8 kind;
	u8 pad[3];
	s32 tid;
};
_Static_assert(sizeof(struct unchanged_record) == 8, "wire format");

/* After the last thread. */
struct end_record {
	u8 kind;
	u8 pad[3];
	/* Records written by this pass. */
	u32 n_records;
	/* Threads in the group of the last leader visited. */
	u32 n_threads;
	/* Unchanged threads without a record. */
	u32 n_unmentioned;
	/* CLOCK_MONOTONIC, ns */
	u64 time;
};
_Static_assert(sizeof(struct end_record) == 24, "wire format");

struct config {
	/* Look each task's process up in `targets` (the link visits more than the targets). */
	u32 filter;
	/* Full records carry this; 0: every record is in full. A change makes all of them full. */
	u32 generation;
	/* Unchanged threads have a record, and other names are looked for; otherwise they are only
	 * counted. */
	u32 mention;
	/* Written by the iterator. */
	u32 n_records;
	u32 n_threads;
	u32 n_unmentioned;
	/* The pass that these are of. */
	u64 session;
};
_Static_assert(sizeof(struct config) == 32, "map layout");

struct want {
	/* The mapping of the stack. */
	u64 start;
	u64 end;
	/* The thread in the initial pid namespace, 0: none. */
	s32 host_tid;
	/* How much to copy. */
	u32 bytes;
};
_Static_assert(sizeof(struct want) == 24, "map layout");

/* Threads of a process that a pass of `wcprof_pass` can list as changed, and bytes of its records:
 * an unchanged_record for each of as many threads, or at least one thread in full. */
#define PASS_THREADS 65536
#define PASS_BYTES (1 << 20)
#define CALL_WORDS 8

/* What `wcprof_pass` and user space share; mapped by the latter, which runs the program and so never
 * reads while it writes. */
struct pass {
	/* Written by user space: the process in the initial pid namespace, */
	s32 host_tgid;
	/* and 0 for a new pass, or the `next` of the run before. */
	u32 first;
	/* Written by the program: entries of `changed`, */
	u32 n_changed;
	/* those whose records were written; the pass is over when they are all. */
	u32 next;
	/* As in end_record, of the whole pass. */
	u32 n_records;
	u32 n_unmentioned;
	/* Threads that did not fit in `changed`. */
	u32 n_overflow;
	/* Bytes of `records` in use after this run. */
	u32 len;
	/* The end of the pass and its begin; CLOCK_MONOTONIC, ns */
	u64 time;
	u64 begin;
	/* Looks at the thread that is next. Not in a register, where the verifier would follow each
	 * number of its own. */
	u32 attempt;
	/* Written by user space: bytes of `records` that it has not read yet. */
	u32 base;
	/* Changed threads that user space must look at before they go on. */
	u32 n_urgent;
	/* Timer samples of the targets so far. */
	u32 n_kept;
	/* Written by user space: a bit for each system call in which a blocked thread can be looked at
	 * later. */
	u64 quiet_calls[CALL_WORDS];
	/* Threads in the initial pid namespace. */
	s32 changed[PASS_THREADS];
	/* task_records with the stacks that follow them, and unchanged_records */
	u8 records[PASS_BYTES];
};
_Static_assert(sizeof(struct pass) == 128 + 4 * PASS_THREADS + PASS_BYTES, "map layout");

#endif
