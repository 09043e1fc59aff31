//! The file that names adapters: TOML, a table for each, with the options of a device string.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::device_list::DeviceEntry;
use crate::device_string::{DeviceString, Options, Wrong, assemble};

/// What is wrong with a file that names adapters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}{what}", file.display(), place(*line, key))]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on; `None` when it is not about one.
    pub line: Option<usize>,
    /// The key there, with that of its table: `roxe0.mode`.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
}

impl ConfigError {
    /// The same, with what named the file: a variable or an option.
    #[must_use]
    pub fn named_by(self, what: &str) -> Self {
        Self { what: format!("{} ({what})", self.what), ..self }
    }
}

fn place(line: Option<usize>, key: &Option<String>) -> String {
    let line = line.map(|line| format!("{line}: ")).unwrap_or_else(|| " ".to_owned());
    line + &key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default()
}

/// The adapters that a file names.
pub(crate) fn read(file: &Path) -> Result<Vec<DeviceEntry>, ConfigError> {
    let wrong = |line, key, what| ConfigError { file: file.to_owned(), line, key, what };
    let text = text_of(file).map_err(|what| wrong(None, None, what))?;
    let entries = parse(&text).map_err(|Fault { at, key, what }| {
        wrong(Some(text[..at.min(text.len())].matches('\n').count() + 1), key, what)
    })?;
    let is_this = |capture: &PathBuf| is_one_file(capture, file).unwrap_or(false);
    match entries.iter().find(|entry| entry.device.capture.as_ref().is_some_and(is_this)) {
        Some(DeviceEntry { name, .. }) => {
            let what = "that is this file itself, which the recording would overwrite".to_owned();
            Err(wrong(None, Some(format!("{name}.capture")), what))
        }
        None => Ok(entries),
    }
}

/// Whether two names are of the same file.
fn is_one_file(one: &Path, other: &Path) -> io::Result<bool> {
    let [one, other] = [fs::metadata(one)?, fs::metadata(other)?].map(|it| (it.dev(), it.ino()));
    Ok(one == other)
}

/// All of a file. One without an end, or in which nothing ever stands, is not begun with.
fn text_of(file: &Path) -> Result<String, String> {
    let told = |error: io::Error| error.to_string();
    // Who opens a FIFO so does not wait for whoever writes.
    let options = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(file, options, Mode::empty()).map_err(|it| told(it.into()))?;
    let opened = fs::File::from(opened);
    let meta = opened.metadata().map_err(told)?;
    if !meta.is_file() {
        let kind = if meta.is_dir() { "a directory" } else { "no regular file" };
        return Err(format!("{kind}: name a TOML file in which each device is a table"));
    }
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("longer than {} KiB: it names no devices", LARGEST >> 10));
    }
    String::from_utf8(bytes).map_err(|_| "no text: it is not UTF-8".to_owned())
}

/// Bytes of a file: more than anybody has devices for.
const LARGEST: u64 = 1 << 20;

/// What is wrong, how many bytes into the file.
struct Fault {
    at: usize,
    key: Option<String>,
    what: String,
}

type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;

fn parse(text: &str) -> Result<Vec<DeviceEntry>, Fault> {
    let file = DeTable::parse(text).map_err(|error| Fault {
        at: error.span().map_or(0, |span| span.start),
        key: None,
        what: error.message().to_owned(),
    })?;
    let mut tables: Vec<_> = file.get_ref().iter().collect();
    if tables.is_empty() {
        let what = "it names no device: `[roxe0]` begins one, `port = \"xdp:eth1\"` says which";
        return Err(Fault { at: 0, key: None, what: what.to_owned() });
    }
    tables.sort_by_key(|(name, _)| name.span().start);
    tables.into_iter().map(|(name, table)| device(name, table)).collect()
}

