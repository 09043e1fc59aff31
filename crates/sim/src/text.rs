//! Files that are read whole.

use std::io::Read;

/// The longest text that is read.
const MOST_BYTES: usize = 1 << 24;

/// The text that `source` holds, which is to be a `kind`, such as a script. Some sources have no
/// end: no more is read than a text may have.
///
/// # Errors
/// It cannot be read, or is none, and why; with its `name`.
pub fn text_of(name: &str, kind: &str, source: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let why = match source.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() > MOST_BYTES => {
            format!("no {kind}: it has more than {MOST_BYTES} bytes")
        }
        // Some editors begin a text with a byte order mark.
        Ok(_) => {
            match str::from_utf8(bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes)) {
                Ok(text) => return Ok(text.to_owned()),
                Err(_) => format!("no {kind}: it is no text in UTF-8"),
            }
        }
        Err(error) => format!("cannot be read: {error}"),
    };
    Err(format!("{name}: {why}"))
}
