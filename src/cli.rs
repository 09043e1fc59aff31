//! The command line as one type.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// An RDMA network adapter in software: RoCEv2 in userspace.
///
/// Exit status: 0 right; 1 findings; 2 a usage error or unreadable input.
#[derive(Debug, Parser)]
#[command(name = "roxe", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

// No comments on the variants: they would take the place of those on the arguments in `--help`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Explain(ExplainArguments),
    Check(CheckArguments),
}

/// Explains captures: a line a frame, and what it means for its conversation.
///
/// Frames that are not RoCEv2 are counted and left out. Columns: frame number, seconds since the
/// first frame, addresses, opcode (of RC unless another service is named), queue pairs (source,
/// where it is known, and destination), PSN, PSN relative to the first of its direction, flags,
/// payload bytes, ICRC; then what the headers say and, in words, what it means.
///
/// Flags: S solicited event, A acknowledgement requested, M migration state set, E congestion
/// experienced (ECN), F FECN, B BECN.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// pcap or pcapng, may be compressed with gzip or zstd; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Open every header, field by field
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// JSON Lines: a flat object a frame, then one for each conversation and one for the file
    #[arg(long)]
    pub(crate) json: bool,
    /// Show only frames for which this holds, such as `bth.destqp == 0x11 and not icrc == good`
    ///
    /// NAME OP VALUE, joined by `and`, `or`, `not` and parentheses. Names are those of --json; OP
    /// is == != < <= > >= or `in {a, b}`; numbers are decimal or 0x…. No comparison holds for a
    /// field that a frame lacks. `notes.kind` and `findings.rule` are lists: any item will do.
    /// Numbering, conversations and the summary are those of the whole capture.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// No summary at the end
    #[arg(long)]
    pub(crate) no_summary: bool,
    /// Colours: by default on terminals only
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
}

impl ExplainArguments {
    /// Whether to colour.
    pub(crate) fn colour(&self) -> bool {
        match self.color {
            Color::Always => !self.json,
            Color::Never => false,
            Color::Auto => {
                !self.json
                    && std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// Judges captures: a line for each rule that a frame breaks, then a verdict.
///
/// Retransmissions, losses and refusals are facts of a network and no findings. What happened
/// before the capture began, or was lost before the place where it was taken, is not held against
/// anybody.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// pcap or pcapng, may be compressed with gzip or zstd; `-` is standard input
    #[arg(required_unless_present = "rules", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// JSON Lines: a flat object a finding, then one for the file
    #[arg(long)]
    pub(crate) json: bool,
    /// List the rules and what they say
    #[arg(long)]
    pub(crate) rules: bool,
}
