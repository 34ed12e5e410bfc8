//! Seeds that are text.

/// A library with inline functions, classes, several ranges and a cold part.
pub(crate) const SMALL: &str = r#"
namespace shop {
struct Item { long price; virtual long cost(); };
static inline __attribute__((always_inline)) long inner(volatile long &x) { return x * 3; }
static inline __attribute__((always_inline)) long middle(volatile long &x) { return inner(x) + 1; }
__attribute__((noinline)) long total(volatile long &x, const Item &item) {
  return middle(x) ^ item.price;
}
long Item::cost() {
  volatile long x = price;
  if (__builtin_expect(price == 42, 0)) __builtin_trap();
  char *space = static_cast<char *>(__builtin_alloca(price));
  space[0] = 1;
  return total(x, *this) + inner(x) + space[price - 1];
}
}  // namespace shop
extern "C" int EVP_EncryptUpdate(shop::Item *item) { return item->cost(); }
extern "C" int EVP_DecryptUpdate(shop::Item *item) { return -EVP_EncryptUpdate(item); }
"#;

/// `/proc/PID/maps`, `stat`, `status`, `syscall`, `schedstat`.
pub(crate) const PROC: [&str; 5] = [
    "55d0c0a00000-55d0c0a21000 r-xp 00002000 fe:01 131 /opt/my app/x (deleted)\n\
     7f00-7f10 rw-p 00000000 00:00 0 \n\
     7fff00000000-7fff00002000 r-xp 00000000 00:00 0                          [vdso]\n",
    "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 5 6 0 0 20 0 70 0 1234 1000 50 18446744073709551615 \
     1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    "Name:\tceph-osd\nState:\tS (sleeping)\nTgid:\t42\nPid:\t42\nPPid:\t1\nTracerPid:\t0\n\
     Uid:\t64045\t64045\t64045\t64045\nNStgid:\t42\t7\nNSpid:\t42\t7\nThreads:\t70\n\
     CapEff:\t000001ffffffffff\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n",
    "202 0x7f0010 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd10 0x7f1234\n",
    "123456789 987654 321\n",
];

/// `openssl speed` (docs/crypto.md).
pub(crate) const SPEED: &str = "\
+F:22:AES-128-GCM:100000000.00:200000000.00:400000000.00
version: 3.0.15
The 'numbers' are in 1000s of bytes per second processed.
type             16 bytes     64 bytes    256 bytes   1024 bytes   8192 bytes  16384 bytes
AES-128-GCM     331000.00k   896000.00k  2000000.00k  3500000.00k  4500000.00k  4600000.00k
";

/// A calibration cut short: the rest is the fuzzer's.
pub(crate) const CALIBRATION: &str = r#"{"schema":"wcprof-crypto-calibration","version":1}"#;

/// Linkage names of all kinds.
pub(crate) const NAMES: &[&str] = &[
    "_ZNK4ceph4msgr2v214FrameAssembler28disasm_remaining_secure_rev1EPNS_6buffer7v15_2_04listERS5_",
    "_ZN1A1fI1BLm4ELj2ELi3EEEvv",
    "_Z4makeI1AJEEvDpOT0_",
    "_ZThn16_N1A1fEi",
    "_ZTchn8_v0_n24_N1A1fEv",
    "_ZZN1A1fEvENKUlvE_clEv",
    "_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJRKiEEEvN9__gnu_cxx17__normal_iteratorIPiS1_EEDpOT_",
    "_ZNSt5tupleIJOiS_IJEEEEC1IJiS0_EEEDpOT_",
    "_ZZNSt8functionIFvvEEC1IZN1A1fEvEUlvE_vvEET_E",
    "_ZN4core3fmt9Formatter3pad17h1f2e3d4c5b6a7988E",
    "_RNvCs15kBYyAo9fc_7mycrate7example",
    "_RINvNtC3std3mem8align_ofNtNtC3foo3bar3BazE",
    "_Z3fooi.constprop.0.cold.3",
    "pthread_cond_wait@@GLIBC_2.3.2",
    "_ZN12_GLOBAL__N_11fEv",
    "_ZZ4mainE1x_0",
    "_ZGVZ4mainE1x",
    "_ZTIN1A1BE",
    "_ZN1AIXadL_ZN1B1fEvEEE1gEv",
    "_ZNK1AIiEcvT_IlEEv",
    "_ZN1AC2ERKS_[abi:cxx11]",
    "_Z1fIiEDTcl1gfp_EET_",
    "_Z1fDv4_fDhDn",
    "_Z1fM1AKFivRE",
    "_ZN1A1fB5cxx11Ev",
    "_ZUlvE_",
    "_Z1fIXsr2is4sameIT_iEEEvS0_",
];

/// A perf map.
pub(crate) const PERF_MAP: &str =
    "1000 10 old\n0x1008 0x20 LazyCompile:~hot /srv/a b.js:1\n1010 8 _ZN1aC1Ev\n";

/// Lines of `/proc/kallsyms`.
pub(crate) const KALLSYMS: &str = "0000000000000000 A fixed_percpu_data\n\
    ffffffff81000000 T _stext\n\
    ffffffff810000f0 t do_pipe\n\
    ffffffff810000f0 W do_pipe2\n\
    0000000000001000 t nvme_queue_rq\t[nvme]\n";

/// Records of a jitdump, behind the number of its kind.
pub(crate) fn jitdump() -> Vec<u8> {
    let mut out = vec![1];
    let mut record = |id: u32, words: &[u64], text: &[u8]| {
        out.extend(id.to_ne_bytes());
        out.extend((16 + 8 * words.len() as u32 + text.len() as u32).to_ne_bytes());
        out.extend(7_u64.to_ne_bytes());
        out.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        out.extend(text);
    };
    // Debug information of two lines, code, code in its place, a move, the end.
    let mut lines = b"/a.js\0".to_vec();
    lines.extend([0x1010_u64, 4].iter().flat_map(|word| word.to_ne_bytes()));
    lines.extend(b"\xff\0");
    record(2, &[0x1000, 2, 0x1000, 3], &lines);
    record(0, &[1, 0x1000, 0x1000, 4, 1], b"first\0\x90\x90\x90\xc3");
    record(
        0,
        &[1, 0x1000, 0x1000, 4, 2],
        b"_ZN1a1bEv\0\x90\x90\x90\xc3",
    );
    record(1, &[1, 0x1020, 0x1000, 0x1020, 4, 2], b"");
    record(3, &[], b"");
    out
}
