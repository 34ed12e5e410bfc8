// Dumps its own registers, stacks and mappings at the end of a known chain of calls.
//
// usage: fixture SCENARIO FILE
// FILE gets text lines ("regs IP SP BP", "chain ADDRESS" leaf first, "map LINE") and, after the
// line "regions", for each region its address and length (8 bytes each) and its bytes.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static FILE *out;
static const char *scenario;
static void *volatile chain[1024];
static volatile int depth;
static uintptr_t extra_stack;
volatile int sink;

#define ENTER(f) (chain[depth++] = (void *)(f))

static void region(uintptr_t start, uintptr_t end) {
    uint64_t head[2] = {start, end - start};
    fwrite(head, sizeof head, 1, out);
    fwrite((void *)start, end - start, 1, out);
}

NOINLINE void capture(void) {
    uintptr_t ip, sp, bp;
    __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
                     : "=&r"(ip), "=&r"(sp), "=&r"(bp));
    ENTER(capture);
    fprintf(out, "regs %lx %lx %lx\n", ip, sp, bp);
    for (int i = depth; i-- > 0;)
        fprintf(out, "chain %lx\n", (uintptr_t)chain[i]);
    FILE *maps = fopen("/proc/self/maps", "r");
    static char line[4096];
    uintptr_t starts[8], ends[8];
    int regions = 0;
    while (fgets(line, sizeof line, maps)) {
        fprintf(out, "map %s", line);
        uintptr_t start, end;
        sscanf(line, "%lx-%lx", &start, &end);
        uintptr_t probes[3] = {sp, extra_stack, getauxval(AT_SYSINFO_EHDR)};
        for (int i = 0; i < 3; i++)
            if (start <= probes[i] && probes[i] < end) {
                starts[regions] = probes[i];
                ends[regions++] = end;
                break;
            }
    }
    fprintf(out, "regions\n");
    for (int i = 0; i < regions; i++)
        region(starts[i], ends[i]);
    fclose(out);
    _exit(0);
}

// Leaves copies of frames behind, below those of later calls.
NOINLINE int litter(int n) {
    volatile char room[64];
    room[0] = (char)n;
    return n == 0 ? room[0] : litter(n - 1) + room[0];
}

NOINLINE void with_alloca(int n) {
    ENTER(with_alloca);
    volatile char *room = alloca((size_t)n);
    room[n - 1] = 1;
    capture();
    sink += room[0];
}

NOINLINE void middle(int n) {
    ENTER(middle);
    sink += litter(3);
    with_alloca(n * 16 + 100);
    sink++;
}

NOINLINE void realigned(int n) {
    ENTER(realigned);
    volatile char room[128] __attribute__((aligned(64)));
    room[n] = 1;
    // A variable size on top of the alignment makes the frame hang on rbp.
    volatile char *more = alloca((size_t)n + 200);
    more[n] = 1;
    middle(n);
    sink += room[n] + more[0];
}

NOINLINE void deep(int n) {
    ENTER(deep);
    if (n > 0)
        deep(n - 1);
    else
        capture();
    sink++;
}

NOINLINE int compare(const void *a, const void *b) {
    ENTER(compare);
    capture();
    return *(const int *)a - *(const int *)b;
}

NOINLINE void sorts(void) {
    ENTER(sorts);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    sink += numbers[0];
}

NOINLINE void handler(int signal) {
    ENTER(handler);
    middle(signal);
    sink++;
}

// Faults in a leaf, where nothing was pushed.
NOINLINE int faults(volatile int *p) {
    ENTER(faults);
    return *p + 1;
}

NOINLINE void *thread_main(void *argument) {
    ENTER(thread_main);
    middle(3);
    sink++;
    return argument;
}

NOINLINE void coroutine(void) {
    ENTER(coroutine);
    middle(2);
    sink++;
}

// Like OpenSSL's assembler: the old stack pointer is saved on the realigned stack, and the CFA is
// what is read from there.
void assembler(void (*callee)(int));
__asm__(".text\n.type assembler,@function\nassembler:\n"
        ".cfi_startproc\n"
        "mov %rsp, %rax\n"
        "push %rbx\n"
        ".cfi_offset %rbx, -16\n"
        "sub $72, %rsp\n"
        "and $-64, %rsp\n"
        "mov %rax, 24(%rsp)\n"
        // DW_CFA_def_cfa_expression, 5 bytes: DW_OP_breg7 24, DW_OP_deref, DW_OP_plus_uconst 8
        ".cfi_escape 0x0f, 5, 0x77, 24, 0x06, 0x23, 8\n"
        "mov %rdi, %rdx\n"
        "mov $2, %edi\n"
        "call *%rdx\n"
        "mov 24(%rsp), %rax\n"
        "mov -8(%rax), %rbx\n"
        "mov %rax, %rsp\n"
        ".cfi_def_cfa %rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n.size assembler, .-assembler\n");

// A function with a frame pointer but without call frame information.
void without_cfi(void (*callee)(int));
__asm__(".text\n.type without_cfi,@function\nwithout_cfi:\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        "sub $32, %rsp\n"
        "mov %rdi, %rdx\n"
        "mov $2, %edi\n"
        "call *%rdx\n"
        "leave\n"
        "ret\n.size without_cfi, .-without_cfi\n");

static void (*volatile indirect)(int) = middle;

NOINLINE void calls_indirectly(int n) {
    ENTER(calls_indirectly);
    indirect(n);
    sink++;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    scenario = argv[1];
    out = fopen(argv[2], "wb");
    if (!out)
        return 3;
    ENTER(main);
    if (!strcmp(scenario, "alloca")) {
        middle(argc);
    } else if (!strcmp(scenario, "realigned")) {
        realigned(argc);
    } else if (!strcmp(scenario, "deep")) {
        deep(499);
    } else if (!strcmp(scenario, "fifteen")) {
        deep(9);
    } else if (!strcmp(scenario, "no_cfi")) {
        ENTER(without_cfi);
        without_cfi(middle);
    } else if (!strcmp(scenario, "qsort")) {
        sorts();
    } else if (!strcmp(scenario, "indirect")) {
        calls_indirectly(argc);
    } else if (!strcmp(scenario, "assembler")) {
        ENTER(assembler);
        assembler(middle);
    } else if (!strcmp(scenario, "signal")) {
        static char room[256 << 10];
        stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
        sigaltstack(&stack, 0);
        sigaction(SIGSEGV, &action, 0);
        // The interrupted stack, from a bit below this frame (the red zone) to its end.
        extra_stack = (uintptr_t)__builtin_frame_address(0) - 512;
        sink += faults((volatile int *)(uintptr_t)(argc - 3));
    } else if (!strcmp(scenario, "thread")) {
        depth = 0;
        pthread_t thread;
        pthread_create(&thread, 0, thread_main, 0);
        pthread_join(thread, 0);
    } else if (!strcmp(scenario, "coroutine")) {
        depth = 0;
        static ucontext_t here, there;
        getcontext(&there);
        there.uc_stack.ss_sp = malloc(256 << 10);
        there.uc_stack.ss_size = 256 << 10;
        there.uc_link = 0;
        makecontext(&there, coroutine, 0);
        swapcontext(&here, &there);
    }
    return 4;
}
