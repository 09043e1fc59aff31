//! Compiles the BPF programs and generates their loaders, only where AF_XDP is wanted.

fn main() {
    #[cfg(feature = "af_xdp")]
    bpf_programs::build();
}

#[cfg(feature = "af_xdp")]
mod bpf_programs {
    use std::path::{Path, PathBuf};

    use libbpf_cargo::SkeletonBuilder;

    const PROGRAMS: [&str; 2] = ["redirect_roce", "mark_ce"];

    pub(super) fn build() {
        let variable = |name| std::env::var(name).expect("cargo sets it");
        let folder = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../bpf");

        // Debian keeps asm/types.h in a folder of the architecture, where clang does not look when
        // it compiles for BPF.
        let architecture = variable("CARGO_CFG_TARGET_ARCH");
        let include = format!("-I/usr/include/{architecture}-linux-gnu");
        for name in PROGRAMS {
            let source = folder.join(format!("{name}.bpf.c"));
            for source in [source.clone(), folder.join(format!("{name}.h"))] {
                println!("cargo::rerun-if-changed={}", source.display());
            }
            let skeleton = PathBuf::from(variable("OUT_DIR")).join(format!("{name}.skel.rs"));
            SkeletonBuilder::new()
                .source(source)
                .clang_args([include.as_str(), "-mcpu=v3", "-Wall", "-Werror"])
                .build_and_generate(skeleton)
                .expect("the BPF programs compile; clang and libelf-dev are needed");
        }
    }
}
