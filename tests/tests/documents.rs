//! Whole job files in README and guide are jobs that run: `weir job check` has nothing to say about them.

use std::path::{Path, PathBuf};

use weir_tests::World;

/// README and the pages of the guide.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let guide = std::fs::read_dir(root.join("docs/guide")).expect("the guide");
    let mut pages: Vec<PathBuf> = guide.map(|entry| entry.expect("a page").path()).collect();
    pages.push(root.join("README.md"));
    pages
}

/// Blocks of a page that are whole job files.
fn jobs(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page");
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("[job]\n") && block.contains("[[sink]]")).map(str::to_owned).collect()
}

#[test]
fn the_jobs_of_readme_and_guide_check_clean() {
    let world = World::new();
    let mut checked = 0;
    for page in pages() {
        for job in jobs(&page) {
            world.write("job.toml", &job);
            let done = world.finish(&mut world.weir(["job", "check", "job.toml"]));
            assert!(done.status.success(), "{}: {}", page.display(), done.stderr);
            assert!(!done.stderr.contains("warning"), "{}: {}", page.display(), done.stderr);
            checked += 1;
        }
    }
    assert!(checked >= 3, "{checked} jobs were found");
}
