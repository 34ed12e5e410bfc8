//! Which daemon or virtual machine a process is, by its name and arguments.

/// File name of the program, by the first argument; daemons that rewrite their arguments
/// (`nginx: worker process`) have it up to the colon.
pub fn program_name(args: &[String]) -> Option<&str> {
    let program = args.first()?;
    let name = crate::file_name(program);
    Some(name.split([' ', ':']).next().unwrap_or(name)).filter(|name| !name.is_empty())
}

/// Whether a process is a program whose name passes `test`, by its name (`comm`) or its arguments.
pub(crate) fn is_program(comm: &str, args: &[String], test: impl Fn(&str) -> bool) -> bool {
    test(comm) || program_name(args).is_some_and(test)
}

/// The value of an option given as `-x VALUE`, `--xy VALUE` or `--xy=VALUE`, whether its name is spelled with
/// `-` or `_`. `names` are its names with their dashes, spelled with `-`.
pub fn option_value<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    let mut args = args.iter().skip(1);
    while let Some(arg) = args.next() {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (arg.as_str(), None),
        };
        if names.contains(&name.replace('_', "-").as_str()) {
            return value.or_else(|| args.next().map(String::as_str));
        }
    }
    None
}

/// Whether a program of this name is QEMU.
pub(crate) fn is_qemu_program(name: &str) -> bool {
    name.starts_with("qemu") || name == "kvm"
}

/// The name of the virtual machine, if the process is QEMU: `-name NAME` or `-name guest=NAME,...`.
pub fn vm_name(comm: &str, args: &[String]) -> Option<String> {
    if !is_program(comm, args, is_qemu_program) {
        return None;
    }
    let value = option_value(args, &["-name", "--name"])?;
    let parts = qemu_options(value).into_iter().enumerate();
    let mut names = parts.filter_map(|(i, part)| match part.split_once('=') {
        Some(("guest", name)) => Some(name.to_owned()),
        // The first one may lack its key.
        None if i == 0 => Some(part),
        _ => None,
    });
    names.next()
}

/// The id of the OSD, if the process is one: `--id N`, `-i N`, `--name osd.N`, `-n osd.N`.
pub fn osd_id<'a>(comm: &str, args: &'a [String]) -> Option<&'a str> {
    if !is_program(comm, args, |name| daemon_kind(name) == Some("osd")) {
        return None;
    }
    option_value(args, &["--id", "-i"])
        .or_else(|| option_value(args, &["--name", "-n"])?.strip_prefix("osd."))
}

/// Programs of Ceph's daemons, and what each is. Packages have both kinds of OSD beside each other, and `ceph-osd` is a link
/// to one of them (`ceph.spec.in`).
const CEPH_PROGRAMS: [(&str, &str); 9] = [
    ("ceph-osd", "osd"),
    ("ceph-osd-classic", "osd"),
    ("ceph-osd-crimson", "osd"),
    ("crimson-osd", "osd"),
    ("ceph-mon", "mon"),
    ("ceph-mgr", "mgr"),
    ("ceph-mds", "mds"),
    ("radosgw", "rgw"),
    ("ceph-radosgw", "rgw"),
];

/// Bytes of a process's name that the kernel keeps (`TASK_COMM_LEN` in `include/linux/sched.h`, without the zero).
const MAX_COMM: usize = 15;

/// Which daemon of Ceph a program of this name is: `osd`, `mon`, `mgr`, `mds`, `rgw`. It may be a process's name, which the
/// kernel has cut.
pub fn daemon_kind(name: &str) -> Option<&'static str> {
    let is = |program: &str| program == name || program.get(..MAX_COMM) == Some(name);
    let mut programs = CEPH_PROGRAMS.iter();
    Some(programs.find(|(program, _)| is(program))?.1)
}

/// Whether a program of this name is a daemon of Ceph.
pub(crate) fn is_ceph_daemon(name: &str) -> bool {
    daemon_kind(name).is_some()
}

/// Whether a program of this name takes Ceph's options: a daemon or one of its tools, as `rbd`, `rados` and `ceph-fuse`.
pub(crate) fn is_ceph_program(name: &str) -> bool {
    let first = name.split('-').next().unwrap_or(name);
    matches!(first, "ceph" | "rados" | "radosgw" | "rbd")
}