/// The adapter of one table.
fn device(name: &Key<'_>, table: &Spanned<DeValue<'_>>) -> Result<DeviceEntry, Fault> {
    let of_table = |what: &str| Fault {
        at: name.span().start,
        key: Some(name.get_ref().clone().into_owned()),
        what: what.to_owned(),
    };
    let table = table.get_ref().as_table().ok_or_else(|| {
        of_table("not a table: `[NAME]` begins a device, `port` is one of its keys")
    })?;
    let of_key = |key: &Key<'_>, what: String| Fault {
        at: key.span().start,
        key: Some(format!("{}.{}", name.get_ref(), key.get_ref())),
        what,
    };
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);

    let mut port = None;
    let mut options = Vec::new();
    for (key, value) in &keys {
        let value = word(value.get_ref())
            .ok_or_else(|| of_key(key, "not a string, a number, `true` or `false`".to_owned()))?;
        match key.get_ref().as_ref() {
            "port" => port = Some((*key, value)),
            option => options.push((option, value)),
        }
    }
    let (port_key, port) =
        port.ok_or_else(|| of_table("`port` is missing, such as `port = \"xdp:eth1\"`"))?;
    if port.contains(',') {
        let what = "options of a port are keys of their own in a file".to_owned();
        return Err(of_key(port_key, what));
    }
    let mut text = port.clone();
    options.iter().for_each(|(key, value)| text += &format!(",{key}={value}"));
    let device: DeviceString = assemble(&port, Options(options), &text).map_err(|wrong| {
        let Wrong { key, what } = wrong;
        let named = |named: &&(&Key<'_>, &Spanned<DeValue<'_>>)| {
            key.as_ref().is_some_and(|key| named.0.get_ref() == key)
        };
        of_key(keys.iter().find(named).map_or(port_key, |(key, _)| key), what)
    })?;
    Ok(DeviceEntry { name: name.get_ref().clone().into_owned(), device, interface: None })
}

