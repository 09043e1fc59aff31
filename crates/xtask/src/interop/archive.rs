//! The initial file system of a guest: a cpio archive in the format `newc`, as Linux unpacks it.

use std::collections::BTreeSet;

/// An archive that is being written. Folders come by themselves.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    folders: BTreeSet<String>,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

impl Archive {
    /// A folder and those above it. Paths have no slash in front.
    pub(crate) fn folder(&mut self, path: &str) {
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let path = &path[..at];
            if !path.is_empty() && self.folders.insert(path.to_owned()) {
                self.entry(path, FOLDER, &[]);
            }
        }
    }

    /// A file. `mode` holds its permissions.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.above(path);
        self.entry(path, FILE | mode, content);
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, path: &str, to: &str) {
        self.above(path);
        self.entry(path, LINK, to.as_bytes());
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn above(&mut self, path: &str) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let (links, size, name) = (1, content.len(), path.len() + 1);
        // Owner, group, time, four device numbers, and a checksum that this format does not have.
        let head = format!(
            "070701{:08X}{mode:08X}{:08X}{:08X}{links:08X}{:08X}{size:08X}{:032X}{name:08X}{:08X}",
            self.inode, 0, 0, 0, 0, 0
        );
        self.bytes.extend(head.as_bytes());
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path, mode and content of every entry, read back by the format's rules.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, String)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let head = std::str::from_utf8(&bytes[..110]).unwrap();
            assert!(head.starts_with("070701"));
            let field = |which: usize| {
                let at = 6 + 8 * which;
                usize::from_str_radix(&head[at..at + 8], 16).unwrap()
            };
            let (mode, size, name) = (field(1), field(6), field(11));
            let text = |from: usize, len: usize| {
                String::from_utf8(bytes[from..from + len].to_vec()).unwrap()
            };
            let content = (110 + name).next_multiple_of(4);
            found.push((text(110, name - 1), mode as u32, text(content, size)));
            bytes = &bytes[(content + size).next_multiple_of(4)..];
        }
        found
    }

    #[test]
    fn an_archive_holds_what_was_put_in_with_the_folders_above_once() {
        let mut archive = Archive::default();
        archive.file("usr/bin/a", 0o755, b"12345");
        archive.link("usr/bin/b", "a");
        archive.folder("proc");
        let expected = [
            ("usr", 0o040_755, ""),
            ("usr/bin", 0o040_755, ""),
            ("usr/bin/a", 0o100_755, "12345"),
            ("usr/bin/b", 0o120_777, "a"),
            ("proc", 0o040_755, ""),
            ("TRAILER!!!", 0, ""),
        ];
        let expected = expected.map(|(path, mode, what)| (path.to_owned(), mode, what.to_owned()));
        assert_eq!(entries(&archive.finish()), expected);
    }
}
