//! Mappings of a process to the ELF images that they are of.

use std::cmp::Reverse;
use std::ops::Range;

use wcprof_capture::MAX_MODULES;
use wcprof_types::{Avma, FileOffset, Mapping, VDSO, jit_files, undeleted};
use wcprof_unwind::ModuleCode;

/// The kernel's page of breakpoints: return addresses that a uretprobe has put on a stack are in it.
pub(crate) const RETURN_PROBES: &str = "[uprobes]";

/// One ELF image as it is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Image {
    /// First address.
    pub(crate) start: Avma,
    /// First address after its last mapping.
    pub(crate) end: Avma,
    /// The lowest mapping that is of the file.
    pub(crate) first: Mapping,
    /// The mapping that tells the load bias: that of the code, else the last one, since the first may begin with a page that two
    /// segments share.
    pub(crate) located: Mapping,
    pub(crate) code: Text,
}

/// Where the code of an image is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Text {
    /// In a mapping of the file.
    Mapped,
    /// Perhaps in executable memory that is of no file, beside mappings of the file: databases and JIT compilers move
    /// their code to huge pages. The file decides: its program headers, and whether its bytes are there.
    Moved(Range<Avma>),
}

/// Where `file` has the code that would be in `range`, if `mapping` is of it; `None` when its program headers have no
/// code there.
pub(crate) fn moved_code_offset(
    file: &ModuleCode,
    mapping: &Mapping,
    range: &Range<Avma>,
) -> Option<FileOffset> {
    let bias = file.load_bias(mapping)?;
    file.code_offset(bias.to_svma(range.start)..bias.to_svma(range.end))
}

/// Mappings of one file with rising offsets.
struct Group<'m> {
    mappings: Vec<&'m Mapping>,
    /// First address after its last mapping, and after memory of no file that follows it without a gap.
    end: Avma,
    /// Executable memory of no file beside or between its mappings.
    anonymous_code: Option<Range<Avma>>,
}

impl<'m> Group<'m> {
    /// `before` are the mappings at lower addresses, in the order of these.
    fn new(first: &'m Mapping, before: &[Mapping]) -> Self {
        let mut end = first.start;
        let mut code: Option<Range<Avma>> = None;
        // Only behind the file's beginning can a part of it be missing.
        let before = before.iter().rev().filter(|_| first.offset.0 > 0);
        for mapping in before.take_while(|before| is_anonymous(before)) {
            if mapping.end != end {
                break;
            }
            end = mapping.start;
            match &mut code {
                Some(code) if mapping.executable && code.start == mapping.end => code.start = end,
                None if mapping.executable => code = Some(end..mapping.end),
                _ => {}
            }
        }
        Self {
            mappings: vec![first],
            end: first.end,
            anonymous_code: code,
        }
    }

    /// Takes a mapping that is of the same file, or lies behind such a one; false for others.
    fn take(&mut self, mapping: &'m Mapping) -> bool {
        let Some(last) = self.mappings.last() else {
            return false;
        };
        let goes_on = last.inode == mapping.inode
            && last.device == mapping.device
            && last.path == mapping.path
            && (last.offset < mapping.offset || shares_page(last, mapping));
        // Zeroed memory behind a segment (.bss) has no file; what follows it may be of the same image.
        let is_behind = is_anonymous(mapping) && self.end == mapping.start;
        if goes_on {
            self.mappings.push(mapping);
        } else if !is_behind {
            return false;
        } else if mapping.executable {
            match &mut self.anonymous_code {
                Some(code) if code.end == mapping.start => code.end = mapping.end,
                Some(_) => {}
                None => self.anonymous_code = Some(mapping.start..mapping.end),
            }
        }
        self.end = mapping.end;
        true
    }

    fn image(self) -> Option<Image> {
        let (first, last) = (*self.mappings.first()?, *self.mappings.last()?);
        let code = self.mappings.iter().find(|mapping| mapping.executable);
        let (mut start, mut end) = (first.start, last.end);
        let (located, code) = match code {
            Some(code) => (*code, Text::Mapped),
            None => {
                let range = self.anonymous_code?;
                (start, end) = (start.min(range.start), end.max(range.end));
                (last, Text::Moved(range))
            }
        };
        Some(Image {
            start,
            end,
            first: first.clone(),
            located: located.clone(),
            code,
        })
    }
}

/// Whether two segments with code begin in one page of the file, which is mapped for each.
fn shares_page(last: &Mapping, mapping: &Mapping) -> bool {
    last.offset == mapping.offset
        && last.end == mapping.start
        && last.executable
        && mapping.executable
}

/// Memory of no file, which may have a name (`PR_SET_VMA_ANON_NAME`) or be a huge page.
fn is_anonymous(mapping: &Mapping) -> bool {
    let is_unnamed = mapping.path.is_empty() || mapping.path.starts_with("[anon:");
    mapping.is_anonymous() && is_unnamed || mapping.path.starts_with("/anon_hugepage")
}

/// Groups mappings into ELF images: neighbours of one file with rising offsets, at least one of
/// them executable.
pub(crate) fn images(mappings: &[Mapping]) -> Vec<Image> {
    let mut images = Vec::new();
    let mut group: Option<Group<'_>> = None;
    for (at, mapping) in mappings.iter().enumerate() {
        let is_taken = group.as_mut().is_some_and(|group| group.take(mapping));
        if !is_taken {
            images.extend(group.take().and_then(Group::image));
            let is_file = mapping.inode != 0 && !is_jitdump(mapping) && !is_anonymous(mapping);
            let is_kernels = [VDSO, RETURN_PROBES].contains(&mapping.path.as_str());
            if is_file || is_kernels {
                let before = mappings.get(..at).unwrap_or_default();
                group = Some(Group::new(mapping, before));
            }
        }
    }
    images.extend(group.and_then(Group::image));
    images
}

