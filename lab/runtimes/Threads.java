// Threads of Java that work and wait in known ways; jstack says which wait for what.
import java.net.ServerSocket;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.ReentrantLock;

public class Threads {
    interface Body {
        void run() throws Exception;
    }

    static volatile int sink;

    static int alpha(int x) {
        for (int i = 0; i < 7000000; i++)
            x = (x * 3 + 1) & 0xffffff;
        return x;
    }

    static int beta(int x) {
        for (int i = 0; i < 3000000; i++)
            x = (x * 3 + 1) & 0xffffff;
        return x;
    }

    static int job(int x) {
        for (int i = 0; i < 1000000; i++)
            x = (x * 5 + 1) & 0xffffff;
        return x;
    }

    static void start(String name, Body body) {
        Thread thread = new Thread(() -> {
            try {
                for (;;)
                    body.run();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        Object monitor = new Object(), quiet = new Object();
        ReentrantLock lock = new ReentrantLock();
        LinkedBlockingQueue<Integer> jobs = new LinkedBlockingQueue<>();
        ServerSocket listener = new ServerSocket(0);
        start("j-keep", () -> {
            synchronized (monitor) {
                lock.lock();
                Thread.sleep(15);
                lock.unlock();
            }
            Thread.sleep(1);
        });
        start("j-monitor", () -> {
            synchronized (monitor) {
                sink++;
            }
        });
        start("j-lock", () -> {
            lock.lock();
            lock.unlock();
        });
        start("j-queue", () -> sink = job(jobs.take()));
        start("j-feed", () -> {
            Thread.sleep(25);
            jobs.put(1);
        });
        start("j-wait", () -> {
            synchronized (quiet) {
                quiet.wait();
            }
        });
        start("j-sleep", () -> Thread.sleep(3600000));
        start("j-accept", () -> listener.accept());
        start("j-work", () -> sink = beta(alpha(sink)));
        Thread.sleep(2000);
        System.out.println("ready");
        Thread.sleep(3600000);
    }
}
