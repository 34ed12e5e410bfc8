//! Makes the seeds of the corpus from what compilers and wcprof itself write.
//!
//! ```sh
//! cargo run -p wcprof-fuzz --example seeds -- FOLDER
//! ```
//!
//! Needs GCC, binutils, xz, and the sources in this repository. `cargo xtask fuzz --minimize` then
//! leaves of them, and of what the fuzzer found, one input for each piece of code.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use wcprof_fuzz::pack;

mod texts;
mod traces;

use texts::{CALIBRATION, KALLSYMS, NAMES, PERF_MAP, PROC, SMALL, SPEED, jitdump};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let out = std::env::args().nth(1).ok_or("say where to")?;
    let seeds = Seeds {
        out: PathBuf::from(out),
        work: tempfile::tempdir()?,
    };
    seeds.images()?;
    seeds.traces()?;
    seeds.texts()?;
    seeds.records()
}

struct Seeds {
    out: PathBuf,
    work: tempfile::TempDir,
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{command:?}: {}", output.status).into()),
    }
}

impl Seeds {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let folder = self.out.join(target);
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(name), bytes)?)
    }

    fn compile(&self, source: &str, flags: &[&str]) -> Result<Vec<u8>> {
        let to = self.work.path().join("image");
        let mut command = Command::new("g++");
        command.args(["-shared", "-nostdlib", "-fPIC", "-Wl,-z,noseparate-code"]);
        command.args(["-Wl,--hash-style=gnu", "-x", "c++"]);
        command.args(flags).arg(source).arg("-o").arg(&to);
        run(&mut command)?;
        Ok(fs::read(to)?)
    }

    /// A library that is small, yet has inline functions, classes, several ranges, a cold part.
    fn images(&self) -> Result<()> {
        let source = self.work.path().join("small.cc");
        fs::write(&source, SMALL)?;
        let source = source.to_string_lossy();
        let plain = self.compile(&source, &["-O2", "-Wl,--build-id"])?;
        for target in ["elf", "crypto_module"] {
            self.put(target, "library", &plain)?;
        }
        let stripped = self.compile(&source, &["-O2", "-s"])?;
        self.put("elf", "stripped", &stripped)?;
        let xz = self.work.path().join("xz");
        fs::write(&xz, &plain)?;
        for (name, check) in [("crc32", "--check=crc32"), ("sha256", "--check=sha256")] {
            let packed = run(Command::new("xz").args(["-9", "-c", check]).arg(&xz))?;
            self.put("mini_debug_info", name, &packed)?;
        }
        for flags in [
            &["-O2", "-gdwarf-5"][..],
            &["-O2", "-gdwarf-4", "-fdebug-types-section"],
            &["-O1", "-gdwarf-5", "-gz=zlib"],
            &["-O2", "-gdwarf-4", "-gz=zlib-gnu"],
            &["-O0", "-gdwarf-5", "-gno-as-locview-support"],
            &[
                "-O2",
                "-gdwarf-5",
                "-ffunction-sections",
                "-gas-loc-support",
            ],
            &["-O2", "-gdwarf-3", "-gno-strict-dwarf"],
            &["-O2", "-gdwarf64", "-gdwarf-5"],
            &["-O2", "-flto", "-gdwarf-5"],
        ] {
            let image = self.compile(&source, flags)?;
            let name = flags.concat().replace('-', "");
            self.put("dwarf", &name, &pack(&image)?)?;
        }
        for flags in [
            &["-O2"][..],
            &["-O2", "-fno-omit-frame-pointer", "-mno-red-zone"],
            &["-O2", "-mstackrealign", "-Wl,--no-eh-frame-hdr"],
            &["-O2", "-fno-asynchronous-unwind-tables", "-g"],
        ] {
            let mut input = vec![15];
            input.extend(0x1010_u32.to_le_bytes());
            input.extend([8, 4, 5, 6, 7, 8]);
            input.extend(256_u16.to_le_bytes());
            for i in 0..32_u64 {
                // Return addresses and stack addresses by turns.
                let word = [0x1010 + i, 0x7000_0000 + i * 8 + 16][(i % 2) as usize];
                input.extend(word.to_le_bytes());
            }
            input.extend(pack(&self.compile(&source, flags)?)?);
            let name = flags.concat().replace(['-', ',', ' '], "");
            self.put("unwind", &name, &input)?;
        }
        self.split(&source)?;
        self.sections(&plain)
    }

    /// A library and the file that its DWARF was split off to, alone and in a package.
    fn split(&self, source: &str) -> Result<()> {
        let work = self.work.path();
        // That of binutils cannot pack DWARF 5, and that of LLVM 14 does not end with this source.
        let versions = [
            ("-gdwarf-4", &["s.dwo", "s.dwp"][..]),
            ("-gdwarf-5", &["s.dwo"]),
        ];
        for (version, files) in versions {
            let run = |program: &str, args: &[&str]| {
                run(Command::new(program).current_dir(work).args(args)).map(drop)
            };
            let object = [
                "-c",
                "-O2",
                "-fPIC",
                version,
                "-gsplit-dwarf",
                "-x",
                "c++",
                source,
                "-o",
                "s.o",
            ];
            run("g++", &object)?;
            run(
                "g++",
                &[
                    "-shared",
                    "-nostdlib",
                    "-Wl,-z,noseparate-code",
                    "s.o",
                    "-o",
                    "s",
                ],
            )?;
            if files.contains(&"s.dwp") {
                run("dwp", &["-o", "s.dwp", "s.dwo"])?;
            }
            let module = pack(&fs::read(work.join("s"))?)?;
            for (is_package, file) in (0_u8..).zip(files) {
                let mut input = vec![is_package];
                input.extend(u16::try_from(module.len())?.to_le_bytes());
                input.extend(&module);
                input.extend(pack(&fs::read(work.join(file))?)?);
                let name = format!("{}{}", version.trim_start_matches('-'), &file[1..]);
                self.put("split_dwarf", &name.replace(['-', '.'], ""), &input)?;
            }
        }
        Ok(())
    }

    /// Compressed sections and links between files.
    fn sections(&self, image: &[u8]) -> Result<()> {
        for (form, name) in [(0_u8, "zlib"), (1, "zstd"), (2, "zdebug")] {
            let data = image.repeat(3);
            let packed = match form {
                1 => zstd::bulk::compress(&data, 19)?,
                _ => {
                    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
                    encoder.write_all(&data)?;
                    encoder.finish()?
                }
            };
            let mut input = vec![form];
            input.extend((data.len() as u32).to_le_bytes());
            input.extend(packed);
            self.put("compressed_section", name, &input)?;
        }
        let mut note = 4_u32.to_le_bytes().to_vec();
        note.extend(20_u32.to_le_bytes());
        note.extend(3_u32.to_le_bytes());
        note.extend(b"GNU\0");
        note.extend(1..=20);
        let links: [&[u8]; 2] = [
            b"library.debug\0\0\0\x01\x02\x03\x04",
            b"../.dwz/shared\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a",
        ];
        for (which, link) in (0_u8..).zip(links) {
            let mut input = vec![which];
            input.extend((link.len() as u16).to_le_bytes());
            input.extend(link);
            input.extend(&note);
            self.put("debug_links", &format!("link{which}"), &input)?;
        }
        Ok(())
    }

    /// A trace as wcprof writes it, and its sections unpacked.
    fn traces(&self) -> Result<()> {
        let file = traces::small()?;
        self.put("trace", "small", &file)?;
        let mut unpacked = Vec::new();
        let mut rest = file.get(12..).unwrap_or_default();
        while let Some((head, after)) = rest.split_at_checked(20) {
            let word = |at: usize| -> Result<usize> {
                Ok(u32::from_le_bytes(head[at..at + 4].try_into()?) as usize)
            };
            let (payload, after) = after.split_at(word(8)?);
            let sections = match head[3] {
                0 => payload.to_vec(),
                _ => zstd::bulk::decompress(payload, word(4)?)?,
            };
            unpacked.extend(u16::try_from(sections.len())?.to_le_bytes());
            unpacked.extend(sections);
            rest = after;
        }
        self.put("trace_sections", "small", &unpacked)
    }

    fn texts(&self) -> Result<()> {
        for (target, folder) in [
            ("state_rules", "crates/wcprof-profile/data/rules"),
            ("hotspot_rules", "crates/wcprof-findings/rules"),
        ] {
            for entry in fs::read_dir(repository(folder))? {
                let path = entry?.path();
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                // Cut where an entry begins: small inputs are tried more often.
                let text = fs::read(&path)?;
                self.put(target, &name, text.get(..4000).unwrap_or(&text))?;
            }
        }
        let shapes = fs::read(repository("crates/msgr-crypto/data/shapes.toml"))?;
        for (which, name, text) in [
            (0, "shapes", shapes.as_slice()),
            (1, "calibration", CALIBRATION.as_bytes()),
            (2, "speed", SPEED.as_bytes()),
        ] {
            let mut input = vec![which];
            input.extend(text);
            self.put("crypto_files", name, &input)?;
        }
        for (which, text) in (0_u8..).zip(PROC) {
            let mut input = vec![which];
            input.extend(text.as_bytes());
            self.put("procfs", &format!("file{which}"), &input)?;
        }
        for (which, text) in [(0_u8, PERF_MAP), (2, KALLSYMS)] {
            let mut input = vec![which];
            input.extend(text.as_bytes());
            self.put("runtime_names", &format!("list{which}"), &input)?;
        }
        self.put("runtime_names", "jitdump", &jitdump())?;
        for (i, name) in NAMES.iter().enumerate() {
            self.put("demangle", &format!("name{i:02}"), name.as_bytes())?;
        }
        Ok(())
    }

    fn records(&self) -> Result<()> {
        let sample = |words: &[u64]| {
            let mut record = 9_u32.to_ne_bytes().to_vec();
            record.extend(2_u16.to_ne_bytes());
            record.extend(0_u16.to_ne_bytes());
            words
                .iter()
                .for_each(|word| record.extend(word.to_ne_bytes()));
            record
        };
        let timer = sample(&[
            7 | 9 << 32,
            123,
            2,
            1,
            2,
            3,
            4,
            5,
            8,
            9,
            10,
            11,
            16,
            1,
            2,
            16,
        ]);
        self.put("perf_record", "timer", &timer)?;
        let breakpoint = sample(&[5, 7 | 9 << 32, 123, 2, 0x10, 0x20, 64]);
        self.put("perf_record", "breakpoint", &breakpoint)?;
        let mut task = vec![0xf, 0, 0x20, 0];
        for value in [7_u32, 6, 1007, 1006, 1, 0x10, 3] {
            task.extend(value.to_ne_bytes());
        }
        task.extend((32..168_u64).step_by(8).flat_map(u64::to_ne_bytes));
        task.extend(b"msgr-worker-0\0\0\0");
        task.extend([16, 0, 0, 0, 8, 0, 0, 0]);
        task.extend([7; 24]);
        task.extend(task.clone());
        self.put("task_records", "all", &task)?;
        let mut cache = 2_u32.to_le_bytes().to_vec();
        for text in ["_ZN1a1bEv", "/src/a.cc"] {
            cache.extend((text.len() as u32).to_le_bytes());
            cache.extend(text.as_bytes());
        }
        cache.extend(1_u32.to_le_bytes());
        cache.extend(0x1010_u64.to_le_bytes());
        for word in [2_u32, 1, 2, 10, 1, 0, 0] {
            cache.extend(word.to_le_bytes());
        }
        self.put("names_cache", "two", &cache)?;
        for (name, flags) in [("rev0", 6), ("rev1", 7), ("changed", 7)] {
            let mut frame = vec![flags, 17, 40, 0, u8::from(name == "changed")];
            for size in [41_u16, 100, 0] {
                frame.extend(8_u16.to_le_bytes());
                frame.extend(size.to_le_bytes());
                frame.extend(vec![3; size.into()]);
            }
            self.put("messenger_frame", name, &frame)?;
        }
        Ok(())
    }
}
