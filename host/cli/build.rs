//! Embeds the guest SDK, the templates of new components, the pages about errors and the first-party operators in the binary: writes
//! `embedded.rs`, with the content of each file, for `src/sdk.rs`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let sdk = here.join("../../guest-sdk/rust");
    let template = here.join("templates/rust");
    let mut code = String::new();
    code.push_str("/// The Rust SDK.\n");
    code.push_str(&embed("RUST_SDK", &sdk, &["Cargo.toml", "README.md", "src", "wit", "notation/Cargo.toml", "notation/src"])?);
    code.push_str("/// A new Rust component; `{{name}}` and its like are replaced.\n");
    code.push_str(&embed("RUST_TEMPLATE", &template, &["Cargo.toml", "README.md", "gitignore", "job.toml", "src"])?);
    code.push_str("/// The pages about errors: `E0034.md` and its text.\n");
    code.push_str(&embed_folder("ERROR_PAGES", &here.join("../../docs/errors"))?);
    code.push_str(&examples(&here.join("../../examples"))?);
    code.push_str(&bundled(&here.join("../../operators/bundled"))?);
    fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("embedded.rs"), code)?;
    Ok(())
}

/// Embeds all files of a folder, under their names. Folders in it are left out: an example that was run has its output there.
fn embed_folder(name: &str, folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8"))?);
        }
    }
    embed(name, folder, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The examples that are a job and need nothing built: their names and files.
fn examples(folder: &Path) -> Result<String, Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().join("job.toml").is_file() {
            names.push(entry.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8"))?);
        }
    }
    names.sort();
    let mut code = String::new();
    let mut all =
        "/// The examples: their names and files.\npub(crate) const EXAMPLES: &[(&str, &[EmbeddedFile])] = &[\n".to_owned();
    for name in names {
        let constant = format!("EXAMPLE_{}", name.to_uppercase().replace('-', "_"));
        code.push_str(&embed_folder(&constant, &folder.join(&name))?);
        all.push_str(&format!("    ({name:?}, {constant}),\n"));
    }
    Ok(code + &all + "];\n")
}

/// The operators that `cargo xtask operators` built. Each line of their index begins with name and version.
fn bundled(folder: &Path) -> Result<String, Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut code = "/// The first-party operators.\npub(crate) const FIRST_PARTY: &[weir_storage::Bundled] = &[\n".to_owned();
    let index = fs::read_to_string(folder.join("index.txt"))?;
    for line in index.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { return Err(format!("no operator: {line}").into()) };
        let file = folder.join(format!("{name}.wasm")).canonicalize()?;
        code.push_str(&format!(
            "    weir_storage::Bundled {{ name: {name:?}, version: {version:?}, bytes: include_bytes!({file:?}) }},\n"
        ));
    }
    code.push_str("];\n");
    Ok(code)
}

fn embed(name: &str, root: &Path, entries: &[&str]) -> Result<String, Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    for entry in entries {
        collect(&root.join(entry), entry, &mut files)?;
    }
    files.sort();
    let mut code = format!("pub(crate) const {name}: &[EmbeddedFile] = &[\n");
    for (path, full) in files {
        code.push_str(&format!("    ({path:?}, include_str!({:?})),\n", full.canonicalize()?));
    }
    code.push_str("];\n");
    Ok(code)
}

fn collect(full: &Path, path: &str, files: &mut Vec<(String, PathBuf)>) -> Result<(), Box<dyn Error>> {
    if full.is_dir() {
        for entry in fs::read_dir(full)? {
            let name = entry?.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8"))?;
            collect(&full.join(&name), &format!("{path}/{name}"), files)?;
        }
    } else if full.is_file() {
        files.push((path.to_owned(), full.to_owned()));
    }
    Ok(())
}
