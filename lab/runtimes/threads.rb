# Threads of Ruby that work and wait in known ways. Prints what each waits for, as `cargo xtask runtimes` reads it.
require 'socket'

def alpha(x)
  i = 0
  while i < 700_000
    x = (x * 3 + 1) & 0xffffff
    i += 1
  end
  x
end

def beta(x)
  i = 0
  while i < 300_000
    x = (x * 3 + 1) & 0xffffff
    i += 1
  end
  x
end

def start(state, &body)
  Thread.new do
    $stdout.syswrite("thread #{Thread.current.native_thread_id} #{state}\n")
    loop(&body)
  end
end

lock = Mutex.new
jobs = Queue.new
listener = TCPServer.new('127.0.0.1', 0)
# Each also waits for the interpreter's lock; Ruby waits for a connection in ppoll.
start('sleep|lock') { lock.synchronize { sleep 0.015 }; sleep 0.001 }
start('lock') { lock.synchronize {} }
start('idle|lock') { jobs.pop }
start('sleep|lock') { sleep 0.015; jobs << 1 }
start('sleep|lock') { sleep 3600 }
start('net|idle|lock') { listener.accept }
sleep 0.5
$stdout.syswrite("ready\n")
x = 1
loop { x = beta(alpha(x)) }
