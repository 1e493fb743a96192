//! What the binary says about itself: help, pages about errors, man pages, completions.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use support::World;

#[test]
fn an_errors_last_line_names_its_page_and_the_page_is_in_the_binary() {
    let world = World::new();
    world.write("job.toml", "[job]\nname = \"x\"\nparalelism = 2\n");
    let message = world.bad(2, &["run", "job.toml"]);
    assert!(message.contains("error[E0002]"), "{message}");
    assert_eq!(message.trim_end().lines().last(), Some("`weir explain E0002 E0004` says more"), "{message}");
    let message = world.bad(2, &["component", "show", "count@1.0.0"]);
    assert_eq!(message.trim_end().lines().last(), Some("`weir explain E0020` says more"), "{message}");
    let page = include_str!("../../../docs/errors/E0002.md");
    assert_eq!(world.good(&["explain", "E0002"]), page, "where nobody reads it on a terminal, it is the page as it is");
    assert_eq!(world.good(&["explain", "2", "e0002"]), format!("{page}\n{page}"));
    let coloured = world.good(&["--color", "always", "explain", "E0002"]);
    assert!(coloured.starts_with("\u{1b}[1mE0002: Unknown key\u{1b}[0m\n"), "{coloured:?}");
    let all = world.good(&["explain"]);
    assert!(all.starts_with("E0001  ") && all.contains("\nE0034  The job failed\n"), "{all}");
    let message = world.bad(2, &["explain", "E0036"]);
    assert!(message.starts_with("error[E0029]: there is no error `E0036`") && message.contains("E0035"), "{message}");
}

#[test]
fn what_needs_no_configuration_works_with_a_broken_one() {
    let world = World::new();
    for broken in ["data_dir = \"x\"\n", "data_dir = [", "color = \"pink\"\n", "log = \"=,=\"\n"] {
        world.write("weir.toml", broken);
        for (arguments, said) in [
            (&["explain", "E0070"][..], "# E0070"),
            (&["example", "ls"], "pageviews"),
            (&["completions", "bash"], "weir"),
            (&["component", "new", "my-op"], ""),
        ] {
            let done = support::run(world.command(arguments).env_remove("WEIR_DATA_DIR").env("HOME", world.folder()));
            assert!(done.code == Some(0) && done.stdout.contains(said), "{broken} {arguments:?}: {done:?}");
        }
        std::fs::remove_dir_all(world.path("my-op")).unwrap();
        let done = support::run(world.command(&["component", "ls"]).env_remove("WEIR_DATA_DIR").env("HOME", world.folder()));
        assert_ne!(done.code, Some(0), "what needs one says what is wrong with it: {done:?}");
    }
}

#[test]
fn every_command_has_help_by_both_ways() {
    let world = World::new();
    let by_flag = world.good(&["run", "--help"]);
    let by_command = world.good(&["help", "run"]);
    assert_eq!(by_command, by_flag);
    assert!(!by_flag.contains("until-end"), "{by_flag}");
    assert!(world.good(&["help", "job", "submit"]).contains("Usage: weir job submit"));
    assert!(!world.good(&["--help"]).contains("generate"), "it is for packages");
}

#[test]
fn man_pages_and_completions_of_all_commands_are_written_for_packages() {
    let world = World::new();
    world.good(&["generate", "man", "pages/man1"]);
    let man = |name: &str| std::fs::read_to_string(world.path("pages/man1").join(name)).unwrap();
    assert!(man("weir.1").contains(".TH weir 1") && man("weir.1").contains("weir\\-run(1)"), "{}", man("weir.1"));
    assert!(man("weir-job-submit.1").contains("\\-\\-fresh"), "{}", man("weir-job-submit.1"));
    assert!(!world.path("pages/man1/weir-generate.1").exists());
    world.good(&["generate", "completions", "completions"]);
    for (file, what) in [("weir.bash", "complete"), ("_weir", "#compdef weir"), ("weir.fish", "complete -c weir")] {
        let script = std::fs::read_to_string(world.path("completions").join(file)).unwrap();
        assert!(script.contains(what), "{file}");
    }
    world.write("file", "");
    let message = world.bad(1, &["generate", "man", "file/pages"]);
    assert!(message.starts_with("error[E0023]: cannot write to the folder file/pages: "), "{message}");
}
