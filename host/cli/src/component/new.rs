//! `weir component new`: a crate that builds on its own.

use std::fs;
use std::path::Path;

use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::sdk::{EmbeddedFile, RUST_SDK, RUST_TEMPLATE};

/// Languages there is a template for.
const LANGUAGES: [&str; 1] = ["rust"];

pub(super) fn execute(language: &str, folder: &Path, global: &Global) -> anyhow::Result<()> {
    if !LANGUAGES.contains(&language) {
        let message = format!("there is no template for the language `{language}`; there is one for {}", LANGUAGES.join(", "));
        let hint = "a component made elsewhere works too if it is made for world weir:operator/operator@0.2.0 (wit/weir.wit, also \
                    in weir-sdk/wit of any new Rust component): try `weir component check FILE`, then `weir component push FILE`";
        return Err(Failure::new(ErrorNumber::ComponentNotMade, Exit::Usage, message).hint(hint).into());
    }
    let name = folder.file_name().and_then(|name| name.to_str()).filter(|name| is_crate_name(name)).ok_or_else(|| {
        let message = format!("cannot make a component named `{}`", folder.display());
        Failure::new(ErrorNumber::ComponentNotMade, Exit::Usage, message)
            .hint("a name starts with a letter and goes on with letters, digits, `-` and `_`, 64 at most")
    })?;
    let failed = |error: std::io::Error| {
        Failure::new(
            ErrorNumber::FileInaccessible,
            Exit::Failed,
            format!("cannot write the component {}: {error}", folder.display()),
        )
    };
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) || folder.is_file() {
        let message = format!("cannot write the component {}: there is something at that path", folder.display());
        return Err(Failure::new(ErrorNumber::FileInaccessible, Exit::Usage, message)
            .hint("choose another name, or remove what is there")
            .into());
    }
    write(folder, RUST_TEMPLATE, |text| text.replace("{{name}}", name)).map_err(failed)?;
    fs::rename(folder.join("gitignore"), folder.join(".gitignore")).map_err(failed)?;
    write(&folder.join("weir-sdk"), RUST_SDK, str::to_owned).map_err(failed)?;
    let shown = folder.display();
    global.note(&format!("made {shown}\n\nnext:\n  cd {shown}\n  cargo test\n  weir component build\n  weir run job.toml"));
    Ok(())
}

/// What cargo takes as a package name and the component store as a name.
fn is_crate_name(name: &str) -> bool {
    const TAKEN: [&str; 5] = ["test", "core", "std", "alloc", "weir-sdk"];
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        && !TAKEN.contains(&name)
}

fn write(folder: &Path, files: &[EmbeddedFile], text_of: impl Fn(&str) -> String) -> std::io::Result<()> {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text_of(text))?;
    }
    Ok(())
}
