/*
 * A target whose threads mostly wait: threads N_BLOCKED N_WAKING [N_MAPPINGS [N_BIRTHS]]
 *
 * Blocked threads wait for ever, half in a condition variable and half in epoll_wait, twenty calls
 * deep. Waking threads run for about 0.2 ms and sleep for 10 ms. Beside their memory there are
 * N_MAPPINGS mappings of a page each. N_BIRTHS threads a second start and end at once. Prints
 * `ready` when all run, and ends when its standard input does.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 20

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t started;
static volatile unsigned sink;

static void wait_in_condition(void)
{
	pthread_mutex_lock(&mutex);
	for (;;)
		pthread_cond_wait(&never, &mutex);
}

static void wait_in_epoll(void)
{
	struct epoll_event event;
	int set = epoll_create1(EPOLL_CLOEXEC);

	for (;;)
		if (epoll_wait(set, &event, 1, -1) < 0)
			sleep(1);
}

static void wake_and_sleep(void)
{
	const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};

	for (;;) {
		for (unsigned i = 0; i < 200 * 1000; i++)
			sink = i;
		nanosleep(&pause, NULL);
	}
}

static void __attribute__((noinline, noclone)) descend(unsigned depth, void (*what)(void))
{
	volatile char frame[64];

	frame[depth % sizeof frame] = 1;
	if (depth == 0)
		what();
	else
		descend(depth - 1, what);
	/* Keeps the call above from being a jump. */
	sink = frame[0];
}

static void *run(void *what)
{
	pthread_barrier_wait(&started);
	descend(DEPTH, (void (*)(void))what);
	return NULL;
}

static void *end_at_once(void *nothing)
{
	return nothing;
}

/* In bursts of a hundredth of a second. */
static void *give_birth(void *number)
{
	struct timespec next;
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		for (int i = 0; i < *(int *)number / 100; i++)
			if (pthread_create(&thread, &attributes, end_at_once, NULL) != 0)
				break;
		next.tv_nsec += 10 * 1000 * 1000;
		if (next.tv_nsec >= 1000 * 1000 * 1000) {
			next.tv_nsec -= 1000 * 1000 * 1000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	return NULL;
}

/* Neighbors differ, or the kernel would make one mapping of them. */
static int add_mappings(int number)
{
	for (int i = 0; i < number; i++) {
		int protection = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;

		if (mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return -1;
	}
	return 0;
}

int main(int count, char **arguments)
{
	pthread_attr_t small;
	pthread_t mother;
	char byte;
	int n_blocked = count >= 3 ? atoi(arguments[1]) : -1;
	int n_waking = count >= 3 ? atoi(arguments[2]) : -1;
	int n_mappings = count >= 4 ? atoi(arguments[3]) : 0;
	int n_births = count >= 5 ? atoi(arguments[4]) : 0;
	int n_threads = n_blocked + n_waking;

	if (n_blocked < 0 || n_waking < 0 || n_threads > 10000) {
		fprintf(stderr, "usage: threads N_BLOCKED N_WAKING [N_MAPPINGS [N_BIRTHS]]\n");
		return 2;
	}
	if (add_mappings(n_mappings) != 0) {
		perror("mmap");
		return 1;
	}
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	pthread_barrier_init(&started, NULL, (unsigned)n_threads + 1);
	for (int i = 0; i < n_threads; i++) {
		pthread_t thread;
		void (*what)(void) = i < n_waking ? wake_and_sleep
				     : i % 2      ? wait_in_condition
						  : wait_in_epoll;
		if (pthread_create(&thread, &small, run, (void *)what) != 0) {
			perror("pthread_create");
			return 1;
		}
	}
	pthread_barrier_wait(&started);
	if (n_births > 0 && pthread_create(&mother, NULL, give_birth, &n_births) != 0) {
		perror("pthread_create");
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
