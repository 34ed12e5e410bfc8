//! The variants of one program: who makes it, and with which flags.

use crate::programs::Program;
use crate::setup::Group;

const NOTHING: Group = &[];
const GCC: Group = &[
    ("gcc", "compiles C"),
    ("g++", "compiles C++"),
    ("binutils", "links and strips"),
    ("elfutils", "eu-stack, the witness, and eu-strip"),
];
const GCC_11: Group = &[("gcc-11", "an older compiler")];
const LLVM: Group = &[("llvm-14", "llvm-strip, llvm-dwp")];
const DWZ: Group = &[("dwz", "makes files share their DWARF")];
const MOLD: Group = &[("mold", "a linker")];
const LLD: Group = &[("lld", "a linker")];
const MUSL: Group = &[("musl-tools", "compiles C with another C library")];
const CLANG_14: Group = &[
    ("clang-14", "another compiler"),
    ("lld-14", "its linker"),
    ("llvm-14", "its plugins"),
];
const CLANG_16: Group = &[
    ("clang-16", "another compiler"),
    ("lld-16", "its linker"),
    ("llvm-16", "its plugins"),
];
const CLANG_19: Group = &[
    ("clang-19", "another compiler"),
    ("lld-19", "its linker"),
    ("llvm-19", "its plugins"),
];
const GO: Group = &[("golang-go", "compiles Go")];
const GDC: Group = &[("gdc", "compiles D")];
const LDC: Group = &[("ldc", "compiles D")];
const GNAT: Group = &[("gnat", "compiles Ada")];
const GFORTRAN: Group = &[("gfortran", "compiles Fortran")];

/// A variant; each is built in a folder of its own, so that nothing of another one is found beside it.
const fn variant(
    name: &'static str,
    packages: Group,
    build: &'static str,
    version: &'static str,
) -> Program {
    Program {
        name,
        packages,
        build,
        version,
        start: START,
        own: "",
        threads: &[],
        witness: "the program",
    }
}

/// Its stack is that of the source.
const START: &str = "cd built && exec ./answer";

