/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What the programs and user space share. `src/bpf/shared.rs` declares the same structs; a test of it
 * compares sizes and offsets with the object's BTF. All values are in the byte order of the machine.
 */
#ifndef WCPROF_H
#define WCPROF_H

#include "kernel.h"

/* Bits of `status`. */
#define STATUS_ON_CPU 1
/* No kernel thread; the registers are there. */
#define STATUS_IS_USER 2
#define STATUS_HAS_QUEUE_TIME 4
/* It ran each time its stack was copied. */
#define STATUS_TORN 8
/* Its control group (version 2) is frozen. */
#define STATUS_FREEZER_TRAP 16

/* The most bytes of a user stack (a power of two), and of a kernel stack (64 return addresses), that are
 * copied. */
#define MAX_STACK (1 << 18)
#define MAX_KERNEL 512

/* Bytes below its stack pointer that a function may use (System V ABI for AMD64, section 3.2.2). */
#define RED_ZONE 128

/* A thread. `stack_len` bytes of its stack from `stack_below` bytes below `sp` upward follow, then
 * `kernel_len` bytes of its kernel stack: return addresses, leaf first. */
struct task_record {
	u16 status;
	u16 exit_state;
	/* Numbers in the reader's pid namespace, and in the initial one. */
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
	u64 bx;
	u64 orig_ax;
	u64 ax;
	u64 di;
	u64 si;
	u64 dx;
	u64 r8;
	u64 r9;
	u64 r10;
	u64 r11;
	char comm[16];
	/* Multiples of 8. */
	u32 stack_len;
	u32 kernel_len;
	u32 stack_below;
	u32 pad;
};

/* The part of a thread's stack to copy. */
struct want {
	/* The mapping of the stack. */
	u64 start;
	u64 end;
	/* The thread in the initial pid namespace, 0: none. */
	s32 host_tid;
	/* How much to copy from the stack pointer upward. */
	u32 bytes;
};

/* Timer samples of a CPU whose red zones are kept: more than a ring of it holds. */
#define RED_ZONES 32

/* The red zone of a timer sample, and the registers that it is found by. */
struct red_zone {
	u64 ip;
	/* 0: it could not be read. */
	u64 sp;
	s32 host_tid;
	u32 pad;
	u8 bytes[RED_ZONE];
};

struct cpu_red_zones {
	/* How many there were so far; the last of them are in `zones`, each at its number modulo RED_ZONES. */
	u64 n;
	struct red_zone zones[RED_ZONES];
};

/* Threads that a pass of `wcprof_pass` can look at, and bytes for the records. */
#define PASS_THREADS 65536
#define PASS_BYTES (5 << 18)
#define CALL_WORDS 8

/* How far a pass is. User space clears it before the pass. */
struct pass {
	/* When the pass began and ended: CLOCK_MONOTONIC, ns. */
	u64 begin;
	u64 end;
	u32 is_done;
	/* Threads with a record, unchanged ones without, and those for which there was no room. */
	u32 n_records;
	u32 n_unlisted;
	u32 n_missed;
	/* Threads in the group of the last leader visited; iterators alone count them. */
	u32 n_threads;
	/* Threads that user space must look at before they go on. */
	u32 n_urgent;
	/* Timer samples of the targets so far; `wcprof_pass` alone tells. */
	u32 n_kept;
	/* `changed` is complete, its entries, and those that were looked at. */
	u32 is_listed;
	u32 n_changed;
	u32 next;
	/* Looks at the present thread that found it torn. Not in a register, where the verifier
	 * would follow each number of its own. */
	u32 attempt;
	u32 pad;
};

/* Mapped by user space, which runs the programs and so never reads while they write. A pass that fills
 * `records` stops; user space empties them and runs the program again. */
struct shared {
	/* A bit for each system call in which a blocked thread can be looked at later. */
	u64 quiet_calls[CALL_WORDS];
	/* A thread whose last record is of another generation is not unchanged. */
	u32 generation;
	/* Unchanged threads have a record, too, without stacks. */
	u32 list;
	/* Look each task's process up in `targets`: the link visits more than these. */
	u32 filter;
	/* The process in the initial pid namespace, for `wcprof_pass`. */
	s32 host_tgid;
	/* Bytes of `records` in use. */
	u32 len;
	/* Records of blocked threads, and of workers that are off-CPU, have their kernel stacks. */
	u32 kernel;
	/* User stacks are copied: 1, or 0 when user space has no room for more of them. */
	u32 copies;
	u32 pad;
	/* Written by the programs from here on. */
	struct pass pass;
	/* Threads in the initial pid namespace. */
	s32 changed[PASS_THREADS];
	/* Each is a task_record with the stacks that follow it. */
	union {
		struct task_record first;
		u8 bytes[PASS_BYTES];
	} records;
};

#endif
