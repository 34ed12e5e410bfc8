// A function in two versions, as libraries keep an old one for programs that were linked with it, and one that has the same
// code in both.
__attribute__((noinline)) int first_take(int n) { return n + 1; }
__attribute__((noinline)) int second_take(int n) { return n * n + 2; }
__attribute__((noinline)) int the_give(int n) { return n * 3; }
__asm__(".symver first_take,take@V_1");
__asm__(".symver second_take,take@@V_2");
__asm__(".symver the_give,give@V_1");
__asm__(".symver the_give,give@@V_2");