/// The name of a daemon of Ceph as its commands show it: `osd.3`, `mon.a`, `rgw.x`.
pub fn ceph_daemon(comm: &str, args: &[String]) -> Option<String> {
    let of_program = || daemon_kind(program_name(args)?);
    // Gateways are clients of the cluster.
    let kind = match daemon_kind(comm).or_else(of_program)? {
        "rgw" => "client",
        kind => kind,
    };
    let name = option_value(args, &["--name", "-n"]);
    let id = option_value(args, &["--id", "-i"]);
    name.map(str::to_owned)
        .or_else(|| Some(format!("{kind}.{}", id?)))
}

/// What a user calls a process: `osd.3`, the name of a virtual machine, what a server calls one of its processes
/// (`postgres: checkpointer`); else its name.
pub fn process_title(comm: &str, args: &[String]) -> String {
    let osd = osd_id(comm, args).map(|id| format!("osd.{id}"));
    osd.or_else(|| vm_name(comm, args))
        .or_else(|| server_title(comm, args))
        .unwrap_or_else(|| comm.to_owned())
}

/// Characters of a title that are kept.
const MAX_TITLE: usize = 60;

/// The title that a process gave itself by `PROGRAM: TEXT` in place of its arguments, without what changes while it runs:
/// `postgres: bench app 10.0.0.1 waiting` of `postgres: bench app 10.0.0.1(4711) UPDATE waiting`.
fn server_title(comm: &str, args: &[String]) -> Option<String> {
    let title = rewritten_title(args)?;
    let (program, text) = title.split_once(": ")?;
    let is_own =
        !program.contains(['/', ' ']) && (comm.starts_with(program) || program.starts_with(comm));
    let words: Vec<&str> = text.split_whitespace().collect();
    if !is_own || words.is_empty() {
        return None;
    }
    // PostgreSQL's sessions: user, database, client, and then what they do.
    let client = words.iter().position(|word| client_host(word).is_some());
    let mut kept: Vec<&str> = match client {
        Some(at) => words[..at]
            .iter()
            .copied()
            .chain(client_host(words[at]))
            .collect(),
        None => {
            let says_what = |word: &&&str| {
                // A name of the cluster ends with a colon.
                word.ends_with(':') || !word.starts_with(|c: char| c == '/' || c.is_ascii_digit())
            };
            words.iter().take_while(says_what).copied().collect()
        }
    };
    if client.is_some() && words.last() == Some(&"waiting") {
        kept.push("waiting");
    }
    let title = format!("{program}: {}", kept.join(" "));
    Some(title.trim_end().chars().take(MAX_TITLE).collect())
}

/// The only argument of a process, without the blanks that a shorter title leaves behind it.
pub fn rewritten_title(args: &[String]) -> Option<&str> {
    let (first, others) = args.split_first()?;
    let is_only = others.iter().all(|arg| arg.trim().is_empty());
    Some(first.trim_end()).filter(|title| is_only && !title.is_empty())
}

/// The host of a client: `[local]`, or that of `HOST(PORT)`.
fn client_host(word: &str) -> Option<&str> {
    if word == "[local]" {
        return Some(word);
    }
    let (host, port) = word.strip_suffix(')')?.split_once('(')?;
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    Some(host).filter(|_| is_port)
}

