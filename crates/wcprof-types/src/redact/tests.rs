//! Command lines as people, libvirt and orchestrators write them, with secrets in all places where programs take one.

use super::*;

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|&a| a.to_owned()).collect()
}

fn all(args: &[&str]) -> Vec<String> {
    let args = words(args);
    let kept = redact_args("main", &args);
    assert_eq!(redact_args("main", &kept), kept, "redacted twice");
    assert_eq!(kept.len(), args.len());
    kept
}

/// What is kept of arguments of QEMU.
fn qemu(args: &[&str]) -> Vec<String> {
    all(&[&["/usr/bin/qemu-system-x86_64"], args].concat()).split_off(1)
}

/// Check that no form of a secret is kept, whatever program takes it.
#[test]
fn secrets() {
    const FORMS: [&[&str]; 57] = [
        &["mysqld", "--password=hunter2"],
        &["mysql", "-phunter2"],
        &["mysql", "-p", "hunter2"],
        &["app", "--password", "hunter2"],
        &["app", "--password", "-hunter2"],
        &["app", "--pass:hunter2"],
        &["app", "-password=hunter2"],
        &["app", "password=hunter2"],
        &["app", "hunter2"],
        &["app", "--data", r#"{"password": "hunter2"}"#],
        &["app", r#"{"auth":{"user":"a","pass":"hunter2"}}"#],
        &["app", "--user", "me:hunter2"],
        &["app", "--user=me:hunter2"],
        &["redis-server", "--requirepass", "hunter2"],
        &["redis-server", "--masterauth hunter2", "--port"],
        &["slapd", "--bindpw", "hunter2"],
        &["ldapsearch", "-w", "hunter2"],
        &["openssl", "s_server", "-psk", "hunter2"],
        &["app", "--psk", "hunter2"],
        &["curl", "-H", "Authorization: Bearer hunter2"],
        &["curl", "-HAuthorization: Bearer hunter2"],
        &["curl", "--header=X-Token: hunter2"],
        &["curl", "-u", "me:hunter2"],
        &["curl", "-ume:hunter2"],
        &["curl", "https://me:hunter2@host/"],
        &["curl", "https://host/?X-Amz-Signature=hunter2"],
        &["curl", "https://host/?sig=a&se=hunter2"],
        &["app", "--endpoint", "s3://AKIA:hunter2@bucket"],
        &["java", "-Dkey=hunter2", "-jar", "app.jar"],
        &["java", "-Dspring.datasource.password=hunter2"],
        &["node", "server.js", "--jwt=hunter2"],
        &["sshpass", "-p", "hunter2", "ssh", "host"],
        &["env", "TOKEN=hunter2", "app"],
        &["sh", "-c", "TOKEN=hunter2 exec app"],
        &["vault", "server", "-dev-root-token-id=hunter2"],
        &["ceph-osd", "--id", "3", "--key", "hunter2"],
        &["ceph-osd", "--id", "3", "--key=hunter2"],
        &["rbd", "bench", "--id", "x", "--key=hunter2"],
        &["radosgw", "--rgw-crypt-s3-kms-encryption-keys=a=hunter2"],
        &["app --password=hunter2"],
        &["app: worker password=hunter2"],
        &["app: --password=hunter2"],
        &["app: https://me:hunter2@host"],
        &["perf", "record", "-g", "--", "app", "--password", "hunter2"],
        &["perf", "record", "-o", "hunter2", "app"],
        &["app", "--", "hunter2"],
        &["app", "--hunter2 x"],
        &["app", "@hunter2"],
        &["app", "-hunter2"],
        &["app", "--credential", "hunter2", "--verbose"],
        &["app", "--ms-auth-token=hunter2"],
        &["app", "--ms-auth-token", "hunter2"],
        &["app", "--fsid=hunter2"],
        &["ceph-osd", "--id", "3", "--ms-auth-token=hunter2"],
        &["ceph-osd", "--ms-auth-token", "hunter2"],
        &["ceph-osd", "--ms-die-on-bug", "--password=hunter2"],
        &["ceph-osd", "--id", "--password=hunter2"],
    ];
    for form in FORMS {
        let kept = all(form).join(" ");
        assert!(!kept.contains("hunter2"), "{form:?}: {kept}");
    }
}

/// Check that no form of a secret of QEMU is kept.
#[test]
fn secrets_of_qemu() {
    const FORMS: [&[&str]; 24] = [
        &["-object", "secret,id=s,data=hunter2,format=raw"],
        &["-object", "secret,id=s,data=a,,hunter2"],
        &[
            "-object",
            r#"{"qom-type":"secret","id":"s","data":"hunter2"}"#,
        ],
        &[
            "-object",
            r#"{"qom-type":"secret","id":"s","data":["hunter2"]}"#,
        ],
        &["-object", "secret,id=s,file=/x/hunter2"],
        &[
            "-smbios",
            "type=11,value=io.systemd.credential:root=hunter2",
        ],
        &["-fw_cfg", "name=opt/x,string=hunter2"],
        &["-append", "quiet password=hunter2"],
        &["-vnc", ":0,password=hunter2"],
        &["-spice", "port=1,password=hunter2"],
        &["-drive", "file=rbd:p/i:id=a:key=hunter2,format=raw"],
        &["-drive", r"file=rbd:p/i:key=a\:hunter2:rbd_cache=true"],
        &["-drive", "file=https://me:hunter2@host/x.img"],
        &["-drive", "file=ssh://me:hunter2@host/x.img,if=virtio"],
        &["-drive", "file.driver=iscsi,file.password-secret=hunter2"],
        &["-drive", "file=iscsi://me%hunter2@host/x"],
        &["-drive", r#"file=json:{"driver":"ssh",,"user":"hunter2"}"#],
        &[
            "-blockdev",
            r#"{"driver":"rbd","pool":"p","user":"hunter2","node-name":"n"}"#,
        ],
        &[
            "-blockdev",
            "driver=https,url=https://x/?token=hunter2,node-name=n",
        ],
        &[
            "-blockdev",
            r#"{"driver":"https","cookie":"hunter2","node-name":"n"}"#,
        ],
        &["-netdev", "user,id=n,smb=hunter2"],
        &["-chardev", "socket,path=/x,tls-authz=hunter2"],
        &["hunter2"],
        &["-name", "guest=a,password=hunter2"],
    ];
    for form in FORMS {
        let kept = qemu(form).join(" ");
        assert!(!kept.contains("hunter2"), "{form:?}: {kept}");
    }
}

/// Check QEMU's disks: key and user go, what advice needs stays, in all three notations.
#[test]
fn disks() {
    let cases = [
        (
            "file=rbd:vms/disk:id=libvirt:key=AQBz7+/w==:auth_supported=cephx\\;none:mon_host=a\\:3300:rbd_cache=true,format=raw,if=none,id=drive0,cache=none",
            "file=rbd:vms/disk:id=***:key=***:auth_supported=***:mon_host=***:rbd_cache=true,format=raw,if=none,id=drive0,cache=none",
        ),
        (
            "driver=rbd,pool=p,image=i,user=eve,key-secret=s0,cache.direct=on",
            "driver=rbd,pool=p,image=i,user=***,key-secret=***,cache.direct=on",
        ),
        (
            "driver=qcow2,file.driver=host_device,file.filename=/dev/a,,b,file.aio=native,readonly",
            "driver=qcow2,file.driver=host_device,file.filename=/dev/a,,b,file.aio=native,readonly",
        ),
        ("/a:b.img,media=cdrom", "/a:b.img,media=cdrom"),
    ];
    for (given, kept) in cases {
        assert_eq!(qemu(&["-drive", given]), ["-drive", kept]);
    }
    let node = r#"{"cache":{"direct":true},"driver":"rbd","image":"i","key-secret":"a\"b","node-name":"n","pool":"p","server":[{"host":"a"}]}"#;
    let kept = r#"{"cache":{"direct":true},"driver":"rbd","image":"i","key-secret":"***","node-name":"n","pool":"p","server":[{"host":"***"}]}"#;
    assert_eq!(qemu(&["-blockdev", node]), ["-blockdev", kept]);
    assert_eq!(qemu(&["-hda", "/a,b.img"]), ["-hda", "/a,b.img"]);
}

/// Check the machine, its devices, and options without values.
#[test]
fn machine() {
    let args = [
        "-name",
        "guest=vm,,1,debug-threads=on",
        "-machine",
        "q35,accel=kvm:tcg",
        "-cpu",
        "host,+avx2,-svm",
        "-enable-kvm",
        "-smp",
        "4,cores=2",
        "-m",
        "4G",
        "-nographic",
        "-object",
        "iothread,id=io1",
        "-device",
        r#"{"drive":"d","driver":"virtio-blk-pci","iothread-vq-mapping":[{"iothread":"a"}]}"#,
        "-device",
        "scsi-hd,bus=scsi0.0,drive=d",
    ];
    assert_eq!(qemu(&args), args);
    let kept = qemu(&["-kernel", "/boot/x", "--name", "vm", "-S"]);
    assert_eq!(kept, ["-kernel", "***", "--name", "vm", "-S"]);
}

/// Check what is kept of other programs: who Ceph's daemons are, Ceph's options, names of options, titles.
#[test]
fn other_programs() {
    let cases: [(&[&str], &[&str]); 7] = [
        (
            &[
                "/usr/bin/ceph-osd",
                "-f",
                "--cluster",
                "c",
                "--id",
                "3",
                "--keyring",
                "/k",
                "--osd_op_num_shards=8",
            ],
            &[
                "/usr/bin/ceph-osd",
                "-f",
                "--cluster",
                "c",
                "--id",
                "3",
                "--keyring",
                "***",
                "--osd_op_num_shards=8",
            ],
        ),
        (
            &[
                "rbd",
                "--ms-client-mode",
                "secure crc",
                "--ms-async-op-threads=8",
                "--io-size=4K",
                "p/i",
            ],
            &[
                "rbd",
                "--ms-client-mode",
                "secure crc",
                "--ms-async-op-threads=8",
                "--io-size=***",
                "***",
            ],
        ),
        (
            &["postgres: bench app 10.0.0.1(4711) UPDATE waiting  ", ""],
            &["postgres: bench app 10.0.0.1(4711) UPDATE waiting  ", ""],
        ),
        (&["nginx: worker process"], &["nginx: worker process"]),
        (&["gunicorn app"], &["gunicorn ***"]),
        (
            &["perf", "record", "-F", "99", "-p", "7", "-o", "x.data"],
            &["perf", "record", "-F", "99", "-p", "7", "-o", "***"],
        ),
        (&["", "x"], &["", "***"]),
    ];
    for (given, kept) in cases {
        assert_eq!(all(given), kept);
    }
    assert_eq!(all(&[]), [""; 0]);
    let by_name = redact_args("ceph-osd", &words(&["main", "--id", "3"]));
    assert_eq!(by_name, ["main", "--id", "3"]);
}

/// Check variables: the words of `CEPH_ARGS`, what is kept whole, and what is not kept at all.
#[test]
fn variables() {
    let of = redact_variable;
    assert_eq!(
        of("CEPH_ARGS", "--id a --key AQ=="),
        Some("--id a --key ***".into())
    );
    assert_eq!(
        of("LD_PRELOAD", "/x/libtcmalloc.so.4"),
        Some("/x/libtcmalloc.so.4".into())
    );
    assert_eq!(of("TOKEN", "x"), None);
}

/// Check that of a Ceph daemon its number is left, and of others the name of the program.
#[test]
fn anonymous() {
    let of = |args: &[&str]| anonymous_args("main", &words(args));
    assert_eq!(
        of(&["/opt/customer/ceph-osd", "-i", "3", "--fsid", "x"]),
        ["ceph-osd", "--id", "3"]
    );
    assert_eq!(
        of(&["/usr/bin/qemu-kvm", "-name", "customer"]),
        ["qemu-kvm"]
    );
    assert_eq!(of(&["postgres: customer db [local] idle"]), ["postgres"]);
    assert_eq!(of(&[]), [""; 0]);
}
