//! Completions in words, which scripts and failures share.

use roxe_transport::work::{Completion, CompletionOpcode, CompletionStatus, Extra};

/// What a completion says, as scripts do: `id 1 ok op recv len 5 imm 0x7`.
pub(crate) fn completion(of: &Completion) -> String {
    let mut line = format!("id {} {}", of.wr_id, of.status.name());
    if of.status == CompletionStatus::Success {
        line += &format!(" op {} len {}", operation(of.opcode), of.byte_len);
        if of.extra != Extra::None {
            line += &format!(" {}", extra(of.extra));
        }
    }
    line
}

/// What a completion is about, as scripts say it.
pub(crate) const fn operation(opcode: CompletionOpcode) -> &'static str {
    match opcode {
        CompletionOpcode::Send => "send",
        CompletionOpcode::RdmaWrite => "write",
        CompletionOpcode::RdmaRead => "read",
        CompletionOpcode::CompSwap => "cmp-swap",
        CompletionOpcode::FetchAdd => "fetch-add",
        CompletionOpcode::BindMw => "bind",
        CompletionOpcode::LocalInv => "invalidate",
        CompletionOpcode::RegMr => "reg",
        CompletionOpcode::AtomicWrite => "atomic-write",
        CompletionOpcode::Flush => "flush",
        CompletionOpcode::Recv => "recv",
        CompletionOpcode::RecvRdmaWithImm => "recv-imm",
    }
}

/// What came with a completion, as scripts say it.
pub(crate) fn extra(extra: Extra) -> String {
    match extra {
        Extra::None => String::new(),
        Extra::Imm(imm) => format!("imm 0x{:x}", imm.0),
        Extra::Invalidated(key) => format!("inv 0x{:x}", key.0),
    }
}
