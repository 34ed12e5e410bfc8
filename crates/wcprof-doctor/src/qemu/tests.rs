//! Command lines as people and libvirt write them.

use super::disks::Interface;
use super::*;

fn machine(args: &[&str]) -> Machine {
    let args: Vec<String> = args.iter().map(|&a| a.to_owned()).collect();
    parse(&args)
}

fn one(args: &[&str]) -> Disk {
    let mut disks = machine(args).disks;
    assert_eq!(disks.len(), 1, "{disks:?}");
    disks.remove(0)
}

/// Check the plain form: an rbd image by its file name, on IDE by default, cache on by default.
#[test]
fn plain_rbd() {
    let disk = one(&[
        "qemu-system-x86_64",
        "-drive",
        "format=raw,file=rbd:p/i:id=a:conf=/etc/ceph/ceph.conf:rbd_cache=false",
    ]);
    assert_eq!(disk.interface, Interface::Ide);
    assert_eq!(
        (disk.io.protocol.as_str(), disk.io.file.as_str()),
        ("rbd", "p/i")
    );
    assert_eq!(disk.io.rbd_cache.as_deref(), Some("false"));
    assert!(!disk.io.cache.direct);
}

/// Check libvirt's JSON nodes: format over protocol, where the protocol's cache counts, and the
/// iothread of the device.
#[test]
fn libvirt_blockdev() {
    let disk = one(&[
        "/usr/bin/qemu-system-x86_64",
        "-name",
        "guest=vm1,debug-threads=on",
        "-object",
        r#"{"qom-type":"iothread","id":"iothread1"}"#,
        "-blockdev",
        r#"{"driver":"rbd","pool":"vms","image":"d0","server":[{"host":"a","port":"3300"}],"node-name":"libvirt-1-storage","cache":{"direct":true,"no-flush":false},"auto-read-only":true}"#,
        "-blockdev",
        r#"{"node-name":"libvirt-1-format","driver":"raw","cache":{"direct":true},"file":"libvirt-1-storage"}"#,
        "-device",
        r#"{"driver":"virtio-blk-pci","iothread":"iothread1","drive":"libvirt-1-format","id":"virtio-disk0"}"#,
    ]);
    assert_eq!(disk.interface, Interface::VirtioBlk);
    assert_eq!(disk.iothread.as_deref(), Some("iothread1"));
    assert_eq!(
        (disk.io.protocol.as_str(), disk.io.file.as_str()),
        ("rbd", "vms/d0")
    );
    assert_eq!(disk.io.format.as_deref(), Some("raw"));
    assert!(disk.io.cache.direct && !disk.io.cache.no_flush);
}

