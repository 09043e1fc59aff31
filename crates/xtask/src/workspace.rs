//! Where things are, and what `cargo metadata` says about them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The root of the work tree.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.ancestors().nth(2).expect("xtask lies two folders below the root")
}

/// Where cargo builds, and where everything that may be thrown away goes.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The path as a person at the root would type it.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The files that are tracked, or will be with the next `git add`.
pub(crate) fn files() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("cannot run git; it is asked which files are ours")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

/// A package of a workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root, as in findings.
    pub(crate) manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// One entry of a `[dependencies]` table, of whichever kind.
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) is_dev: bool,
    pub(crate) optional: bool,
}

/// Something that a package builds.
pub(crate) struct Target {
    pub(crate) name: String,
    /// `lib`, `bin`, `test`, `bench` …
    pub(crate) kind: String,
}

/// The packages of the workspace that `manifest` (relative to the root) belongs to.
pub(crate) fn packages(manifest: &str) -> Result<Vec<Package>> {
    let output = Command::new(cargo())
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest])
        .current_dir(root())
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata does not read {manifest}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answer = serde_json::from_slice(&output.stdout).context("cargo metadata gave no JSON")?;
    Ok(read_packages(&answer))
}

fn read_packages(answer: &Value) -> Vec<Package> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let dependency = |entry: &Value| Dependency {
        name: text(&entry["name"]),
        is_dev: entry["kind"] == "dev",
        optional: entry["optional"] == true,
    };
    let target =
        |entry: &Value| Target { name: text(&entry["name"]), kind: text(&entry["kind"][0]) };
    list(&answer["packages"])
        .map(|entry| Package {
            name: text(&entry["name"]),
            manifest: shown(Path::new(entry["manifest_path"].as_str().unwrap_or_default())),
            dependencies: list(&entry["dependencies"]).map(dependency).collect(),
            targets: list(&entry["targets"]).map(target).collect(),
        })
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The cargo that runs us.
pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}
