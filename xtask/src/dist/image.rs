//! The static program to an image of containers (OCI image layout, one file): one layer that holds nothing else but its licenses.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use serde_json::{Value, json};

use super::build::{Dist, empty_folder};
use super::notices;
use crate::process::{capture, command, execute, quoted};

/// The image's name for `podman load`.
const NAME: &str = concat!("localhost/wcprof:", env!("CARGO_PKG_VERSION"));
/// The file.
pub const FILE: &str = concat!("wcprof-", env!("CARGO_PKG_VERSION"), ".oci.tar");

/// Folders that a container runtime or wcprof needs: the former mounts on the first three.
const FOLDERS: [&str; 8] = [
    "dev",
    "proc",
    "sys",
    "etc/wcprof",
    "tmp",
    "usr/bin",
    "usr/share/doc/wcprof",
    "var/lib/wcprof",
];

/// Writes the image beside the program.
pub fn write(dist: &Dist) -> Result<()> {
    let folder = empty_folder(dist.target.join("dist-image"))?;
    let time = dist.time()?;
    let files = empty_folder(folder.join("root"))?;
    for name in FOLDERS {
        fs::create_dir_all(files.join(name))?;
    }
    fs::set_permissions(files.join("tmp"), PermissionsExt::from_mode(0o1777))?;
    fs::copy(dist.files.join("wcprof"), files.join("usr/bin/wcprof"))?;
    let documents = files.join("usr/share/doc/wcprof");
    fs::copy(
        dist.files.join(notices::FILE),
        documents.join(notices::FILE),
    )?;
    let layer = folder.join("layer.tar");
    pack(&files, &layer, &time)?;

    let layout = empty_folder(folder.join("layout"))?;
    let blobs = empty_folder(layout.join("blobs/sha256"))?;
    let layer = add(&blobs, &fs::read(&layer)?, "layer.v1.tar")?;
    let created = capture(command(&format!("date --utc --date=@{time} +%FT%TZ")))?;
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "created": created.trim(),
        "config": {"Cmd": ["wcprof"], "Env": ["PATH=/usr/bin", "XDG_CACHE_HOME=/tmp"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = add(&blobs, config.to_string().as_bytes(), "config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest = add(&blobs, manifest.to_string().as_bytes(), "manifest.v1+json")?;
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": NAME});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string())?;
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(layout.join("oci-layout"), version.to_string())?;
    pack(&layout, &dist.files.join(FILE), &time)
}

/// Writes a blob under its digest, and returns its descriptor.
fn add(blobs: &Path, bytes: &[u8], kind: &str) -> Result<Value> {
    let file = blobs.join("new");
    fs::write(&file, bytes)?;
    let digest = digest(&file)?;
    fs::rename(file, blobs.join(&digest))?;
    Ok(json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{digest}"),
        "size": bytes.len(),
    }))
}

/// SHA-256 of a file, in hexadecimal digits.
pub fn digest(file: &Path) -> Result<String> {
    let line = capture(command("sha256sum --").arg(file))?;
    let digest = line.split(' ').next();
    Ok(digest.context("sha256sum printed nothing")?.to_owned())
}

/// The contents of a folder as an archive that only depends on them and on `time`.
fn pack(folder: &Path, archive: &Path, time: &str) -> Result<()> {
    execute(command(&format!(
        "tar --create --format=ustar --sort=name --mtime=@{time} --owner=0 --group=0 --numeric-owner \
         --mode=u+rw,go+r-w --directory {} --file {} .",
        quoted(folder),
        quoted(archive)
    )))
}

/// Unpacks the image's only layer into an empty folder, by index and manifest as a runtime does.
///
/// # Errors
/// When a digest is not that of its blob, or the image has another form.
pub fn unpack(archive: &Path, work: PathBuf, to: &Path) -> Result<()> {
    let layout = empty_folder(work)?;
    execute(
        command("tar --extract --file")
            .arg(archive)
            .arg("--directory")
            .arg(&layout),
    )?;
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let manifest: Value =
        serde_json::from_slice(&fs::read(blob(&layout, &index["manifests"][0])?)?)?;
    let layer = blob(&layout, &manifest["layers"][0])?;
    let config: Value = serde_json::from_slice(&fs::read(blob(&layout, &manifest["config"])?)?)?;
    anyhow::ensure!(
        config["rootfs"]["diff_ids"][0] == manifest["layers"][0]["digest"],
        "the image's configuration has another layer than its manifest"
    );
    execute(
        command("tar --extract --file")
            .arg(layer)
            .arg("--directory")
            .arg(to),
    )
}

/// The file of a descriptor.
fn blob(layout: &Path, descriptor: &Value) -> Result<PathBuf> {
    let expected = descriptor["digest"]
        .as_str()
        .and_then(|text| text.strip_prefix("sha256:"));
    let expected = expected.with_context(|| format!("no digest in {descriptor}"))?;
    let file = layout.join("blobs/sha256").join(expected);
    let found = digest(&file)?;
    anyhow::ensure!(found == expected, "{} has digest {found}", file.display());
    Ok(file)
}
