// An inline chain with known lines, and a function whose error path is split off.
#include <cstdio>
#include <string>

namespace shop {
struct Item {
  long price;
};

inline __attribute__((always_inline)) long innermost(volatile long &x) {
  return x * 3;  // line of innermost
}

inline __attribute__((always_inline)) long middle(volatile long &x) {
  return innermost(x) + 1;  // line of middle
}

__attribute__((noinline)) long total(volatile long &x, const Item &item) {
  return middle(x) ^ item.price;  // line of total
}

__attribute__((noinline)) long checked(long x) {
  if (x == 42) {
    std::puts("about to fail");
    throw std::string("42");
  }
  return x * 7;
}
}  // namespace shop

int main(int argc, char **) {
  volatile long x = argc;
  shop::Item item{3};
  return static_cast<int>(shop::total(x, item) + shop::checked(argc));
}