/// Check a node without a format (newer libvirt), a filter above one, several iothreads for one
/// disk, and nodes in a circle.
#[test]
fn node_chains() {
    let with = |nodes: &[&'static str]| {
        let mut args = vec!["qemu-system-x86_64"];
        nodes.iter().for_each(|n| args.extend(["-blockdev", n]));
        args.extend([
            "-device",
            r#"{"driver":"virtio-blk-pci","drive":"top","iothread-vq-mapping":[{"iothread":"a"},{"iothread":"b"}]}"#,
        ]);
        one(&args)
    };
    let plain = with(&[
        r#"{"driver":"rbd","pool":"p","image":"i","node-name":"top","cache":{"direct":true}}"#,
    ]);
    assert_eq!(plain.iothread.as_deref(), Some("iothread-vq-mapping"));
    assert_eq!(
        (plain.io.format.as_deref(), plain.io.file.as_str()),
        (Some("raw"), "p/i")
    );
    assert!(plain.io.cache.direct);
    let filtered = with(&[
        r#"{"driver":"throttle","node-name":"top","throttle-group":"g","file":"f"}"#,
        r#"{"driver":"qcow2","node-name":"f","file":"s"}"#,
        r#"{"driver":"host_device","filename":"/dev/x","aio":"native","node-name":"s","cache":{"direct":true}}"#,
    ]);
    assert_eq!(filtered.io.format.as_deref(), Some("qcow2"));
    assert_eq!(
        (filtered.io.protocol.as_str(), filtered.io.file.as_str()),
        ("host_device", "/dev/x")
    );
    assert!(filtered.io.cache.direct);
    with(&[r#"{"driver":"raw","node-name":"top","file":"top","filename":"x"}"#]);
}

/// Check nodes with dotted keys, a child inside, and SCSI disks by their controller.
#[test]
fn scsi() {
    let args = |controller| {
        [
            "qemu-kvm",
            "-object",
            "iothread,id=io1",
            "-device",
            controller,
            "-blockdev",
            "driver=qcow2,node-name=d,file.driver=host_device,file.filename=/dev/vg/x,file.cache.direct=on,file.aio=native",
            "-device",
            "scsi-hd,bus=scsi0.0,drive=d",
        ]
    };
    let virtio = one(&args("virtio-scsi-pci,id=scsi0,iothread=io1"));
    assert_eq!(virtio.interface, Interface::VirtioScsi);
    assert_eq!(virtio.iothread.as_deref(), Some("io1"));
    assert_eq!(virtio.io.format.as_deref(), Some("qcow2"));
    assert_eq!(virtio.io.protocol, "host_device");
    assert_eq!(virtio.io.aio.as_deref(), Some("native"));
    assert!(virtio.io.cache.direct);
    let emulated = one(&args("lsi53c895a,id=scsi0"));
    assert_eq!(emulated.interface, Interface::EmulatedScsi);
    assert_eq!(machine(&args("lsi")).accelerators, ["kvm"]);
}

/// Check the cache modes that `cache=` stands for.
#[test]
fn cache_modes() {
    for (mode, direct, no_flush) in [
        ("none", true, false),
        ("directsync", true, false),
        ("writeback", false, false),
        ("writethrough", false, false),
        ("unsafe", false, true),
    ] {
        let drive = format!("file=/x.img,if=virtio,cache={mode}");
        let cache = one(&["qemu-system-x86_64", "-drive", &drive]).io.cache;
        assert_eq!((cache.direct, cache.no_flush), (direct, no_flush), "{mode}");
    }
}

/// Check names, accelerators, and disks that are none.
#[test]
fn the_rest() {
    let m = machine(&[
        "qemu-system-x86_64",
        "-name",
        "plain",
        "-M",
        "q35,accel=kvm:tcg",
        "-m",
        "4G",
        "-cpu",
        "host",
        "-cdrom",
        "x.iso",
        "-drive",
        "file=a.iso,media=cdrom",
        "-drive",
        "if=pflash,file=code.fd",
        "-device",
        "ide-cd,drive=none",
        "-hda",
        "/a,b.img",
    ]);
    assert_eq!(m.name.as_deref(), Some("plain"));
    assert_eq!(m.accelerators, ["kvm", "tcg"]);
    assert_eq!(m.machine.get("type"), Some("q35"));
    assert_eq!(m.disks.len(), 1);
    assert_eq!(m.disks[0].io.file, "/a,b.img");
}

/// Check that no text makes the parser panic.
#[test]
fn hostile() {
    for text in [
        "",
        ",",
        ",,",
        "=",
        "{",
        "{}",
        "{\"a\":[[[[]]]]}",
        "a=b,,,=",
        "\u{202e}=\0,\n",
        "json:{",
    ] {
        for option in [
            "-drive",
            "-blockdev",
            "-device",
            "-object",
            "-name",
            "-m",
            "-machine",
            "-accel",
        ] {
            machine(&["qemu-system-x86_64", option, text]);
        }
    }
    machine(&["qemu-system-x86_64", "-drive"]);
    machine(&[]);
    let deep = format!("{}{}", "{\"a\":".repeat(500), "}".repeat(500));
    machine(&["x", "-blockdev", &deep]);
}
