//! The first process of the virtual machine of `cargo xtask vmtest`: mounts what the tests need, loads a module,
//! runs them, prints the verdict and powers off. Started as `cat` it copies nothing and ends when
//! its standard input does, as the tests expect of a target. Started as `dump`, by the kernel with a core dump, it never
//! reads that.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::raw::{c_char, c_int, c_long, c_ulong, c_void};
use std::process::Command;

unsafe extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn reboot(command: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

const RB_POWER_OFF: c_int = 0x4321_fedc;
const SYS_FINIT_MODULE: c_long = 313;
const MODULE_INIT_COMPRESSED_FILE: c_int = 4;
/// One RAM disk of 16 MiB.
const MODULE_PARAMETERS: &CStr = c"rd_nr=1 rd_size=16384";

fn main() {
    let name = std::env::args().next().unwrap_or_default();
    if name.ends_with("cat") {
        // Whether the input ended or failed, this is the end.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        return;
    }
    if name.ends_with("dump") {
        loop {
            std::thread::park();
        }
    }
    for (kind, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        mount_at(kind, target);
    }
    load_module();
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("VMTEST: Linux {}", version.trim());
    println!("VMTEST: {}", if tests_pass() { "PASS" } else { "FAIL" });
    // SAFETY: the call takes a number; nothing is mounted that could lose data.
    unsafe { reboot(RB_POWER_OFF) };
}

fn tests_pass() -> bool {
    let filter = fs::read_to_string("/filter").unwrap_or_default();
    let status = Command::new("/bin/tests")
        .env("PATH", "/bin")
        .env("WCPROF_VMTEST", "1")
        .arg(filter)
        .arg("--nocapture")
        .status();
    match status {
        Ok(status) => status.success(),
        Err(e) => {
            println!("VMTEST: failed to run the tests: {e}");
            false
        }
    }
}

fn mount_at(kind: &str, target: &str) {
    let (Ok(kind_c), Ok(target_c)) = (CString::new(kind), CString::new(target)) else {
        return;
    };
    // SAFETY: the strings end in NUL and outlive the call; these file systems take no data.
    let result = unsafe {
        mount(
            kind_c.as_ptr(),
            target_c.as_ptr(),
            kind_c.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if result != 0 {
        println!(
            "VMTEST: failed to mount {kind}: {}",
            io::Error::last_os_error()
        );
    }
}

/// Loads the module of the initial file system, if it has one.
fn load_module() {
    let Ok(file) = fs::File::open("/module") else {
        return;
    };
    let parameters = MODULE_PARAMETERS.as_ptr();
    // SAFETY: the parameters end in NUL, and both outlive the call.
    let result = unsafe {
        syscall(
            SYS_FINIT_MODULE,
            file.as_raw_fd(),
            parameters,
            MODULE_INIT_COMPRESSED_FILE,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        println!("VMTEST: failed to load the module: {error}");
    }
}
