/* A program whose stack is known: main -> outer_step -> middle_step (inlined) -> leaf_spin or leaf_wait, by turns, for ever.
 * In C and C++. */
#include <stdio.h>
#include <unistd.h>

#ifdef __cplusplus
#define EXTERN extern "C"
#else
#define EXTERN
#endif

static volatile unsigned long sink;

EXTERN __attribute__((noinline)) void leaf_spin(void)
{
    for (int i = 0; i < 5000000; i++)
        sink = sink + 1;
}

EXTERN __attribute__((noinline)) void leaf_wait(void)
{
    usleep(20000);
    sink = sink + 1;
}

static inline __attribute__((always_inline)) void middle_step(unsigned long n)
{
    if (n % 2 == 0)
        leaf_spin();
    else
        leaf_wait();
    sink = sink + 1;
}

EXTERN __attribute__((noinline)) void outer_step(unsigned long n)
{
    middle_step(n);
    sink = sink + 1;
}

int main(void)
{
    puts("ready");
    fflush(stdout);
    for (unsigned long n = 0;; n++)
        outer_step(n);
}