/// In the order of the document.
pub(super) const VARIANTS: &[Program] = &[
    variant(
        "gcc -O0",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O0 -g -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -O1",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O1 -g -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -O2",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -O3",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O3 -g -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -Os",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -Os -g -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fno-omit-frame-pointer",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fno-omit-frame-pointer -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -g0",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -gdwarf-4",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -gdwarf-4 -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -gdwarf-3",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -gdwarf-3 -gstrict-dwarf -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -gsplit-dwarf",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -gsplit-dwarf -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -gsplit-dwarf, llvm-dwp",
        LLVM,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -gsplit-dwarf -o answer $LAB/answer.c && llvm-dwp-14 -e answer -o answer.dwp && rm answer.dwo",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -gsplit-dwarf -gdwarf-4, dwp",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -gsplit-dwarf -gdwarf-4 -o answer $LAB/answer.c && dwp -e answer -o answer.dwp && rm answer.dwo",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -gsplit-dwarf -gdwarf-4",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -gsplit-dwarf -gdwarf-4 -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -gz=zlib",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -gz=zlib -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, .zdebug sections",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -o answer $LAB/answer.c && objcopy --compress-debug-sections=zlib-gnu answer",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -flto",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -flto -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -static",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -static -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -static-pie",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -static-pie -fPIE -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -no-pie",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -no-pie -fno-pie -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fno-plt -z now",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fno-plt -Wl,-z,now -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fstack-clash-protection -fstack-protector-strong",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fstack-clash-protection -fstack-protector-strong -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fcf-protection=full",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fcf-protection=full -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -pg",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -pg -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -finstrument-functions",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -finstrument-functions -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fsanitize=address",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O1 -g -fsanitize=address -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -ffunction-sections -Wl,--gc-sections",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -ffunction-sections -Wl,--gc-sections -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fno-asynchronous-unwind-tables -g",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fno-asynchronous-unwind-tables -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fno-asynchronous-unwind-tables, no -g",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -fno-asynchronous-unwind-tables -fno-unwind-tables -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fno-asynchronous-unwind-tables -fno-omit-frame-pointer, no -g",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-omit-frame-pointer -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, strip",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -o answer $LAB/answer.c && strip answer",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, strip and debug link",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -o answer $LAB/answer.c && mkdir -p .debug && objcopy --only-keep-debug answer .debug/answer.debug && objcopy --strip-all --add-gnu-debuglink=.debug/answer.debug answer",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -fno-asynchronous-unwind-tables -g, strip and debug link",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fno-asynchronous-unwind-tables -o answer $LAB/answer.c && mkdir -p .debug && objcopy --only-keep-debug answer .debug/answer.debug && objcopy --strip-all --add-gnu-debuglink=.debug/answer.debug answer",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, eu-strip -f",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -o answer $LAB/answer.c && mkdir -p .debug && eu-strip -f .debug/answer.debug answer",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, llvm-strip --strip-sections",
        LLVM,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -rdynamic -o answer $LAB/answer.c && llvm-strip-14 --strip-sections answer",
        "gcc --version | head -1",
    ),
    variant(
        "gcc -g1",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g1 -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, dwz",
        DWZ,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -o answer $LAB/answer.c && dwz answer",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, dwz -m",
        DWZ,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -o answer $LAB/answer.c && cp answer second && dwz -m answer.shared answer second",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, dwz -5 -m",
        DWZ,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -gdwarf-5 -o answer $LAB/answer.c && cp answer second && dwz -5 -m answer.shared answer second",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, gold",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fuse-ld=gold -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, gold --icf=all",
        GCC,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fuse-ld=gold -ffunction-sections -Wl,--icf=all -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, mold",
        MOLD,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fuse-ld=mold -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc, lld",
        LLD,
        "rm -rf built && mkdir built && cd built && gcc -O2 -g -fuse-ld=lld -o answer $LAB/answer.c",
        "gcc --version | head -1",
    ),
    variant(
        "gcc-11",
        GCC_11,
        "rm -rf built && mkdir built && cd built && gcc-11 -O2 -g -o answer $LAB/answer.c",
        "gcc-11 --version | head -1",
    ),
    variant(
        "g++",
        GCC,
        "rm -rf built && mkdir built && cd built && g++ -O2 -g -x c++ -o answer $LAB/answer.c",
        "g++ --version | head -1",
    ),
    variant(
        "g++ -flto, strip",
        GCC,
        "rm -rf built && mkdir built && cd built && g++ -O2 -g -flto -x c++ -o answer $LAB/answer.c && strip answer",
        "g++ --version | head -1",
    ),
    variant(
        "musl-gcc",
        MUSL,
        "rm -rf built && mkdir built && cd built && musl-gcc -O2 -g -o answer $LAB/answer.c",
        "dpkg-query -Wf '${Version}' musl-tools",
    ),
    variant(
        "musl-gcc -static",
        MUSL,
        "rm -rf built && mkdir built && cd built && musl-gcc -O2 -g -static -o answer $LAB/answer.c",
        "dpkg-query -Wf '${Version}' musl-tools",
    ),
    variant(
        "musl-gcc -static, strip",
        MUSL,
        "rm -rf built && mkdir built && cd built && musl-gcc -O2 -g -static -o answer $LAB/answer.c && strip answer",
        "dpkg-query -Wf '${Version}' musl-tools",
    ),
    variant(
        "clang-14 -O2",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O2 -g -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-14 -O0",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O0 -g -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-14 -gsplit-dwarf",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O2 -g -gsplit-dwarf -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-14 -gdwarf-4",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O2 -gdwarf-4 -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-14 -flto, lld",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O2 -g -flto -fuse-ld=lld-14 -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-14 -flto=thin, lld",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O2 -g -flto=thin -fuse-ld=lld-14 -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-14 -funique-internal-linkage-names",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O2 -g -funique-internal-linkage-names -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-14 -fno-asynchronous-unwind-tables -fno-omit-frame-pointer, no -g",
        CLANG_14,
        "rm -rf built && mkdir built && cd built && clang-14 -O2 -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-omit-frame-pointer -o answer $LAB/answer.c",
        "clang-14 --version | head -1",
    ),
    variant(
        "clang-16 -O2",
        CLANG_16,
        "rm -rf built && mkdir built && cd built && clang-16 -O2 -g -o answer $LAB/answer.c",
        "clang-16 --version | head -1",
    ),
    variant(
        "clang-19 -O2",
        CLANG_19,
        "rm -rf built && mkdir built && cd built && clang-19 -O2 -g -o answer $LAB/answer.c",
        "clang-19 --version | head -1",
    ),
    variant(
        "clang-19 -O0",
        CLANG_19,
        "rm -rf built && mkdir built && cd built && clang-19 -O0 -g -o answer $LAB/answer.c",
        "clang-19 --version | head -1",
    ),
    variant(
        "clang-16 -flto=thin, lld",
        CLANG_16,
        "rm -rf built && mkdir built && cd built && clang-16 -O2 -g -flto=thin -fuse-ld=lld-16 -o answer $LAB/answer.c",
        "clang-16 --version | head -1",
    ),
    variant(
        "clang-19 -flto=thin -gz=zstd, lld",
        CLANG_19,
        "rm -rf built && mkdir built && cd built && clang-19 -O2 -g -flto=thin -gz=zstd -fuse-ld=lld-19 -o answer $LAB/answer.c",
        "clang-19 --version | head -1",
    ),
    variant(
        "clang-19 -fbasic-block-sections=all, lld",
        CLANG_19,
        "rm -rf built && mkdir built && cd built && clang-19 -O2 -g -fbasic-block-sections=all -fuse-ld=lld-19 -o answer $LAB/answer.c",
        "clang-19 --version | head -1",
    ),
    variant(
        "rustc -O -g",
        NOTHING,
        "rm -rf built && mkdir built && cd built && rustc --edition 2024 -O -g -o answer $LAB/answer.rs",
        "rustc --version",
    ),
    variant(
        "rustc, debug",
        NOTHING,
        "rm -rf built && mkdir built && cd built && rustc --edition 2024 -g -o answer $LAB/answer.rs",
        "rustc --version",
    ),
    variant(
        "rustc -O",
        NOTHING,
        "rm -rf built && mkdir built && cd built && rustc --edition 2024 -O -o answer $LAB/answer.rs",
        "rustc --version",
    ),
    variant(
        "rustc -O -C strip=symbols",
        NOTHING,
        "rm -rf built && mkdir built && cd built && rustc --edition 2024 -O -C strip=symbols -o answer $LAB/answer.rs",
        "rustc --version",
    ),
    variant(
        "rustc -O -C panic=abort -C lto",
        NOTHING,
        "rm -rf built && mkdir built && cd built && rustc --edition 2024 -O -g -C panic=abort -C lto -o answer $LAB/answer.rs",
        "rustc --version",
    ),
    variant(
        "go build",
        GO,
        "rm -rf built && mkdir built && cd built && go build -o answer $LAB/answer.go",
        "go version",
    ),
    variant(
        "go build -ldflags '-s -w'",
        GO,
        "rm -rf built && mkdir built && cd built && go build -ldflags '-s -w' -o answer $LAB/answer.go",
        "go version",
    ),
    variant(
        "gdc -O2 -g",
        GDC,
        "rm -rf built && mkdir built && cd built && gdc -O2 -g -fno-optimize-sibling-calls -o answer $LAB/answer.d",
        "gdc --version | head -1",
    ),
    variant(
        "ldc2 -O2 -g",
        LDC,
        "rm -rf built && mkdir built && cd built && ldc2 -O2 -g -of=answer $LAB/answer.d",
        "ldc2 --version | head -1",
    ),
    variant(
        "gnatmake -O2 -g",
        GNAT,
        "rm -rf built && mkdir built && cd built && cp $LAB/answer.adb . && gnatmake -q -O2 -g answer.adb",
        "gnatmake --version | head -1",
    ),
    variant(
        "gfortran -O2 -g -fno-inline",
        GFORTRAN,
        "rm -rf built && mkdir built && cd built && gfortran -O2 -g -fno-inline -o answer $LAB/answer.f90",
        "gfortran --version | head -1",
    ),
];