/// Keeps the largest [`MAX_MODULES`] and the vdso, in the order of their addresses.
pub(crate) fn keep_largest(images: &mut Vec<Image>) {
    let size = |image: &Image| image.end.0.saturating_sub(image.start.0);
    // Reading the clock in the vdso is frequent, and nothing else has its names.
    let rank = |image: &Image| (image.first.path == VDSO, size(image));
    images.sort_by_key(|image| Reverse(rank(image)));
    images.truncate(MAX_MODULES);
    images.sort_by_key(|image| image.start);
}

/// Whether a mapping is the mark that a runtime makes of its jitdump: executable, so that perf notices
/// it, but no code.
pub(crate) fn is_jitdump(mapping: &Mapping) -> bool {
    let is_named = jit_files::is_jitdump(undeleted(&mapping.path));
    mapping.executable && mapping.inode != 0 && is_named
}

#[cfg(test)]
mod tests {
    use wcprof_types::parse_maps;

    use super::*;

    /// Check grouping: an image with data and .bss, the same file mapped twice, two segments in one page of it, data files,
    /// anonymous memory and jitdumps left out, the vdso.
    #[test]
    fn grouping() {
        let maps = parse_maps(
            "1000-2000 r--p 00000000 fe:01 7 /bin/x\n\
             2000-3000 r-xp 00001000 fe:01 7 /bin/x\n\
             3000-4000 rw-p 00002000 fe:01 7 /bin/x\n\
             4000-5000 rw-p 00000000 00:00 0 \n\
             6000-7000 r--p 00000000 fe:01 8 /lib/y.so (deleted)\n\
             7000-8000 r-xp 00001000 fe:01 8 /lib/y.so (deleted)\n\
             8000-9000 r--p 00000000 fe:01 8 /lib/y.so (deleted)\n\
             9000-9800 r-xp 00001000 fe:01 8 /lib/y.so (deleted)\n\
             9800-a000 rwxp 00001000 fe:01 8 /lib/y.so (deleted)\n\
             a000-b000 r--s 00000000 fe:01 9 /data/file\n\
             b000-c000 rwxp 00000000 00:00 0 \n\
             c000-d000 r-xp 00000000 00:00 0 [vdso]\n\
             d000-e000 r-xp 00000000 fe:01 10 /tmp/jit-7.dump\n",
        )
        .unwrap();
        let images = images(&maps).into_iter();
        let images: Vec<(u64, u64, u64)> = images
            .map(|i| (i.start.0, i.located.start.0, i.end.0))
            .collect();
        assert_eq!(
            images,
            [
                (0x1000, 0x2000, 0x4000),
                (0x6000, 0x7000, 0x8000),
                (0x8000, 0x9000, 0xa000),
                // The file decides whether what follows it is its code.
                (0xa000, 0xa000, 0xc000),
                (0xc000, 0xc000, 0xd000),
            ]
        );
    }

    /// Check where code in memory of no file may be of an image: between its mappings, before and behind them, in a
    /// huge page; not with a gap, nor where the file has code.
    #[test]
    fn moved_code() {
        let moved = |maps: &str| {
            let maps = parse_maps(maps).unwrap();
            let range = |image: Image| match image.code {
                Text::Moved(range) => (image.first.start.0, range.start.0, range.end.0),
                Text::Mapped => (image.first.start.0, image.located.start.0, 0),
            };
            images(&maps).into_iter().map(range).collect::<Vec<_>>()
        };
        let between = "1000-2000 r--p 00000000 fe:01 7 /bin/x\n\
             2000-3000 r-xp 00000000 00:00 0 \n\
             3000-4000 r-xp 00000000 00:00 0 [anon:text]\n\
             4000-5000 r--p 00003000 fe:01 7 /bin/x\n";
        assert_eq!(moved(between), [(0x1000, 0x2000, 0x4000)]);
        let before = "2000-3000 r-xp 00000000 00:11 5 /anon_hugepage (deleted)\n\
             3000-4000 rw-p 00001000 fe:01 7 /bin/x\n";
        assert_eq!(moved(before), [(0x3000, 0x2000, 0x3000)]);
        // All but the file's data was moved: its header, its code and its constants.
        let whole = "1000-2000 r--p 00000000 00:00 0 \n\
             2000-3000 r-xp 00000000 00:00 0 \n\
             3000-4000 r--p 00000000 00:00 0 \n\
             4000-5000 rw-p 00003000 fe:01 7 /bin/x\n";
        assert_eq!(moved(whole), [(0x4000, 0x2000, 0x3000)]);
        let behind = "1000-2000 r--p 00000000 fe:01 7 /bin/x\n\
             2000-3000 r-xp 00000000 00:00 0 \n";
        assert_eq!(moved(behind), [(0x1000, 0x2000, 0x3000)]);
        let gap = "1000-2000 r--p 00000000 fe:01 7 /bin/x\n\
             3000-4000 r-xp 00000000 00:00 0 \n\
             5000-6000 r--p 00000000 fe:01 8 /bin/y\n";
        assert_eq!(moved(gap), []);
        let part = "1000-2000 r-xp 00000000 fe:01 7 /bin/x\n\
             2000-3000 r-xp 00000000 00:00 0 \n\
             3000-4000 r--p 00002000 fe:01 7 /bin/x\n";
        assert_eq!(moved(part), [(0x1000, 0x1000, 0)]);
    }
}
