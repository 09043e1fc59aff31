//! A bar on standard error while a large capture is read.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use roxe_net::capture_file::CaptureReader;

/// Smaller files are read before anybody could look.
const LARGE: u64 = 64 << 20;

/// The bar, where one is wanted.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar for a large file, if somebody watches and does not see the output itself.
    pub(crate) fn of(reader: &CaptureReader) -> Self {
        let len = reader.total_len().filter(|len| *len >= LARGE);
        let watched = std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
        Self(len.filter(|_| watched).map(|len| {
            let bar = ProgressBar::new(len);
            let style = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar
        }))
    }

    pub(crate) fn at(&self, reader: &CaptureReader) {
        if let Some(bar) = &self.0 {
            bar.set_position(reader.bytes_read());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
