//! `cargo xtask test`: every test of the repository, with everything they need. The runner's summary is the last thing printed.

use crate::build::Profile;
use crate::needs::Purpose;
use crate::operators;
use crate::setup;
use crate::shell;
use crate::workspace::Workspace;
use anyhow::Result;

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let prepared = setup::prepare(&workspace, Purpose::Tests, Profile::Dev, &setup::default_data_dir(&workspace))?;
    let componentize_py = setup::python(&workspace)?;
    let with_nextest = setup::nextest();
    operators::verify(&workspace, &prepared.weir)?;

    // nextest does not run documentation tests. They go first, so that its summary closes the output.
    if arguments.is_empty() {
        shell::run(workspace.cargo("test").args(["--workspace", "--doc", "--quiet"]))?;
    }
    let mut command = if with_nextest {
        let mut command = workspace.cargo("nextest");
        command.arg("run");
        command
    } else {
        let mut command = workspace.cargo("test");
        command.args(["--lib", "--bins", "--tests"]);
        command
    };
    command.arg("--workspace").args(arguments);
    // How end-to-end tests find what was built; see tests/.
    command.env("WEIR_BIN", &prepared.weir);
    command.env("WEIR_TEST_COMPONENTS", &prepared.data_dir);
    command.env("WEIR_COMPONENTIZE_PY", componentize_py);
    shell::run(&mut command)
}
