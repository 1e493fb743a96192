//! s130: what came with the current folder (a checkout, an archive) runs no code, gets no token and no variable.

mod support;

use std::os::unix::fs::symlink;

use support::cluster::Api;
use support::{World, run};
use weir_api::Token;

const JOB: &str = "[job]\nname = \"try\"\n\n[[source]]\nid = \"rows\"\nconnector = \"generator\"\nrows = 10\n\n\
                   [[sink]]\nid = \"out\"\nconnector = \"blackhole\"\ninput = \"rows\"\n";

#[test]
fn s130_the_file_of_a_checkout_moves_no_data_folder() {
    let world = World::new();
    world.write("job.toml", JOB);
    world.write("weir.toml", "log = \"warn\"\ndata_dir = \"theirs\"\n");
    let weir = |arguments: &[&str]| run(world.command(arguments).env_remove("WEIR_DATA_DIR").env("HOME", world.path("home")));
    for command in [&["run", "job.toml"][..], &["job", "check", "job.toml"], &["component", "ls"], &["checkpoint", "ls", "try"]] {
        let done = weir(command);
        assert_eq!(done.code, Some(4), "{command:?}: {done:?}");
        assert!(done.stderr.starts_with("error[E0070]") && done.stderr.contains("weir.toml:2 "), "{done:?}");
        assert!(done.stderr.contains("weir trust") && done.stderr.contains("--data-dir"), "{done:?}");
    }
    assert!(!world.path("theirs").exists());
    // What the user says comes first, and then there is nothing to refuse.
    assert_eq!(run(&mut world.command(&["run", "job.toml"])).code, Some(0));
    let shown = weir(&["config", "show"]);
    assert!(shown.code == Some(0) && shown.stderr.contains("weir.toml:2 ") && !shown.stdout.contains("theirs"), "{shown:?}");
}

#[test]
fn s130_a_file_counts_once_it_is_trusted_and_until_it_changes() {
    let world = World::new();
    world.write("weir.toml", "data_dir = \"ours\\u001b[2J\"\n");
    let weir = |arguments: &[&str]| run(world.command(arguments).env_remove("WEIR_DATA_DIR"));
    let asked = weir(&["trust"]);
    assert_eq!(asked.code, Some(4), "nobody is there to say yes: {asked:?}");
    assert!(asked.stderr.contains("data_dir = ours\\u001b[2J") && !asked.stderr.contains('\u{1b}'), "{asked:?}");
    assert_eq!(weir(&["component", "ls"]).code, Some(4));
    assert_eq!(weir(&["trust", "--yes"]).code, Some(0));
    assert_eq!(weir(&["component", "ls"]).code, Some(0));
    assert!(weir(&["config", "show"]).stdout.contains("ours"));

    world.write("weir.toml", "data_dir = \"elsewhere\"\n");
    assert_eq!(weir(&["component", "ls"]).code, Some(4), "it changed");
    world.write("weir.toml", "data_dir = \"ours\\u001b[2J\"\n");
    assert_eq!(weir(&["component", "ls"]).code, Some(0), "this one was trusted");
    assert_eq!(weir(&["trust", "--forget"]).code, Some(0));
    assert_eq!(weir(&["component", "ls"]).code, Some(4));

    // The same content elsewhere is another file, and a link to a trusted one is not that one.
    assert_eq!(weir(&["trust", "--yes"]).code, Some(0));
    std::fs::create_dir(world.path("checkout")).expect("a folder");
    symlink(world.path("weir.toml"), world.path("checkout/weir.toml")).expect("a link");
    let linked = run(world.command(&["component", "ls"]).env_remove("WEIR_DATA_DIR").current_dir(world.path("checkout")));
    assert_eq!(linked.code, Some(4), "{linked:?}");
}

#[test]
fn s130_a_file_that_is_no_file_is_not_waited_for() {
    let world = World::new();
    for target in ["/dev/zero", "/dev/tty", "/proc/self/mem", "."] {
        symlink(target, world.path("weir.toml")).expect("a link");
        let message = world.bad(2, &["component", "ls"]);
        assert!(message.starts_with("error[E0026]: cannot read the configuration"), "{target}: {message}");
        std::fs::remove_file(world.path("weir.toml")).expect("removed");
    }
    world.write("weir.toml", "#".repeat(100_000));
    assert!(world.bad(2, &["component", "ls"]).contains("more than 64 KiB"));
}