/// A value as a device string has it.
fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line, key, what is wrong.
    fn why(text: &str) -> (usize, String, String) {
        let Err(Fault { at, key, what }) = parse(text) else { panic!("it can be read") };
        (text[..at].matches('\n').count() + 1, key.unwrap_or_default(), what)
    }

    #[test]
    fn a_table_is_an_adapter_with_its_options_in_the_order_of_the_file() {
        let text = "# mine\n[z]\nport = \"udp:127.0.0.1\"\ngso = false\nverify = \"off\"\n\n\
                    [a]\nfault = \"drop packets 3,7; dup 2%\"\nport = \"memory:x\"\n\
                    capture = \"a, b.pcapng\"\n";
        let entries = parse(text).unwrap_or_else(|fault| panic!("{}", fault.what));
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["z", "a"]);
        assert_eq!(entries[0].device, "udp:127.0.0.1,gso=off,verify=off".parse().unwrap());
        assert_eq!(entries[1].device.fault.as_deref(), Some("drop packets 3,7; dup 2%"));
        assert_eq!(entries[1].device.capture, Some("a, b.pcapng".into()));
        let nothing = parse("# none\n").err().map(|fault| fault.what).unwrap_or_default();
        assert!(nothing.contains("names no device"), "{nothing}");
    }

    #[test]
    fn options_of_congestion_control_are_read() {
        let text = "[a]\nport = \"memory:x\"\ncc = \"dcqcn\"\nrate = 0.5\ncnp = false\n";
        let entries = parse(text).unwrap_or_else(|fault| panic!("{}", fault.what));
        assert_eq!(entries[0].device, "memory:x,cc=dcqcn,rate=0.5,cnp=off".parse().unwrap());
        let text =
            "[a]\nport = \"memory:x\"\ncc = \"timely\"\nbeta = 0.5\ndelta = \"20M\"\nn = 3\n";
        let entries = parse(text).unwrap_or_else(|fault| panic!("{}", fault.what));
        let same = "memory:x,cc=timely,beta=0.5,delta=20M,n=3";
        assert_eq!(entries[0].device, same.parse().unwrap());
        for wrong in ["rate = 0", "rate = nan", "rate = -1.5", "cc = \"fast\"", "cnp = 3"] {
            let (line, key, _) = why(&format!("[a]\nport = \"memory:x\"\n{wrong}\n"));
            assert_eq!(
                (line, key.as_str()),
                (3, format!("a.{}", &wrong[..wrong.find(' ').unwrap()]).as_str())
            );
        }
    }

    #[cfg(feature = "af_xdp")]
    #[test]
    fn options_of_af_xdp_are_read() {
        let text = "[roxe0]\nport = \"xdp:eth1\"\nqueue = 3\nzerocopy = false\nmode = \"native\"\n";
        let entries = parse(text).unwrap_or_else(|fault| panic!("{}", fault.what));
        let text = "xdp:eth1,queue=3,zerocopy=off,mode=native";
        assert_eq!(entries[0].device, text.parse().unwrap());
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_key() {
        let (line, key, what) = why("[a]\nport = \"udp:127.0.0.1\"\n\ngso = \"fast\"\n");
        assert_eq!((line, &*key, &*what), (4, "a.gso", "gso=fast: not one of auto, on, off"));
        let (line, key, what) = why("[a]\n port = \"udp:host\"\n");
        assert_eq!((line, &*key, &*what), (2, "a.port", "`host` is no IP address"));
        let (line, key, what) = why("\n[a]\nmode = \"x\"\nport = \"memory:a\"\n");
        assert_eq!((line, &*key), (3, "a.mode"));
        assert!(what.starts_with("memory has no option `mode`"), "{what}");
        let (line, key, what) = why("\n[a]\ngso = true\n");
        assert_eq!((line, &*key), (2, "a"));
        assert!(what.starts_with("`port` is missing"), "{what}");
        assert_eq!(why("port = \"udp:1.2.3.4\"").1, "port");
        assert_eq!(why("[a]\nport = \"udp:1.2.3.4\"\ngso = [1]\n").0, 3);
        assert_eq!(why("[a]\nport = \"udp:1.2.3.4,gso=on\"\n").1, "a.port");
        assert_eq!(why("[a]\nport = \n").0, 2);
    }

    #[test]
    fn the_message_names_file_line_and_key() {
        let error = ConfigError {
            file: "roxe.toml".into(),
            line: Some(4),
            key: Some("a.gso".to_owned()),
            what: "wrong".to_owned(),
        };
        assert_eq!(error.to_string(), "roxe.toml:4: a.gso: wrong");
        let missing = read(Path::new("/nonexistent/roxe.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/roxe.toml: No such file"), "{missing}");
    }

    /// Nobody waits for a FIFO, and nothing without an end is read.
    #[test]
    fn only_a_regular_file_of_sane_size_is_read() {
        let folder = std::env::temp_dir().join(format!("roxe-config-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, file("fifo"), mode).unwrap();
        fs::write(file("long"), " ".repeat(LARGEST as usize + 1)).unwrap();
        fs::write(file("binary"), [0xff, 0xfe]).unwrap();
        for (file, why) in [
            (file("fifo"), "no regular file: name a TOML file"),
            (PathBuf::from("/dev/zero"), "no regular file"),
            (folder.clone(), "a directory: name a TOML file"),
            (file("long"), "longer than 1024 KiB"),
            (file("binary"), "no text: it is not UTF-8"),
        ] {
            let error = read(&file).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}: {why}", file.display())), "{error}");
        }
        fs::write(file("good"), "[a]\nport = \"memory:x\"\n").unwrap();
        assert_eq!(read(&file("good")).unwrap().len(), 1);
        // Under another name, too.
        std::os::unix::fs::symlink("own", file("link")).unwrap();
        let text = format!("[a]\nport = \"memory:x\"\ncapture = {:?}\n", file("link"));
        fs::write(file("own"), text).unwrap();
        let error = read(&file("own")).unwrap_err().to_string();
        let expected = format!("{}: a.capture: that is this file itself", file("own").display());
        assert!(error.starts_with(&expected), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
