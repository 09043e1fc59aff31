//! Compiles the XDP program and generates its loader, only where AF_XDP is wanted.

fn main() {
    #[cfg(feature = "af_xdp")]
    xdp_program::build();
}

#[cfg(feature = "af_xdp")]
mod xdp_program {
    use std::path::{Path, PathBuf};

    use libbpf_cargo::SkeletonBuilder;

    const SOURCES: [&str; 2] = ["redirect_roce.bpf.c", "redirect_roce.h"];

    pub(super) fn build() {
        let variable = |name| std::env::var(name).expect("cargo sets it");
        let folder = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../bpf");
        let [program, _] = SOURCES.map(|name| folder.join(name));
        for source in SOURCES {
            println!("cargo::rerun-if-changed={}", folder.join(source).display());
        }

        // Debian keeps asm/types.h in a folder of the architecture, where clang does not look when
        // it compiles for BPF.
        let architecture = variable("CARGO_CFG_TARGET_ARCH");
        let include = format!("-I/usr/include/{architecture}-linux-gnu");
        let skeleton = PathBuf::from(variable("OUT_DIR")).join("redirect_roce.skel.rs");
        SkeletonBuilder::new()
            .source(program)
            .clang_args([include.as_str(), "-mcpu=v3", "-Wall", "-Werror"])
            .build_and_generate(skeleton)
            .expect("the XDP program compiles; clang and libelf-dev are needed");
    }
}
