# Threads of Python that work and wait in known ways. Prints what each waits for, as `cargo xtask runtimes` reads it.
import ctypes
import queue
import socket
import sys
import threading
import time

libc = ctypes.CDLL(None)
started = threading.Barrier(7)


def alpha(x):
    for _ in range(70000):
        x = (x * 3 + 1) & 0xFFFFFF
    return x


def beta(x):
    for _ in range(30000):
        x = (x * 3 + 1) & 0xFFFFFF
    return x


def want_lock(lock):
    while True:
        with lock:
            pass


def take_jobs(jobs):
    while True:
        jobs.get()
        sum(range(5000))


def sleep():
    while True:
        time.sleep(3600)


def accept():
    listener = socket.create_server(("127.0.0.1", 0))
    while True:
        listener.accept()


def keep(lock):
    while True:
        with lock:
            time.sleep(0.015)
        time.sleep(0.001)


def feed(jobs):
    while True:
        time.sleep(0.015)
        jobs.put(1)


def start(name, state, body, *arguments):
    def run():
        libc.prctl(15, name.encode())
        print(f"thread {threading.get_native_id()} {state}", flush=True)
        started.wait()
        body(*arguments)

    threading.Thread(target=run, daemon=True).start()


def main():
    lock, jobs = threading.Lock(), queue.Queue()
    # Each also waits for the interpreter's lock.
    start("p-lock", "lock", want_lock, lock)
    start("p-queue", "idle|lock", take_jobs, jobs)
    start("p-sleep", "sleep|lock", sleep)
    start("p-accept", "net|lock", accept)
    start("p-keep", "sleep|lock", keep, lock)
    start("p-feed", "sleep|lock", feed, jobs)
    started.wait()
    print("ready", flush=True)
    x = 1
    while True:
        x = beta(alpha(x))


main()
