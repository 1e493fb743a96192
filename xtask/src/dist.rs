//! `cargo xtask dist`: what people install, in `target/dist`: a tarball, a Debian package, a Python wheel, a folder to build an image
//! from. packaging/README.md says what each is; the texts in them are in packaging/.

use crate::build::{self, Profile};
use crate::needs::{self, Purpose};
use crate::shell;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let mut profile = Profile::Release;
    for argument in arguments {
        match argument.as_str() {
            "--dev" => profile = Profile::Dev,
            other => return shell::unknown("dist", other),
        }
    }
    let workspace = Workspace::load()?;
    needs::ensure(Purpose::Host, &workspace.target)?;
    let weir = build::host(&workspace, profile)?;
    let dist = Dist::begin(&workspace, &weir)?;
    for file in [dist.tarball()?, dist.debian()?, dist.wheel()?, dist.docker()?] {
        println!("{}", file.display());
    }
    Ok(())
}

struct Dist {
    /// `packaging/` of the checkout.
    packaging: PathBuf,
    root: PathBuf,
    folder: PathBuf,
    /// The binary without debug information, with `man` and `completions` beside it.
    stage: PathBuf,
    version: String,
    /// As rustc calls it, and as Debian does.
    architecture: &'static str,
    debian: String,
    /// The C library's version, such as `2.36`.
    glibc: String,
}

impl Dist {
    fn begin(workspace: &Workspace, weir: &Path) -> Result<Dist> {
        let folder = workspace.target.join("dist");
        let stage = folder.join("stage");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&stage).with_context(|| format!("cannot make the folder {}", stage.display()))?;
        shell::run(Command::new("strip").arg("--strip-debug").arg(weir).arg("-o").arg(stage.join("weir")))?;
        for what in ["man", "completions"] {
            shell::run(Command::new(stage.join("weir")).args(["generate", what]).arg(stage.join(what)))?;
        }
        let version =
            workspace.packages.iter().find(|package| package.name == "weir").context("no package weir")?.version.clone();
        let ldd = shell::read(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
        let glibc = ldd.trim().strip_prefix("glibc ").context("this is not the GNU C library")?.to_string();
        Ok(Dist {
            packaging: workspace.root.join("packaging"),
            root: workspace.root.clone(),
            folder,
            stage,
            version,
            architecture: std::env::consts::ARCH,
            debian: shell::read(Command::new("dpkg").arg("--print-architecture"))?.trim().to_string(),
            glibc,
        })
    }

    fn tarball(&self) -> Result<PathBuf> {
        let name = format!("weir-{}-{}-linux", self.version, self.architecture);
        let inside = self.folder.join(&name);
        self.install(&self.stage.join("weir"), &inside.join("weir"), 0o755)?;
        for file in ["LICENSE", "README.md"] {
            self.install(&self.root.join(file), &inside.join(file), 0o644)?;
        }
        for what in ["man", "completions"] {
            self.install_all(&self.stage.join(what), &inside.join(what))?;
        }
        let file = self.folder.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf"]).arg(&file).arg("-C").arg(&self.folder);
        shell::run(tar.arg(&name))?;
        fs::remove_dir_all(&inside)?;
        Ok(file)
    }

    fn debian(&self) -> Result<PathBuf> {
        let inside = self.folder.join("debian");
        self.install(&self.stage.join("weir"), &inside.join("usr/bin/weir"), 0o755)?;
        self.install_all(&self.stage.join("man"), &inside.join("usr/share/man/man1"))?;
        for (completion, to) in [
            ("weir.bash", "usr/share/bash-completion/completions/weir"),
            ("_weir", "usr/share/zsh/vendor-completions/_weir"),
            ("weir.fish", "usr/share/fish/vendor_completions.d/weir.fish"),
        ] {
            self.install(&self.stage.join("completions").join(completion), &inside.join(to), 0o644)?;
        }
        self.install(&self.root.join("LICENSE"), &inside.join("usr/share/doc/weir/copyright"), 0o644)?;
        let systemd = self.packaging.join("systemd");
        for role in ["coordinator", "worker"] {
            let unit = format!("weir-{role}.service");
            self.install(&systemd.join(&unit), &inside.join("lib/systemd/system").join(&unit), 0o644)?;
            let defaults = inside.join("etc/default").join(format!("weir-{role}"));
            self.install(&systemd.join(format!("weir-{role}.default")), &defaults, 0o644)?;
        }
        let control = inside.join("DEBIAN");
        for (script, mode) in [("conffiles", 0o644), ("postinst", 0o755), ("prerm", 0o755)] {
            self.install(&self.packaging.join("debian").join(script), &control.join(script), mode)?;
        }
        let kib = fs::metadata(self.stage.join("weir"))?.len() / 1024;
        let text = fs::read_to_string(self.packaging.join("debian/control"))?;
        let values =
            [("version", &self.version), ("architecture", &self.debian), ("glibc", &self.glibc), ("kib", &kib.to_string())];
        let text = values.iter().fold(text, |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value));
        fs::write(control.join("control"), text)?;
        let file = self.folder.join(format!("weir_{}_{}.deb", self.version, self.debian));
        shell::run(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&inside).arg(&file))?;
        fs::remove_dir_all(&inside)?;
        Ok(file)
    }

    fn wheel(&self) -> Result<PathBuf> {
        let platform = format!("manylinux_{}_{}", self.glibc.replace('.', "_"), self.architecture);
        let mut python = Command::new("python3");
        python.arg(self.packaging.join("python/wheel.py")).arg(self.stage.join("weir")).args([&self.version, &platform]);
        let file = shell::read(python.arg(self.root.join("README.md")).arg(&self.folder))?;
        Ok(PathBuf::from(file.trim()))
    }

    fn docker(&self) -> Result<PathBuf> {
        let inside = self.folder.join("docker");
        self.install(&self.stage.join("weir"), &inside.join("weir"), 0o755)?;
        for file in ["Dockerfile", "compose.yaml"] {
            self.install(&self.packaging.join("docker").join(file), &inside.join(file), 0o644)?;
        }
        Ok(inside)
    }

    fn install(&self, from: &Path, to: &Path, mode: u32) -> Result<()> {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the mode of {}", to.display()))
    }

    fn install_all(&self, from: &Path, to: &Path) -> Result<()> {
        for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
            let path = entry?.path();
            if let Some(name) = path.file_name() {
                self.install(&path, &to.join(name), 0o644)?;
            }
        }
        Ok(())
    }
}
