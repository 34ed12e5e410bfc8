// Threads with fixed call chains for comparing with uwpmp's output.
//
// uwpmp stops a thread to sample it, which ends its epoll_wait with EINTR: each sample moves a
// thread on to the next chain of its list, so that N samples have known counts.
// Built with: g++ -O0 -g -static -pthread target.cc

#include <pthread.h>
#include <stdio.h>
#include <string>
#include <sys/epoll.h>
#include <unistd.h>

static int poll_fd;
static int waits()
{
  epoll_event event;
  return epoll_wait(poll_fd, &event, 1, -1);
}

namespace store {
struct Bluestore {
  void read(const std::string &name, unsigned long offset) { waits(); }
  void a_read_whose_demangled_name_no_terminal_of_eighty_columns_can_show_whole(
      const std::string &name, unsigned long offset) { waits(); }
};
}

static store::Bluestore bluestore;
static void submit() { waits(); }
static void aio() { submit(); }
static void wal() { submit(); }
static void rare() { waits(); }
static void rarer() { rare(); }
static void deep(int n) { if (n > 0) deep(n - 1); else waits(); }
static void own() { waits(); }

// Of 1000: 500 read, 250 the long one, 123 aio, 121 wal, 5 rare, 1 rarer.
static void *op(void *)
{
  for (int i = 0;; i = (i + 1) % 1000) {
    if (i < 500) bluestore.read("x", 1);
    else if (i < 750)
      bluestore.a_read_whose_demangled_name_no_terminal_of_eighty_columns_can_show_whole("x", 1);
    else if (i < 873) aio();
    else if (i < 994) wal();
    else if (i < 999) rare();
    else rarer();
  }
}

// Of 1000: 996 deep, 4 shallow.
static void *stacks(void *)
{
  for (int i = 0;; i = (i + 1) % 1000) {
    if (i < 996) deep(75); else own();
  }
}

static void start(void *(*run)(void *), const char *name)
{
  pthread_t thread;
  pthread_create(&thread, nullptr, run, nullptr);
  pthread_setname_np(thread, name);
}

int main()
{
  poll_fd = epoll_create1(0);
  start(stacks, "deep");
  start(op, "tp_osd_tp");
  printf("%d\n", getpid());
  fflush(stdout);
  for (;;) waits();
}