#[test]
fn s130_a_checkout_gets_no_token_even_where_its_file_is_trusted() {
    let world = World::new();
    let token = Token::generate().expect("random bytes");
    let api = Api::new(Some(token.clone()));
    world.write("weir.toml", format!("coordinator = \"{}\"\n", api.address));
    let ask = || run(world.command(&["job", "ls"]).env("WEIR_TOKEN", token.secret()));
    let refused = ask();
    assert!(refused.code == Some(4) && refused.stderr.starts_with("error[E0070]"), "{refused:?}");
    world.good(&["trust", "--yes"]);
    let refused = ask();
    assert!(refused.code == Some(4) && refused.stderr.starts_with("error[E0071]"), "{refused:?}");
    assert!(refused.stderr.contains("environment WEIR_TOKEN") && !refused.stderr.contains(token.secret()), "{refused:?}");
    // One place for all of it is as good as the user's own.
    token.create(&world.path("token")).expect("a file");
    world.write("weir.toml", format!("coordinator = \"{}\"\ntoken_file = \"token\"\n", api.address));
    world.good(&["trust", "--yes"]);
    world.good(&["job", "ls"]);
    // The certificate authority decides who is talked to as the address does.
    world.write("weir.toml", "ca = \"theirs.pem\"\n");
    world.good(&["trust", "--yes"]);
    let mut command = world.command(&["job", "ls", "--coordinator", "https://127.0.0.1:1"]);
    let refused = run(command.env("WEIR_TOKEN", token.secret()));
    assert!(refused.stderr.starts_with("error[E0071]") && refused.stderr.contains("certificate authority"), "{refused:?}");
}

#[test]
fn s130_variables_leave_the_machine_by_name_only() {
    let world = World::new();
    let api = Api::new(None);
    world.write("job.toml", JOB.replace("rows = 10", "rows = \"${ROWS_OF_THE_TEST:-10}\"\n# ${NOT_A_VALUE}"));
    let address = api.address.to_string();
    let submit = |more: &[&str], set: bool| {
        let mut command = world.command(&[&["job", "submit", "job.toml", "--coordinator", &address], more].concat());
        if set {
            command.env("ROWS_OF_THE_TEST", "77");
        }
        run(&mut command)
    };
    let refused = submit(&[], true);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.starts_with("error[E0072]") && refused.stderr.contains("--env ROWS_OF_THE_TEST"), "{refused:?}");
    assert!(api.cluster.told().submissions.is_empty());
    assert_eq!(submit(&["--env", "OTHER"], true).code, Some(4));
    // What the folder's own file allows, only the folder has allowed.
    world.write("weir.toml", "env = [\"ROWS_OF_THE_TEST\"]\n");
    assert!(submit(&[], true).stderr.starts_with("error[E0070]"));
    std::fs::remove_file(world.path("weir.toml")).expect("removed");

    let named = submit(&["--env", "ROWS_OF_THE_TEST"], true);
    assert!(named.code == Some(0) && named.stderr.contains("with their values: ROWS_OF_THE_TEST"), "{named:?}");
    world.write("config/weir/weir.toml", "env = [\"ROWS_OF_THE_TEST\"]\n");
    assert_eq!(submit(&["--fresh"], true).code, Some(0));
    std::fs::remove_file(world.path("config/weir/weir.toml")).expect("removed");
    assert_eq!(submit(&["--fresh"], false).code, Some(0), "the default takes nothing along");
    let sent: Vec<_> = api.cluster.told().submissions.iter().map(|sent| sent.spec.environment.clone()).collect();
    assert_eq!(
        sent.iter().map(|sent| sent.get("ROWS_OF_THE_TEST").map(String::as_str)).collect::<Vec<_>>(),
        [Some("77"), Some("77"), None]
    );
}
