// One function under several names, as libc has them, and calls through the PLT.
#include <stdlib.h>
#include <string.h>

int __real_poll(int x) { return x + (int)strlen(getenv("HOME")); }
extern int poll_it(int) __attribute__((weak, alias("__real_poll")));
extern int __poll_it(int) __attribute__((alias("__real_poll")));

__attribute__((noinline)) static int hidden(int x) { return __poll_it(x) * 2 + atoi("7"); }
int entry(int x) { return hidden(x); }