/// Parts of an option's value between commas; a doubled comma is one of the text (QEMU,
/// `util/qemu-option.c`).
pub fn qemu_options(value: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ',' && chars.next_if_eq(&',').is_none() {
            options.push(String::new());
        } else if let Some(last) = options.last_mut() {
            last.push(c);
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Vec<String> {
        args.iter().map(|&a| a.to_owned()).collect()
    }

    /// Check QEMU's names: short, with a key, among others, with a comma, and none.
    #[test]
    fn vm_names() {
        let name = |value: &str| {
            let args = args(&["/usr/bin/qemu-system-x86_64", "-name", value]);
            vm_name("main", &args)
        };
        assert_eq!(name("web").as_deref(), Some("web"));
        assert_eq!(name("guest=web,debug-threads=on").as_deref(), Some("web"));
        assert_eq!(name("debug-threads=on,guest=a,,b").as_deref(), Some("a,b"));
        assert_eq!(name("web,process=x").as_deref(), Some("web"));
        assert_eq!(name("debug-threads=on"), None);
        let nameless = args(&["/usr/libexec/qemu-kvm", "-m", "1G"]);
        assert_eq!(vm_name("qemu-kvm", &nameless), None);
        assert_eq!(vm_name("vim", &args(&["/bin/vim", "-name", "web"])), None);
    }

    /// Check titles of PostgreSQL 15 and nginx as `ps` shows them, and arguments that are none.
    #[test]
    fn server_titles() {
        for (comm, title, expected) in [
            (
                "postgres",
                "postgres: checkpointer  ",
                "postgres: checkpointer",
            ),
            (
                "postgres",
                "postgres: 15/main: walwriter",
                "postgres: 15/main: walwriter",
            ),
            (
                "postgres",
                "postgres: bench app [local] UPDATE waiting",
                "postgres: bench app [local] waiting",
            ),
            (
                "postgres",
                "postgres: bench app 10.0.0.1(4711) idle in transaction",
                "postgres: bench app 10.0.0.1",
            ),
            (
                "postgres",
                "postgres: parallel worker for PID 4711",
                "postgres: parallel worker for PID",
            ),
            (
                "nginx",
                "nginx: master process /usr/sbin/nginx -g daemon off;",
                "nginx: master process",
            ),
            ("nginx", "nginx", "nginx"),
            ("cat", "nginx: worker process", "cat"),
            ("sh", "/bin/sh: x", "sh"),
            ("sh", "sh: ", "sh"),
        ] {
            assert_eq!(process_title(comm, &args(&[title])), expected, "{title}");
        }
        let two = args(&["postgres: checkpointer", "-D"]);
        assert_eq!(process_title("postgres", &two), "postgres");
    }

    /// Check the ways to give an OSD its id, and that another program's options are not taken.
    #[test]
    fn osd_ids() {
        for list in [
            &["/usr/bin/ceph-osd", "-f", "--cluster", "ceph", "--id", "12"][..],
            &["ceph-osd", "--id=12"],
            &["ceph-osd", "-i", "12", "-f"],
            &["ceph-osd", "-n", "osd.12"],
            &["ceph-osd", "--name=osd.12"],
        ] {
            assert_eq!(osd_id("main", &args(list)), Some("12"), "{list:?}");
        }
        for program in ["ceph-osd-classic", "ceph-osd-crimson", "crimson-osd"] {
            assert_eq!(osd_id("main", &args(&[program, "--id", "12"])), Some("12"));
        }
        assert_eq!(osd_id("ceph-osd", &args(&["ceph-osd", "--id"])), None);
        let other = args(&["ceph-osd", "--identity=12"]);
        assert_eq!(osd_id("ceph-osd", &other), None);
        assert_eq!(osd_id("x", &args(&["ceph-mon", "--id", "12"])), None);
    }

    /// Check the names of daemons by `-n` and by `--id`, and that others have none.
    #[test]
    fn daemons() {
        let name = |line: &str| {
            let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
            ceph_daemon("main", &args)
        };
        assert_eq!(name("ceph-osd -n osd.3 -f").as_deref(), Some("osd.3"));
        assert_eq!(
            name("ceph-osd --foreground --id 3").as_deref(),
            Some("osd.3")
        );
        assert_eq!(name("/usr/bin/ceph-mon --id=a").as_deref(), Some("mon.a"));
        assert_eq!(
            name("radosgw -n client.rgw.x").as_deref(),
            Some("client.rgw.x")
        );
        assert_eq!(name("ceph-osd-crimson -i 3").as_deref(), Some("osd.3"));
        assert_eq!(name("ceph-osd --mkfs"), None);
        assert_eq!(name("ceph-fuse --id a"), None);
    }

    /// Check daemons by their whole names and by those that the kernel has cut, and that what only begins like one is none.
    #[test]
    fn kinds_of_daemons() {
        let kinds = [
            ("ceph-osd", Some("osd")),
            ("ceph-osd-crimso", Some("osd")),
            ("ceph-osd-classi", Some("osd")),
            ("radosgw", Some("rgw")),
            ("ceph-osd-", None),
            ("ceph", None),
            ("", None),
        ];
        for (name, kind) in kinds {
            assert_eq!(daemon_kind(name), kind, "{name}");
        }
    }

    /// Check programs with a path, alone, and that rewrote their arguments.
    #[test]
    fn programs() {
        let name = |first: &str| program_name(&args(&[first])).map(str::to_owned);
        assert_eq!(name("/usr/bin/x").as_deref(), Some("x"));
        assert_eq!(name("nginx: worker process").as_deref(), Some("nginx"));
        assert_eq!(name(""), None);
        assert_eq!(program_name(&[]), None);
    }
}
