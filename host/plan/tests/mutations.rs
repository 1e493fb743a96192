//! s135: whatever a job file, its flags and its variables hold, reading it ends with a job or with problems that can be shown.

mod components;

const SEEDS: [&str; 3] = [
    "[job]\nname = \"try\"\nparallelism = 2\nkey_groups = 64\n[job.checkpoint]\ninterval = \"1s\"\nmode = \"exactly-once\"\n\
     [[source]]\nid = \"a\"\nconnector = \"file\"\npath = \"${DIR:-in}/x\"\n\
     [[operator]]\nid = \"b\"\ncomponent = \"count@1.0.0\"\ninput = { from = \"a\", exchange = \"hash\" }\nconfig = { n = \"${N}\", k = [\"${K}\"] }\n\
     [[sink]]\nid = \"c\"\nconnector = \"blackhole\"\ninput = { from = [\"b\", \"dead_letter\"] }\n",
    "[job]\nname = \"x\"\n[[source]]\nid = \"s\"\nconnector = \"generator\"\n[[operator]]\nid = \"o\"\ncomponent = { path = \"join.wasm\" }\n\
     inputs = [{ from = \"s\", as = \"left\" }, { from = \"s\", exchange = \"broadcast\", as = \"right\" }]\nlimits = { memory = \"64MiB\" }\n\
     [[sink]]\nid = \"k\"\nconnector = \"stdout\"\ninput = \"o.main\"\n[[sink]]\nid = \"l\"\nconnector = \"stdout\"\ninput = \"o\"\n",
    "job = { name = \"$${A}é\", \"a.b\" = 1 }\nsource = [{ id = \"a\", x = '''\n${A}\n''' }]\n",
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// A text with some of its parts repeated, left out, put elsewhere or replaced.
fn mutated(seed: &str, random: &mut Random) -> String {
    const PARTS: [&str; 14] =
        ["${", "}", "${A:-", "[[", "]]", "\n", "\"", "'''", "=", ".", "99999999999999999999", "-1", "é\u{1b}\u{202e}", "\u{0}"];
    let mut characters: Vec<char> = seed.chars().collect();
    for _ in 0..=random.below(3) {
        let at = random.below(characters.len());
        let end = (at + random.below(12)).min(characters.len());
        let part: Vec<char> = match random.below(4) {
            0 => Vec::new(),
            1 => characters[at..end].iter().chain(&characters[at..end]).copied().collect(),
            2 => PARTS[random.below(PARTS.len())].chars().collect(),
            _ => characters[random.below(at + 1)..at].to_vec(),
        };
        characters.splice(at..end, part);
    }
    characters.into_iter().collect()
}

#[test]
fn s135_whatever_is_read_is_a_job_or_is_explained() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut jobs, mut refused) = (0, 0);
    for seed in SEEDS {
        let whole = weir_plan::load("job.toml", seed, &[], &|_| Some("7".to_owned()), &components::describe);
        assert!(whole.is_ok() || seed.starts_with("job ="), "{}", whole.err().unwrap_or_default());
        for _ in 0..3_000 {
            let text = mutated(seed, &mut random);
            let flags: Vec<(String, String)> = match random.below(3) {
                0 => vec![(mutated("source.a.path", &mut random), mutated("\"${DIR}\"", &mut random))],
                _ => Vec::new(),
            };
            let value = ["", "7", "\"]\n[job]", "${N}"][random.below(4)];
            let env = |name: &str| (name.len() < 3).then(|| value.to_owned());
            match weir_plan::load("job.toml", &text, &flags, &env, &components::describe) {
                Ok(job) => {
                    jobs += 1;
                    let topology = weir_plan::Topology::new(&job);
                    assert!(topology.tasks() > 0 && !job.to_text().is_empty() && !job.to_dot().is_empty());
                }
                Err(problems) => {
                    refused += 1;
                    let shown = problems.to_string();
                    assert!(!problems.is_empty() && shown.starts_with("error[E000"), "{shown}");
                }
            }
        }
    }
    assert!(jobs > 100 && refused > 1_000, "{jobs} jobs, {refused} refused: enough of both");
}
