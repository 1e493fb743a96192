//! s135: whatever a job file and what is given along with it hold, reading it takes little memory. One test in a process of its own, as
//! it measures the process.

use std::fs;

/// What a job may cost while it is read.
const MEMORY_BYTES_MAX: usize = 16 << 20;

fn job(value: &str) -> String {
    format!(
        "[job]\nname = \"try\"\n\n[[source]]\nid = \"a\"\nconnector = \"generator\"\nx = {value}\n\n\
         [[sink]]\nid = \"b\"\nconnector = \"blackhole\"\ninput = \"a\"\n"
    )
}

type Flags = Vec<(String, String)>;

/// Bytes of memory the process has had at most since the count was last begun anew, beyond what it had then.
fn peak(work: impl FnOnce()) -> usize {
    let field = |name: &str| {
        let status = fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find(|line| line.starts_with(name)).expect("the field");
        line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok()).expect("a number") << 10
    };
    fs::write("/proc/self/clear_refs", "5").expect("the count is begun anew");
    let before = field("VmRSS:");
    work();
    field("VmHWM:").saturating_sub(before)
}

#[test]
fn s135_no_job_file_takes_more_than_16_mib() {
    let long = "v".repeat(100_000);
    let env = |name: &str| (name == "V").then(|| long.clone());
    let kib = 1024;
    let cases: Vec<(&str, String, Flags)> = vec![
        ("one string of many variables", job(&format!("\"{}\"", "${V}".repeat(2 * kib))), vec![]),
        ("many strings of one variable", job(&format!("[{}]", "\"${V}\",".repeat(kib))), vec![]),
        ("many defaults", job(&format!("\"{}\"", "${W:-${V}".repeat(kib))), vec![]),
        ("a file of many mistakes on one line", job(&format!("[{}]", "\"${W}\",".repeat(8 * kib))), vec![]),
        ("a dense file", job(&format!("[{}]", "1,".repeat(30 * kib))), vec![]),
        ("a deep file", job(&format!("{}{}", "[".repeat(25 * kib), "]".repeat(25 * kib))), vec![]),
        ("a deep key", format!("{}z.{} = 1\n", job("1"), "a.".repeat(25 * kib) + "a"), vec![]),
        ("a large file", job(&format!("[{}]", "1,".repeat(400 * kib))), vec![]),
        ("many vertices", "[[sink]]\n".repeat(6 * kib), vec![]),
        ("a deep flag", job("1"), vec![(format!("source.a.{}x", "y.".repeat(200 * kib)), "1".to_owned())]),
        ("many flags", job("1"), (0..50_000).map(|index| (format!("source.a.k{index}"), "1".to_owned())).collect()),
        ("a long flag", job("1"), vec![("source.a.x".to_owned(), "${V}".repeat(2 * kib))]),
        ("a dense flag", job("1"), vec![("source.a.x".to_owned(), format!("[{}]", "1,".repeat(400 * kib)))]),
    ];
    for (name, text, flags) in cases {
        let mut read = None;
        let bytes = peak(|| read = Some(weir_plan::load("job.toml", &text, &flags, &env, &weir_plan::plain)));
        let problems = read.expect("it was read").err();
        assert!(problems.is_some() || ["a dense file", "many defaults"].contains(&name), "{name} is refused");
        let told: usize = problems.iter().flat_map(|problems| problems.iter()).map(|problem| problem.to_string().len()).sum();
        assert!(told < 256 * kib, "{name}: {told} bytes of messages");
        assert!(bytes < MEMORY_BYTES_MAX, "{name}: {} KiB", bytes >> 10);
    }
}
